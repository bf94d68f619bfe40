"""The half of a layer that looks at each token alone: one MLP, or a mixture of experts."""

from __future__ import annotations

from prefix_cache.sizing.config_fields import Fields


def mlp_parameters(fields: Fields, number: int, *, is_sparse: bool) -> tuple[int, int]:
    """Return all parameters of layer ``number``'s MLP, and those that one token meets."""
    hidden = fields.positive("hidden_size")
    matrices = 3 if fields.family.gated else 2
    if not is_sparse:
        inner = fields.positive("intermediate_size_mlp", _inner(fields, number))
        dense = matrices * hidden * inner
        if fields.family.all_bias:
            dense += inner + hidden
        return dense, dense
    experts, chosen = fields.positive("num_experts"), fields.positive("num_experts_per_tok")
    if chosen > experts:
        raise fields.unexpected("num_experts_per_tok", chosen, f"at most the {experts} experts")
    inner = fields.positive("moe_intermediate_size", _inner(fields, number))
    expert = matrices * hidden * inner
    router = hidden * experts + (experts if fields.get("topk_method") == "noaux_tc" else 0)
    if "shared_expert_intermediate_size" in fields:
        shared = matrices * hidden * fields.whole("shared_expert_intermediate_size") + hidden
    else:
        shared = fields.whole("n_shared_experts", 0) * expert
    around = router + shared
    return around + experts * expert, around + chosen * expert


def has_experts(fields: Fields, number: int) -> bool:
    """Return whether the MLP of layer ``number`` is a mixture of experts."""
    if not fields.whole("num_experts", 0) or number < fields.whole("first_k_dense_replace", 0):
        return False
    if "expert_layer_period" in fields:
        period = fields.positive("expert_layer_period")
        return number % period == fields.whole("expert_layer_offset", 0)
    dense: object = fields.get("mlp_only_layers")
    if isinstance(dense, list) and number in dense:
        return False
    return (number + 1) % fields.positive("decoder_sparse_step", 1) == 0


def _inner(fields: Fields, number: int) -> int:
    listed = fields.whole_per_layer("intermediate_size")
    if listed is not None:
        return listed[number]
    multiple = fields.family.inner_multiple
    usual = multiple and multiple * fields.positive("hidden_size")
    return fields.positive("intermediate_size", usual)
