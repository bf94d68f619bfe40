"""Sequences that nobody touches end; those that somebody touches do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from prefix_cache.errors import InvalidArgument, LeaseExpired, UnknownSequence
from prefix_cache.node import Node, NodeConfig
from prefix_cache.node.leased_sequences import LeasedSequences
from prefix_cache.node.leases import Leases
from prefix_cache.node.quotas import Holding
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import duration_to_wire
from tests.node.client_processes import eventually
from tests.node.nodes import packed


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class Leased:
    """A node of 64 blocks and the sequences of its unary callers, on a clock of ours."""

    def __init__(self, **settings: Any) -> None:
        self.clock = Clock()
        self.node = Node(NodeConfig(**{"num_blocks": 64, **settings}))
        self.sequences = LeasedSequences(self.node, self.clock)
        self._holding = Holding()

    def open(self, number: int, num_tokens: int = 40, lease_s: float = 60.0) -> None:
        prompt = node_pb2.Prompt(tokens=packed(*range(num_tokens)))
        self.sequences.acquire(number, node_pb2.AcquireRequest(prompt=prompt), self._holding)
        self.sequences.grant(number, lease_s)

    def fork(self, number: int, parent: int) -> None:
        self.sequences.fork(number, parent, self._holding)
        self.sequences.grant(number, 60.0)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with the timer going off at the end."""
        self.clock.advance(seconds)
        self.sequences.end_expired()
        self.node.cache.audit()

    @property
    def live(self) -> int:
        return self.node.cache.stats().live_sequences


async def test_a_sequence_ends_when_its_lease_runs_out_and_keeps_what_it_committed() -> None:
    leased = Leased()
    leased.open(1)
    leased.sequences.commit(1, 20)
    leased.pass_time(59.9)
    assert (leased.live, leased.node.leases_expired) == (1, 0)
    leased.pass_time(0.1)
    stats = leased.node.cache.stats()
    assert (stats.live_sequences, stats.private, stats.cached, stats.evictable) == (0, 0, 1, 1)
    assert leased.node.leases_expired == 1


async def test_each_call_that_names_a_sequence_begins_its_lease_anew() -> None:
    leased = Leased()
    leased.open(1)
    touches: list[Any] = [
        lambda: leased.sequences.append(1, packed(1)),
        lambda: leased.sequences.commit(1, 16),
        lambda: leased.fork(2, 1),
    ]
    for touch in touches:
        leased.pass_time(50)
        touch()
    leased.pass_time(50)
    assert leased.live == 2
    leased.pass_time(10)
    assert leased.live == 0


async def test_no_call_finds_an_expired_sequence_even_before_the_timer_has_gone_off() -> None:
    """F074: on every path."""
    calls: list[Callable[[Leased], object]] = [
        lambda leased: leased.sequences.append(1, packed(1)),
        lambda leased: leased.sequences.commit(1, 16),
        lambda leased: leased.fork(2, 1),
        lambda leased: leased.sequences.release(1),
    ]
    for late in calls:
        leased = Leased()
        leased.open(1, lease_s=5.0)
        leased.clock.advance(5.0)
        for _ in range(2):
            with pytest.raises(LeaseExpired, match="sequence 1 has ended: its lease of 5 s") as out:
                late(leased)
            assert out.value.details == {"sequence_id": 1, "lease_s": 5.0}
        assert (leased.live, leased.node.leases_expired) == (0, 1)


async def test_leases_run_out_one_by_one_in_the_order_of_their_deadlines() -> None:
    leased = Leased()
    for number, lease_s in ((1, 30.0), (2, 10.0), (3, 20.0)):
        leased.open(number, 1, lease_s)
    left = []
    for _ in range(4):
        left.append(leased.live)
        leased.pass_time(10)
    assert left == [3, 2, 1, 0]


