"""Append-only conversations that send what is new, and all of it only where that is needed."""

from __future__ import annotations

from collections.abc import Iterable

from prefix_cache.client.async_node import AsyncNodeClient
from prefix_cache.client.history import History, Steps, Value
from prefix_cache.client.node import NodeClient
from prefix_cache.client.operations import Acquire, Append, Commit, Release, Result
from prefix_cache.client.results import AcquiredSequence, Appended, Committed
from prefix_cache.client.session import AsyncSession, Session
from prefix_cache.errors import PrefixCacheError
from prefix_cache.index.extra_keys import ExtraKey
from prefix_cache.index.identity import Identity
from prefix_cache.index.tokens import Tokens


class Conversation:
    """An append-only conversation at a node, by unary calls or in a session.

    Each ``turn`` opens a sequence for all tokens so far and the new ones.  Where the node knows
    the prefix that was committed before, only what follows it is sent; where it does not any
    more, after a restart or an eviction, all is sent.  In a session the sequence has the number
    ``sequence_id``, which must be this conversation's own.
    """

    def __init__(
        self, node: NodeClient | Session, identity: Identity, *, sequence_id: int = 0
    ) -> None:
        self._node = node
        self._history = History(identity, sequence_id)

    @property
    def num_tokens(self) -> int:
        """Tokens of the conversation so far."""
        return self._history.num_tokens

    def turn(self, new_tokens: Tokens, extra_keys: Iterable[ExtraKey] = ()) -> AcquiredSequence:
        """Open the next turn, ending the one before; a turn may add no tokens.

        ``extra_keys`` are new ones, over positions of the whole conversation.  Raises what
        ``NodeClient.acquire`` raises but for ``UnknownPrefix``.  Who makes its ``copies``
        acknowledges them where the conversation is, at the node or in the session.
        """
        return self._run(self._history.turn(new_tokens, extra_keys))

    def append(self, tokens: Tokens) -> Appended:
        """Add tokens to the turn.  Raises ``UnknownSequence`` when it has ended."""
        return self._run(self._history.append(tokens))

    def commit(self, num_tokens: int | None = None) -> Committed:
        """Say that the KV of so many leading tokens of the conversation is written; None: all."""
        return self._run(self._history.commit(num_tokens))

    def release(self) -> None:
        """End the turn; nothing happens where none is open."""
        self._run(self._history.release())

    def move_to(self, node: NodeClient | Session) -> None:
        """Go on at another node or in another session, with the next turn."""
        self._node = node
        self._history.leave()

    def _run(self, steps: Steps[Value]) -> Value:
        try:
            operation = next(steps)
            while True:
                try:
                    result = self._carry_out(operation)
                except PrefixCacheError as error:
                    operation = steps.throw(error)
                else:
                    operation = steps.send(result)
        except StopIteration as done:
            value: Value = done.value
            return value

    def _carry_out(self, operation: Acquire | Append | Commit | Release) -> object:
        node = self._node
        if isinstance(node, Session):
            return _succeeded(node.step([operation]))
        match operation:
            case Acquire(_, identity, tokens, extra_keys, after):
                return node.acquire(identity, tokens, extra_keys, after=after)
            case Append(number, tokens):
                return node.append(number, tokens)
            case Commit(number, num_tokens):
                return node.commit(number, num_tokens)
            case Release(number):
                node.release(number)
                return None


class AsyncConversation:
    """An append-only conversation at a node, by unary calls or in a session.

    Each ``turn`` opens a sequence for all tokens so far and the new ones.  Where the node knows
    the prefix that was committed before, only what follows it is sent; where it does not any
    more, after a restart or an eviction, all is sent.  In a session the sequence has the number
    ``sequence_id``, which must be this conversation's own.
    """

    def __init__(
        self, node: AsyncNodeClient | AsyncSession, identity: Identity, *, sequence_id: int = 0
    ) -> None:
        self._node = node
        self._history = History(identity, sequence_id)

    @property
    def num_tokens(self) -> int:
        """Tokens of the conversation so far."""
        return self._history.num_tokens

    async def turn(
        self, new_tokens: Tokens, extra_keys: Iterable[ExtraKey] = ()
    ) -> AcquiredSequence:
        """Open the next turn, ending the one before; a turn may add no tokens.

        ``extra_keys`` are new ones, over positions of the whole conversation.  Raises what
        ``AsyncNodeClient.acquire`` raises but for ``UnknownPrefix``.  Who makes its ``copies``
        acknowledges them where the conversation is, at the node or in the session.
        """
        return await self._run(self._history.turn(new_tokens, extra_keys))

    async def append(self, tokens: Tokens) -> Appended:
        """Add tokens to the turn.  Raises ``UnknownSequence`` when it has ended."""
        return await self._run(self._history.append(tokens))

    async def commit(self, num_tokens: int | None = None) -> Committed:
        """Say that the KV of so many leading tokens of the conversation is written; None: all."""
        return await self._run(self._history.commit(num_tokens))

    async def release(self) -> None:
        """End the turn; nothing happens where none is open."""
        await self._run(self._history.release())

    def move_to(self, node: AsyncNodeClient | AsyncSession) -> None:
        """Go on at another node or in another session, with the next turn."""
        self._node = node
        self._history.leave()

    async def _run(self, steps: Steps[Value]) -> Value:
        try:
            operation = next(steps)
            while True:
                try:
                    result = await self._carry_out(operation)
                except PrefixCacheError as error:
                    operation = steps.throw(error)
                else:
                    operation = steps.send(result)
        except StopIteration as done:
            value: Value = done.value
            return value

    async def _carry_out(self, operation: Acquire | Append | Commit | Release) -> object:
        node = self._node
        if isinstance(node, AsyncSession):
            return _succeeded(await node.step([operation]))
        match operation:
            case Acquire(_, identity, tokens, extra_keys, after):
                return await node.acquire(identity, tokens, extra_keys, after=after)
            case Append(number, tokens):
                return await node.append(number, tokens)
            case Commit(number, num_tokens):
                return await node.commit(number, num_tokens)
            case Release(number):
                await node.release(number)
                return None


def _succeeded(results: list[Result]) -> Result:
    """The only result of a step; raised where it is an error."""
    (result,) = results
    if isinstance(result, PrefixCacheError):
        raise result
    return result
