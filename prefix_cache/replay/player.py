"""Plays conversations through a router and the nodes behind it, one turn after another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self

from prefix_cache.client import (
    Acquire,
    AcquiredSequence,
    Append,
    AsyncNodeClient,
    AsyncRouterClient,
    AsyncSession,
    Commit,
    Operation,
    Outcome,
    Release,
)
from prefix_cache.errors import DeadlineExceeded, PrefixCacheError, Unavailable
from prefix_cache.index import Identity
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.turns import Turn

_SEQUENCE = 1  # a session plays one sequence at a time


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """What one turn took: of ``prompt_tokens``, ``cached_tokens`` were there already."""

    conversation: str
    turn: int
    prompt_tokens: int
    cached_tokens: int
    node: str

    @property
    def prefilled_tokens(self) -> int:
        """Tokens of the prompt that had to be computed."""
        return self.prompt_tokens - self.cached_tokens


@dataclass(frozen=True, slots=True)
class UnservedTurn:
    """A turn that no node could serve, and why."""

    conversation: str
    turn: int
    prompt_tokens: int
    error: str


@dataclass
class Play:
    """What came of playing conversations.

    ``retried_turns`` were begun again on another node because theirs failed.  ``lost_tokens``
    are those that conversations had committed at nodes when these failed, as the router saw it.
    """

    turns: list[PlayedTurn] = field(default_factory=list)
    not_served: list[UnservedTurn] = field(default_factory=list)
    retried_turns: int = 0
    lost_tokens: int = 0


def joined(plays: Iterable[Play]) -> Play:
    """One play of all turns of several."""
    whole = Play()
    for play in plays:
        whole.turns += play.turns
        whole.not_served += play.not_served
        whole.retried_turns += play.retried_turns
        whole.lost_tokens += play.lost_tokens
    return whole


class Player:
    """Plays turns as an engine would, through one router, with one session per node.

    Without ``reuse`` every turn has a salt of its own, so that nothing cached can serve it.
    Use it as an async context manager.
    """

    def __init__(self, router: AsyncRouterClient, *, reuse: bool = True) -> None:
        self._router = router
        self._reuse = reuse
        self._salts = itertools.count(1)
        self._sessions: dict[str, tuple[AsyncSession, AsyncExitStack]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        for address in list(self._sessions):
            await self._close(address)

    async def play(self, turns: Iterable[Turn], on_turn: Callable[[], None]) -> Play:
        """Play all turns, one after another; ``on_turn`` is called after each.

        A turn whose node fails is begun again on another one.  A turn that a node refuses, for
        example because its prompt exceeds the pool, is not served, and the play goes on.
        Raises NoNodeAvailable when no node is left, Unavailable when the router is gone.
        """
        play = Play()
        lost_before = await self._lost_tokens()
        for turn in turns:
            await self._play_turn(turn, play)
            on_turn()
        play.lost_tokens = await self._lost_tokens() - lost_before
        return play

    async def _lost_tokens(self) -> int:
        _, nodes = await self._router.list_nodes()
        return sum(node.lost_tokens for node in nodes)

    async def _play_turn(self, turn: Turn, play: Play) -> None:
        salt = "" if self._reuse else str(next(self._salts))
        identity = Identity(model="demo", salt=salt)
        prompt_tokens = len(turn.prompt) // TOKEN_BYTES
        failed: list[str] = []
        while True:
            route = await self._router.route(turn.conversation, prompt_tokens, exclude=failed)
            try:
                cached_tokens = await self._serve(route.address, identity, turn)
            except (Unavailable, DeadlineExceeded):
                await self._router.report(route.route_id, Outcome.NODE_FAILED)
                if not failed:
                    play.retried_turns += 1
                failed.append(route.node)
            except PrefixCacheError as error:
                await self._router.report(route.route_id, Outcome.NOT_SERVED)
                play.not_served.append(
                    UnservedTurn(turn.conversation, turn.number, prompt_tokens, str(error))
                )
                return
            else:
                break
        await self._router.report(
            route.route_id,
            Outcome.OK,
            cached_tokens=cached_tokens,
            committed_tokens=prompt_tokens + len(turn.answer) // TOKEN_BYTES,
        )
        play.turns.append(
            PlayedTurn(turn.conversation, turn.number, prompt_tokens, cached_tokens, route.node)
        )

    async def _serve(self, address: str, identity: Identity, turn: Turn) -> int:
        """Play the turn on one node; return how many tokens of its prompt were cached.

        An engine would compute between these operations; nothing is computed here, so that all
        of them fit into one step.
        """
        prompt_tokens = len(turn.prompt) // TOKEN_BYTES
        all_tokens = prompt_tokens + len(turn.answer) // TOKEN_BYTES
        operations: list[Operation] = [
            Acquire(_SEQUENCE, identity, turn.prompt),
            Commit(_SEQUENCE, prompt_tokens),
        ]
        if turn.answer:
            operations += [Append(_SEQUENCE, turn.answer), Commit(_SEQUENCE, all_tokens)]
        operations.append(Release(_SEQUENCE))
        session = await self._session(address)
        try:
            results = await session.step(operations)
        except PrefixCacheError:
            # What fails a step as a whole ends its session; the next turn opens another.
            await self._close(address)
            raise
        for result in results:
            if isinstance(result, PrefixCacheError):
                raise result
        acquired = results[0]
        assert isinstance(acquired, AcquiredSequence)
        return acquired.num_cached_tokens

    async def _session(self, address: str) -> AsyncSession:
        if address not in self._sessions:
            async with AsyncExitStack() as stack:
                client = await stack.enter_async_context(AsyncNodeClient(address))
                session = await stack.enter_async_context(client.session())
                self._sessions[address] = session, stack.pop_all()
        return self._sessions[address][0]

    async def _close(self, address: str) -> None:
        if address in self._sessions:
            _, stack = self._sessions.pop(address)
            await stack.aclose()
