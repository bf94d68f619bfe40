"""FP8 whose scales follow what is written: one for each block, KV head and layer."""

from __future__ import annotations

import torch
from torch import Tensor

from prefix_cache.kv.fp8 import dequantise, largest, quantise
from prefix_cache.kv.store import BlockStore

_FRACTION_BITS = 0x007F_FFFF
_EXPONENT_BITS = 0x7F80_0000
# A block of zeros has this scale; what is below it times the format's smallest becomes 0.
_LEAST_SCALE = 2.0**-120
# What it is rounded to, and all that is computed on the way, is finite in float32.
_LARGEST_VALUE = 2.0**119


class BlockScaled:
    """A write to a block's first slot begins the block anew, with the scale its tokens need.

    Later tokens of the same block that are larger raise the scale, and what the block holds is
    brought to it.  Scales are powers of two, so that costs nothing but bits at the small end:
    other values of the block keep all their fraction bits, as if written with that scale at once.
    """

    block_scales = True

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype

    def limits(self, layer: int) -> float:
        """Far beyond any KV: what is larger could not be scaled in float32."""
        return _LARGEST_VALUE

    def write(self, store: BlockStore, layer: int, slots: Tensor, kv: Tensor) -> None:
        """Write tokens, and bring what their blocks hold to the scales they need now."""
        assert store.scales is not None
        block_size = store.layout.block_size
        blocks, block_of_token = torch.unique(slots // block_size, return_inverse=True)
        offsets = slots % block_size
        begun = torch.zeros_like(blocks, dtype=torch.bool)
        begun[block_of_token[offsets == 0]] = True

        before = store.scales[layer][:, blocks].masked_fill(begun[None, :, None], 0)
        magnitudes = before.new_zeros(2, len(blocks), block_size, kv.shape[2])
        magnitudes[:, block_of_token, offsets] = kv.abs().amax(-1).float()
        maxima = magnitudes.amax(2)  # [2, n, kv_heads]
        needed = _power_of_two(maxima / largest(self._dtype)).clamp(min=_LEAST_SCALE)
        after = torch.maximum(before, needed)

        outgrown = ((before > 0) & (before < after)).any(2).any(0)
        if bool(outgrown.any()):
            self._rescale(store, layer, blocks[outgrown], (before / after)[:, outgrown])
        store.scales[layer][:, blocks] = after
        stored = quantise(kv, after[:, block_of_token, :, None], self._dtype)
        store.put(layer, slots, stored)

    def read(self, store: BlockStore, layer: int, blocks: Tensor, dtype: torch.dtype) -> Tensor:
        """Return what the blocks hold."""
        assert store.scales is not None
        scales = store.scales[layer].index_select(1, blocks)[:, :, None, :, None]
        return dequantise(store.take(layer, blocks), scales, dtype)

    def _rescale(self, store: BlockStore, layer: int, blocks: Tensor, ratios: Tensor) -> None:
        """Multiply what the blocks hold by ``ratios`` [2, n, kv_heads]."""
        held = store.take(layer, blocks).float() * ratios[:, :, None, :, None]
        store.put_blocks(layer, blocks, held.to(self._dtype))


def _power_of_two(values: Tensor) -> Tensor:
    """Return the smallest powers of two that are not below ``values`` (float32, not negative).

    By their bits, and so exactly: a float32 without fraction bits is a power of two, and all ones
    added to its fraction carry into the exponent unless it had none.
    """
    return ((values.view(torch.int32) + _FRACTION_BITS) & _EXPONENT_BITS).view(torch.float32)
