"""What a node holds, mirrored from its events: never more than it said, whatever gets lost."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from prefix_cache import Identity
from prefix_cache.client import NodeEvent, NodeHoldings, SnapshotEnded, SnapshotStarted
from prefix_cache.errors import EventGap
from prefix_cache.index import BlocksRemoved, BlocksStored, Cleared

LIFE, NEXT_LIFE = 11, 12


def names(*numbers: int) -> tuple[bytes, ...]:
    return tuple(b"block %04d" % number for number in numbers)


def stored(*numbers: int, after: int | None = None) -> BlocksStored:
    parent = None if after is None else names(after)[0]
    return BlocksStored(names(*numbers), parent, b"", 16, (), Identity("m"))


def removed(*numbers: int) -> BlocksRemoved:
    return BlocksRemoved(names(*numbers))


def live(number: int, event: BlocksStored | BlocksRemoved | Cleared, life: int = LIFE) -> NodeEvent:
    return NodeEvent(life, number, event)


def snapshot(number: int, *blocks: BlocksStored, life: int = LIFE) -> list[NodeEvent]:
    return [
        NodeEvent(life, number, SnapshotStarted()),
        *(NodeEvent(life, number, event) for event in blocks),
        NodeEvent(life, number, SnapshotEnded()),
    ]


def holdings(events: Iterable[NodeEvent]) -> NodeHoldings:
    result = NodeHoldings()
    for event in events:
        result.apply(event)
    return result


def position(of: NodeHoldings) -> tuple[int, int]:
    return of.position.incarnation, of.position.number


def held(of: NodeHoldings) -> list[int]:
    return [number for number in range(1_000) if names(number)[0] in of]


def test_blocks_come_and_go_as_the_node_says() -> None:
    node = holdings([*snapshot(7, stored(1, 2), stored(3)), live(8, stored(4, after=3))])
    assert held(node) == [1, 2, 3, 4]
    node.apply(live(9, removed(4, 2)))
    assert (held(node), len(node), position(node)) == ([1, 3], 2, (LIFE, 9))


def test_a_missed_event_is_noticed_and_changes_nothing_until_it_came() -> None:
    """F081: 1, 2, 4, then what was missed, then 4 again."""
    node = holdings([live(1, stored(1)), live(2, stored(2))])
    with pytest.raises(EventGap, match=r"event 4 .* came, event 3 was expected"):
        node.apply(live(4, stored(4)))
    assert (held(node), position(node)) == ([1, 2], (LIFE, 2))

    for _ in range(2):
        node.apply(live(3, removed(1)))
        node.apply(live(4, stored(4)))
    assert (held(node), position(node)) == ([2, 4], (LIFE, 4))


def test_an_event_that_comes_twice_counts_once() -> None:
    node = holdings([live(1, stored(1)), live(2, removed(1)), live(1, stored(1))])
    assert held(node) == []


def test_numbers_that_begin_again_begin_with_nothing() -> None:
    """F081: 1 after 57 is another life of the node."""
    node = holdings([live(number, stored(number)) for number in range(1, 58)])
    node.apply(live(1, stored(900), NEXT_LIFE))
    assert (held(node), position(node)) == ([900], (NEXT_LIFE, 1))


def test_another_life_seen_in_its_middle_voids_all_claims_and_asks_for_a_snapshot() -> None:
    node = holdings(snapshot(7, stored(1, 2)))
    with pytest.raises(EventGap):
        node.apply(live(5, stored(5), NEXT_LIFE))
    assert (held(node), position(node)) == ([], (0, 0))
    for event in snapshot(6, stored(5, 6), life=NEXT_LIFE):
        node.apply(event)
    assert (held(node), position(node)) == ([5, 6], (NEXT_LIFE, 6))


@pytest.mark.parametrize("late", [1, 3, 8])
def test_an_event_of_an_ended_life_that_comes_late_brings_nothing_back(late: int) -> None:
    """F090, F092, for who follows a node: the node is empty, whatever was on its way before."""
    node = holdings([*snapshot(2, stored(1, 2)), *snapshot(0, life=NEXT_LIFE)])
    for event in (live(late, stored(5)), *snapshot(late, stored(1, 2))):
        node.apply(event)
    assert (held(node), position(node)) == ([], (NEXT_LIFE, 0))
    node.apply(live(1, stored(7), NEXT_LIFE))
    assert (held(node), position(node)) == ([7], (NEXT_LIFE, 1))


def test_so_many_ended_lives_are_remembered_and_no_more() -> None:
    node = holdings(live(1, stored(life), life) for life in range(1, 1_003))
    node.apply(live(1, stored(2), 2))
    assert held(node) == []
    node.apply(live(1, stored(1), 1))
    assert held(node) == [1]


def test_a_block_without_the_blocks_before_it_is_no_prefix() -> None:
    """F082: block 5 comes before blocks 1 to 4; it waits for them and begins no chain."""
    chain = names(1, 2, 3, 4, 5)
    node = holdings([live(1, stored(5, after=4))])
    assert node.held(chain) == 0
    node.apply(live(2, stored(1, 2, 3, 4)))
    assert node.held(chain) == 5
    node.apply(live(3, removed(3)))
    assert node.held(chain) == 2


def test_a_snapshot_replaces_what_was_known() -> None:
    node = holdings([*snapshot(7, stored(1, 2)), *snapshot(90, stored(2, 3))])
    assert (held(node), position(node)) == ([2, 3], (LIFE, 90))


def test_half_a_snapshot_is_nothing_to_go_on_from() -> None:
    half = snapshot(7, stored(1, 2), stored(3))[:-1]
    node = holdings(half)
    assert (held(node), position(node)) == ([1, 2, 3], (0, 0))
    for event in snapshot(8, stored(2, 3)):
        node.apply(event)
    assert (held(node), position(node)) == ([2, 3], (LIFE, 8))


def test_clearing_one_node_leaves_the_other_alone() -> None:
    """F085, F091: claims of the same blocks, held and dropped by each node for itself."""
    first, second = (holdings(snapshot(1, stored(*range(100)))) for _ in range(2))
    first.apply(live(2, removed(5)))
    assert (5 in held(first), 5 in held(second)) == (False, True)
    first.apply(live(3, Cleared()))
    assert (len(first), len(second)) == (0, 100)
