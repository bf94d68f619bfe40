"""Routing policies: what each node would cost a turn.  The lowest sum wins.

A policy changes nothing by being asked; `RandomChoice` draws from its generator.  Costs are in
tokens to prefill where a policy weighs several things; what each part is called stands in
``terms``, for whoever wants a decision explained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Protocol

import xxhash

from router.nodes import Node
from router.turn import Turn

if TYPE_CHECKING:
    from router.config import PoolConfig

Cost = tuple[float, ...]

# Found by replaying a trace of real chats with caches, fleets and speeds of several sizes.  Near
# these values hit rate and time to the first token change by about a hundredth.
_LONG_QUEUE = 500_000
"""Queued tokens of which each weighs 1 for a turn whose conversation has a home."""
_RECENT = 32_768
"""Tokens that a node's recent prefill counts as when it is the mean, or less while that is low."""
_RUNNING_AT_HOME, _RUNNING_NEW = 2, 256
"""Tokens that a turn in flight counts as, with and without a home."""
_AWAY = 64
"""Tokens that leaving home costs beyond what claims tell."""
_NEVER = 1e12
"""More than any sum of the others."""


class Candidate:
    """A node that can take the turn, and what of the prompt it is claimed to hold."""

    __slots__ = ("cached_tokens", "is_home", "node", "rests_on_pin")

    def __init__(
        self, node: Node, cached_tokens: int, is_home: bool, rests_on_pin: bool = False
    ) -> None:
        self.node = node
        self.cached_tokens = cached_tokens
        """Tokens of the prompt claimed to be cached there."""
        self.is_home = is_home
        """Whether the turn's conversation is pinned to this life of the node."""
        self.rests_on_pin = rests_on_pin
        """Whether that is claimed of the tokens because another router wrote a pin."""


class Policy(Protocol):
    """Says what each candidate would cost."""

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the parts of a cost."""

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """One cost per candidate, each of ``len(terms)`` parts.  ``now`` is in seconds.

        Equal sums are told apart by ``rendezvous_score``, not by the order of the candidates.
        """


class Sticky:
    """Where the least has to be computed, unless the wait there is long.

    A cost is the sum of these parts, in tokens to prefill:

    - uncached: the turn's tokens that the node is not claimed to hold;
    - queued: tokens that wait for prefill there.  For a conversation with a home they weigh
      little, but the more the more of them there are: a short wait is soon over, while what is
      computed twice makes others wait too, and is cached twice;
    - recent: for a conversation without a home, the share of recent prefill that the node had.
      It spreads conversations over nodes of which none has to wait, where a shared system prompt
      would herd them on one, and with them what is evicted;
    - running: turns in flight there, each at a fixed amount for what it slows the answer, which
      is little reason to leave a home;
    - away: for a conversation with a home, what leaving it costs beyond what claims tell: the end
      of its last answer, and all of a prompt that is unhashable.  With ``hard`` it is never
      worth it;
    - overload: with ``max_load_factor``, no node is chosen whose prompt tokens in flight would
      be more than that many times the mean, while another's would not.
    """

    terms = ("uncached", "queued", "recent", "running", "away", "overload")

    def __init__(self, *, hard: bool = False, max_load_factor: float = 0.0) -> None:
        self._hard = hard
        self._max_load_factor = max_load_factor

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """Weigh what is cached against load."""
        prompt_tokens = turn.prompt.num_tokens
        nodes = [candidate.node for candidate in candidates]
        queued: list[float] = [node.prefill_left(now) for node in nodes]
        if True in [candidate.is_home for candidate in candidates]:
            queued = [tokens * tokens / _LONG_QUEUE for tokens in queued]
            recent = [0.0] * len(nodes)
            running = _RUNNING_AT_HOME
            away = self._cost_of_leaving(turn)
        else:
            recent = _recent(nodes, now)
            running = _RUNNING_NEW
            away = 0.0
        most_in_flight = self._most_in_flight(prompt_tokens, nodes)
        return [
            (
                prompt_tokens - candidate.cached_tokens,
                queued_tokens,
                recent_tokens,
                running * _in_flight(node),
                0.0 if candidate.is_home else away,
                _NEVER if node.in_flight_tokens > most_in_flight else 0.0,
            )
            for candidate, node, queued_tokens, recent_tokens in zip(
                candidates, nodes, queued, recent, strict=True
            )
        ]

    def _cost_of_leaving(self, turn: Turn) -> float:
        if self._hard:
            return 2 * _NEVER
        return _AWAY if turn.prompt.is_hashable else _AWAY + turn.prompt.num_tokens

    def _most_in_flight(self, prompt_tokens: int, nodes: Sequence[Node]) -> float:
        """Most prompt tokens in flight at a node that can take so many more."""
        if not self._max_load_factor:
            return math.inf
        mean = (sum(node.in_flight_tokens for node in nodes) + prompt_tokens) / len(nodes)
        return self._max_load_factor * mean - prompt_tokens


def _recent(nodes: Sequence[Node], now: float) -> list[float]:
    tokens = [node.recent_prefill.value(now) for node in nodes]
    scale = _RECENT / (_RECENT + sum(tokens) / len(tokens))
    return [scale * amount for amount in tokens]


def _in_flight(node: Node) -> int:
    """Turns in flight at a node, those of other routers included where it has said so."""
    routed, reported = node.in_flight, node.reported_running
    return routed if routed > reported else reported


class LongestPrefix:
    """The node that is claimed to hold the most of the prompt; among equals, the fewest turns.

    It knows no limit: a prefix that all prompts share sends them all to one node.
    """

    terms = ("uncached", "in_flight")

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """Uncached tokens, and turns in flight as a part of one token."""
        return [
            (
                turn.prompt.num_tokens - candidate.cached_tokens,
                candidate.node.in_flight / (1 + candidate.node.in_flight),
            )
            for candidate in candidates
        ]


class LeastLoad:
    """The fewest prompt tokens in flight, whatever is cached."""

    terms = ("in_flight_tokens", "in_flight")

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """Prompt tokens of the turns in flight, and one more for each turn."""
        return [
            (candidate.node.in_flight_tokens, float(_in_flight(candidate.node)))
            for candidate in candidates
        ]


class RoundRobin:
    """One node after the other, whatever the conversation."""

    terms = ("turns_away",)

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """How many turns each candidate has to wait for its own."""
        count = len(candidates)
        return [((index - turn.number) % count,) for index in range(count)]


class RandomChoice:
    """Any node, with equal chances."""

    terms = ("drawn",)

    def __init__(self, random: Random) -> None:
        self._random = random

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """A number drawn for each candidate."""
        return [(self._random.random(),) for _ in candidates]


class RendezvousHash:
    """The highest `rendezvous_score`: needs no memory, and survives a restart of the router.

    Of N nodes, one more takes about 1/(N+1) of the conversations, and one less moves only its
    own.
    """

    terms = ()

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """All the same: the tie decides."""
        return [() for _ in candidates]


def rendezvous_score(digest: bytes, node: Node) -> int:
    """Return the weight of ``node`` for a turn; 64 bits, equal in every process."""
    return xxhash.xxh3_64_intdigest(digest + node.name.encode())


POLICIES: Mapping[str, Callable[[PoolConfig], Policy]] = {
    "sticky": lambda config: Sticky(hard=config.hard, max_load_factor=config.max_load_factor),
    "prefix": lambda config: LongestPrefix(),
    "least_load": lambda config: LeastLoad(),
    "hash": lambda config: RendezvousHash(),
    "round_robin": lambda config: RoundRobin(),
    "random": lambda config: RandomChoice(Random()),
}
