"""How large KV is for a model, and how many conversations fit."""

from prefix_cache.sizing.byte_sizes import parse_bytes, show_bytes
from prefix_cache.sizing.fit import Fit, Sizing, size
from prefix_cache.sizing.gpus import Gpu, gpu, gpu_memory
from prefix_cache.sizing.known_models import shape_of
from prefix_cache.sizing.setup import Setup
from prefix_cache.sizing.shape import ModelShape

__all__ = [
    "Fit",
    "Gpu",
    "ModelShape",
    "Setup",
    "Sizing",
    "gpu",
    "gpu_memory",
    "parse_bytes",
    "shape_of",
    "show_bytes",
    "size",
]
