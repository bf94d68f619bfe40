"""What a paged kernel of FlashInfer is told; a stand-in computes from just that."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from prefix_cache.kv import KVLayout, KVPool, paged_attention, paged_kernels

from .dense import dense_attention, make_story, write_all


class StandIn:
    """Has the shape of the library's wrapper, and its documented meaning."""

    plans = 0

    def __init__(self, workspace: Tensor, kv_layout: str) -> None:
        assert workspace.dtype == torch.uint8
        assert kv_layout == "NHD"

    def plan(
        self,
        qo_indptr: Tensor,
        paged_kv_indptr: Tensor,
        paged_kv_indices: Tensor,
        paged_kv_last_page_len: Tensor,
        num_qo_heads: int,
        num_kv_heads: int,
        head_dim_qk: int,
        page_size: int,
        *,
        causal: bool,
        q_data_type: torch.dtype,
        kv_data_type: torch.dtype,
    ) -> None:
        tensors = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        assert {tensor.dtype for tensor in tensors} == {torch.int32}
        assert (num_qo_heads, num_kv_heads, head_dim_qk, page_size) == (4, 2, 64, 16)
        assert causal
        assert (q_data_type, kv_data_type) == (torch.bfloat16, torch.bfloat16)
        self._rows, self._pages, self._indices, self._last = (t.tolist() for t in tensors)
        StandIn.plans += 1

    def run(self, query: Tensor, paged_kv_cache: tuple[Tensor, Tensor]) -> Tensor:
        outputs = []
        for i, last in enumerate(self._last):
            pages = self._indices[self._pages[i] : self._pages[i + 1]]
            length = (len(pages) - 1) * 16 + last
            keys, values = (cache[pages].flatten(0, 1)[:length] for cache in paged_kv_cache)
            rows = query[self._rows[i] : self._rows[i + 1]]
            outputs.append(dense_attention(rows, keys, values).to(query.dtype))
        return torch.cat(outputs)


@pytest.fixture
def _library(monkeypatch: pytest.MonkeyPatch) -> None:
    library: Any = ModuleType("flashinfer")
    library.BatchPrefillWithPagedKVCacheWrapper = StandIn
    monkeypatch.setitem(sys.modules, "flashinfer", library)
    monkeypatch.setattr("prefix_cache.kv.attention.kernel_fits", lambda pool: True)
    monkeypatch.setattr(StandIn, "plans", 0)


@pytest.mark.usefixtures("_library")
def test_a_kernel_is_planned_once_for_all_layers_of_a_batch() -> None:
    pool = KVPool(KVLayout(2, 2, 64, dtype="bfloat16"), 12, compute_dtype=torch.bfloat16)
    generator = torch.Generator().manual_seed(0)
    stories = [
        make_story(first, count, (4, 2, 64), torch.bfloat16, generator)
        for first, count in [(30, 20), (47, 1), (0, 5), (15, 1)]
    ]
    tables = [[7, 3, 11, 0], [2, 9, 5], [10], [1]]
    query = torch.cat([story.query for story in stories])
    for layer in range(2):
        batch = write_all(pool, layer, stories, tables)
    for layer in range(2):
        got = paged_attention(query, pool, layer, batch)
        exact = torch.cat([story.exact() for story in stories])
        torch.testing.assert_close(got.double(), exact, rtol=1e-2, atol=1e-2)
    assert StandIn.plans == 1


def test_without_a_gpu_no_kernel_fits() -> None:
    pool = KVPool(KVLayout(1, 2, 64, dtype="bfloat16"), 1, compute_dtype=torch.bfloat16)
    assert not paged_kernels.kernel_fits(pool)
