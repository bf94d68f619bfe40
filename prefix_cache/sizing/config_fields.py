"""Typed access to the fields of a ``config.json``."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

from prefix_cache.errors import InvalidArgument
from prefix_cache.sizing.families import FAMILIES, LLAMA

# Names that some model types have for what most call otherwise.
_ALIASES = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "num_attention_heads": ("n_head", "n_heads"),
    "num_key_value_heads": (
        "num_kv_heads",
        "n_head_kv",
        "kv_n_heads",
        "multi_query_group_num",
        "num_key_value_heads_per_layer",
    ),
    "head_dim": ("attention_head_dim", "kv_channels"),
    "hidden_size": ("n_embd", "d_model"),
    "intermediate_size": ("ffn_dim", "n_inner", "ffn_hidden_size"),
    "max_position_embeddings": ("n_positions", "seq_length", "max_seq_len"),
    "num_experts": ("n_routed_experts", "num_local_experts", "moe_num_experts"),
    "num_experts_per_tok": ("experts_per_token", "moe_top_k"),
    "decoder_sparse_step": ("interleave_moe_layer_step",),
    "shared_expert_intermediate_size": ("moe_shared_expert_intermediate_size",),
    "layer_types": ("layers_block_type",),
    "mamba_d_state": ("ssm_state_size",),
    "mamba_d_conv": ("conv_kernel",),
    "mamba_n_heads": ("mamba_num_heads", "n_mamba_heads"),
    "mamba_d_head": ("mamba_head_dim", "mamba_headdim"),
    "mamba_n_groups": ("n_groups", "mamba_ngroups"),
    "torch_dtype": ("dtype",),
}
# Sections that some model types keep such fields in.
_SECTIONS = ("attn_config", "ffn_config")
# Sections of the language model, in models that have other parts, too; one may hold the next.
_LANGUAGE_MODELS = ("thinker_config", "text_config", "llm_config", "language_config")
_MOST = 2**31
_MOST_LAYERS = 10_000


class Fields:
    """The fields of one model's config, with the defaults of its family; ``source`` names it.

    The language model's own section (such as ``text_config``) is preferred where there is one;
    ``has_other_parts``: there is.
    """

    def __init__(self, config: Mapping[str, Any], source: str) -> None:
        values = dict(config)
        for name in _LANGUAGE_MODELS:
            values |= _section(values, name)
        self.has_other_parts = any(map(values.get, (*_LANGUAGE_MODELS, "vision_config")))
        for name in _SECTIONS:
            values = _section(values, name) | values
        for name, others in _ALIASES.items():
            for other in others:
                if values.get(name) is None and values.get(other) is not None:
                    values[name] = values[other]
        self.source = source
        self.model_type = str(values.get("model_type") or "unknown")
        self.family = FAMILIES.get(self.model_type, LLAMA)
        told = {name: value for name, value in values.items() if value is not None}
        self._values = {**self.family.defaults, **told}

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    @property
    def num_layers(self) -> int:
        """The number of layers.  Raises InvalidArgument where it is missing or cannot be."""
        number = self.positive("num_hidden_layers")
        if number > _MOST_LAYERS:
            raise self.unexpected("num_hidden_layers", number, f"at most {_MOST_LAYERS:,} layers")
        return number

    def get(self, name: str) -> Any:
        """Return the value as it is, None where it is missing."""
        return self._values.get(name)

    def require(self, *names: str) -> None:
        """Raise InvalidArgument that lists those of ``names`` that are missing."""
        if missing := [name for name in names if name not in self]:
            raise InvalidArgument(
                f"{self.source}: cannot size model type {self.model_type!r} without "
                f"{', '.join(missing)}",
                missing=missing,
            )

    def whole(self, name: str, default: int | None = None) -> int:
        """Return a number of at least 0.  Raises InvalidArgument for anything else."""
        if name not in self and default is not None:
            return default
        self.require(name)
        return self._checked(name, self.get(name), least=0)

    def positive(self, name: str, default: int | None = None) -> int:
        """Return a number of at least 1.  Raises InvalidArgument for anything else."""
        return self._checked(name, self.whole(name, default), least=1)

    def flag(self, name: str, default: bool) -> bool:
        """Return a boolean.  Raises InvalidArgument for anything else."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.unexpected(name, value, "true or false")
        return value

    def per_layer(self, name: str) -> list[Any] | None:
        """Return a list with an entry per layer, None where the field is no list."""
        value = self.get(name)
        if not isinstance(value, list):
            return None
        if len(value) != self.num_layers:
            raise self.unexpected(name, value, f"{self.num_layers} entries, one per layer")
        return value

    def whole_per_layer(self, name: str) -> list[int] | None:
        """Return a number of at least 0 per layer (null is 0), None where the field is no list."""
        listed = self.per_layer(name)
        return listed and [
            self._checked(name, 0 if value is None else value, least=0) for value in listed
        ]

    def unexpected(self, name: str, value: object, expected: str) -> InvalidArgument:
        """Return the error for a field of a wrong value."""
        return InvalidArgument(
            f"{self.source}: {name} is {reprlib.repr(value)}; expected {expected}",
            field=name,
            value=value,
        )

    def _checked(self, name: str, value: object, least: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.unexpected(name, value, f"a whole number of at least {least}")
        if value > _MOST:
            raise self.unexpected(name, value, f"at most {_MOST:,}")
        return value


def _section(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What a section tells; a null in it hides nothing that stands outside."""
    section = values.get(name)
    told = section.items() if isinstance(section, dict) else ()
    return {name: value for name, value in told if value is not None}
