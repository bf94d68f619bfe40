"""Follows the nodes: who answers, who drains, who lives another life, who holds what."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from contextlib import aclosing
from random import Random

import aiohttp
from grpc_health.v1 import health_pb2, health_pb2_grpc

from prefix_cache.client import AsyncNodeClient, NodeState
from prefix_cache.errors import (
    EngineEnded,
    EventGap,
    IdentityMismatch,
    PrefixCacheError,
    Unavailable,
)
from prefix_cache.v1 import node_pb2
from router.claims.node_claims import NodeClaims, block_size_of
from router.claims.sent_text import SentText
from router.config import RouterConfig
from router.dispatcher import Dispatcher
from router.engine_probe import EngineProbe
from router.nodes import Node
from router.prompts.parity import first_difference
from router.prompts.rendering import load_rendering

log = logging.getLogger(__name__)

_NODE_SERVICE = node_pb2.DESCRIPTOR.services_by_name["NodeService"].full_name

# A failed node is probed ever more rarely, up to this many probe intervals apart.
_MAX_BACKOFF = 16

# Intervals differ by up to so large a part: many nodes are not probed all at once.
_JITTER = 0.2


class Watchers:
    """One watcher for each node that was started; for one event loop."""

    def __init__(self, dispatcher: Dispatcher, config: RouterConfig) -> None:
        self._dispatcher = dispatcher
        self._config = config
        self._watchers: dict[Node, _Watcher] = {}
        self._session: aiohttp.ClientSession | None = None
        self._random = Random()
        dispatcher.on_failure = self._probe_at_once

    async def start(self, node: Node) -> None:
        """Follow a node from now on; returns once it was probed for the first time.

        Raises what `load_rendering` does.
        """
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._config.probe_timeout_s)
            # Those that hang must not keep others waiting for a connection.
            connector = aiohttp.TCPConnector(limit=0)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout)
        watcher = _Watcher(node, self._dispatcher, self._config, self._session, self._random)
        self._watchers[node] = watcher
        await watcher.probed.wait()

    async def stop(self, node: Node) -> None:
        """Leave a node alone; its claims are dropped.  One that is not followed is no error."""
        if watcher := self._watchers.pop(node, None):
            await watcher.stop()

    async def close(self) -> None:
        """Leave all nodes alone."""
        await asyncio.gather(*(self.stop(node) for node in list(self._watchers)))
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _probe_at_once(self, node: Node) -> None:
        if watcher := self._watchers.get(node):
            watcher.due.set()


class _Watcher:
    """Follows one node: its engine by probes, its cache node by probes and events.

    The node can be chosen while its engine answers.  Without its cache node, what it holds is
    guessed from the text that was sent there.
    """

    def __init__(
        self,
        node: Node,
        dispatcher: Dispatcher,
        config: RouterConfig,
        session: aiohttp.ClientSession,
        random: Random,
    ) -> None:
        self.probed = asyncio.Event()
        self.due = asyncio.Event()
        """Set to have the node probed now."""
        self._node = node
        self._dispatcher = dispatcher
        self._interval_s = config.probe_interval_s
        self._pool = dispatcher.pool(node.pool)
        self._rendering = load_rendering(
            self._pool.config.tokenizer, self._pool.config.chat_template
        )
        self._claims = NodeClaims(
            SentText(node.name, self._pool.config.sent_blocks, self._pool.sent_texts)
        )
        node.claims = self._claims
        self._failures = node.failures
        """How often it had failed when it answered last."""
        self._session = session
        self._random = random
        self._engine = EngineProbe(node.url, session) if node.url else None
        self._cache_node: AsyncNodeClient | None = None
        self._cache_node_is_away = False
        if node.address:
            self._cache_node = AsyncNodeClient(node.address, timeout_s=config.probe_timeout_s)
            self._health = health_pb2_grpc.HealthStub(self._cache_node.channel)
        self._following: asyncio.Task[None] | None = None
        self._probing = asyncio.create_task(self._probe_forever(), name=f"probes of {node.name}")

    async def stop(self) -> None:
        """End for good."""
        self._probing.cancel()
        await asyncio.gather(self._probing, return_exceptions=True)
        await self._stop_following()
        if self._cache_node is not None:
            await self._cache_node.close()
        self._claims.clear()
        self.probed.set()

    # --- probes -----------------------------------------------------------------------------

    async def _probe_forever(self) -> None:
        backoff = 1
        while True:
            self.due.clear()
            try:
                await self._probe()
            except Exception as error:  # whatever it is, a node must not be left unprobed
                log.exception("the probe of node %s went wrong", self._node.name)
                self._dispatcher.node_failed(self._node, str(error))
            self.probed.set()
            failed = self._node.state is NodeState.FAILED
            backoff = min(2 * backoff, _MAX_BACKOFF) if failed else 1
            pause_s = self._interval_s * backoff * self._random.uniform(1 - _JITTER, 1 + _JITTER)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self.due.wait()

    async def _probe(self) -> None:
        """Ask the node once and tell the dispatcher what it answered."""
        node = self._node
        failures = node.failures
        try:
            if self._engine is not None:
                node.models = await self._engine.models()
            incarnation = await self._ask_cache_node()
        except PrefixCacheError as error:
            if isinstance(error, EngineEnded) and not self._is_told_of_restarts():
                self._dispatcher.node_lost_its_cache(node)
            self._claims.block_size = 0
            node.reported_running = 0
            self._dispatcher.node_failed(node, str(error))
            return
        if incarnation is None:
            self._dispatcher.node_draining(node)
            return
        if node.failures != self._failures or incarnation != node.incarnation:
            await self._check_tokens()
        if node.failures != failures:
            return  # it failed a turn since it was asked: it is probed again, at once
        if node.incarnation not in (0, incarnation):
            self._claims.sent.clear()
        self._dispatcher.node_answered(node, incarnation)
        self._failures = node.failures

    async def _ask_cache_node(self) -> int | None:
        """Return which life it lives, None when it drains.

        Where there is none, or none that answers beside an engine that does, the life is the
        one known.
        """
        node, client = self._node, self._cache_node
        if client is None:
            return node.incarnation
        try:
            health = await client.call(
                self._health.Check, health_pb2.HealthCheckRequest(service=_NODE_SERVICE)
            )
            # Health cannot tell a restarted node from the one before.
            info = await client.info()
            node.reported_running = (await client.stats()).live_sequences
        except PrefixCacheError as error:
            if self._engine is None:
                raise
            await self._go_on_without_cache_node(error)
            return node.incarnation
        self._check_block_size(info.block_size)
        self._cache_node_is_away = False
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(
                self._follow(client), name=f"events of {node.name}"
            )
        if health.status != health_pb2.HealthCheckResponse.SERVING:
            return None
        return info.incarnation

    def _is_told_of_restarts(self) -> bool:
        """Whether a cache node says when the engine has lost its cache."""
        return self._cache_node is not None and not self._cache_node_is_away

    async def _go_on_without_cache_node(self, error: PrefixCacheError) -> None:
        if not self._cache_node_is_away:
            log.warning("node %s goes on without its cache node: %s", self._node.name, error)
            self._cache_node_is_away = True
        await self._stop_following()
        self._claims.held.clear()
        self._claims.block_size = 0
        self._node.reported_running = 0

    def _check_block_size(self, block_size: int) -> None:
        """Raise IdentityMismatch for a node whose blocks cannot be compared with its pool's."""
        others = (node.claims for node in self._pool.nodes.values() if node is not self._node)
        expected = block_size_of(others) or block_size
        if not block_size or block_size != expected:
            raise IdentityMismatch(
                f"its block size is {block_size}, that of its pool {self._pool.config.name!r} "
                f"is {expected or 'above 0'}",
                block_size=block_size,
                expected=expected,
            )
        self._claims.block_size = block_size

    async def _check_tokens(self) -> None:
        """Look blocks up only where the engine makes the tokens that the router makes."""
        node, config = self._node, self._pool.config
        if self._rendering is None or self._engine is None or self._cache_node is None:
            return
        model = next(iter((*config.models, *sorted(node.models))), "")
        try:
            position = await first_difference(self._session, node.url, model, self._rendering)
        except PrefixCacheError as error:
            log.info("node %s: its tokens were not checked: %s", node.name, error)
            return
        self._claims.tokens_differ = position is not None
        if position is not None:
            log.warning(
                "node %s makes other tokens of a conversation than the router, from token %d on: "
                "what it holds is guessed from text; look at tokenizer and chat_template",
                node.name,
                position,
            )

    # --- events -----------------------------------------------------------------------------

    async def _follow(self, cache_node: AsyncNodeClient) -> None:
        """Keep the claims in step with the events of the node, stream after stream."""
        held = self._claims.held
        loop = asyncio.get_running_loop()
        began_again_at = -math.inf
        while True:
            position = held.position
            events = cache_node.watch(position.incarnation, position.number)
            try:
                async with aclosing(events):
                    async for event in events:
                        held.apply(event)
            except Unavailable:
                pass  # the probes tell
            except EventGap as gap:
                log.info("node %s is watched again: %s", self._node.name, gap)
            except PrefixCacheError as error:
                held.clear()
                log.warning("node %s cannot be watched: %s", self._node.name, error)
            # At once, but not over and over: what is missed is unknown until then.
            if loop.time() < began_again_at + self._interval_s:
                await asyncio.sleep(self._interval_s)
            began_again_at = loop.time()

    async def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None
