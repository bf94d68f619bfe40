"""What is to be sized: a model, how it is spread over GPUs, and what it is to hold."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.errors import InvalidArgument
from prefix_cache.sizing.byte_sizes import GIB
from prefix_cache.sizing.dtypes import kv_bytes, weight_bits
from prefix_cache.sizing.shape import ModelShape

SCALES = ("layer", "head", "block")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Sizes in tokens and bytes; ``memory_bytes`` is that of one GPU, None to size KV alone.

    ``overhead``: what activations, graphs and libraries take of each GPU, at least and at most.
    ``kv_scales``: what shares a scale of FP8 KV, one of ``SCALES``; None without FP8.
    ``shared_prefix``: tokens that all conversations begin with.  Raises InvalidArgument for
    values that cannot be, each named with what was expected.
    """

    shape: ModelShape
    context: int
    dtype: str
    kv_dtype: str
    kv_scales: str | None = None
    memory_bytes: int | None = None
    utilization: float = 0.9
    overhead: tuple[int, int] = (GIB, 2 * GIB)
    tp: int = 1
    pp: int = 1
    dp: int = 1
    block_size: int = 16
    shared_prefix: int = 0

    def __post_init__(self) -> None:
        weight_bits(self.dtype)
        for name in ("context", "tp", "pp", "dp", "block_size"):
            _check(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        _check(
            "shared_prefix",
            self.shared_prefix,
            0 <= self.shared_prefix < self.context,
            f"less than the context, {self.context}",
        )
        num_layers = len(self.shape.layers)
        _check("pp", self.pp, self.pp <= num_layers, f"at most the {num_layers} layers")
        memory = self.memory_bytes
        _check("memory_bytes", memory, memory is None or memory > 0, "more than 0")
        _check("utilization", self.utilization, 0 < self.utilization <= 1, "above 0 and at most 1")
        low, high = self.overhead
        _check("overhead", self.overhead, 0 <= low <= high, "the lower end first")
        fp8 = kv_bytes(self.kv_dtype) == 1
        _check(
            "kv_scales",
            self.kv_scales,
            self.kv_scales in SCALES if fp8 else self.kv_scales is None,
            f"one of {', '.join(SCALES)}" if fp8 else f"none with {self.kv_dtype}",
        )
        if not any(layer.kv_heads or layer.state_bytes for layer in self.shape.layers):
            raise InvalidArgument(f"{self.shape.name} keeps nothing of its tokens")

    @property
    def num_gpus(self) -> int:
        """GPUs in all."""
        return self.tp * self.pp * self.dp


def _check(name: str, value: object, right: bool, expected: str) -> None:
    if not right:
        raise InvalidArgument(f"{name} is {value}; expected {expected}", field=name, value=value)
