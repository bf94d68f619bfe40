"""What fits into memory: one rule from bytes to conversations."""

from __future__ import annotations

from typing import Any

import pytest

from prefix_cache.errors import InvalidArgument
from prefix_cache.sizing import Fit, gpu, parse_bytes, shape_of, size
from prefix_cache.sizing.config_json import shape_from_config
from prefix_cache.sizing.fit import fit
from prefix_cache.sizing.stages import stages
from tests.sizing.setups import llama_config, on_24_gib, setup

GIB = 2**30


def ends(**more: Any) -> tuple[Fit, Fit]:
    sizing = size(on_24_gib("llama-3.1-8b", **more))
    assert sizing.low
    assert sizing.high
    return sizing.low, sizing.high


@pytest.mark.parametrize(
    ("model", "kv_of_one_request"),
    [("llama-3.1-8b", [0.25, 1, 4, 16]), ("llama-3.1-70b", [0.625, 2.5, 10, 40])],
)
def test_kv_of_one_request_by_context(model: str, kv_of_one_request: list[float]) -> None:
    (stage,) = stages(setup(model))
    contexts = (2_048, 8_192, 32_768, 131_072)
    assert [stage.sequence_bytes(c) / GIB for c in contexts] == kv_of_one_request


def test_opt_13b_takes_800_kib_per_token_and_1_56_gib_for_2048() -> None:
    (stage,) = stages(setup("opt-13b", context=2_048))
    assert stage.bytes_per_token(2_048) == 819_200
    assert stage.sequence_bytes(2_048) == 1_677_721_600


def test_llama_8b_on_a_24_gib_card_holds_38_000_to_46_000_tokens() -> None:
    low, high = ends()
    assert (low.tokens, high.tokens) == (38_016, 46_208)
    assert (low.conversations, high.conversations) == (4, 5)
    assert (round(low.by_division, 1), round(high.by_division, 1)) == (4.6, 5.6)


def test_no_request_of_131072_fits_there_and_the_longest_that_does_is_told() -> None:
    low, high = ends(context=131_072)
    assert (low.conversations, high.conversations) == (0, 0)
    assert (low.max_context, high.max_context) == (38_016, 46_208)
    (stage,) = stages(on_24_gib("llama-3.1-8b"))
    assert stage.sequence_bytes(38_016) <= low.kv_bytes < stage.sequence_bytes(38_017)


def test_a_context_beyond_the_models_longest_fits_where_its_blocks_do() -> None:
    sizing = size(setup("llama-3.2-1b", context=200_000, memory_bytes=parse_bytes("80GiB")))
    assert sizing.low
    assert (sizing.low.conversations, sizing.low.max_context) == (11, 200_000)


def test_with_fp8_it_holds_76_000_to_92_000_tokens() -> None:
    low, high = ends(kv_dtype="fp8", kv_scales="layer")
    assert (low.tokens, high.tokens) == (76_048, 92_432)
    assert (low.conversations, high.conversations) == (9, 11)


def test_scales_of_every_block_take_memory_and_scales_of_a_layer_do_not() -> None:
    def block_bytes(scales: str) -> int:
        (stage,) = stages(setup("llama-3.1-8b", kv_dtype="fp8_e4m3", kv_scales=scales))
        return stage.block_bytes(8_192)

    assert block_bytes("layer") == block_bytes("head") == 16 * 65_536
    assert block_bytes("block") == 16 * 65_536 + 32 * 8 * 2 * 4


