"""Attention of a batch's tokens over the KV in the blocks of their sequences."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from prefix_cache.errors import InvalidArgument
from prefix_cache.kv.batch import PagedBatch
from prefix_cache.kv.paged_kernels import kernel_attention, kernel_fits
from prefix_cache.kv.pool import KVPool


def paged_attention(query: Tensor, pool: KVPool, layer: int, batch: PagedBatch) -> Tensor:
    """Attend causally: each token sees its sequence up to itself, cached prefix included.

    ``query``: [T, heads, head_dim] in the pool's compute dtype, rotated as the keys are.  The
    batch's own keys and values have been written before.  Returns the same shape.  Query heads
    share KV heads in groups (GQA); scores are scaled by ``1 / sqrt(head_dim)``.

    Raises InvalidArgument where query, pool and batch do not fit each other.
    """
    _check(query, pool, batch)
    if kernel_fits(pool):
        return kernel_attention(query, pool, layer, batch)
    output = torch.empty_like(query)
    for group in batch.groups:
        keys, values = pool.read(layer, group.table)[:, :, : group.num_keys].transpose(2, 3)
        attend = _decodes if len(group.rows) == len(group.table) else _prefill
        output[group.rows] = attend(query[group.rows], keys, values, group.mask)
    return output


def _decodes(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """[B, heads, head_dim]: a token of each of B sequences.

    All its heads see the same keys, so those that share a KV head are several queries to it; the
    KV is not repeated for each.
    """
    num_sequences, num_kv_heads, _, head_dim = keys.shape
    queries = query.view(num_sequences, num_kv_heads, -1, head_dim)
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask).view(query.shape)


def _prefill(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """[T, heads, head_dim]: the tokens of one sequence."""
    attended = F.scaled_dot_product_attention(
        query.transpose(0, 1)[None],
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,
        enable_gqa=True,
    )
    return attended[0].transpose(0, 1)


def _check(query: Tensor, pool: KVPool, batch: PagedBatch) -> None:
    num_tokens, layout = len(batch.positions), pool.layout
    if (
        query.dim() != 3
        or len(query) != num_tokens
        or query.shape[1] % layout.num_kv_heads
        or query.shape[2] != layout.head_dim
    ):
        raise InvalidArgument(
            f"queries of shape {tuple(query.shape)}; expected ({num_tokens}, a multiple of "
            f"{layout.num_kv_heads} heads, {layout.head_dim})",
            shape=tuple(query.shape),
        )
    if query.dtype != pool.compute_dtype:
        raise InvalidArgument(
            f"queries are {query.dtype}; the pool computes in {pool.compute_dtype}",
            dtype=str(query.dtype),
        )
    if batch.block_size != layout.block_size:
        raise InvalidArgument(
            f"the batch has blocks of {batch.block_size} tokens, the pool of {layout.block_size}",
            block_size=batch.block_size,
        )
    pool.check_block(batch.largest_block)
