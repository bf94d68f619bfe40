"""How the KV of a token is laid out in memory, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from prefix_cache.errors import InvalidArgument

FP8 = {"fp8_e4m3": torch.float8_e4m3fn, "fp8_e5m2": torch.float8_e5m2}
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    **FP8,
}


@dataclass(frozen=True)
class KVLayout:
    """Shape of a model's KV and the dtype it is stored in, by name (one of ``DTYPES``).

    ``bytes_per_token`` and ``bytes_per_block`` are those of keys and values in all layers;
    scales that a pool keeps per block come on top.
    Raises InvalidArgument for an unknown dtype and for sizes below 1.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int = 16
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise InvalidArgument(
                f"unknown KV dtype {self.dtype!r}; expected one of {', '.join(DTYPES)}",
                dtype=self.dtype,
            )
        for name in ("num_layers", "num_kv_heads", "head_dim", "block_size"):
            if getattr(self, name) < 1:
                raise InvalidArgument(
                    f"{name} is {getattr(self, name)}; expected at least 1",
                    **{name: getattr(self, name)},
                )

    @property
    def torch_dtype(self) -> torch.dtype:
        """The dtype of the stored values."""
        return DTYPES[self.dtype]

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one token."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.torch_dtype.itemsize

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block."""
        return self.block_size * self.bytes_per_token
