"""Engines, routers and Redis that die, hang or break off, under load from a real client.

No request may fail but streams that were cut, and of those the client must hear.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict

from tests.chaos.fleet import Fleet
from tests.chaos.load import Load, Turn, running_load
from tests.redis_servers import RedisServer

DEADLINE_S = 20.0


async def wait_for_state(fleet: Fleet, name: str, state: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (found := (await asyncio.to_thread(fleet.nodes))[name]["state"]) != state:
        assert time.monotonic() < deadline, f"{name} is {found}, not {state}"
        await asyncio.sleep(0.05)


def busiest(load: Load) -> str:
    """The node that served most turns."""
    nodes = [turn.node for turn in load.turns]
    return max(nodes, key=nodes.count)


def moved(load: Load) -> list[Turn]:
    """Turns of conversations that were served by more than one node."""
    homes = defaultdict(set)
    for turn in load.served:
        homes[turn.conversation].add(turn.node)
    return [turn for turn in load.turns if len(homes[turn.conversation]) > 1]


def assert_nothing_in_flight(fleet: Fleet) -> None:
    in_flight = {name: node["in_flight"] for name, node in fleet.nodes().items()}
    assert in_flight == {"a": 0, "b": 0, "c": 0}


async def test_an_engine_is_killed_and_comes_back(fleet: Fleet) -> None:
    async with running_load(fleet.routers[0]) as load:
        await load.more(15)
        victim = busiest(load)
        fleet.engines[victim].kill()
        await load.more(6)
        while_away = await load.more(15)
        fleet.engines[victim].start_again()
        await wait_for_state(fleet, victim, "READY")
        await load.more(10)
    assert load.failed == []
    assert victim not in {turn.node for turn in while_away}
    assert len(load.cut) <= 3  # those of the conversations that stream
    assert {turn.node for turn in load.cut} <= {victim}
    assert_nothing_in_flight(fleet)


async def test_streams_are_cut_and_each_of_them_says_so(fleet: Fleet) -> None:
    async with running_load(fleet.routers[0], streams=[True]) as load:
        await load.more(6)
        victim = busiest(load)
        fleet.engines[victim].fail(cut_after_items=10, requests=2)
        while len(load.cut) < 2:
            await load.more(1)
        await load.more(12)
    assert load.failed == []
    assert [turn.node for turn in load.cut] == [victim, victim]
    assert_nothing_in_flight(fleet)


async def test_an_engine_hangs_and_others_serve_its_requests(fleet: Fleet) -> None:
    async with running_load(fleet.routers[0]) as load:
        await load.more(9)
        victim = busiest(load)
        fleet.engines[victim].fail(hang=True)
        await load.more(20)
        fleet.engines[victim].fail()
        await load.more(6)
    assert (load.failed, load.cut) == ([], [])
    assert_nothing_in_flight(fleet)


async def test_an_engine_closes_every_connection_for_a_while(fleet: Fleet) -> None:
    async with running_load(fleet.routers[0]) as load:
        await load.more(9)
        victim = busiest(load)
        fleet.engines[victim].fail(refuse=True)
        await wait_for_state(fleet, victim, "FAILED")
        await load.more(6)
        while_away = await load.more(12)
        fleet.engines[victim].fail()
        await wait_for_state(fleet, victim, "READY")
        await load.more(6)
    assert load.failed == []
    assert victim not in {turn.node for turn in while_away}
    assert_nothing_in_flight(fleet)


async def test_redis_is_killed_and_comes_back(fleet: Fleet, redis: RedisServer) -> None:
    """No request fails, no conversation leaves its node, and their pins are there again."""
    async with running_load(fleet.routers[0]) as load:
        await load.more(12)
        redis.kill()
        await load.more(20)
        redis.start()
        await load.more(20)
    with redis.client() as client:
        pins = len(list(client.scan_iter("prefix-cache:pin:*")))
    assert (load.failed, load.cut) == ([], [])
    assert moved(load) == []
    assert pins >= len({turn.conversation for turn in load.turns[-20:]})


async def test_a_router_replica_is_killed_and_the_other_knows_every_home(fleet: Fleet) -> None:
    async with running_load(*fleet.routers) as load:
        await load.more(15)
        fleet.routers[0].kill()
        await load.more(20)
        fleet.routers[0].start_again()
        await load.more(10)
    assert load.failed == []
    assert len(load.cut) <= 3
    assert moved(load) == []
