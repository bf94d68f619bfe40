"""A hash function of the caller's, which may fail at any call."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xxhash import xxh3_128_digest

from prefix_cache import BlockCache, Identity
from prefix_cache.errors import InvalidArgument
from prefix_cache.index import BlocksStored, Event

WHO = Identity(model="m")


class Flaky:
    """Hashes, but for one call from now on, which does something else."""

    def __init__(self) -> None:
        self.calls_left = -1
        self.instead: Callable[[], bytes] = bytes

    def __call__(self, parent: bytes, block: bytes, extra: bytes) -> bytes:
        self.calls_left -= 1
        if self.calls_left == 0:
            return self.instead()
        return xxh3_128_digest(parent + block + extra)

    def fail(self) -> bytes:
        raise RuntimeError("no hash today")


@pytest.mark.parametrize("call", range(1, 9))
@pytest.mark.parametrize(
    ("error", "instead"),
    [(RuntimeError, Flaky().fail), (InvalidArgument, lambda: b"too short")],
    ids=["raises", "another length"],
)
def test_a_commit_whose_hash_fails_has_changed_nothing(
    call: int, error: type[Exception], instead: Callable[[], bytes]
) -> None:
    """Also where forks share some of the blocks only, and some are cached in another copy."""
    flaky = Flaky()
    events: list[Event] = []
    cache = BlockCache(num_blocks=32, block_size=4, hash_function=flaky, on_event=events.append)
    first = cache.acquire(WHO, list(range(6)))
    seq = cache.acquire(WHO, list(range(10)))
    cache.commit(first, 6)
    fork = cache.fork(seq)
    cache.append(seq, [9] * 20)
    before = cache.stats(), seq.num_committed_tokens, fork.num_committed_tokens, list(events)

    flaky.calls_left, flaky.instead = call, instead
    failed = False
    try:
        cache.commit(seq, 28)
    except error:
        failed = True
        after = cache.stats(), seq.num_committed_tokens, fork.num_committed_tokens, events
        assert after == before
    # One call for the block that is cached already, six for new ones.
    assert failed == (call <= 7)

    flaky.calls_left = -1
    cache.audit()
    cache.commit(seq, 28)
    cache.audit()
    stored = [len(e.block_hashes) for e in events if isinstance(e, BlocksStored)]
    assert stored == [1, 6]
    assert (seq.num_committed_tokens, fork.num_committed_tokens) == (28, 8)


@pytest.mark.parametrize("bad", [5, "xxh3"])
def test_what_is_no_function_is_refused(bad: object) -> None:
    with pytest.raises(InvalidArgument, match="expected a function"):
        BlockCache(hash_function=bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="expected a function"):
        BlockCache(on_event=bad)  # type: ignore[arg-type]
