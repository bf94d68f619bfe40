"""A router over real nodes: what stays home, and what happens when a node goes away."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import AsyncExitStack, ExitStack

import pytest

from prefix_cache.client import (
    AsyncNodeClient,
    AsyncRouterClient,
    NodeState,
    Outcome,
    RouteReason,
)
from prefix_cache.errors import NoNodeAvailable
from prefix_cache.index import Identity
from tests.node.nodes import node_process, python, running_node
from tests.router.routers import Played, Player, node_status, running_router, wait_for_state

# What a router process runs: addresses and the log are its output.
_RUN_ROUTER = """
import json, logging, sys
from router.app import run_router
from router.config import PoolConfig, RouterConfig, parse_nodes
logging.basicConfig(stream=sys.stdout, format="%(message)s")
given = json.loads(sys.argv[1])
pool = PoolConfig(nodes=parse_nodes(given.pop("nodes")))
run_router(
    RouterConfig(pools=(pool,), **given), lambda addresses: print(*addresses, flush=True)
)
"""


@pytest.mark.parametrize(
    ("policy", "hit_tokens", "at_home"),
    [("sticky", 6720, 40), ("hash", 6720, 40), ("round_robin", 2400, 0)],
)
async def test_conversations_hit_where_they_stay_home(
    policy: str, hit_tokens: int, at_home: int
) -> None:
    """Ten conversations of five turns, 100 to 300 tokens.  Round robin is the control arm.

    At home a turn finds all full blocks of the one before: 96 + 144 + 192 + 240 of 1,000 tokens.
    Going round three nodes it finds those of three turns ago: 96 + 144.
    """
    async with AsyncExitStack() as stack:
        fleet = {
            name: await stack.enter_async_context(running_node(num_blocks=1024)) for name in "abc"
        }
        address = await stack.enter_async_context(
            running_router(
                {name: running.address for name, running in fleet.items()}, policy=policy
            )
        )
        router = await stack.enter_async_context(AsyncRouterClient(address))
        player = Player(router)

        played = [
            await player.play(f"chat-{number}", num_tokens)
            for num_tokens in (100, 150, 200, 250, 300)
            for number in range(10)
        ]

        _, nodes = await router.list_nodes()
    assert sum(turn.num_cached_tokens for turn in played) == hit_tokens
    assert sum(turn.route.reason is RouteReason.PINNED for turn in played) == at_home
    assert sum(node.cached_tokens for node in nodes) == hit_tokens
    assert sum(node.prompt_tokens for node in nodes) == 10_000
    assert sum(node.turns for node in nodes) == 50
    assert sum(node.conversations for node in nodes) == 10


async def test_a_node_killed_under_load_costs_its_conversations_and_no_turn() -> None:
    """24 conversations of six turns at once; one of three nodes dies after 60 turns."""
    with ExitStack() as stack:
        fleet = {name: stack.enter_context(node_process(num_blocks=1024)) for name in "abc"}
        config = {
            "nodes": [f"{name}={node.address}" for name, node in fleet.items()],
            "listen": ["127.0.0.1:0"],
            "probe_interval_s": 0.05,
        }
        process = stack.enter_context(python(_RUN_ROUTER, json.dumps(config)))
        assert process.stdout is not None
        async with AsyncRouterClient(process.stdout.readline().strip()) as router:

            def kill_at_60(served: int) -> None:
                if served == 60:
                    fleet["b"].signal(signal.SIGKILL)

            player = Player(router, kill_at_60)

            async def converse(name: str) -> list[Played]:
                return [await player.play(name, 40 * turn) for turn in range(1, 7)]

            chats = await asyncio.gather(*(converse(f"chat-{n}") for n in range(24)))

            lost = await node_status(router, "b")
            _, nodes = await router.list_nodes()
        process.send_signal(signal.SIGTERM)
        log = process.stdout.read().splitlines()
        assert process.wait() == 0

    assert [len(chat) for chat in chats] == [6] * 24
    assert [node.in_flight for node in nodes] == [0, 0, 0]
    assert [node.state for node in nodes] == [NodeState.READY, NodeState.FAILED, NodeState.READY]
    assert sum(node.turns for node in nodes) == 144
    assert sum(node.conversations for node in nodes if node.name != "b") >= 20

    # The router says what it lost: in its log, in the list, and to each conversation once.
    assert lost.failures == 1
    assert lost.lost_tokens > 0
    (line,) = log
    assert line.startswith("node b failed (")
    assert f"with {lost.lost_tokens} committed tokens are pinned there" in line
    moved = 0
    for chat in chats:
        moves = [turn for turn in chat if turn.route.reason is RouteReason.MOVED]
        assert [turn.route.moved_from for turn in moves] in ([], ["b"])
        assert [turn.route.lost_tokens for turn in moves] == [
            40 * chat.index(turn) for turn in moves
        ]
        moved += len(moves)
    assert moved > 0

    # Who was not at home there noticed nothing.
    for chat in chats:
        if all(turn.route.node != "b" for turn in chat):
            assert [turn.num_cached_tokens for turn in chat[1:]] == [32, 80, 112, 160, 192]


async def test_a_node_restarted_under_its_name_holds_nothing_of_before() -> None:
    with node_process() as first, node_process() as other:
        nodes = {"a": first.address, "b": other.address}
        async with running_router(nodes) as address, AsyncRouterClient(address) as router:
            player = Player(router)
            names = [f"chat-{number}" for number in range(8)]
            homes = {name: (await player.play(name, 100)).route.node for name in names}
            at_a = [name for name in names if homes[name] == "a"]
            first.signal(signal.SIGKILL)
            first.wait()
            failed = await wait_for_state(router, "a", NodeState.FAILED)
            assert (failed.lost_tokens, failed.failures) == (100 * len(at_a), 1)

            with node_process(listen=[first.address]):
                back = await wait_for_state(router, "a", NodeState.READY)
                assert back.conversations == 0
                told = [(await player.play(name, 150)).route for name in at_a]
                again = [await player.play(name, 200) for name in at_a]

    assert len(at_a) > 0
    assert {(route.reason, route.moved_from, route.lost_tokens) for route in told} == {
        (RouteReason.MOVED, "a", 100)
    }
    assert {turn.route.reason for turn in again} == {RouteReason.PINNED}
    assert {turn.num_cached_tokens for turn in again} == {144}


async def test_a_draining_node_gets_no_new_turn_and_its_conversations_move() -> None:
    with node_process() as leaving, node_process() as staying:
        nodes = {"a": leaving.address, "b": staying.address}
        async with (
            running_router(nodes) as address,
            AsyncRouterClient(address) as router,
            AsyncNodeClient(leaving.address) as worker,
        ):
            player = Player(router)
            names = [f"chat-{number}" for number in range(8)]
            homes = {name: (await player.play(name, 100)).route.node for name in names}
            live = await worker.acquire(
                Identity(model="m"), [1, 2, 3]
            )  # keeps the drain from ending
            leaving.signal(signal.SIGTERM)
            draining = await wait_for_state(router, "a", NodeState.DRAINING)

            moved = {name: (await player.play(name, 150)).route for name in names}
            with pytest.raises(NoNodeAvailable, match="a is DRAINING, b is excluded"):
                await router.route("chat-0", 100, exclude=["b"])

            await worker.release(live.id)
            await wait_for_state(router, "a", NodeState.FAILED)
            assert leaving.wait() == 0

    assert draining.failures == 0
    assert set(homes.values()) == {"a", "b"}
    assert {route.node for route in moved.values()} == {"b"}
    for name in names:
        left = (RouteReason.MOVED, 100) if homes[name] == "a" else (RouteReason.PINNED, 0)
        assert (moved[name].reason, moved[name].lost_tokens) == left


async def test_a_frozen_node_is_left_and_has_its_conversations_when_it_thaws() -> None:
    """No answer is a failure; the same life answering again shows that nothing was lost."""
    with node_process() as frozen, node_process() as other:
        nodes = {"a": frozen.address, "b": other.address}
        async with (
            running_router(nodes, probe_timeout_s=2.0) as address,
            AsyncRouterClient(address) as router,
        ):
            player = Player(router)
            names = [f"chat-{number}" for number in range(8)]
            homes = {name: (await player.play(name, 100)).route.node for name in names}
            frozen.signal(signal.SIGSTOP)
            await wait_for_state(router, "a", NodeState.FAILED)
            meanwhile = await router.route("new", 100)
            frozen.signal(signal.SIGCONT)
            await wait_for_state(router, "a", NodeState.READY)

            again = {name: await player.play(name, 150) for name in names}

    assert set(homes.values()) == {"a", "b"}
    assert meanwhile.node == "b"
    assert {name: turn.route.node for name, turn in again.items()} == homes
    assert {turn.num_cached_tokens for turn in again.values()} == {96}


async def test_the_router_starts_without_a_node_and_takes_it_in_when_it_comes() -> None:
    """The probes that find it leave the load of the others alone."""
    address_of_b = unused_address()
    with node_process() as present:
        nodes = {"a": present.address, "b": address_of_b}
        async with running_router(nodes) as address, AsyncRouterClient(address) as router:
            assert (await node_status(router, "b")).state is NodeState.FAILED
            routes = [await router.route(f"chat-{n}", 10) for n in range(50)]
            assert {route.node for route in routes} == {"a"}

            with node_process(listen=[address_of_b]):
                await wait_for_state(router, "b", NodeState.READY)

                busy = await node_status(router, "a")
                assert (busy.in_flight, busy.in_flight_tokens) == (50, 500)
                assert (await router.route("new", 10)).node == "b"
                for route in routes:
                    await router.report(route.route_id, Outcome.OK)
                assert (await node_status(router, "a")).in_flight == 0


def unused_address() -> str:
    """Where a node was and is no more."""
    with node_process() as gone:
        return gone.address
