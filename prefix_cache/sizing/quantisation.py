"""The dtype of published weights, as the ways to quantise them tell it in a config."""

from __future__ import annotations

from typing import Any

_INTEGERS = {"4": "int4", "8": "int8"}
_FLOATS = {"4": "nvfp4", "8": "fp8"}


def published_dtype(quantisation: Any, plain: str) -> str | None:
    """Return the dtype that a ``quantization_config`` says; None where it is not understood.

    ``plain`` is that of weights which are not quantised.
    """
    if not quantisation:
        return plain
    if not isinstance(quantisation, dict):
        return None
    names = f"{quantisation.get('quant_method')} {quantisation.get('quant_algo')}".lower()
    for name in ("nvfp4", "mxfp4", "fp8"):
        if name in names:
            return name
    if quantisation.get("load_in_4bit"):
        return "int4"
    if quantisation.get("load_in_8bit"):
        return "int8"
    bits, kind = _bits_and_kind(quantisation)
    return (_FLOATS if kind == "float" else _INTEGERS).get(str(bits))


def _bits_and_kind(quantisation: dict[str, Any]) -> tuple[Any, Any]:
    """What is told for all weights, or, by compressed-tensors, for groups of layers."""
    groups = quantisation.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict):
            return weights.get("num_bits"), weights.get("type")
    return quantisation.get("bits"), "int"
