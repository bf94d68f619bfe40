"""What storing KV in fewer bits costs: errors against context length, on synthetic KV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from prefix_cache.kv.attention import paged_attention
from prefix_cache.kv.batch import PagedBatch, SequenceSlice
from prefix_cache.kv.layout import KVLayout
from prefix_cache.kv.pool import KVPool
from prefix_cache.kv.storages import STORAGES, Storage

_KV_HEADS, _QUERY_HEADS, _HEAD_DIM = 2, 8, 128
_NUM_QUERIES = 64
# As in real models, a few channels of the keys are much larger than the others.
_OUTLIER_CHANNELS, _OUTLIER_FACTOR = 4, 10.0


@dataclass(frozen=True)
class MeasuredError:
    """Relative errors, as norm of the difference / norm of the exact, of what is stored and of
    the attention of the last tokens over it.
    """

    num_tokens: int
    storage: Storage
    key_error: float
    value_error: float
    attention_error: float


def measured_errors(
    contexts: Sequence[int], storages: Sequence[Storage] = STORAGES, seed: int = 0
) -> Iterator[MeasuredError]:
    """Measure each storage at each context, of at least 64 tokens, against float64.

    Keys, values and queries are normal; of each key head, a few channels are 10 times as large.
    Fixed scales are calibrated on other KV of the same kind.
    """
    for num_tokens in contexts:
        generator = torch.Generator().manual_seed(seed)
        channels = _channel_sizes(generator)
        calibration_kv = _synthetic_kv(1024, channels, generator)
        keys, values = _synthetic_kv(num_tokens, channels, generator)
        query = torch.randn(_NUM_QUERIES, _QUERY_HEADS, _HEAD_DIM, generator=generator)
        exact = _exact_attention(query, keys, values)
        for storage in storages:
            layout = KVLayout(1, _KV_HEADS, _HEAD_DIM, dtype=storage.dtype)
            pool = KVPool(
                layout,
                -(-num_tokens // layout.block_size),
                scales=storage.scales_for(layout, [(0, *calibration_kv)]),
            )
            table = range(pool.num_blocks)
            whole = PagedBatch.of([SequenceSlice(table, 0, num_tokens)], layout.block_size)
            pool.write(0, whole.slot_mapping, keys, values)
            last = SequenceSlice(table, num_tokens - _NUM_QUERIES, _NUM_QUERIES)
            batch = PagedBatch.of([last], layout.block_size)
            stored_keys, stored_values = pool.gather(0, table, num_tokens)
            yield MeasuredError(
                num_tokens=num_tokens,
                storage=storage,
                key_error=relative_error(stored_keys, keys),
                value_error=relative_error(stored_values, values),
                attention_error=relative_error(paged_attention(query, pool, 0, batch), exact),
            )


def relative_error(got: Tensor, exact: Tensor) -> float:
    """Return the norm of the difference / the norm of the exact."""
    return float((got.double() - exact.double()).norm() / exact.double().norm())


def _channel_sizes(generator: torch.Generator) -> Tensor:
    sizes = torch.ones(_KV_HEADS, _HEAD_DIM)
    for head in sizes:
        head[torch.randperm(_HEAD_DIM, generator=generator)[:_OUTLIER_CHANNELS]] = _OUTLIER_FACTOR
    return sizes


def _synthetic_kv(
    num_tokens: int, channels: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    keys, values = torch.randn(2, num_tokens, *channels.shape, generator=generator)
    return keys * channels, values


def _exact_attention(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Causal attention of the last tokens, dense and in float64."""
    mask = torch.ones(len(query), len(keys), dtype=torch.bool).tril(len(keys) - len(query))
    q, k, v = (tensor.double().transpose(0, 1)[None] for tensor in (query, keys, values))
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return attended[0].transpose(0, 1)
