"""The log of events: numbered, bounded, and a snapshot where it does not reach back far enough."""

from __future__ import annotations

import asyncio
import gc
from itertools import islice
from random import Random

import pytest

from prefix_cache import BlockCache, Identity
from prefix_cache.client import NodeHoldings
from prefix_cache.index import BlocksRemoved, BlocksStored, Cleared, Event, Snapshot
from prefix_cache.node.event_log import EventLog
from prefix_cache.node.watch import Watch
from prefix_cache.wire import NodeEvent, SnapshotEnded, SnapshotStarted

WHO = Identity("m")
LIFE = 11


class Logged:
    """A cache of 64 blocks of 16 tokens whose events are logged; an event takes about 640 bytes."""

    def __init__(self, max_bytes: int = 1_000_000) -> None:
        self.log = EventLog(LIFE, self._snapshot, max_bytes)
        self.cache = BlockCache(64, on_event=self.log.record)
        self.snapshots_taken = 0

    def _snapshot(self, with_tokens: bool) -> Snapshot:
        self.snapshots_taken += 1
        return self.cache.snapshot(with_tokens=with_tokens)

    def store(self, *numbers: int) -> None:
        """Make one block findable for each number."""
        for number in numbers:
            sequence = self.cache.acquire(WHO, [number] * 16)
            self.cache.commit(sequence, 16)
            self.cache.release(sequence)

    def watch(self, incarnation: int = 0, number: int = 0) -> Watch:
        return Watch(self.log, incarnation, number, with_tokens=False)


def kinds(events: list[NodeEvent]) -> list[str]:
    return [f"{event.number} {type(event.event).__name__}" for event in events]


def test_events_are_numbered_from_one() -> None:
    logged = Logged()
    logged.store(1, 2)
    logged.cache.reset()
    assert kinds(list(logged.watch(LIFE, 0).news())) == [
        "1 BlocksStored",
        "2 BlocksStored",
        "3 Cleared",
    ]
    assert kinds(list(logged.watch(LIFE, 2).news())) == ["3 Cleared"]
    assert kinds(list(logged.watch(LIFE, 3).news())) == []


def test_who_asks_for_what_is_not_there_gets_a_snapshot_first() -> None:
    """No incarnation, another one, a number beyond the last, one that the ring has lost."""
    logged = Logged(max_bytes=2_000)
    logged.store(*range(10))
    snapshot = ["10 SnapshotStarted", *["10 BlocksStored"] * 10, "10 SnapshotEnded"]
    for incarnation, number in [(0, 0), (LIFE + 1, 10), (LIFE, 11), (LIFE, 0), (LIFE, 6)]:
        assert kinds(list(logged.watch(incarnation, number).news())) == snapshot
    assert kinds(list(logged.watch(LIFE, 7).news())) == [
        f"{number} BlocksStored" for number in (8, 9, 10)
    ]


def test_the_log_takes_no_more_memory_than_it_may() -> None:
    logged = Logged(max_bytes=10_000)
    for number in range(1_000):
        logged.store(number)
        assert logged.log.bytes <= 10_000
    assert logged.log.last == 1_936  # 1,000 stored, and 936 evictions once the pool was full
    assert not logged.log.reaches(LIFE, 1_900)
    assert logged.log.reaches(LIFE, 1_930)


def test_what_an_event_takes_counts_tokens_extra_keys_and_hashes() -> None:
    def taken(event: Event) -> int:
        log = Logged().log
        log.record(event)
        return log.bytes

    def stored(hashes: int = 0, tokens: int = 0, key: bytes = b"") -> BlocksStored:
        names = tuple(b"%d" % number for number in range(hashes))
        return BlocksStored(names, None, bytes(tokens), 16, (key,), WHO)

    nothing = taken(Cleared())
    assert nothing == 512
    assert taken(stored(tokens=1_000)) == nothing + 1_000
    assert taken(stored(key=b"k" * 300)) == nothing + 300
    assert taken(stored(hashes=10)) == nothing + 640
    assert taken(BlocksRemoved((b"a", b"b"))) == nothing + 128


def test_one_event_is_kept_however_large_it_is() -> None:
    """Otherwise who follows would get one snapshot after the other."""
    logged = Logged(max_bytes=1)
    logged.store(1)
    watch = logged.watch()
    list(watch.news())
    logged.store(2)
    assert kinds(list(watch.news())) == ["2 BlocksStored"]


