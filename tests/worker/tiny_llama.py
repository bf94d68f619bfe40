"""A Llama small enough for tests, with random weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from prefix_cache.worker.llama_tensors import tensor_shapes
from prefix_cache.worker.model_config import ModelConfig

VOCAB_SIZE = 272


def tiny_config(**changes: Any) -> ModelConfig:
    """Grouped heads, whose size is not that of the hidden state divided by their number."""
    sizes: dict[str, Any] = {
        "name": "tiny",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_layers": 2,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_dim": 8,
        "max_position": 64,
    }
    return ModelConfig(**sizes | changes)


def random_tensors(config: ModelConfig, seed: int = 0) -> dict[str, Tensor]:
    """Weights that keep logits near those of a trained model in size."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * (0.2 if len(shape) > 1 else 1.0)
        for name, shape in tensor_shapes(config).items()
    }
