"""``config.json`` of Hugging Face, as far as it says what a Llama computes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from prefix_cache.errors import UnsupportedModel
from prefix_cache.worker.model_config import ModelConfig
from prefix_cache.worker.rope import LinearScaling, Llama3Scaling, RopeScaling

_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class HFArchitecture(msgspec.Struct, kw_only=True):
    """What says which other fields there are."""

    architectures: tuple[str, ...]


class HFConfig(HFArchitecture, kw_only=True):
    """The fields that matter, with the defaults that Hugging Face has for them."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: _Count
    num_key_value_heads: _Count | None = None
    head_dim: _Count | None = None
    max_position_embeddings: int = 2048
    rope_theta: _Positive | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    rms_norm_eps: float = 1e-6
    tie_word_embeddings: bool = False
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    partial_rotary_factor: float = 1.0
    sliding_window: int | None = None
    quantization_config: dict[str, Any] | None = None
    eos_token_id: int | tuple[int, ...] | None = None


class _Linear(msgspec.Struct):
    factor: _Positive


class _Llama3(msgspec.Struct):
    factor: _Positive
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: _Count


def check_architecture(config: HFArchitecture, name: str) -> None:
    """Raise UnsupportedModel for a model that is no Llama."""
    supported = ("LlamaForCausalLM",), ("MistralForCausalLM",)
    if config.architectures not in supported:
        raise unsupported(name, "architectures", config.architectures, *supported)


def model_config(config: HFConfig, name: str) -> ModelConfig:
    """Return the sizes of the model.

    Raises UnsupportedModel for what the worker does not compute, InvalidArgument for sizes that
    no model can have, msgspec.ValidationError for a scaling of positions without its numbers.
    """
    for field, found, supported in _conditions(config):
        if found not in supported:
            raise unsupported(name, field, found, *supported)
    rope = config.rope_parameters or config.rope_scaling or {}
    theta = msgspec.convert(rope.get("rope_theta"), _Positive | None)
    return ModelConfig(
        name=name,
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads or config.num_attention_heads,
        head_dim=config.head_dim or config.hidden_size // config.num_attention_heads,
        max_position=config.max_position_embeddings,
        rope_theta=theta or config.rope_theta or 10_000.0,
        rope_scaling=_rope_scaling(name, rope),
        rms_norm_eps=config.rms_norm_eps,
        tie_word_embeddings=config.tie_word_embeddings,
    )


def unsupported(name: str, field: str, found: object, *supported: object) -> UnsupportedModel:
    """Return the error for a model of this ``name`` that has something else than is supported."""
    expected = " or ".join(repr(value) for value in supported)
    return UnsupportedModel(f"{name}: {field} is {found!r}, expected {expected}", **{field: found})


def _conditions(config: HFConfig) -> list[tuple[str, object, tuple[object, ...]]]:
    """Field, what was found, and what is supported of it."""
    quantised = config.quantization_config
    window = config.sliding_window
    if window is not None and window >= config.max_position_embeddings:
        window = None  # it never hides anything
    return [
        ("hidden_act", config.hidden_act, ("silu",)),
        ("attention_bias", config.attention_bias, (False,)),
        ("mlp_bias", config.mlp_bias, (False,)),
        ("partial_rotary_factor", config.partial_rotary_factor, (1.0,)),
        ("sliding_window", window, (None,)),
        ("quantization_config", quantised and quantised.get("quant_method"), (None,)),
    ]


def _rope_scaling(name: str, rope: dict[str, Any]) -> RopeScaling | None:
    match rope.get("rope_type") or rope.get("type") or "default":
        case "default":
            return None
        case "linear":
            return LinearScaling(msgspec.convert(rope, _Linear).factor)
        case "llama3":
            found = msgspec.convert(rope, _Llama3)
            return Llama3Scaling(
                found.factor,
                found.low_freq_factor,
                found.high_freq_factor,
                found.original_max_position_embeddings,
            )
        case other:
            raise unsupported(name, "rope_type", other, "default", "linear", "llama3")
