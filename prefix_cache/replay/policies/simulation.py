"""A trace served by simulated nodes behind the real router.

The service model, a simple one so that policies can be compared:

- Each node prefills first come, first served, at a fixed rate, and only tokens that it does not
  hold.  Then each answer takes a fixed time per token, however many there are at once.
- Each node has one cache of blocks, least recently used evicted, of a prompt the last first.  It
  changes when a request arrives.  Answers are not cached: a trace names them only where a later
  prompt repeats them.
- The router hears of a node's cache what its events said some time ago, of the end of a prefill
  when it ends, and of the node's speed nothing.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from prefix_cache.replay.policies.block_lru import BlockLru
from prefix_cache.replay.policies.trace import TraceRequest
from router.config import NodeSpec, PoolConfig, RouterConfig
from router.dispatcher import Dispatcher
from router.policies import Policy
from router.turn import DEFAULT_POOL, ConversationKey, Prompt, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """How many nodes there are, and what each can do."""

    num_nodes: int = 8
    num_blocks: int = 3_000
    """Blocks that a node can hold, of the trace's size."""
    prefill_rate: float = 8_000.0
    """Tokens per second."""
    seconds_per_output_token: float = 0.02
    event_lag: float = 0.05
    """Seconds after which the router knows of a change."""


@dataclass(slots=True, eq=False)
class SimulatedNode:
    """One node: what it holds, and until when it has prefill to do."""

    cache: BlockLru
    prefill_rate: float
    free_at: float = 0.0
    """When the last prefill that it has now will end."""
    uncached_tokens: int = 0
    """Tokens that it has been given to prefill."""

    def uncached(self, prompt: Prompt) -> int:
        """Tokens of a prompt that it would have to prefill."""
        held = prompt.block_size * self.cache.held_blocks(prompt.block_hashes)
        return max(0, prompt.num_tokens - held)

    def prefill(self, prompt: Prompt, now: float) -> float:
        """Take a prompt; return when its prefill ends."""
        uncached = self.uncached(prompt)
        self.cache.use(prompt.block_hashes)
        self.uncached_tokens += uncached
        self.free_at = max(now, self.free_at) + uncached / self.prefill_rate
        return self.free_at


@dataclass(frozen=True, slots=True)
class Result:
    """What a trace cost under one policy."""

    policy: str
    hit_rate: float
    """Share of all blocks that were held where they were sent."""
    uncached_tokens: int
    eviction_tokens: int
    """Those of the uncached that were held once, and by no node any more."""
    routing_tokens: int
    """Those of the uncached that another node held."""
    imbalance: float
    """Uncached tokens of the busiest node, as a multiple of the mean."""
    ttft_mean: float
    """Time to the first token, in seconds; also its median and 99th percentile below."""
    ttft_p50: float
    ttft_p99: float


MakePolicy = Callable[[Mapping[str, SimulatedNode]], Policy]
"""Makes a policy; is given the nodes by name, for a policy that sees what no router can."""


def simulate(
    name: str, make_policy: MakePolicy, trace: Iterable[TraceRequest], fleet: Fleet
) -> Result:
    """Serve a trace of at least one request under the policy ``name``."""
    simulation = _Simulation(fleet)
    simulation.dispatcher.pool(DEFAULT_POOL).policy = make_policy(simulation.nodes)
    for request in trace:
        simulation.serve(request)
    simulation.run_until(float("inf"))
    return simulation.result(name)


class _Claims:
    """What a node's events have told of its cache so far."""

    def __init__(self, num_blocks: int) -> None:
        self.cache = BlockLru(num_blocks)

    def is_told(self, prompt: Prompt) -> bool:
        """Yes, by its events."""
        return True

    def held_tokens(self, prompt: Prompt) -> int:
        return prompt.block_size * self.cache.held_blocks(prompt.block_hashes)

    def accepted(self, prompt: Prompt) -> None:
        """Events tell it all."""

    def served(self, prompt: Prompt, promised: int, delivered: int | None) -> bool:
        """No loss: simulated nodes live on."""
        return False

    def clear(self) -> None:
        """Never needed: simulated nodes live on."""


