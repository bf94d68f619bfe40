"""Blocks in the host's memory: what was stored is what is loaded."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import xxhash

from prefix_cache.errors import CorruptBlock
from prefix_cache.kv.layout import KVLayout
from prefix_cache.kv.store import BlockStore


class HostStore(BlockStore):
    """A checksum of each slot is taken when it has been written, and compared before it is read.

    That takes about as long as the copy, far less than computing the block again, and finds a slot
    that is loaded though nothing was offloaded to it, and memory that somebody else wrote to.
    """

    def __init__(self, layout: KVLayout, num_slots: int, *, block_scales: bool) -> None:
        super().__init__(layout, num_slots, torch.device("cpu"), block_scales=block_scales)
        self._checksums: dict[int, int] = {}

    def seal(self, slots: Iterable[int]) -> None:
        """Take the checksums of slots that were written."""
        for slot in slots:
            self._checksums[slot] = self._checksum(slot)

    def verify(self, slots: Iterable[int]) -> None:
        """Raise CorruptBlock for a slot that does not hold what was offloaded to it."""
        for slot in slots:
            self.check_block(slot)
            if slot not in self._checksums:
                raise CorruptBlock(f"nothing was offloaded to slot {slot}", slot=slot)
            if self._checksums[slot] != self._checksum(slot):
                raise CorruptBlock(f"slot {slot} does not hold what was offloaded to it", slot=slot)

    def _checksum(self, slot: int) -> int:
        checksum = xxhash.xxh3_64()
        for tensor in self.tensors():
            checksum.update(tensor[:, :, slot].contiguous().view(torch.uint8).numpy().data)
        return checksum.intdigest()
