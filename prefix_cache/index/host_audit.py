"""Checks that slots, tree and pending copies tell one story."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prefix_cache.index.host_tier import HostTier
from prefix_cache.index.run import Run


def host_faults(host: HostTier, runs: list[Run]) -> Iterator[str]:
    """Every invariant of the host tier that does not hold, where ``runs`` are all of the tree."""
    slots, pending = host.slots, host.pending.all()
    for run in runs:
        if run.on_host and run.uses:
            yield f"run of slots {run.blocks.tolist()}: in use on the host"
        if run.on_host and not all(child.on_host for child in run.all_children()):
            yield f"run of slots {run.blocks.tolist()}: a child is on the GPU"
    cached = [slot for run in runs if run.on_host for slot in run.blocks]
    if sorted([*slots.free_numbers(), *cached, *slots.held]) != list(range(slots.size)):
        yield "a slot is lost, or in two states at once"
    if slots.cached != len(cached):
        yield f"{slots.cached} cached slots, expected {len(cached)}"
    written = Counter(slot for copy in pending for slot in copy.offloads)
    read = Counter(slot for copy in pending for slot in copy.sources)
    if slots.readers != read:
        yield f"slots read by copies are {dict(slots.readers)}, expected {dict(read)}"
    if slots.arriving != written.keys() or any(count > 1 for count in written.values()):
        yield "the arriving slots are not those of the pending offloads"
    if not slots.held <= written.keys() | read.keys():
        yield "a slot is held by no copy"
