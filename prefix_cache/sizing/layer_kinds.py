"""Which layers attend to everything, to a window, or keep a constant state instead."""

from __future__ import annotations

from prefix_cache.sizing.config_fields import Fields

FULL = "full_attention"
SLIDING = "sliding_attention"
CHUNKED = "chunked_attention"
LINEAR = "linear_attention"
MAMBA = "mamba"
HYBRID = "hybrid"  # attention and Mamba side by side
MLP = "mlp"  # nothing that mixes tokens, and so nothing kept of them
MOE = "moe"  # likewise, of experts
_KINDS = {FULL, "attention", SLIDING, CHUNKED, LINEAR, MAMBA, HYBRID, MLP, MOE}
_WINDOW_FIELD = {SLIDING: "sliding_window", CHUNKED: "attention_chunk_size"}
_LETTERS = {"M": MAMBA, "*": FULL, "-": MLP, "E": MOE}


def layer_kinds(fields: Fields) -> list[str]:
    """Return the kind of each layer: one of ``_KINDS``.  Raises InvalidArgument for others."""
    if "layer_types" in fields:
        return _listed(fields)
    if "hybrid_override_pattern" in fields:
        return _spelt(fields)
    if any(kind != 1 for kind in fields.per_layer("attn_type_list") or ()):
        raise fields.unexpected(
            "attn_type_list", fields.get("attn_type_list"), "1 for each layer, full attention"
        )
    numbers = range(fields.num_layers)
    if "attn_layer_indices" in fields:
        chosen = fields.get("attn_layer_indices")
        if not isinstance(chosen, list) or not all(number in numbers for number in chosen):
            raise fields.unexpected(
                "attn_layer_indices", chosen, f"a list of layers from 0 to {numbers[-1]}"
            )
        return [FULL if number in chosen else MAMBA for number in numbers]
    if "attn_layer_period" in fields:
        period, offset = fields.positive("attn_layer_period"), fields.whole("attn_layer_offset", 0)
        if offset >= period:
            raise fields.unexpected("attn_layer_offset", offset, f"less than the period, {period}")
        return [FULL if number % period == offset else MAMBA for number in numbers]
    if "full_attention_interval" in fields:
        interval = fields.positive("full_attention_interval")
        return [FULL if (number + 1) % interval == 0 else LINEAR for number in numbers]
    if "attention_chunk_size" in fields:
        interval = fields.positive("no_rope_layer_interval", 4)
        return [FULL if (number + 1) % interval == 0 else CHUNKED for number in numbers]
    return [fields.family.layer_kind] * len(numbers)


def windows(fields: Fields, kinds: list[str]) -> list[int | None]:
    """Return the window of each layer in tokens; None where it attends to everything."""
    listed = fields.whole_per_layer("sliding_window")
    if listed is not None:
        return [window or None for window in listed]
    if "layer_types" in fields or CHUNKED in kinds:
        return [
            fields.positive(_WINDOW_FIELD[kind]) if kind in _WINDOW_FIELD else None
            for kind in kinds
        ]
    if not fields.get("sliding_window") or not fields.flag("use_sliding_window", True):
        return [None] * len(kinds)
    window = fields.positive("sliding_window")
    if "use_sliding_window" in fields:  # Qwen: the first layers attend to everything
        full = fields.whole("max_window_layers", len(kinds))
        return [None if number < full else window for number in range(len(kinds))]
    pattern = fields.whole("sliding_window_pattern", 0)  # of so many, one attends to everything
    return [
        None if pattern and number % pattern == 0 else window for number in range(1, len(kinds) + 1)
    ]


def _listed(fields: Fields) -> list[str]:
    listed = fields.per_layer("layer_types")
    if listed is None:
        raise fields.unexpected("layer_types", fields.get("layer_types"), "a list")
    for kind in listed:
        if not isinstance(kind, str) or kind not in _KINDS:
            raise fields.unexpected("layer_types", kind, f"any of {', '.join(sorted(_KINDS))}")
    return listed


def _spelt(fields: Fields) -> list[str]:
    """Nemotron-H: a letter per layer."""
    pattern = fields.get("hybrid_override_pattern")
    letters = list(pattern) if isinstance(pattern, str) else []
    if len(letters) != fields.num_layers or not set(letters) <= set(_LETTERS):
        raise fields.unexpected(
            "hybrid_override_pattern",
            pattern,
            f"{fields.num_layers} letters of {' '.join(_LETTERS)}, one per layer",
        )
    return [_LETTERS[letter] for letter in letters]
