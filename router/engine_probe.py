"""Asks an engine over HTTP whether it serves, and which models."""

from __future__ import annotations

import errno

import aiohttp
import msgspec

from prefix_cache.errors import EngineEnded, Unavailable


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class EngineProbe:
    """Probes the engine at ``url`` by ``/health`` and ``/v1/models``."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def models(self) -> frozenset[str]:
        """Return the models it says it serves; empty where it says none.

        Raises EngineEnded where its port is closed, and Unavailable for an engine that does not
        answer in time or says that it is not well.
        One that knows no ``/health`` is well when it answers.
        """
        status, _ = await self._get("/health")
        if status >= 400 and status != 404:
            raise Unavailable(f"{self._url}/health answered {status}", url=self._url)
        status, body = await self._get("/v1/models")
        if status != 200:
            return frozenset()
        try:
            return frozenset(model.id for model in msgspec.json.decode(body, type=_Models).data)
        except msgspec.DecodeError:
            return frozenset()

    async def _get(self, path: str) -> tuple[int, bytes]:
        try:
            async with self._session.get(self._url + path) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            is_closed = isinstance(error, OSError) and error.errno == errno.ECONNREFUSED
            raise (EngineEnded if is_closed else Unavailable)(
                f"{self._url}{path}: {error or type(error).__name__}", url=self._url
            ) from error
