"""The load of the nodes as several workers count it."""

from __future__ import annotations

import pytest

from router.config import NodeSpec, PoolConfig, RouterConfig
from router.dispatcher import Dispatcher
from router.nodes import Node
from router.turn import Prompt, Turn
from router.workers.shared_load import SharedLoad
from tests.router.clock import Clock


class Worker:
    """A dispatcher with one node, and what it shares of its load."""

    def __init__(self, clock: Clock) -> None:
        config = RouterConfig(pools=(PoolConfig(nodes=(NodeSpec("a", "h:1"),)),))
        self.dispatcher = Dispatcher(config, clock=clock)
        self.load = SharedLoad(self.dispatcher, clock)
        self.dispatcher.node_answered(self.node, 1)

    @property
    def node(self) -> Node:
        return self.dispatcher.node("a")

    @property
    def counts(self) -> tuple[int, int, int, int]:
        node = self.node
        return (node.in_flight, node.in_flight_tokens, node.queued_prefill, node.decoding)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def workers(clock: Clock) -> tuple[Worker, Worker]:
    return Worker(clock), Worker(clock)


def turn(tokens: int) -> Turn:
    return Turn(None, Prompt(tokens))


def test_a_turn_counts_at_its_sibling_until_it_is_over(workers: tuple[Worker, Worker]) -> None:
    left, right = workers
    assert left.load.everything() == {"a": (0, 0, 0, 0, 0.0)}

    route = left.dispatcher.route(turn(100))
    right.load.take(0, left.load.changed())
    assert right.counts == (1, 100, 100, 0)
    assert right.node.recent_prefill.value(1000.0) == 100.0

    left.dispatcher.accepted(route)
    right.load.take(0, left.load.changed())
    assert right.counts == (1, 100, 0, 1)

    left.dispatcher.served(route, cached_tokens=0)
    right.load.take(0, left.load.changed())
    assert right.counts == (0, 0, 0, 0)
    assert left.load.changed() == {}


def test_what_a_sibling_told_is_not_told_back(workers: tuple[Worker, Worker]) -> None:
    left, right = workers
    right.load.everything()
    left.dispatcher.route(turn(100))
    right.load.take(0, left.load.changed())
    assert right.load.changed() == {}
    assert right.load.everything() == {"a": (0, 0, 0, 0, 0.0)}

    right.dispatcher.route(turn(7))

    told = right.load.changed()
    assert told == {"a": (1, 7, 7, 0, 7.0)}
    left.load.take(1, told)
    assert left.counts == right.counts == (2, 107, 107, 0)
    assert left.node.recent_prefill.value(1000.0) == 107.0


def test_telling_twice_or_missing_a_word_changes_nothing_in_the_end(
    workers: tuple[Worker, Worker],
) -> None:
    left, right = workers
    first = left.dispatcher.route(turn(100))
    left.load.changed()  # lost on its way
    left.dispatcher.route(turn(50))
    left.dispatcher.not_served(first)
    for _ in range(2):
        right.load.take(0, left.load.everything())
        assert right.counts == (1, 50, 50, 0)


def test_recent_prefill_decays_the_same_wherever_it_is_counted(
    workers: tuple[Worker, Worker], clock: Clock
) -> None:
    left, right = workers
    left.dispatcher.route(turn(100))
    right.load.take(0, left.load.everything())
    for _ in range(3):
        clock.advance(300)
        right.load.take(0, left.load.everything())
        left.load.take(1, right.load.everything())
        now = clock()
        here, there = left.node.recent_prefill.value(now), right.node.recent_prefill.value(now)
        assert here == pytest.approx(there)
    assert here == pytest.approx(100 * 2.718281828 ** (-900 / 600))


def test_the_load_of_a_sibling_that_is_gone_is_gone(workers: tuple[Worker, Worker]) -> None:
    left, right = workers
    left.dispatcher.route(turn(100))
    own = right.dispatcher.route(turn(7))
    right.load.take(0, left.load.changed())

    right.load.forget(0)

    assert right.counts == (1, 7, 7, 0)
    assert right.node.recent_prefill.value(1000.0) == pytest.approx(7.0)
    right.dispatcher.not_served(own)
    assert right.counts == (0, 0, 0, 0)


def test_three_workers_count_the_sum(clock: Clock) -> None:
    workers = [Worker(clock) for _ in range(3)]
    for worker, tokens in zip(workers, (1, 20, 300), strict=True):
        worker.dispatcher.route(turn(tokens))
    for index, worker in enumerate(workers):
        for each in workers:
            if each is not worker:
                each.load.take(index, worker.load.everything())
    assert [worker.counts for worker in workers] == [(3, 321, 321, 0)] * 3


def test_a_node_that_comes_back_starts_with_nothing_of_before(
    workers: tuple[Worker, Worker],
) -> None:
    left, right = workers
    left.dispatcher.route(turn(100))
    right.load.take(0, left.load.changed())
    right.dispatcher.remove_node(right.node)
    right.load.take(0, left.load.everything())  # of a node that is not known here

    right.dispatcher.add_node("default", NodeSpec("a", "h:2"))

    assert right.load.everything() == {"a": (0, 0, 0, 0, 0.0)}
    right.load.take(0, left.load.everything())
    assert right.counts == (1, 100, 100, 0)
    right.load.forget(0)
    assert right.counts == (0, 0, 0, 0)
