"""What a conversation asks of a node, turn by turn, apart from how it travels."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from prefix_cache.client.operations import Acquire, Append, Commit, Release
from prefix_cache.client.requests import first_position
from prefix_cache.client.results import AcquiredSequence, Appended, Committed
from prefix_cache.errors import PrefixCacheError, UnknownPrefix, UnknownSequence, WorkerRestarted
from prefix_cache.index.extra_keys import ExtraKey
from prefix_cache.index.identity import Identity
from prefix_cache.index.results import Prefix
from prefix_cache.index.tokens import TOKEN_BYTES, Tokens, as_token_bytes

Value = TypeVar("Value")

# Yields operations on one sequence, is sent their results, and returns the value of the call.
Steps = Generator[Acquire | Append | Commit | Release, Any, Value]


class History:
    """The tokens of a conversation so far, and what is asked of a node to go on from them.

    It does no I/O: each call yields the operations to carry out.  Tokens join when the node has
    said that it has them; a failed call changes nothing.
    """

    def __init__(self, identity: Identity, sequence_id: int) -> None:
        self._identity = identity
        self._sequence_id = sequence_id
        self._tokens = bytearray()
        self._extra_keys: tuple[ExtraKey, ...] = ()
        self._prefix: Prefix | None = None
        self._open: int | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens of the conversation so far."""
        return len(self._tokens) // TOKEN_BYTES

    def turn(self, new_tokens: Tokens, extra_keys: Iterable[ExtraKey]) -> Steps[AcquiredSequence]:
        """Open the next turn, ending the one before."""
        new = as_token_bytes(new_tokens)
        new_keys = tuple(extra_keys)
        keys = self._extra_keys + new_keys
        yield from self.release()
        if self._prefix and self._prefix.num_tokens > first_position(new_keys):
            # The node takes a prefix as it was committed, without these keys.
            self._prefix = None
        # In a session it may be open although the answer gets lost.
        self._open = self._sequence_id
        try:
            acquired = yield from self._acquire(new, keys)
        except PrefixCacheError:
            self._open = None
            raise
        self._open = acquired.id
        self._tokens += new
        self._extra_keys = keys
        return acquired

    def _acquire(self, new: bytes, keys: tuple[ExtraKey, ...]) -> Steps[AcquiredSequence]:
        prefix = self._prefix
        delta = bytes(self._tokens[prefix.num_tokens * TOKEN_BYTES :]) + new if prefix else b""
        acquired: AcquiredSequence
        if delta:
            with suppress(UnknownPrefix):
                acquired = yield Acquire(self._sequence_id, self._identity, delta, keys, prefix)
                return acquired
        tokens = bytes(self._tokens) + new
        acquired = yield Acquire(self._sequence_id, self._identity, tokens, keys)
        return acquired

    def append(self, tokens: Tokens) -> Steps[Appended]:
        """Add tokens to the turn."""
        new = as_token_bytes(tokens)
        appended: Appended = yield Append(self._require_open(), new)
        if appended.num_tokens != self.num_tokens + len(new) // TOKEN_BYTES:
            yield from self.release()
            raise UnknownSequence(
                f"the node has {appended.num_tokens} tokens of the turn, expected "
                f"{self.num_tokens + len(new) // TOKEN_BYTES}: an append whose answer was lost "
                "has been carried out; the turn has ended, open it again",
                num_tokens=appended.num_tokens,
            )
        self._tokens += new
        return appended

    def commit(self, num_tokens: int | None) -> Steps[Committed]:
        """Say that KV is written; None: all of it."""
        number = self._require_open()
        committed: Committed = yield Commit(
            number, self.num_tokens if num_tokens is None else num_tokens
        )
        self._prefix = committed.prefix
        return committed

    def release(self) -> Steps[None]:
        """End the turn, where one is open."""
        number, self._open = self._open, None
        if number is not None:
            # It may have ended with its lease, its session, its worker or its node.
            with suppress(UnknownSequence, WorkerRestarted):
                yield Release(number)

    def leave(self) -> None:
        """Take note that the turn, where one is open, is left to end where it is."""
        self._open = None

    def _require_open(self) -> int:
        if self._open is None:
            raise UnknownSequence("no turn of this conversation is open")
        return self._open
