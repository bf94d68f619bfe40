"""Routing policies: which of the nodes that can take a turn gets it.

``choose`` changes nothing a later choice depends on, except that `RandomChoice` draws from its
generator.  The load of the chosen node is counted by the caller before the next choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Protocol

import xxhash

from router.nodes import Node
from router.turn import Turn


class Policy(Protocol):
    """Chooses among the nodes that can take a turn."""

    def choose(self, candidates: Sequence[Node], turn: Turn, home: Node | None) -> Node:
        """Return one of ``candidates``, of which there is at least one.

        ``home`` is the candidate that the turn's conversation is pinned to, if there is one.
        """


class Sticky:
    """The conversation's home; without one, the lowest load.

    Load is prompt tokens in flight, then turns in flight.  Ties go by `rendezvous_score`, so
    that every router process breaks them alike and no node is first by its position.
    """

    def choose(self, candidates: Sequence[Node], turn: Turn, home: Node | None) -> Node:
        """Return the home, or the least loaded."""
        if home is not None:
            return home
        digest = turn.spread_digest()

        def cost(node: Node) -> tuple[int, int, int]:
            return node.in_flight_tokens, node.in_flight, -rendezvous_score(digest, node)

        return min(candidates, key=cost)


class RoundRobin:
    """One node after the other, whatever the conversation."""

    def choose(self, candidates: Sequence[Node], turn: Turn, home: Node | None) -> Node:
        """Return the next by the number of the turn."""
        return candidates[turn.number % len(candidates)]


class RandomChoice:
    """Any node, with equal chances."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def choose(self, candidates: Sequence[Node], turn: Turn, home: Node | None) -> Node:
        """Return the node drawn."""
        return self._random.choice(candidates)


class RendezvousHash:
    """The highest `rendezvous_score`: needs no memory, and survives a restart of the router.

    Of N nodes, one more takes about 1/(N+1) of the conversations, and one less moves only its
    own.
    """

    def choose(self, candidates: Sequence[Node], turn: Turn, home: Node | None) -> Node:
        """Return the node of the highest score."""
        digest = turn.spread_digest()
        return max(candidates, key=lambda node: rendezvous_score(digest, node))


def rendezvous_score(digest: bytes, node: Node) -> int:
    """Return the weight of ``node`` for a turn; 64 bits, equal in every process."""
    return xxhash.xxh3_64_intdigest(digest + node.name.encode())


POLICIES: Mapping[str, Callable[[], Policy]] = {
    "sticky": Sticky,
    "round_robin": RoundRobin,
    "random": lambda: RandomChoice(Random()),
    "hash": RendezvousHash,
}
