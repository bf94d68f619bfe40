"""The half of a layer that mixes tokens: attention, MLA, or a constant state."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.sizing.config_fields import Fields

_CONV_BYTES = 2  # of the convolution's last inputs
_STATE_BYTES = 4  # of the recurrent state, which engines keep in FP32


@dataclass(frozen=True, slots=True)
class Mixer:
    """What the mixer of one layer keeps and weighs; see ``Layer``."""

    parameters: int
    kv_heads: int = 0
    kv_width: int = 0
    attention_width: int = 0
    state_bytes: int = 0


def attention(fields: Fields, kv_heads: int) -> Mixer:
    """Return multi-head, grouped or multi-query attention."""
    hidden, heads = fields.positive("hidden_size"), fields.positive("num_attention_heads")
    family = fields.family
    key = fields.whole("head_dim", 0) or _head_dim(fields, hidden, heads)
    value = fields.positive("v_head_dim", key)
    into, out = heads * key + kv_heads * (key + value), heads * value
    parameters = hidden * (into + out)
    if family.all_bias or family.qkv_bias or fields.flag("attention_bias", False):
        parameters += into + (hidden if family.all_bias else 0)
    if family.qk_norm:
        parameters += 2 * key
    return Mixer(parameters, kv_heads, key + value, attention_width=heads * (key + value))


def latent_attention(fields: Fields) -> Mixer:
    """Return MLA in its compressed layout: one latent and one rotated key, for all heads."""
    hidden, heads = fields.positive("hidden_size"), fields.positive("num_attention_heads")
    latent, rope = fields.positive("kv_lora_rank"), fields.positive("qk_rope_head_dim")
    plain, value = fields.positive("qk_nope_head_dim"), fields.positive("v_head_dim")
    query = heads * (plain + rope)
    rank = fields.whole("q_lora_rank", 0)
    parameters = hidden * rank + rank + rank * query if rank else hidden * query
    parameters += hidden * (latent + rope) + latent + latent * heads * (plain + value)
    parameters += heads * value * hidden
    return Mixer(
        parameters,
        kv_heads=1,
        kv_width=latent + rope,
        attention_width=heads * (plain + rope + value),
    )


def linear_attention(fields: Fields) -> Mixer:
    """Return gated delta-rule attention, as Qwen3-Next has it."""
    hidden, taps = fields.positive("hidden_size"), fields.positive("linear_conv_kernel_dim")
    key_dim, value_heads = (
        fields.positive("linear_key_head_dim"),
        fields.positive("linear_num_value_heads"),
    )
    keys = key_dim * fields.positive("linear_num_key_heads")
    value_dim = fields.positive("linear_value_head_dim")
    values = value_dim * value_heads
    channels = 2 * keys + values
    parameters = hidden * (2 * keys + 3 * values + 2 * value_heads) + channels * taps
    return Mixer(
        parameters + 2 * value_heads + value_dim,
        state_bytes=channels * (taps - 1) * _CONV_BYTES
        + value_heads * key_dim * value_dim * _STATE_BYTES,
    )


def side_by_side(one: Mixer, other: Mixer) -> Mixer:
    """Return attention and a constant state in one layer, as Falcon-H1 has them."""
    return Mixer(
        one.parameters + other.parameters,
        one.kv_heads,
        one.kv_width,
        one.attention_width,
        other.state_bytes,
    )


def mamba(fields: Fields) -> Mixer:
    """Return a Mamba mixer: the second generation where its heads are told, else the first."""
    hidden, state, taps = (
        fields.positive("hidden_size"),
        fields.positive("mamba_d_state"),
        fields.positive("mamba_d_conv"),
    )
    if "mamba_n_heads" in fields:
        heads = fields.positive("mamba_n_heads")
        inner = heads * fields.positive("mamba_d_head")
        channels = inner + 2 * fields.positive("mamba_n_groups") * state
        parameters = hidden * (inner + channels + heads) + 3 * heads + inner
    else:
        inner = channels = hidden * fields.positive("mamba_expand")
        usual = fields.get("mamba_dt_rank") in (None, "auto")
        rank = -(-hidden // 16) if usual else fields.positive("mamba_dt_rank")
        parameters = hidden * 2 * inner + inner * (2 * rank + 3 * state + 2)
    return Mixer(
        parameters + channels * (taps + 1) + inner * hidden,
        state_bytes=channels * (taps - 1) * _CONV_BYTES + inner * state * _STATE_BYTES,
    )


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise fields.unexpected("hidden_size", hidden, f"a multiple of {heads} heads, or head_dim")
    return hidden // heads
