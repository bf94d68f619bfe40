"""What a few cards offer.

Memory is what the driver reports as total (error correction takes a sixteenth of GDDR, some of
HBM); bandwidth and dense BF16 throughput with FP32 accumulation are those of the makers' data
sheets: NVIDIA T4, A10, L4, L40S, A100 (SXM), H100 (SXM), H200 (SXM), the whitepapers of GA102 and
AD102 for RTX 3090 and RTX 4090, AMD MI300X.  Where a sheet gives throughput with sparsity, it is
halved.  T4 has no BF16: FP16.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from prefix_cache.errors import InvalidArgument
from prefix_cache.sizing.byte_sizes import parse_bytes

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card: bytes, bytes a second, floating-point operations a second."""

    name: str
    memory_bytes: int
    memory_bandwidth: float
    flops: float


GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("t4", 15_360 * _MIB, 320e9, 65e12),
        Gpu("a10", 23_028 * _MIB, 600e9, 125e12),
        Gpu("l4", 23_034 * _MIB, 300e9, 121e12),
        Gpu("l40s", 46_068 * _MIB, 864e9, 362e12),
        Gpu("rtx3090", 24_576 * _MIB, 936e9, 71e12),
        Gpu("rtx4090", 24_564 * _MIB, 1_008e9, 165e12),
        Gpu("a100-40g", 40_960 * _MIB, 1_555e9, 312e12),
        Gpu("a100-80g", 81_920 * _MIB, 2_039e9, 312e12),
        Gpu("h100", 81_559 * _MIB, 3_350e9, 989e12),
        Gpu("h200", 143_771 * _MIB, 4_800e9, 989e12),
        Gpu("mi300x", 196_592 * _MIB, 5_300e9, 1_307e12),
    )
}


def gpu(name: str) -> Gpu:
    """Return the card of this name, however it is spelt (``RTX 4090``, ``rtx_4090``).

    Raises InvalidArgument that lists the names most alike.
    """
    key = _key(name)
    for known in GPUS.values():
        if _key(known.name) == key:
            return known
    near = difflib.get_close_matches(name.lower(), GPUS, n=3, cutoff=0.4) or list(GPUS)
    raise InvalidArgument(
        f"unknown GPU {name!r}: expected a size such as 24GiB, or a card such as {', '.join(near)}",
        gpu=name,
    )


def gpu_memory(text: str) -> int:
    """Return the bytes of a size (``24GiB``) or of a card (``h100``).

    Raises InvalidArgument for what is neither, and for a size of 0.
    """
    if not text.lstrip()[:1].isdigit() and not text.lstrip().startswith("-"):
        return gpu(text).memory_bytes
    size = parse_bytes(text)
    if size == 0:
        raise InvalidArgument(f"a GPU of {text} has no memory; expected a size such as 24GiB")
    return size


def _key(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower())).removesuffix("b")