def test_a_large_event_is_several_each_with_a_number() -> None:
    log = Logged().log
    log.record(BlocksRemoved(tuple(b"%d" % number for number in range(2_049))))
    news = list(Watch(log, LIFE, 0, with_tokens=False).news())
    assert kinds(news) == ["1 BlocksRemoved", "2 BlocksRemoved", "3 BlocksRemoved"]


def test_events_that_come_while_a_snapshot_is_read_follow_it() -> None:
    logged = Logged()
    logged.store(1, 2)
    news = logged.watch().news()
    started = next(news)
    logged.store(3)
    assert kinds([started, *news]) == [
        "2 SnapshotStarted",
        "2 BlocksStored",
        "2 BlocksStored",
        "2 SnapshotEnded",
        "3 BlocksStored",
    ]


def test_a_snapshot_that_the_log_has_left_behind_is_begun_again() -> None:
    logged = Logged(max_bytes=2_000)
    logged.store(1, 2, 3)
    news = logged.watch().news()
    told = [next(news), next(news)]
    logged.store(*range(10, 20))
    told += news
    assert kinds(told) == [
        "3 SnapshotStarted",
        "3 BlocksStored",
        "13 SnapshotStarted",
        *["13 BlocksStored"] * 13,
        "13 SnapshotEnded",
    ]
    holdings = NodeHoldings()
    for event in told:
        holdings.apply(event)
    assert len(holdings) == 13


def test_readers_share_a_snapshot_and_it_goes_with_the_last_of_them() -> None:
    logged = Logged()
    logged.store(1)
    first, second = logged.watch().news(), logged.watch().news()
    next(first)
    logged.store(2)
    assert kinds([next(second)]) == ["1 SnapshotStarted"]
    assert kinds(list(second))[-1] == "2 BlocksStored"
    assert logged.snapshots_taken == 1
    del first, second
    gc.collect()
    assert kinds([next(logged.watch().news())]) == ["2 SnapshotStarted"]
    assert logged.snapshots_taken == 2


def test_a_new_incarnation_begins_again_with_nothing() -> None:
    logged = Logged()
    logged.store(1, 2)
    watch = logged.watch(LIFE, 2)
    reading = logged.watch().news()
    next(reading)

    logged.cache.reset()
    logged.log.begin(LIFE + 1)

    empty = [NodeEvent(12, 0, SnapshotStarted()), NodeEvent(12, 0, SnapshotEnded())]
    assert list(watch.news()) == empty
    assert list(reading) == empty
    logged.store(3)
    (stored,) = watch.news()
    assert (stored.incarnation, stored.number) == (12, 1)
    assert isinstance(stored.event, BlocksStored)


@pytest.mark.parametrize("seed", range(20))
def test_watchers_of_any_pace_end_with_exactly_what_is_findable(seed: int) -> None:
    """Stores, evictions, clearings and new lives, read a little at a time by five watchers."""
    random = Random(seed)
    logged = Logged(max_bytes=random.choice([2_000, 10_000, 100_000]))
    watches = [logged.watch() for _ in range(5)]
    readers = [watch.news() for watch in watches]
    mirrors = [NodeHoldings() for _ in watches]
    for step in range(500):
        dice = random.randrange(200)
        if dice < 2:
            logged.cache.reset()
        if dice == 0:
            logged.log.begin(LIFE + step)
        logged.store(random.randrange(150))
        at = random.randrange(len(watches))
        for event in islice(readers[at], random.randrange(60)):
            mirrors[at].apply(event)
        if random.randrange(10) == 0:
            readers[at] = watches[at].news()  # as after a wait, or on a new stream

    there = {block_hash for stored in logged.cache.snapshot() for block_hash in stored.block_hashes}
    assert len(there) > 10
    for watch, mirror in zip(watches, mirrors, strict=True):
        for event in watch.news():
            mirror.apply(event)
        assert set(mirror) == there


async def test_who_waits_is_woken_by_an_event_a_new_incarnation_or_the_end() -> None:
    logged = Logged()

    async def waiters() -> list[asyncio.Task[None]]:
        number = logged.log.last
        watches = [logged.watch(logged.log.incarnation, number) for _ in range(3)]
        tasks = [asyncio.create_task(watch.wait()) for watch in watches]
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)
        return tasks

    async with asyncio.timeout(20):
        waiting = await waiters()
        logged.store(1)
        await asyncio.gather(*waiting)

        waiting = await waiters()
        logged.log.begin(LIFE + 1)
        await asyncio.gather(*waiting)

        waiting = await waiters()
        waiting.pop().cancel()  # one that goes away does not disturb the others
        logged.log.close()
        await asyncio.gather(*waiting)
