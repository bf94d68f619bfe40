"""An answer of the router itself that has to wait for others."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from router.http.answers import Answer, internal_error_answer, router_ends_answer

if TYPE_CHECKING:
    from router.http.client_connection import ClientConnection

_log = logging.getLogger(__name__)


class PendingAnswer:
    """Answers ``client`` with what ``find`` comes back with, soon and without a deadline."""

    def __init__(self, client: ClientConnection, find: Callable[[], Awaitable[Answer]]) -> None:
        self._client = client
        self._task = asyncio.get_running_loop().create_task(self._answer(find))
        self._task.add_done_callback(self._done)

    async def _answer(self, find: Callable[[], Awaitable[Answer]]) -> None:
        try:
            answer = await find()
        except Exception:
            _log.exception("internal error")
            self._give_up(internal_error_answer())
        else:
            self._client.answer(answer)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("internal error", exc_info=error)
            self._client.abort()

    def _give_up(self, answer: Answer) -> None:
        self._client.close_when_finished()
        self._client.answer(answer)

    def client_gone(self) -> None:
        """Nobody waits for it any more."""
        self._task.cancel()

    def cut_off(self) -> None:
        """The router has to end."""
        self._task.cancel()
        self._give_up(router_ends_answer())

    def expired(self) -> None:
        """No deadline was set: others answer soon or not at all."""

    def pause(self) -> None:
        """The answer is one piece."""

    def resume(self) -> None:
        """The answer is one piece."""
