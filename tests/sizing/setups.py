"""Setups for the tests, with the defaults of the command."""

from __future__ import annotations

from typing import Any

from prefix_cache.sizing import ModelShape, Setup, parse_bytes, shape_of


def setup(model: str | ModelShape, **more: Any) -> Setup:
    shape = shape_of(model) if isinstance(model, str) else model
    usual = {"context": 8_192, "dtype": shape.dtype, "kv_dtype": shape.kv_dtype}
    return Setup(shape=shape, **{**usual, **more})


def on_24_gib(model: str | ModelShape, **more: Any) -> Setup:
    return setup(model, memory_bytes=parse_bytes("24GiB"), **more)


def llama_config(**more: Any) -> dict[str, Any]:
    """A small config of the most usual kind: 4 layers, 8 heads, 2 KV heads of 64 elements."""
    return {
        "model_type": "llama",
        "num_hidden_layers": 4,
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 4096,
        **more,
    }
