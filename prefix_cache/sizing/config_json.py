"""Reads the shape of a model from the fields of its ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefix_cache.errors import InvalidArgument
from prefix_cache.sizing.config_fields import Fields
from prefix_cache.sizing.families import FAMILIES
from prefix_cache.sizing.layer_kinds import HYBRID, LINEAR, MAMBA, MLP, MOE, layer_kinds, windows
from prefix_cache.sizing.mixers import (
    Mixer,
    attention,
    latent_attention,
    linear_attention,
    mamba,
    side_by_side,
)
from prefix_cache.sizing.mlps import has_experts, mlp_parameters
from prefix_cache.sizing.quantisation import published_dtype
from prefix_cache.sizing.shape import Layer, ModelShape

_USUAL_DTYPE = "bfloat16"
_PLAIN_DTYPES = ("float32", "bfloat16", "float16")

# What changes the KV that layers keep and is not read here: better no answer than a wrong one.
_NOT_READ = {
    "is_encoder_decoder": "a decoder attends to an encoder, whose KV is kept besides",
    "block_configs": "layers are of unlike make",
    "per_layer_config": "layers are of unlike make",
    "linear_attn_config": "some layers keep a state instead of KV",
    "hybrid_layer_pattern": "layers with a window have heads of their own",
    "compress_ratios": "KV is compressed along the tokens",
    "use_cla": "layers share KV",
}


def shape_from_config(config: Mapping[str, Any], name: str) -> ModelShape:
    """Return the shape that a config describes.

    Raises InvalidArgument that lists the fields that are missing, or names one of a wrong value.
    """
    fields = Fields(config, name)
    _refuse_what_is_not_read(fields)
    needed = ["num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"]
    if fields.family.inner_multiple is None:
        needed.append("intermediate_size")
    fields.require(*needed)
    hidden = fields.positive("hidden_size")
    embedding = hidden * fields.positive("vocab_size")
    plain = _plain_dtype(fields)
    return ModelShape(
        name=name,
        layers=_layers(fields),
        hidden_size=hidden,
        embedding_parameters=embedding,
        head_parameters=0 if fields.flag("tie_word_embeddings", False) else embedding,
        other_parameters=_other_parameters(fields, hidden),
        dtype=published_dtype(fields.get("quantization_config"), plain) or plain,
        kv_dtype=plain,
        max_context=_max_context(fields),
        notes=tuple(_notes(fields)),
    )


def _refuse_what_is_not_read(fields: Fields) -> None:
    for name, what in _NOT_READ.items():
        if fields.get(name):
            raise InvalidArgument(
                f"{fields.source}: cannot size model type {fields.model_type!r}: {name} says that "
                f"{what}, which is not understood",
                field=name,
            )


def _layers(fields: Fields) -> tuple[Layer, ...]:
    kinds = layer_kinds(fields)
    norms = fields.family.norms * fields.positive("hidden_size")
    shared = fields.whole("num_kv_shared_layers", 0)
    if shared > len(kinds):
        raise fields.unexpected("num_kv_shared_layers", shared, f"at most the {len(kinds)} layers")
    layers = []
    for number, (kind, window, kv_heads) in enumerate(
        zip(kinds, windows(fields, kinds), _kv_heads(fields), strict=True)
    ):
        mixer = _mixer(fields, kind, kv_heads)
        all_of_mlp, active_of_mlp = _mlp(fields, kinds, number)
        layers.append(
            Layer(
                kv_heads=mixer.kv_heads if number < len(kinds) - shared else 0,
                kv_width=mixer.kv_width,
                window=window,
                state_bytes=mixer.state_bytes,
                attention_width=mixer.attention_width,
                parameters=mixer.parameters + norms + all_of_mlp,
                active_parameters=mixer.parameters + norms + active_of_mlp,
            )
        )
    return tuple(layers)


def _mixer(fields: Fields, kind: str, kv_heads: int) -> Mixer:
    if kind in (MLP, MOE):
        return Mixer(0)
    if kind == LINEAR:
        return linear_attention(fields)
    if kind == MAMBA:
        return mamba(fields)
    if kind == HYBRID:
        return side_by_side(attention(fields, kv_heads), mamba(fields))
    if "kv_lora_rank" in fields:
        return latent_attention(fields)
    return attention(fields, kv_heads)


def _mlp(fields: Fields, kinds: list[str], number: int) -> tuple[int, int]:
    """All and active parameters; where MLPs are layers of their own, others have none."""
    if {MLP, MOE} & set(kinds):
        if kinds[number] not in (MLP, MOE):
            return 0, 0
        return mlp_parameters(fields, number, is_sparse=kinds[number] == MOE)
    return mlp_parameters(fields, number, is_sparse=has_experts(fields, number))


def _kv_heads(fields: Fields) -> list[int]:
    """One number for all layers or one each; multi-query has 1, and none told means all heads."""
    listed = fields.whole_per_layer("num_key_value_heads")
    if listed is None:
        listed = [_kv_heads_of_all(fields)] * fields.num_layers
    heads = fields.positive("num_attention_heads")
    for kv_heads in listed:
        if kv_heads and heads % kv_heads:
            raise fields.unexpected(
                "num_key_value_heads", kv_heads, f"a divisor of the {heads} query heads"
            )
    return listed


def _kv_heads_of_all(fields: Fields) -> int:
    # Falcon: the flag stands in configs of newer models, too, and there the number counts.
    if fields.flag("multi_query", False) and not fields.flag("new_decoder_architecture", False):
        return 1
    return fields.positive("num_key_value_heads", fields.positive("num_attention_heads"))


def _max_context(fields: Fields) -> int | None:
    name = "max_position_embeddings"
    return fields.positive(name) if name in fields else None


def _other_parameters(fields: Fields, hidden: int) -> int:
    """The final norm, and positions where they are learned."""
    family = fields.family
    final_norm = 2 * hidden if family.all_bias else hidden
    if family.positions is None:
        return final_norm
    return final_norm + (fields.positive("max_position_embeddings") + family.positions) * hidden


def _plain_dtype(fields: Fields) -> str:
    """The dtype that the model computes in, which is what engines keep its KV in."""
    told = _told_dtype(fields)
    return told if told in _PLAIN_DTYPES else _USUAL_DTYPE


def _told_dtype(fields: Fields) -> str:
    return str(fields.get("torch_dtype") or _USUAL_DTYPE).removeprefix("torch.")


def _notes(fields: Fields) -> list[str]:
    notes = []
    if fields.model_type not in FAMILIES:
        notes.append(
            f"model type {fields.model_type!r} is not known: weights are counted as Llama's are"
        )
    if (told := _told_dtype(fields)) not in _PLAIN_DTYPES:
        notes.append(f"computes in {_USUAL_DTYPE}: no engine does in the config's {told!r}")
    if "kv_lora_rank" in fields:
        notes.append(
            "MLA in its compressed layout: one latent per layer and token, which every GPU of a "
            "tensor-parallel group keeps whole"
        )
    if "index_head_dim" in fields:
        notes.append("the keys of its sparse-attention indexer are not counted")
    if shared := fields.whole("num_kv_shared_layers", 0):
        first = fields.num_layers - shared
        notes.append(f"layers from {first} on use the KV of earlier ones and keep none")
    if set(layer_kinds(fields)) & {LINEAR, MAMBA, HYBRID}:
        notes.append(
            "constant states: recurrent part in FP32, convolution in 16 bits; the weights of "
            "their layers are an estimate"
        )
    quantisation = fields.get("quantization_config")
    if quantisation and not published_dtype(quantisation, _USUAL_DTYPE):
        notes.append(
            "how the weights are quantised is not understood: they are counted as if they were not"
        )
    if fields.has_other_parts:
        notes.append("the language model only: other parts, such as a vision tower, come on top")
    return notes
