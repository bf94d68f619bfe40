"""The engine's session with its cache, opened anew when it breaks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack

from prefix_cache.client import CacheSession
from prefix_cache.errors import (
    IdentityMismatch,
    PrefixCacheError,
    WorkerReplaced,
    WorkerRestarted,
)
from prefix_cache.kv.pool import KVPool

_LOG = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0

SessionFactory = Callable[[], AbstractContextManager[CacheSession]]


class CacheLink:
    """Opens sessions with ``open_session``, one after the other, for the blocks of ``pool``.

    The pauses between attempts to open another one grow from 0.05 s to 2 s.  ``down_since`` is
    when the last session broke, in seconds of ``time.monotonic``; None while one is open.
    Once the cache is another worker's, no session is opened any more: ``WorkerReplaced``.
    """

    def __init__(self, open_session: SessionFactory, pool: KVPool) -> None:
        self._open_session = open_session
        self._pool = pool
        self._closing = ExitStack()
        self._session: CacheSession | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._retry_at = 0.0
        self._replaced_by: WorkerRestarted | None = None
        self.down_since: float | None = None

    def replaced(self) -> WorkerReplaced | None:
        """Return an error that says so once another worker has taken the cache over."""
        by = self._replaced_by
        if by is None:
            return None
        return WorkerReplaced(f"this worker was replaced: {by}", **by.details)

    def check_not_replaced(self) -> None:
        """Raise what ``replaced`` returns."""
        error = self.replaced()
        if error is not None:
            raise error

    def look(self) -> None:
        """Raise what has become of the open session, if there is one."""
        if self._session is not None:
            self._session.step([])

    def open(self) -> CacheSession:
        """Return the open session; open one if there is none.

        Waits until it is time for another attempt, 2 s at the most.  Raises what the attempt
        fails with, IdentityMismatch for a cache of other blocks than the pool's, and
        WorkerReplaced.
        """
        self.check_not_replaced()
        if self._session is not None:
            return self._session
        time.sleep(max(0.0, self._retry_at - time.monotonic()))
        with ExitStack() as opening:
            session = opening.enter_context(self._open_session())
            self._check(session)
            self._closing = opening.pop_all()
        self._session = session
        self.down_since = None
        self._pause_s = _FIRST_PAUSE_S
        return session

    def broke(self, error: PrefixCacheError) -> None:
        """Opening a session failed, or something in it: close it; its sequences are gone."""
        self.close()
        if isinstance(error, WorkerRestarted):
            _LOG.error("another worker has taken the cache over, this one ends its work: %s", error)
            self._replaced_by = error
            return
        _LOG.warning("the session with the cache broke: %s", error)
        now = time.monotonic()
        if self.down_since is None:
            self.down_since = now
        self._retry_at = now + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def close(self) -> None:
        """Close the session."""
        self._session = None
        self._closing.close()

    def _check(self, session: CacheSession) -> None:
        pool = self._pool
        if session.block_size != pool.layout.block_size:
            raise IdentityMismatch(
                f"the cache has blocks of {session.block_size} tokens, "
                f"the KV memory of {pool.layout.block_size}",
                block_size=session.block_size,
            )
        for name in ("num_blocks", "host_blocks"):
            theirs, ours = getattr(session, name), getattr(pool, name)
            if theirs > ours:
                raise IdentityMismatch(
                    f"the cache counts on {theirs} {name}, the KV memory has {ours}",
                    **{name: theirs},
                )
