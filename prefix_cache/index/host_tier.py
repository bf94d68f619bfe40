"""The host tier: what is evicted from the GPU may live on in a slot of host memory.

Every path from a root leads over blocks on the GPU first, and then over blocks on the host.  What
goes from one tier to the other is copied by the worker, after the call that decided it: until the
copy is acknowledged, the slots it writes cannot be found, and the slots it reads stay.
"""

from __future__ import annotations

from array import array

from prefix_cache.index.block_pool import BlockPool
from prefix_cache.index.counts import Counts
from prefix_cache.index.host_pool import HostPool
from prefix_cache.index.pending_copies import PendingCopies, PendingCopy
from prefix_cache.index.place import Place
from prefix_cache.index.prefix_tree import PrefixTree
from prefix_cache.index.results import NO_COPIES, Copies
from prefix_cache.index.run import Run


class HostTier:
    """The slots, which of the tree's runs lie in them, and the copies that are under way."""

    def __init__(
        self,
        num_slots: int,
        tree: PrefixTree,
        pool: BlockPool,
        counts: Counts,
        pending: PendingCopies,
    ) -> None:
        self.slots = HostPool(num_slots)
        self.pending = pending
        self._tree = tree
        self._pool = pool
        self._counts = counts
        # Offloads of the running call: by slot, the block, and the run it was in.
        self._offloads: dict[int, int] = {}
        self._offloaded_from: dict[int, Run] = {}

    # --- find -------------------------------------------------------------------------------

    def split(self, place: Place) -> tuple[Place, array[int]]:
        """Where the GPU part of the way to ``place`` ends, and the slots after it.

        The slots go as far as what they hold is known to be written.
        """
        slots = array("i")
        for run, into in place.host_part():
            slots += run.blocks[:into]
        return place.gpu_end(), self.slots.written(slots)

    # --- what goes from tier to tier --------------------------------------------------------

    def evict(self, count: int, removed: list[bytes] | None) -> array[int]:
        """Take the ``count`` next blocks of the GPU away, to a slot where one can be had.

        ``removed`` gathers the hashes of what is on neither tier any more.  Least recently
        released blocks on the host make room, unless a pending copy touches them or what follows
        them.  Where there is no slot a block is dropped, and what follows it on the host.
        """
        blocks = array("i")
        while len(blocks) < count:
            run = next(iter(self._tree.unused))
            wanted = min(count - len(blocks), len(run.blocks))
            slots = self._take_slots(wanted, removed)
            if slots:
                moved = self._tree.to_host(run, slots)
                self._offloads.update(zip(slots, moved, strict=True))
                self._offloaded_from.update(dict.fromkeys(slots, run))
                blocks += moved
            elif run.children:
                self._give_back(self._tree.drop_after(run, removed))
                blocks += self._reject(run, 1, removed)
            else:
                blocks += self._reject(run, wanted, removed)
        return blocks

    def adopt(self, place: Place, blocks: array[int]) -> Run:
        """Put ``blocks`` in the place of the first blocks on the host up to ``place``.

        Returns the run that ends there, which is unused so far.
        """
        run = self._tree.boundary(place)
        self._give_back(self._tree.to_gpu(run, blocks))
        return run

    # --- copies -----------------------------------------------------------------------------

    def copies(self, sources: array[int], targets: array[int]) -> Copies:
        """What the worker has to copy for the running call, if anything; ends the call.

        Slots ``sources``, which the caller reads from, are loaded into its blocks ``targets``.
        """
        if not self._offloads and not sources:
            return NO_COPIES
        offloads, runs = self._offloads, self._offloaded_from
        self._offloads, self._offloaded_from = {}, {}
        self.slots.begin_writing(offloads)
        self._pool.share(targets)
        self._counts.offloaded_blocks += len(offloads)
        return Copies(
            copy_id=self.pending.open(PendingCopy(runs, sources, targets)),
            offloads=tuple(zip(offloads.values(), offloads, strict=True)),
            loads=tuple(zip(sources, targets, strict=True)),
        )

    def acknowledge(self, copy_id: int) -> None:
        """A copy was made: what it wrote can be found.  Raises ``UnknownCopy``."""
        self._end(self.pending.close(copy_id))

    def withdraw(self, copy_id: int, removed: list[bytes] | None) -> None:
        """A copy was not made: what it was to write is dropped, and what follows that.

        Raises ``UnknownCopy``.
        """
        copy = self.pending.close(copy_id)
        for slot in reversed(copy.offloads):
            if slot not in self.slots.held:  # else the tree has given it up already
                run = _on_host_with(slot, copy.offloads[slot])
                self._give_back(self._tree.drop_after(run, removed))
                count = len(run.blocks) - run.blocks.index(slot)
                self._give_back(self._tree.drop(run, count, removed))
        self._end(copy)

    # --- inside -----------------------------------------------------------------------------

    def _end(self, copy: PendingCopy) -> None:
        self.slots.end_writing(copy.offloads)
        self.slots.end_reading(copy.sources)
        self._pool.give_back(copy.targets)

    def _take_slots(self, wanted: int, removed: list[bytes] | None) -> array[int]:
        """Up to ``wanted`` slots: free ones first, then evicted ones."""
        slots = self.slots.take(min(wanted, self.slots.free))
        while len(slots) < wanted:
            for run in self._tree.hosted:
                idle = 0 if run.children else self.slots.idle_tail(run.blocks, wanted - len(slots))
                if idle:
                    break
            else:
                break
            slots += self._tree.drop(run, idle, removed)
        return slots

    def _reject(self, run: Run, count: int, removed: list[bytes] | None) -> array[int]:
        self._counts.rejected_offloads += count
        return self._tree.drop(run, count, removed)

    def _give_back(self, slots: array[int]) -> None:
        """Slots that the tree gave up; nothing is to be copied there any more."""
        if self._offloads:
            for slot in slots:
                self._offloads.pop(slot, None)
                self._offloaded_from.pop(slot, None)
        self.slots.give_back(slots)


def _on_host_with(slot: int, run: Run) -> Run:
    """Where the block of a slot is that went to the host with ``run``, which may be gone."""
    while not (run.on_host and slot in run.blocks):
        assert run.parent is not None, "a slot that is not held is in the tree"
        run = run.parent
    return run
