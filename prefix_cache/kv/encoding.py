"""How values become what a pool stores, and back."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from prefix_cache.errors import InvalidArgument, MissingScales, ValueOutOfRange
from prefix_cache.kv.block_scaled import BlockScaled
from prefix_cache.kv.fp8 import dequantise, largest, quantise
from prefix_cache.kv.layout import FP8, KVLayout
from prefix_cache.kv.scales import Scales
from prefix_cache.kv.store import BlockStore


class Encoding(Protocol):
    """Shapes: ``kv`` is [2 (keys, values), T, kv_heads, head_dim], ``limits`` fits it."""

    @property
    def block_scales(self) -> bool:
        """Whether the store keeps a scale for every block."""

    def limits(self, layer: int) -> Tensor | float:
        """Largest magnitude that can be written."""

    def write(self, store: BlockStore, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Write tokens, all within the limits, to ``slots`` [T]."""

    def read(self, store: BlockStore, layer: int, blocks: Tensor, dtype: torch.dtype) -> Tensor:
        """Return [2, n, block_size, kv_heads, head_dim] of ``blocks`` [n]."""


class Unscaled:
    """A floating-point dtype of 16 or 32 bits: values are rounded to it."""

    block_scales = False

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def limits(self, layer: int) -> float:
        """Largest value of the dtype."""
        return torch.finfo(self._dtype).max

    def write(self, store: BlockStore, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Write tokens."""
        store.put(layer, slots, kv.to(self._dtype))

    def read(self, store: BlockStore, layer: int, blocks: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what the blocks hold."""
        return store.take(layer, blocks).to(dtype)


class Scaled:
    """FP8 with scales that were known before: per layer, or per layer and KV head."""

    block_scales = False

    def __init__(self, dtype: torch.dtype, fixed: Tensor) -> None:
        self._dtype = dtype
        self._scales = fixed[:, :, None, :, None]  # [layers, 2, 1, kv_heads or 1, 1]

    def limits(self, layer: int) -> Tensor:
        """Largest value of the format times the scale."""
        return self._scales[layer] * largest(self._dtype)

    def write(self, store: BlockStore, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Write tokens."""
        store.put(layer, slots, quantise(kv, self._scales[layer], self._dtype))

    def read(self, store: BlockStore, layer: int, blocks: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what the blocks hold."""
        return dequantise(store.take(layer, blocks), self._scales[layer][:, None], dtype)


def encoding_of(layout: KVLayout, scales: Scales | None, device: torch.device) -> Encoding:
    """Return the encoding of a pool.

    Raises MissingScales for FP8 without scales, InvalidArgument for scales without FP8 or for
    another layout.
    """
    dtype = layout.torch_dtype
    if layout.dtype not in FP8:
        if scales is not None:
            raise InvalidArgument(
                f"scales for a {layout.dtype} pool; only FP8 has them", dtype=layout.dtype
            )
        return Unscaled(dtype)
    if scales is None:
        raise MissingScales(
            f"an {layout.dtype} pool needs scales: Scales.per_block(), or those of the model, "
            "which Calibration measures",
            dtype=layout.dtype,
        )
    scales.check(layout)
    return BlockScaled(dtype) if scales.fixed is None else Scaled(dtype, scales.fixed.to(device))


def check_range(kv: Tensor, layer: int, limits: Tensor | float) -> None:
    """Raise ValueOutOfRange for the value that is farthest beyond its limit, or not a number."""
    magnitudes = kv.abs().float()  # in 16 bits, a large limit would count as infinite
    if bool((magnitudes <= limits).all()):
        return
    worst = (magnitudes / limits).argmax()  # a NaN counts as the largest
    value = kv.flatten()[worst].item()
    limit = torch.as_tensor(limits).expand_as(kv).flatten()[worst].item()
    name = "key" if worst < kv[0].numel() else "value"
    raise ValueOutOfRange(
        f"a {name} of {value:g} in layer {layer}; the pool holds magnitudes up to {limit:g} there",
        value=value,
        layer=layer,
        limit=limit,
    )
