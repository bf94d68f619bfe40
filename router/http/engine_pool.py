"""Connections to engines that are kept alive between requests."""

from __future__ import annotations

import asyncio
from collections import deque
from urllib.parse import urlsplit

from router.http.engine_connection import EngineConnection
from router.http.outbox import Outbox

# Below what engines and what stands between keep an idle connection.
_IDLE_S = 30.0


class EnginePool:
    """Idle connections by the URL of their engine, the one used last first.

    One unused for 30 s is closed, so those of engines that are gone go too.
    """

    def __init__(self, outbox: Outbox, *, max_head_bytes: int) -> None:
        self.outbox = outbox
        self.max_head_bytes = max_head_bytes
        self._idle: dict[str, deque[EngineConnection]] = {}
        self.loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def take(self, url: str) -> EngineConnection | None:
        """Return an idle connection, if there is one."""
        idle = self._idle.get(url)
        while idle:
            connection = idle.pop()
            if not connection.is_closing:
                return connection
        return None

    async def connect(self, url: str) -> EngineConnection:
        """Return a new connection.  Raises OSError."""
        host, _, port = urlsplit(url).netloc.rpartition(":")
        connection = EngineConnection(self, url)
        try:
            await self.loop.create_connection(lambda: connection, host.strip("[]"), int(port))
        except asyncio.CancelledError:
            connection.cancel()  # it may have been made just before
            raise
        return connection

    def give_back(self, connection: EngineConnection) -> None:
        """Keep a connection that no request uses."""
        connection.idle_since = self.loop.time()
        idle = self._idle.get(connection.url)
        if idle is None:
            idle = self._idle[connection.url] = deque()
        idle.append(connection)
        if self._timer is None:
            self._timer = self.loop.call_later(_IDLE_S, self._close_unused)

    def forget(self, connection: EngineConnection) -> None:
        """Drop a connection that is lost."""
        idle = self._idle.get(connection.url)
        if idle and connection in idle:
            idle.remove(connection)

    def close(self) -> None:
        """Close all that is idle."""
        if self._timer is not None:
            self._timer.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()

    def _close_unused(self) -> None:
        self._timer = None
        oldest_kept = self.loop.time() - _IDLE_S
        for url, idle in list(self._idle.items()):
            while idle and idle[0].idle_since <= oldest_kept:
                idle.popleft().close()
            if not idle:
                del self._idle[url]
        if self._idle:
            self._timer = self.loop.call_later(_IDLE_S, self._close_unused)
