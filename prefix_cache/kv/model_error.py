"""What storing KV in fewer bits costs a model: errors of its logits against context length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from prefix_cache.kv.batch import PagedBatch, SequenceSlice
from prefix_cache.kv.layout import KVLayout
from prefix_cache.kv.measured_error import relative_error
from prefix_cache.kv.pool import KVPool
from prefix_cache.kv.storages import STORAGES, Storage

_LAST_TOKENS = 64


class Model(Protocol):
    """What is needed of the worker's model, which computes in float32."""

    def kv_layout(self, block_size: int = ..., dtype: str = ...) -> KVLayout:
        """Return how the model's keys and values lie in blocks."""

    def forward(
        self, token_ids: Tensor, batch: PagedBatch, pool: KVPool, rows: Tensor | None = None
    ) -> Tensor:
        """Return the logits after the tokens in ``rows``, [len(rows), vocabulary]."""


@dataclass(frozen=True)
class ModelError:
    """Of the last 64 tokens: relative error of the logits, and share of equal greedy choices."""

    num_tokens: int
    storage: Storage
    logits_error: float
    greedy_agreement: float


def model_errors(
    model: Model,
    token_ids: Sequence[int],
    contexts: Sequence[int],
    storages: Sequence[Storage] = STORAGES,
) -> Iterator[ModelError]:
    """Measure each storage on the first tokens of a text, against KV in float32.

    A context is at least 64 tokens and at most all.  Fixed scales are calibrated on the same
    tokens.
    """
    for num_tokens in contexts:
        tokens = torch.tensor(token_ids[:num_tokens])
        exact_layout = model.kv_layout()
        exact_pool = KVPool(exact_layout, -(-num_tokens // exact_layout.block_size))
        exact = _logits(model, tokens, exact_pool)
        table = range(exact_pool.num_blocks)
        for storage in storages:
            layout = model.kv_layout(dtype=storage.dtype)
            observed = (
                (layer, *exact_pool.gather(layer, table, num_tokens))
                for layer in range(layout.num_layers)
            )
            scales = storage.scales_for(layout, observed)
            got = _logits(model, tokens, KVPool(layout, exact_pool.num_blocks, scales=scales))
            agreed = (got.argmax(1) == exact.argmax(1)).double().mean()
            yield ModelError(num_tokens, storage, relative_error(got, exact), float(agreed))


def _logits(model: Model, tokens: Tensor, pool: KVPool) -> Tensor:
    whole = SequenceSlice(range(pool.num_blocks), 0, len(tokens))
    batch = PagedBatch.of([whole], pool.layout.block_size)
    rows = torch.arange(len(tokens) - _LAST_TOKENS, len(tokens))
    return model.forward(tokens, batch, pool, rows)
