"""Attention as it is defined, over keys and values in a row, and sequences to hold it against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prefix_cache.kv import KVPool, PagedBatch, SequenceSlice


def dense_attention(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention of the last tokens in float64: [T, heads, head_dim] each."""
    group = query.shape[1] // keys.shape[1]
    q = query.double().transpose(0, 1)
    k, v = (x.double().repeat_interleave(group, dim=1).transpose(0, 1) for x in (keys, values))
    scores = q @ k.transpose(1, 2) / math.sqrt(query.shape[2])
    hidden = torch.ones(len(query), len(keys)).triu(len(keys) - len(query) + 1).bool()
    attended = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v
    return attended.transpose(0, 1)


@dataclass
class Story:
    """A sequence whose tokens from ``first`` on are computed now, with all its KV."""

    first: int
    query: Tensor
    keys: Tensor
    values: Tensor

    @property
    def count(self) -> int:
        return len(self.query)

    def exact(self) -> Tensor:
        return dense_attention(self.query, self.keys, self.values)


def make_story(
    first: int,
    count: int,
    heads: tuple[int, int, int],
    dtype: torch.dtype,
    generator: torch.Generator,
) -> Story:
    """Random tensors; ``heads``: query heads, KV heads, head dim."""
    query_heads, kv_heads, head_dim = heads
    keys, values = torch.randn(2, first + count, kv_heads, head_dim, generator=generator).to(dtype)
    query = torch.randn(count, query_heads, head_dim, generator=generator).to(dtype)
    return Story(first, query, keys, values)


def write_all(
    pool: KVPool, layer: int, stories: Sequence[Story], tables: Sequence[Sequence[int]]
) -> PagedBatch:
    """Write the cached prefixes, then what is computed now; the batch of the latter."""
    block_size = pool.layout.block_size
    for story, table in zip(stories, tables, strict=True):
        if story.first:
            prefix = PagedBatch.of([SequenceSlice(table, 0, story.first)], block_size)
            pool.write(
                layer, prefix.slot_mapping, story.keys[: story.first], story.values[: story.first]
            )
    batch = PagedBatch.of(
        [
            SequenceSlice(table, story.first, story.count)
            for story, table in zip(stories, tables, strict=True)
        ],
        block_size,
    )
    keys = torch.cat([story.keys[story.first :] for story in stories])
    values = torch.cat([story.values[story.first :] for story in stories])
    pool.write(layer, batch.slot_mapping, keys, values)
    return batch
