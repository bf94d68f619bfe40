"""What a config leaves to the model type: its layers, and defaults of its configuration class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """How a model type differs from Llama.

    ``gated``: the MLP has three matrices rather than two.  ``qkv_bias``, ``all_bias``: which linear
    maps have biases.  ``norms``: vectors of the hidden size per layer.  ``qk_norm``: norms of query
    and key heads.  ``positions``: learned positions beyond ``max_position_embeddings``, None where
    none are learned.  ``layer_kind``: of all layers where the config does not list kinds.
    ``inner_multiple``: of the hidden size, the MLP's width where the config leaves it out.
    ``defaults``: fields that published configs leave out.
    """

    gated: bool = True
    qkv_bias: bool = False
    all_bias: bool = False
    norms: int = 2
    qk_norm: bool = False
    positions: int | None = None
    layer_kind: str = "full_attention"
    inner_multiple: int | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)


LLAMA = Family()
_NO_WINDOW = {"use_sliding_window": False}
_TIED = {"tie_word_embeddings": True}

FAMILIES = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "mixtral": LLAMA,
    "phi3": LLAMA,
    "deepseek_v2": LLAMA,
    "deepseek_v3": LLAMA,
    "llama4_text": Family(defaults={"n_shared_experts": 1, "attention_chunk_size": 8_192}),
    "qwen2": Family(qkv_bias=True, defaults=_NO_WINDOW),
    "qwen2_moe": Family(qkv_bias=True, defaults=_NO_WINDOW),
    "qwen3": Family(qk_norm=True, defaults=_NO_WINDOW),
    "qwen3_moe": Family(qk_norm=True, defaults=_NO_WINDOW),
    "qwen3_next": Family(qk_norm=True),
    "jamba": LLAMA,
    "falcon_h1": Family(layer_kind="hybrid"),
    "nemotron_h": Family(gated=False, norms=1),
    "gpt2": Family(
        gated=False, all_bias=True, norms=4, positions=0, inner_multiple=4, defaults=_TIED
    ),
    "falcon": Family(gated=False, inner_multiple=4, defaults=_TIED),
    "bloom": Family(gated=False, all_bias=True, norms=4, inner_multiple=4, defaults=_TIED),
    "mpt": Family(gated=False, inner_multiple=4, defaults=_TIED),
    "cohere2": Family(norms=1, defaults={"tie_word_embeddings": True, "sliding_window_pattern": 4}),
    "gemma2": Family(
        norms=4,
        defaults={
            "tie_word_embeddings": True,
            "sliding_window_pattern": 2,
            "head_dim": 256,
            "vocab_size": 256_000,
        },
    ),
    "gemma3_text": Family(
        norms=4,
        qk_norm=True,
        defaults={
            "tie_word_embeddings": True,
            "sliding_window_pattern": 6,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262_208,
            "max_position_embeddings": 131_072,
        },
    ),
    "opt": Family(
        gated=False,
        all_bias=True,
        norms=4,
        positions=2,
        defaults={"tie_word_embeddings": True},
    ),
}
