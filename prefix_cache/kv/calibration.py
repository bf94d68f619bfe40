"""Scales measured on the keys and values of a model."""

from __future__ import annotations

import torch
from torch import Tensor

from prefix_cache.errors import InvalidArgument
from prefix_cache.kv.encoding import check_range
from prefix_cache.kv.fp8 import largest
from prefix_cache.kv.layout import FP8, KVLayout
from prefix_cache.kv.scales import Scales


class Calibration:
    """Largest magnitudes observed, for an FP8 ``layout``: per layer, or per KV head.

    Observe what a pool of another dtype gathers while the model runs on typical prompts::

        for layer in range(layout.num_layers):
            calibration.observe(layer, *pool.gather(layer, block_table, num_tokens))

    Raises InvalidArgument unless the layout is of FP8.
    """

    def __init__(self, layout: KVLayout, *, per_head: bool = False) -> None:
        if layout.dtype not in FP8:
            raise InvalidArgument(
                f"calibration for {layout.dtype}; only {' and '.join(FP8)} have scales",
                dtype=layout.dtype,
            )
        self._layout = layout
        self._per_head = per_head
        self._maxima = torch.zeros(layout.num_layers, 2, layout.num_kv_heads)

    def observe(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Take in keys and values, [T, kv_heads, head_dim] each.

        Raises ValueOutOfRange for one that is not finite.
        """
        kv = torch.stack((keys, values)).float()
        check_range(kv, layer, torch.finfo(torch.float32).max)
        seen = kv.abs().amax(dim=(1, 3)).to(self._maxima.device)
        self._maxima[layer] = torch.maximum(self._maxima[layer], seen)

    def scales(self, headroom: float = 2.0) -> Scales:
        """Return scales by which ``headroom`` times what was observed still fits.

        Headroom costs no precision but at the small end, for the formats are of floating point.
        Raises InvalidArgument for a headroom below 1, and where a layer was not observed.
        """
        if not headroom >= 1:
            raise InvalidArgument(f"a headroom of {headroom}; expected 1 or more", value=headroom)
        maxima = self._maxima if self._per_head else self._maxima.amax(2)
        missing = (maxima == 0).flatten(1).any(1).nonzero().flatten().tolist()
        if missing:
            raise InvalidArgument(
                f"nothing but zeros was observed in layer {missing[0]}; "
                "run prompts that reach all layers and heads",
                layer=missing[0],
            )
        scales = maxima * (headroom / largest(self._layout.torch_dtype))
        make = Scales.per_head if self._per_head else Scales.per_layer
        return make(scales[:, 0], scales[:, 1])
