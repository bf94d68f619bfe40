"""A worker whose model is so simple that the KV of any tokens is known."""

from __future__ import annotations

import torch
from torch import Tensor

from prefix_cache import Sequence
from prefix_cache.kv import KVLayout, KVPool, PagedBatch, Scales, SequenceSlice

POOLS = [("float32", None), ("fp8_e4m3", Scales.per_block())]


def kv_of(token: int, position: int) -> Tensor:
    """The KV that a token has at a position: exact in every dtype, and unlike any other's."""
    return torch.full((2, 1, 2, 4), float(token)) * 2.0 ** (position % 4)


class Worker:
    """Writes and reads the KV that the tokens of sequences have."""

    def __init__(self, dtype: str, scales: Scales | None) -> None:
        self.pool = KVPool(KVLayout(2, 2, 4, dtype=dtype), 4, host_blocks=4, scales=scales)

    def write(self, sequence: Sequence, tokens: list[int], first: int) -> None:
        table = sequence.block_table
        batch = PagedBatch.of([SequenceSlice(table, first, len(tokens))], 16)
        kv = torch.cat([kv_of(token, first + i) for i, token in enumerate(tokens)], dim=1)
        for layer in range(2):
            self.pool.write(layer, batch.slot_mapping, *kv)

    def holds(self, sequence: Sequence, tokens: list[int]) -> bool:
        """Whether the blocks of a sequence hold the KV of these tokens, in all layers."""
        kv = torch.cat([kv_of(token, i) for i, token in enumerate(tokens)], dim=1)
        table = sequence.block_table
        return all(
            torch.equal(torch.stack(self.pool.gather(layer, table, len(tokens))), kv)
            for layer in range(2)
        )