@pytest.mark.parametrize("block_size", [1, 16, 48, 512])
@pytest.mark.parametrize("kv_bytes", [0, 1, 5 * GIB, 5 * GIB + 12_345])
def test_every_figure_follows_from_bytes_by_one_rule(block_size: int, kv_bytes: int) -> None:
    (stage,) = stages(setup("llama-3.1-8b", block_size=block_size, context=1_000))
    found = fit(stage, kv_bytes)
    blocks_each = -(-1_000 // block_size)
    assert found.blocks == kv_bytes // (block_size * 131_072)
    assert found.tokens == found.blocks * block_size
    assert found.conversations == found.blocks // blocks_each
    assert found.by_division == pytest.approx(found.blocks / blocks_each)


def test_pages_are_a_fixed_cost_of_every_conversation_however_short() -> None:
    page = 3_584
    (stage,) = stages(setup("llama-3.1-8b", block_size=page, context=100))
    pool = 356_000 * 131_072
    assert stage.sequence_bytes(100) == stage.sequence_bytes(page) == page * 131_072
    assert fit(stage, pool).conversations == 99  # and not 3,560


def test_windows_keep_no_more_than_their_blocks() -> None:
    (stage,) = stages(setup("gemma-3-27b", context=131_072))
    layer_token = 2 * 16 * 128 * 2
    grown = 10 * layer_token * 131_072
    windows = 52 * layer_token * 65 * 16  # 1,024 tokens touch up to 65 blocks
    assert grown == 10 * GIB
    assert stage.fixed_bytes(131_072) == windows
    assert stage.bytes_per_token(131_072) == 10 * layer_token
    assert stage.sequence_bytes(131_072) == grown + windows
    assert round((grown + windows) / GIB, 2) == 10.41


def test_below_the_window_every_layer_grows() -> None:
    (stage,) = stages(setup("gemma-3-27b"))
    assert stage.fixed_bytes(512) == 0
    assert stage.sequence_bytes(512) == 512 * 507_904


def test_a_sequence_never_gets_smaller_as_it_grows() -> None:
    (stage,) = stages(setup("gemma-3-27b"))
    sizes = [stage.sequence_bytes(context) for context in range(1, 3_000)]
    assert sizes == sorted(sizes)


def test_conversations_of_models_with_fixed_cost_are_counted_with_it() -> None:
    shape = shape_of("gemma-3-27b")
    sizing = size(setup(shape, context=131_072, memory_bytes=gpu("h100").memory_bytes))
    assert sizing.low
    each = sizing.stage.sequence_bytes(131_072)
    assert sizing.low.conversations == sizing.low.kv_bytes // each == 1
    left = sizing.low.kv_bytes - each - sizing.stage.fixed_bytes(131_072)
    assert sizing.low.tokens == 131_072 + left // (10 * 8_192 * 16) * 16


def test_a_model_of_windows_only_has_room_for_any_context() -> None:
    shape = shape_from_config(llama_config(sliding_window=64), "m")
    (stage,) = stages(setup(shape, context=4_096))
    assert stage.block_bytes(4_096) == 0
    assert stage.sequence_bytes(4_096) == 5 * 16 * 2_048
    found = fit(stage, 10 * stage.sequence_bytes(4_096) + 1)
    assert (found.conversations, found.tokens, found.max_context) == (10, 40_960, 4_096)


def test_a_shared_prefix_is_kept_once_in_whole_blocks() -> None:
    (stage,) = stages(setup("llama-3.1-8b", context=1_000, shared_prefix=500))
    block = 16 * 131_072
    # 31 blocks are shared, 63 - 31 = 32 are each conversation's own.
    assert fit(stage, (31 + 32) * block).conversations == 1
    assert fit(stage, (31 + 64) * block).conversations == 2
    assert fit(stage, (31 + 64) * block - 1).conversations == 1
    assert fit(stage, (31 + 64) * block).tokens == 95 * 16
    assert fit(stage, 30 * block).conversations == 0


def test_without_memory_only_kv_is_sized() -> None:
    sizing = size(setup("llama-3.1-70b"))
    assert (sizing.low, sizing.high) == (None, None)
    assert sizing.stage.bytes_per_token(8_192) == 327_680


def test_weights_that_do_not_fit_are_an_error_with_both_sizes() -> None:
    with pytest.raises(
        InvalidArgument, match=r"131.4 GiB of them .* leave nothing of 0.9 x 24 GiB"
    ):
        size(on_24_gib("llama-3.1-70b"))


def test_where_weights_fit_only_at_best_the_lower_end_is_nothing() -> None:
    sizing = size(setup("llama-3.1-8b", memory_bytes=parse_bytes("18.5GiB")))
    assert sizing.low
    assert sizing.high
    assert (sizing.low.kv_bytes, sizing.low.tokens, sizing.low.max_context) == (0, 0, 0)
    assert sizing.high.tokens == 5_664


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"context": 0}, "context is 0; expected at least 1"),
        ({"tp": 0}, "tp is 0; expected at least 1"),
        ({"pp": 33}, "pp is 33; expected at most the 32 layers"),
        ({"memory_bytes": -1}, "memory_bytes is -1; expected more than 0"),
        ({"utilization": 1.1}, "utilization is 1.1; expected above 0 and at most 1"),
        ({"utilization": float("nan")}, "utilization is nan"),
        ({"overhead": (2, 1)}, "overhead is .2, 1.; expected the lower end first"),
        ({"shared_prefix": 8_192}, "shared_prefix is 8192; expected less than the context, 8192"),
        ({"dtype": "q4"}, "unknown dtype 'q4' of weights: expected float32"),
        ({"kv_dtype": "16"}, "unknown dtype '16' of KV: expected float32"),
        ({"kv_scales": "layer"}, "kv_scales is layer; expected none with bfloat16"),
        ({"kv_dtype": "fp8"}, "kv_scales is None; expected one of layer, head, block"),
    ],
)
def test_a_value_that_cannot_be_is_named(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        setup("llama-3.1-8b", **fields)