async def test_a_released_sequence_has_no_lease_to_run_out() -> None:
    leased = Leased()
    leased.open(1)
    leased.sequences.release(1)
    leased.pass_time(60)
    with pytest.raises(UnknownSequence) as unknown:
        leased.sequences.commit(1, 1)
    assert type(unknown.value) is UnknownSequence
    assert leased.node.leases_expired == 0


@pytest.mark.parametrize(
    ("asked", "granted"), [(None, 60.0), (5.0, 5.0), (0.25, 0.25), (600.0, 600.0), (601.0, 600.0)]
)
async def test_a_lease_is_what_was_asked_for_up_to_the_maximum(
    asked: float | None, granted: float
) -> None:
    lease = None if asked is None else duration_to_wire(asked)
    sequences = Leased().sequences
    assert sequences.lease_s(node_pb2.AcquireRequest(lease=lease)) == granted
    assert sequences.lease_s(node_pb2.ForkRequest(lease=lease)) == granted


@pytest.mark.parametrize("asked", [0.0, -1.0])
async def test_a_lease_of_no_time_is_refused(asked: float) -> None:
    request = node_pb2.AcquireRequest(lease=duration_to_wire(asked))
    with pytest.raises(InvalidArgument, match=r"expected seconds from 0\.001 to") as refused:
        Leased().sequences.lease_s(request)
    assert refused.value.details == {"name": "lease_s", "value": repr(asked)}


async def test_ten_thousand_dropped_sequences_come_back_a_hundred_at_a_time() -> None:
    leased = Leased(num_blocks=10_000)
    for number in range(10_000):
        leased.open(number, 1)
    leased.clock.advance(60)
    left = []
    for _ in range(100):
        leased.sequences.end_expired()
        left.append(leased.live)
    assert left == list(range(9_900, -1, -100))
    assert leased.node.cache.stats().free == 10_000
    assert leased.node.leases_expired == 10_000


async def test_the_timer_ends_them_however_many_and_in_whatever_order_they_were_opened() -> None:
    """On the real clock: a long lease granted later does not put off a short one."""
    node = Node(NodeConfig(num_blocks=500))
    sequences = LeasedSequences(node)
    for number in range(250):
        for parity, lease_s in enumerate((0.001, 600.0)):
            request = node_pb2.AcquireRequest(prompt=node_pb2.Prompt(tokens=packed(number)))
            sequences.acquire(2 * number + parity, request, Holding())
            sequences.grant(2 * number + parity, lease_s)
    await eventually(lambda: node.cache.stats().live_sequences == 250)
    assert node.leases_expired == 250


async def test_what_is_remembered_of_expired_sequences_is_bounded() -> None:
    """F112: ten thousand callers are told why, earlier ones only that there is no such sequence."""
    leased = Leased()
    for number in range(10_050):
        leased.open(number, 1, 1.0)
        leased.clock.advance(1.0)
        with pytest.raises(LeaseExpired):
            leased.sequences.commit(number, 1)
    with pytest.raises(UnknownSequence) as oldest:
        leased.sequences.commit(0, 1)
    assert type(oldest.value) is UnknownSequence
    with pytest.raises(LeaseExpired):
        leased.sequences.commit(10_049, 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"lease_s": 0.0}, "lease_s is 0.0, expected 0.001 to 600.0"),
        ({"lease_s": 601.0}, "lease_s is 601.0, expected 0.001 to 600.0"),
        ({"lease_s": float("nan")}, "lease_s is nan, expected 0.001 to 600.0"),
        ({"max_lease_s": 0.0}, "max_lease_s is 0.0, expected 0.001 to 2592000.0"),
    ],
)
def test_settings_that_make_no_lease_are_refused(settings: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        NodeConfig(**settings)  # type: ignore[arg-type]


def test_leases_that_ended_leave_nothing_behind() -> None:
    leases = Leases(Clock())
    for number in range(100_000):
        leases.grant(number, 600.0)
        leases.end(number)
        assert len(leases._deadlines) <= 65
    assert leases.first() is None
