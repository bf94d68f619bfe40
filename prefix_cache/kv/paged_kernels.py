"""Paged attention by FlashInfer's kernels: they read the blocks in place, where they are."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache, lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from prefix_cache.kv.batch import PagedBatch
from prefix_cache.kv.layout import KVLayout
from prefix_cache.kv.pool import KVPool

_DTYPES = {torch.float16, torch.bfloat16}
_HEAD_DIMS = {64, 128, 256}
_WORKSPACE_BYTES = 128 * 1024 * 1024


def kernel_fits(pool: KVPool) -> bool:
    """Whether FlashInfer is installed and has a kernel for the pool's device, dtype and heads."""
    return (
        pool.device.type == "cuda"
        and pool.compute_dtype == pool.layout.torch_dtype
        and pool.compute_dtype in _DTYPES
        and pool.layout.head_dim in _HEAD_DIMS
        and importlib.util.find_spec("flashinfer") is not None
    )


def kernel_attention(query: Tensor, pool: KVPool, layer: int, batch: PagedBatch) -> Tensor:
    """Return what ``paged_attention`` does, for a pool that a kernel fits."""
    keys, values = pool.stored(layer)
    kernel = _planned(batch, query.shape[1], pool.layout, query.dtype, pool.device)
    output: Tensor = kernel.run(query, (keys, values))
    return output


@lru_cache(maxsize=1)  # all layers of a batch share its plan
def _planned(
    batch: PagedBatch, num_heads: int, layout: KVLayout, dtype: torch.dtype, device: torch.device
) -> Any:
    ends = np.array([a_slice.end for a_slice in batch.slices])
    kernel = _kernel(device)
    kernel.plan(
        _starts([a_slice.count for a_slice in batch.slices], device),
        _starts([len(table) for table in batch.tables], device),
        torch.from_numpy(np.concatenate(batch.tables)).to(device, torch.int32),
        torch.from_numpy((ends - 1) % layout.block_size + 1).to(device, torch.int32),
        num_heads,
        layout.num_kv_heads,
        layout.head_dim,
        layout.block_size,
        causal=True,
        q_data_type=dtype,
        kv_data_type=dtype,
    )
    return kernel


@cache
def _kernel(device: torch.device) -> Any:
    workspace = torch.empty(_WORKSPACE_BYTES, dtype=torch.uint8, device=device)
    flashinfer = importlib.import_module("flashinfer")
    return flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD")


def _starts(counts: list[int], device: torch.device) -> Tensor:
    """Where each begins, and the end of the last: int32 [B + 1]."""
    starts = np.concatenate(([0], np.cumsum(counts)))
    return torch.from_numpy(starts).to(device, torch.int32)
