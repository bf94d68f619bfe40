"""F112: however many conversations come and never return, the router stays as large as it is."""

from __future__ import annotations

import gc
import tracemalloc

from prefix_cache.client import RouteReason
from router.decisions import Decisions
from router.dispatcher import Dispatcher
from tests.router.dispatching import dispatcher_over, key, serve, turn


def burst(dispatcher: Dispatcher, decisions: Decisions, first: int, last: int) -> None:
    """Conversations of one turn with long prompts; now and then one that stays is heard of."""
    for number in range(first, last):
        route = dispatcher.route(turn(key(number), 2_048, text=bytes(8_192)))
        decisions.keep(f"request-{number}", route.decision)
        dispatcher.accepted(route)
        dispatcher.served(route, cached_tokens=0)
        if number % 100 == 0:
            serve(dispatcher, key("active"))


def test_a_burst_of_one_turn_conversations_leaves_no_more_than_the_bounds() -> None:
    dispatcher = dispatcher_over("abcdefgh", max_pins=500, max_decisions=200)
    decisions = Decisions(max_decisions=200)
    home = serve(dispatcher, key("active")).node
    burst(dispatcher, decisions, 0, 1_000)
    tracemalloc.start()
    try:
        gc.collect()
        objects, memory = len(gc.get_objects()), tracemalloc.get_traced_memory()[0]
        burst(dispatcher, decisions, 1_000, 5_000)
        gc.collect()
        more_objects = len(gc.get_objects()) - objects
        more_memory = tracemalloc.get_traced_memory()[0] - memory
    finally:
        tracemalloc.stop()

    assert len(dispatcher.conversations) == 500
    assert len(dispatcher.ledger.accounts) == 200
    assert len(decisions) == 200
    assert more_objects < 1_000
    assert more_memory < 2_000_000  # all that is kept, since only this was traced: 8 KiB x 200
    active = dispatcher.route(turn(key("active")))
    assert (active.node, active.decision.reason) == (home, RouteReason.PINNED)


def test_conversations_under_way_are_forgotten_with_their_last_turn() -> None:
    dispatcher = dispatcher_over("ab")
    gc.collect()
    before = len(gc.get_objects())
    routes = [dispatcher.route(turn(key(number), 10)) for number in range(1_000)]
    for route in routes:
        dispatcher.not_served(route)
    del routes, route
    gc.collect()

    assert len(gc.get_objects()) - before < 100
