"""What a Llama is made of: its sizes and constants, whichever file they come from."""

from __future__ import annotations

import math
from dataclasses import dataclass

from prefix_cache.errors import InvalidArgument
from prefix_cache.worker.rope import RopeScaling

_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "max_position",
)
_MOST_LAYERS = 10_000  # far beyond any model: the tensors of each are listed before any is read


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The sizes of a Llama.  Raises InvalidArgument for sizes that no model can have.

    ``max_position`` is how many positions it was trained on.
    """

    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = False

    def __post_init__(self) -> None:
        for name in _SIZES:
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise self._invalid(name, "a positive integer")
        if self.num_layers > _MOST_LAYERS:
            raise self._invalid("num_layers", f"at most {_MOST_LAYERS}")
        if self.num_heads % self.num_kv_heads:
            raise self._invalid("num_heads", f"a multiple of num_kv_heads {self.num_kv_heads}")
        if self.head_dim % 2:
            raise self._invalid("head_dim", "an even number")
        if not (self.rope_theta > 0 and math.isfinite(self.rope_theta)):
            raise self._invalid("rope_theta", "a finite number above 0")
        if not (self.rms_norm_eps >= 0 and math.isfinite(self.rms_norm_eps)):
            raise self._invalid("rms_norm_eps", "a finite number from 0 on")

    def _invalid(self, name: str, expected: str) -> InvalidArgument:
        value = getattr(self, name)
        return InvalidArgument(
            f"{self.name}: {name} is {value!r}, expected {expected}", **{name: value}
        )
