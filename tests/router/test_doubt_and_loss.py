"""A node that failed is in doubt, not lost: what it holds, and who is at home there, stays.

Conversations share a long system prompt here.  So whoever forgets what a home holds sends them
away, to any node that was sent the system prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from prefix_cache.client import NodeState, RouteReason
from prefix_cache.errors import NoNodeAvailable
from router.claims.node_claims import NodeClaims
from router.dispatcher import Dispatcher
from router.nodes import Node
from router.open_routes import OpenRoute
from router.turn import ConversationKey, Prompt, Turn
from tests.node.nodes import node_process, running_node
from tests.router.dispatching import CHAT, key
from tests.router.probed import Engine, fleet, prompt, running_engine, store, until

SYSTEM = b"You are a helpful assistant. " * 100


def text(number: int) -> bytes:
    """What was said in a conversation; a token is a byte."""
    return SYSTEM + b"%04d " % number * 200


def turn(number: int) -> Turn:
    said = text(number)
    return Turn(key(number), Prompt(len(said), said, prompt(*said).block_hashes, 16))


TURNS: Mapping[ConversationKey, Turn] = {key(number): turn(number) for number in range(12)}


def play(dispatcher: Dispatcher, asked: Turn) -> OpenRoute:
    """One turn, served as promised."""
    route = dispatcher.route(asked)
    dispatcher.accepted(route)
    dispatcher.served(route, cached_tokens=route.decision.promised_tokens)
    return route


def settle(dispatcher: Dispatcher) -> dict[ConversationKey, str]:
    """Give every conversation a home; return the names of the nodes."""
    homes = {each: play(dispatcher, asked).node.name for each, asked in TURNS.items()}
    assert set(homes.values()) == {"a", "b"}
    return homes


def where_to(dispatcher: Dispatcher) -> dict[ConversationKey, str]:
    """Where each conversation would go now."""
    return {each: dispatcher.decide(asked).node.name for each, asked in TURNS.items()}


def fail(dispatcher: Dispatcher, node: Node) -> None:
    """A turn that breaks off there."""
    others = {each.name for each in dispatcher.nodes()} - {node.name}
    route = dispatcher.route(Turn(None, Prompt(10), exclude=frozenset(others)))
    dispatcher.failed(route, "broke off")
    assert node.state is NodeState.FAILED


async def store_and_tell(node: Node, prompt: Prompt) -> None:
    """Let its cache node hold a prompt; returns once the router knows."""
    await store(node.address, *prompt.text)
    blocks = claims_of(node).held
    await until(lambda: blocks.held_tokens(prompt) > len(SYSTEM))


def claims_of(node: Node) -> NodeClaims:
    assert isinstance(node.claims, NodeClaims)
    return node.claims


# --- doubt ----------------------------------------------------------------------------------


async def test_a_turn_that_broke_off_moves_no_other_conversation() -> None:
    async with running_engine() as one, running_engine() as other, fleet() as router:
        a = await router.join("a", url=one.url)
        await router.join("b", url=other.url)
        homes = settle(router.dispatcher)

        fail(router.dispatcher, a)
        await until(lambda: a.state is NodeState.READY)

        assert where_to(router.dispatcher) == homes


async def test_an_engine_that_was_not_well_for_a_while_keeps_its_conversations() -> None:
    async with running_engine() as one, running_engine() as other, fleet() as router:
        a = await router.join("a", url=one.url)
        await router.join("b", url=other.url)
        homes = settle(router.dispatcher)

        one.health = 503
        await until(lambda: a.state is NodeState.FAILED)
        one.health = 200
        await until(lambda: a.state is NodeState.READY)

        assert where_to(router.dispatcher) == homes


async def test_conversations_stay_when_only_the_cache_node_dies() -> None:
    """What it told is not known any more; what was sent to its engine is."""
    async with (
        running_engine() as one,
        running_engine() as other,
        running_node(num_blocks=4096) as told,
        fleet() as router,
    ):
        with node_process(num_blocks=4096) as process:
            a = await router.join("a", process.address, one.url)
            b = await router.join("b", told.address, other.url)
            await until(lambda: claims_of(a).exact and claims_of(b).exact)
            homes = settle(router.dispatcher)
            for each, home in homes.items():
                await store_and_tell(a if home == "a" else b, TURNS[each].prompt)
        await until(lambda: not claims_of(a).exact)

        assert a.state is NodeState.READY
        assert where_to(router.dispatcher) == homes


async def test_after_a_gap_the_events_are_followed_again_at_once() -> None:
    """Not at the next probe, which never comes here; and meanwhile the text is known."""
    async with running_node(num_blocks=4096) as told, fleet(interval_s=600.0) as router:
        a = await router.join("a", told.address)
        claims = claims_of(a)
        asked = TURNS[key(0)].prompt
        await until(lambda: claims.exact)
        await store(told.address, *asked.text[:1600])
        await until(lambda: claims.held_tokens(asked) == 1600)
        claims.accepted(asked)

        claims.held.clear()
        assert claims.held_tokens(asked) == len(asked.text) // 64 * 64
        await store(told.address, *asked.text[:3200])  # comes after events that are unknown now

        await until(lambda: claims.exact)
        assert claims.held_tokens(asked) == 3200


# --- loss -----------------------------------------------------------------------------------


async def test_an_engine_whose_port_was_closed_has_lost_its_cache() -> None:
    """Nor does a pin that another router wrote before count for it."""
    async with fleet() as router:
        async with running_engine() as engine:
            a = await router.join("a", url=engine.url)
            play(router.dispatcher, TURNS[key(0)])
            pin = router.dispatcher.conversations.get(key(0))
            assert pin is not None
            router.dispatcher.learn_pin(CHAT, pin)
            asked = Turn(CHAT, TURNS[key(1)].prompt)
            assert router.dispatcher.decide(asked).promised_tokens == len(text(0))
        await until(lambda: a.state is NodeState.FAILED and a.losses > 0)
        async with running_engine(port_of(engine)):
            await until(lambda: a.state is NodeState.READY)

            assert a.claims.held_tokens(TURNS[key(0)].prompt) == 0
            decision = router.dispatcher.decide(asked)
            assert (decision.reason, decision.promised_tokens) == (RouteReason.PINNED, 0)


def port_of(engine: Engine) -> int:
    port = urlsplit(engine.url).port
    assert port is not None
    return port


async def test_a_cache_node_knows_better_whether_its_engine_lost_anything() -> None:
    async with running_node() as told, fleet() as router:
        async with running_engine() as engine:
            a = await router.join("a", told.address, engine.url)
            a.claims.accepted(TURNS[key(0)].prompt)
        await until(lambda: a.state is NodeState.FAILED)
        async with running_engine(port_of(engine)):
            await until(lambda: a.state is NodeState.READY)

            assert a.losses == 0
            assert claims_of(a).sent.held_tokens(TURNS[key(0)].prompt) > len(SYSTEM)


async def test_the_next_life_of_a_cache_node_begins_with_nothing(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/node"
    async with running_engine() as engine, fleet() as router:
        with node_process(listen=[address]):
            a = await router.join("a", address, engine.url)
            before = a.incarnation
            a.claims.accepted(TURNS[key(0)].prompt)
        await until(lambda: a.reported_running == 0 and not claims_of(a).exact)
        with node_process(listen=[address]):
            await until(lambda: a.incarnation != before)
            assert claims_of(a).sent.held_tokens(TURNS[key(0)].prompt) == 0


async def test_a_cache_node_that_comes_late_moves_nobody(tmp_path: Path) -> None:
    """It tells of a life whose beginning nobody saw: that is no restart."""
    address = f"unix://{tmp_path}/node"
    async with running_engine() as one, running_engine() as other, fleet() as router:
        a = await router.join("a", address, one.url)
        await router.join("b", url=other.url)
        homes = settle(router.dispatcher)
        with node_process(listen=[address], num_blocks=4096):
            await until(lambda: a.incarnation != 0 and claims_of(a).exact)
            for each, home in homes.items():
                if home == "a":
                    await store_and_tell(a, TURNS[each].prompt)

            assert a.failures == 0
            assert where_to(router.dispatcher) == homes


# --- probes after a failure -----------------------------------------------------------------


async def test_a_node_that_failed_a_turn_is_probed_at_once() -> None:
    """The turn may have been at fault: it must not keep everybody waiting for the next probe."""
    async with running_engine() as engine, fleet(interval_s=600.0) as router:
        a = await router.join("a", url=engine.url)
        for probes in range(2, 12):
            fail(router.dispatcher, a)
            await until(lambda: a.state is NodeState.READY)
            assert engine.probes == probes


async def test_it_gets_no_turn_when_that_probe_fails() -> None:
    async with running_engine() as engine, fleet(interval_s=600.0) as router:
        a = await router.join("a", url=engine.url)
        engine.health = 503
        fail(router.dispatcher, a)
        await until(lambda: engine.probes == 2)
        with pytest.raises(NoNodeAvailable):
            router.dispatcher.route(TURNS[key(0)])


async def test_a_probe_that_was_under_way_when_it_failed_does_not_acquit_it() -> None:
    async with running_engine() as engine, fleet() as router:
        a = await router.join("a", url=engine.url)
        seen: list[NodeState] = []

        def fail_meanwhile() -> None:
            engine.before_answer = lambda: seen.append(a.state)
            fail(router.dispatcher, a)

        engine.before_answer = fail_meanwhile
        await until(lambda: bool(seen))
        assert seen[0] is NodeState.FAILED
        await until(lambda: a.state is NodeState.READY)
