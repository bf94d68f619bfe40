"""By what the values of an FP8 pool are scaled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from prefix_cache.errors import InvalidArgument
from prefix_cache.kv.layout import KVLayout

Numbers = Tensor | Sequence[float] | Sequence[Sequence[float]]


@dataclass(frozen=True, eq=False)
class Scales:
    """A value is stored as ``value / scale``; ``fixed`` is None where every block has its own.

    ``fixed``: float32 [layers, 2 (keys, values), kv_heads], or 1 instead of kv_heads where the
    heads of a layer share one.
    """

    fixed: Tensor | None

    @classmethod
    def per_block(cls) -> Scales:
        """One scale for each block, KV head and layer, taken from the values written."""
        return cls(None)

    @classmethod
    def per_layer(cls, keys: Numbers, values: Numbers) -> Scales:
        """One scale for each layer: ``keys`` and ``values`` are [layers]."""
        return cls(_stacked(keys, values, dim=1)[:, :, None])

    @classmethod
    def per_head(cls, keys: Numbers, values: Numbers) -> Scales:
        """One scale for each layer and KV head: ``keys`` and ``values`` are [layers, kv_heads]."""
        return cls(_stacked(keys, values, dim=2))

    def check(self, layout: KVLayout) -> None:
        """Raise InvalidArgument where the scales are for another number of layers or heads."""
        if self.fixed is None:
            return
        num_layers, _, num_heads = self.fixed.shape
        if num_layers != layout.num_layers or num_heads not in (1, layout.num_kv_heads):
            raise InvalidArgument(
                f"scales for {num_layers} layers of {num_heads} KV heads; the layout has "
                f"{layout.num_layers} of {layout.num_kv_heads}",
                layers=num_layers,
                kv_heads=num_heads,
            )


def _stacked(keys: Numbers, values: Numbers, dim: int) -> Tensor:
    """[layers, 2] or [layers, 2, kv_heads], checked."""
    both = [torch.as_tensor(numbers, dtype=torch.float32) for numbers in (keys, values)]
    shapes = [tuple(tensor.shape) for tensor in both]
    if shapes[0] != shapes[1] or len(shapes[0]) != dim:
        expected = "[layers]" if dim == 1 else "[layers, kv_heads]"
        raise InvalidArgument(
            f"scales of shapes {shapes[0]} and {shapes[1]}; expected {expected} twice",
            keys=shapes[0],
            values=shapes[1],
        )
    stacked = torch.stack(both, dim=1)
    bad = stacked[~(stacked.isfinite() & (stacked > 0))]
    if len(bad):
        raise InvalidArgument(
            f"a scale of {bad[0].item()}; expected a finite number above 0", scale=bad[0].item()
        )
    return stacked
