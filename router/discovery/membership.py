"""The nodes that the sources want, applied to the router."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from router.config import NodeSpec
from router.fleet import Fleet
from router.nodes import Node

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Member:
    """A node that a source wants in a pool.

    ``incarnation`` says which life of an engine that has no cache node to tell it; else 0.
    """

    pool: str
    spec: NodeSpec
    incarnation: int = 0


class NodeWatchers(Protocol):
    """What follows each node: see `router.watcher`."""

    async def start(self, node: Node) -> None:
        """Follow a node; return once it was probed."""

    async def stop(self, node: Node) -> None:
        """Follow it no longer."""


class Membership:
    """Makes the nodes of the router those that the sources want together.

    Of two members with one name, address or URL the first counts, in the order in which the
    sources spoke first.  One that changed leaves and comes back.
    """

    def __init__(self, fleet: Fleet, watchers: NodeWatchers) -> None:
        self._fleet = fleet
        self._watchers = watchers
        self._wanted: dict[str, Sequence[Member]] = {}
        self._present: dict[str, tuple[Member, Node]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def want(self, source: str, members: Sequence[Member]) -> None:
        """Take all that a source wants now; return once new nodes were probed."""
        async with self._one_at_a_time:
            if self._wanted.get(source) == members:
                return
            self._wanted[source] = members
            chosen = {member.spec.name: member for member in self._choose()}
            # The new ones first, so that there is a node at any time.
            await self._add_missing(chosen)
            leaving = [
                node for name, (member, node) in self._present.items() if chosen.get(name) != member
            ]
            await asyncio.gather(*map(self._remove, leaving))
            await self._add_missing(chosen)  # those that left to come back as another

    def _choose(self) -> Iterable[Member]:
        taken: dict[str, str] = {}
        for source, members in self._wanted.items():
            for member in members:
                spec = member.spec
                places = [place for place in (spec.name, spec.address, spec.url) if place]
                if twice := [place for place in places if place in taken]:
                    _log.warning(
                        "node %s of %s is left out: %s is taken by a node of %s",
                        *(spec.name, source, twice[0], taken[twice[0]]),
                    )
                else:
                    taken.update(dict.fromkeys(places, source))
                    yield member

    async def _add_missing(self, chosen: Mapping[str, Member]) -> None:
        missing = [member for name, member in chosen.items() if name not in self._present]
        await asyncio.gather(*map(self._add, missing))

    async def _add(self, member: Member) -> None:
        pool, spec = member.pool, member.spec
        # The fleet was built with those of the config.
        node = self._fleet.pools[pool].nodes.get(spec.name)
        if node is None:
            node = self._fleet.add_node(pool, spec)
        self._present[spec.name] = (member, node)
        _log.info("node %s joins pool %s", spec.name, pool)
        await self._watchers.start(node)

    async def _remove(self, node: Node) -> None:
        await self._watchers.stop(node)
        self._fleet.remove_node(node)
        del self._present[node.name]
