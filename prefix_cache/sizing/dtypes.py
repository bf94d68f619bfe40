"""How many bits an element takes, for weights and for KV."""

from __future__ import annotations

from collections.abc import Mapping

from prefix_cache.errors import InvalidArgument

UNQUANTISED_BITS = 16
# Four-bit weights come in groups of 128 that share a 16-bit scale and a 4-bit zero point.
_GROUPED_INT4 = 4 + 20 / 128

WEIGHT_BITS = {
    "float32": 32,
    "bfloat16": 16,
    "float16": 16,
    "fp8": 8,
    "int8": 8,
    "int4": _GROUPED_INT4,
    "mxfp4": 4 + 8 / 32,  # a scale of 8 bits for 32 weights
    "nvfp4": 4 + 8 / 16,  # and for 16
}
KV_BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "fp8": 1,
    "fp8_e4m3": 1,
    "fp8_e5m2": 1,
}


def weight_bits(dtype: str) -> float:
    """Return the bits of a weight.  Raises InvalidArgument that lists the names there are."""
    return _of(WEIGHT_BITS, "weights", dtype)


def kv_bytes(dtype: str) -> int:
    """Return the bytes of an element of K or V.  Raises InvalidArgument likewise."""
    return int(_of(KV_BYTES, "KV", dtype))


def _of(known: Mapping[str, float], what: str, dtype: str) -> float:
    if dtype not in known:
        raise InvalidArgument(
            f"unknown dtype {dtype!r} of {what}: expected {', '.join(known)}", dtype=dtype
        )
    return known[dtype]
