"""Plays the same conversations three times on fresh processes, to see what each way saves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from prefix_cache.client import AsyncRouterClient
from prefix_cache.replay.fleet import running_fleet
from prefix_cache.replay.player import Play, Player
from prefix_cache.replay.rotation import in_rotation
from prefix_cache.replay.savings import Savings
from prefix_cache.replay.sources import Source


class Arm(NamedTuple):
    """One way of playing: the router's policy, and whether anything may be reused."""

    name: str
    policy: str
    reuse: bool


ARMS = (
    Arm("sticky", "sticky", reuse=True),
    Arm("round robin", "round_robin", reuse=True),
    Arm("no cache", "sticky", reuse=False),
)


@dataclass(frozen=True)
class Comparison:
    """How each arm is played: on how many nodes of which size, and with how many live chats."""

    num_nodes: int
    num_blocks: int
    block_size: int
    window: int

    async def run(self, sources: Sequence[Source], on_turn: Callable[[Arm], None]) -> list[Savings]:
        """Play the sources one after another in each arm; return the savings of each source.

        ``on_turn`` is called after each turn.  Raises what ``running_fleet`` and ``Player.play``
        raise.
        """
        arms = [await self._play(arm, sources, on_turn) for arm in ARMS]
        return [Savings(*plays) for plays in zip(*arms, strict=True)]

    async def _play(
        self, arm: Arm, sources: Sequence[Source], on_turn: Callable[[Arm], None]
    ) -> list[Play]:
        async with (
            running_fleet(
                num_nodes=self.num_nodes,
                num_blocks=self.num_blocks,
                block_size=self.block_size,
                policy=arm.policy,
            ) as fleet,
            AsyncRouterClient(fleet.router.address) as router,
            Player(router, reuse=arm.reuse) as player,
        ):
            return [
                await player.play(
                    in_rotation((each.turns() for each in source.conversations), self.window),
                    lambda: on_turn(arm),
                )
                for source in sources
            ]
