"""Synchronous clients behind the asynchronous interface, so that one suite tests both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

from prefix_cache.client import Session


class InThread:
    """Calls the methods of a synchronous client in a thread; its sessions likewise."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        async def call(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(method, *arguments, **named)

        return call

    def session(self, **named: Any) -> SessionInThread:
        return SessionInThread(self._client.session(**named))

    async def __aenter__(self) -> Self:
        self._client.__enter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.to_thread(self._client.__exit__, *exc)


class SessionInThread:
    """A synchronous session, each step in a thread."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    async def step(self, operations: Any) -> Any:
        return await asyncio.to_thread(self.session.step, operations)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.session.__enter__)
        return self

    async def __aexit__(self, *exc: Any) -> None:
        await asyncio.to_thread(self.session.__exit__, *exc)
