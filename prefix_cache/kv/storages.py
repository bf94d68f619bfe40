"""The ways of storing KV that are measured against each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor

from prefix_cache.kv.calibration import Calibration
from prefix_cache.kv.layout import FP8, KVLayout
from prefix_cache.kv.scales import Scales


@dataclass(frozen=True)
class Storage:
    """A dtype of the layout, and for FP8 what the scales are of: block, head or layer."""

    dtype: str
    scales: str = ""

    @property
    def name(self) -> str:
        """The name to show."""
        return f"{self.dtype}, scale per {self.scales}" if self.scales else self.dtype

    def scales_for(
        self, layout: KVLayout, observed: Iterable[tuple[int, Tensor, Tensor]]
    ) -> Scales | None:
        """Return the scales of a pool, calibrated on ``observed`` (layer, keys, values)."""
        if not self.scales:
            return None
        if self.scales == "block":
            return Scales.per_block()
        calibration = Calibration(layout, per_head=self.scales == "head")
        for layer, keys, values in observed:
            calibration.observe(layer, keys, values)
        return calibration.scales()


STORAGES = (
    Storage("bfloat16"),
    Storage("float16"),
    *(Storage(dtype, scales) for dtype in FP8 for scales in ("block", "head", "layer")),
)
