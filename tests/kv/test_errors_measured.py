"""What KV in fewer bits costs, as it is measured."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prefix_cache.kv import KVLayout, KVPool, PagedBatch, paged_attention
from prefix_cache.kv.measured_error import measured_errors
from prefix_cache.kv.model_error import model_errors
from prefix_cache.kv.storages import STORAGES


def test_more_bits_make_smaller_errors() -> None:
    errors = {
        error.storage.name: (error.key_error, error.value_error, error.attention_error)
        for error in measured_errors([128])
    }
    assert list(errors) == [
        "bfloat16",
        "float16",
        "fp8_e4m3, scale per block",
        "fp8_e4m3, scale per head",
        "fp8_e4m3, scale per layer",
        "fp8_e5m2, scale per block",
        "fp8_e5m2, scale per head",
        "fp8_e5m2, scale per layer",
    ]
    for name, found in errors.items():
        # Rounding to b fraction bits: at most 2^-(b+1), about 0.4 of it in the mean square.
        fraction_bits = {"bfloat16": 7, "float16": 10, "fp8_e4m3": 3, "fp8_e5m2": 2}[
            name.split(",")[0]
        ]
        worst = 2.0 ** -(fraction_bits + 1)
        assert 0.3 * worst < found[0] < 0.6 * worst
        assert 0.3 * worst < found[1] < 0.6 * worst
        assert worst < found[2] < 4 * worst


def test_the_same_seed_gives_the_same_errors() -> None:
    assert list(measured_errors([64], seed=3)) == list(measured_errors([64], seed=3))
    assert list(measured_errors([64], seed=3)) != list(measured_errors([64], seed=4))


class OneLayer:
    """A model that attends once, over random embeddings, and says what is nearest."""

    def __init__(self) -> None:
        self._embeddings = torch.randn(50, 2, 8, generator=torch.Generator().manual_seed(0))

    def kv_layout(self, block_size: int = 16, dtype: str = "float32") -> KVLayout:
        return KVLayout(1, 2, 8, block_size, dtype)

    def forward(
        self, token_ids: Tensor, batch: PagedBatch, pool: KVPool, rows: Tensor | None = None
    ) -> Tensor:
        hidden = self._embeddings[token_ids]
        pool.write(0, batch.slot_mapping, hidden, hidden)
        attended = paged_attention(hidden, pool, 0, batch)[
            batch.last_rows if rows is None else rows
        ]
        return attended.flatten(1) @ self._embeddings.flatten(1).T


def test_a_models_logits_are_compared_at_each_context() -> None:
    tokens = torch.randint(50, (100,), generator=torch.Generator().manual_seed(1)).tolist()
    errors = list(model_errors(OneLayer(), tokens, [64, 100]))
    assert [error.num_tokens for error in errors] == [64] * len(STORAGES) + [100] * len(STORAGES)
    by_name = {error.storage.name: error for error in errors}
    assert (
        by_name["float16"].logits_error < 2**-10 < by_name["fp8_e4m3, scale per head"].logits_error
    )
    assert by_name["float16"].greedy_agreement > 0.95
    assert all(error.logits_error < 0.3 for error in errors)


@pytest.mark.parametrize("storage", STORAGES, ids=lambda storage: storage.name)
def test_every_storage_can_be_measured_alone(storage: object) -> None:
    (error,) = measured_errors([64], [storage])  # type: ignore[list-item]
    assert error.storage == storage