@dataclass(slots=True)
class _Counts:
    held_blocks: int = 0
    blocks: int = 0
    eviction_tokens: int = 0
    routing_tokens: int = 0
    ttfts: list[float] = field(default_factory=list)


class _Simulation:
    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._now = 0.0
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._counts = _Counts()
        self._unlimited = SimulatedNode(BlockLru(sys.maxsize), fleet.prefill_rate)
        names = [f"node-{number}" for number in range(fleet.num_nodes)]
        pool = PoolConfig(nodes=tuple(NodeSpec(name, f"{name}:1") for name in names))
        self.dispatcher = Dispatcher(RouterConfig(pools=(pool,)), clock=lambda: self._now)
        self._claims = {name: _Claims(fleet.num_blocks) for name in names}
        self.nodes = {
            name: SimulatedNode(BlockLru(fleet.num_blocks), fleet.prefill_rate) for name in names
        }
        for node in self.dispatcher.nodes():
            node.claims = self._claims[node.name]
            self.dispatcher.node_answered(node, 1)

    def serve(self, request: TraceRequest) -> None:
        self.run_until(request.at)
        self._now = request.at
        conversation = ConversationKey("", request.conversation) if request.conversation else None
        prompt = Prompt(
            request.input_tokens, block_hashes=request.block_hashes, block_size=request.block_size
        )
        route = self.dispatcher.route(Turn(conversation, prompt))
        node, claims = self.nodes[route.node.name], self._claims[route.node.name]
        cached_tokens = prompt.num_tokens - node.uncached(prompt)
        self._counts.held_blocks += node.cache.held_blocks(prompt.block_hashes)
        self._counts.blocks += len(prompt.block_hashes)
        self._count_loss(prompt, node.uncached(prompt))
        prefilled_at = node.prefill(prompt, self._now)
        self._counts.ttfts.append(prefilled_at - self._now)
        answered_at = prefilled_at + request.output_tokens * self._fleet.seconds_per_output_token
        told_at = self._now + self._fleet.event_lag
        self._at(told_at, partial(claims.cache.use, prompt.block_hashes))
        self._at(prefilled_at, partial(self.dispatcher.accepted, route))
        self._at(answered_at, partial(self.dispatcher.served, route, cached_tokens=cached_tokens))

    def _count_loss(self, prompt: Prompt, uncached: int) -> None:
        least = min(node.uncached(prompt) for node in self.nodes.values())
        new = self._unlimited.uncached(prompt)
        self._unlimited.cache.use(prompt.block_hashes)
        self._counts.routing_tokens += uncached - least
        self._counts.eviction_tokens += least - new

    def run_until(self, time: float) -> None:
        """Let everything happen that is due."""
        while self._later and self._later[0][0] <= time:
            self._now, _, happens = heapq.heappop(self._later)
            happens()

    def result(self, policy: str) -> Result:
        ttfts = sorted(self._counts.ttfts)
        prefilled = [node.uncached_tokens for node in self.nodes.values()]
        return Result(
            policy=policy,
            hit_rate=self._counts.held_blocks / max(self._counts.blocks, 1),
            uncached_tokens=sum(prefilled),
            eviction_tokens=self._counts.eviction_tokens,
            routing_tokens=self._counts.routing_tokens,
            imbalance=max(prefilled) * len(prefilled) / max(sum(prefilled), 1),
            ttft_mean=sum(ttfts) / len(ttfts),
            ttft_p50=ttfts[len(ttfts) // 2],
            ttft_p99=ttfts[int(len(ttfts) * 0.99)],
        )

    def _at(self, time: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._later, (time, next(self._order), happens))
