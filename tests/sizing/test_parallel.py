"""A model over several GPUs: what is split, what is replicated, which stage decides."""

from __future__ import annotations

import pytest

from prefix_cache.errors import InvalidArgument
from prefix_cache.sizing import size
from prefix_cache.sizing.config_json import shape_from_config
from prefix_cache.sizing.explanation import assumptions
from prefix_cache.sizing.stages import stages
from tests.sizing.setups import llama_config, setup

GIB = 2**30


@pytest.mark.parametrize(("tp", "kib"), [(1, 320), (2, 160), (8, 40), (16, 40)])
def test_kv_heads_are_split_as_far_as_they_go_and_then_replicated(tp: int, kib: int) -> None:
    (stage,) = stages(setup("llama-3.1-70b", tp=tp))
    assert stage.bytes_per_token(8_192) == kib * 1024


def test_replicated_kv_heads_are_told() -> None:
    told = assumptions(size(setup("llama-3.1-70b", tp=16)))
    assert (
        "8 KV heads over 16 GPUs: each keeps a whole one, so 2 times as much KV is kept in all"
        in told
    )


def test_kv_heads_that_do_not_divide_are_told() -> None:
    sizing = size(setup("llama-3.1-8b", tp=3))
    assert sizing.stage.bytes_per_token(8_192) == 32 * 3 * 256 * 2
    told = "8 KV heads over 3 GPUs do not divide: sized by a GPU that keeps 3, where engines may"
    assert any(line.startswith(told) for line in assumptions(sizing))


def test_a_latent_cannot_be_split_over_gpus() -> None:
    (one,), (eight,) = stages(setup("deepseek-v3")), stages(setup("deepseek-v3", tp=8))
    assert one.bytes_per_token(8_192) == eight.bytes_per_token(8_192) == 70_272


def test_replicas_divide_no_request_but_multiply_what_fits() -> None:
    one, four = (
        size(setup("llama-3.1-70b", context=32_768, tp=2, dp=dp, memory_bytes=96 * GIB))
        for dp in (1, 4)
    )
    assert one.low
    assert four.low
    assert one.stage.sequence_bytes(32_768) == four.stage.sequence_bytes(32_768) == 5 * GIB
    assert four.low.kv_bytes == one.low.kv_bytes
    assert four.low.conversations == 4 * one.low.conversations > 0
    assert four.low.tokens == 4 * one.low.tokens
    assert four.low.max_context == one.low.max_context


def test_layers_that_do_not_divide_go_to_the_stages_before_the_last() -> None:
    counts = [len(stage.layers) for stage in stages(setup("gemma-3-27b", pp=4))]
    assert counts == [15, 16, 16, 15]
    firsts = [stage.first_layer for stage in stages(setup("gemma-3-27b", pp=4))]
    assert firsts == [0, 15, 31, 47]


def test_weights_are_split_over_stages_and_their_gpus_and_none_is_lost() -> None:
    setup_of_six = setup("llama-3.1-70b", pp=3, tp=2)
    on_one_gpu = [stage.weights_bytes for stage in stages(setup_of_six)]
    assert sum(on_one_gpu) * 2 == setup_of_six.shape.weights_bytes("bfloat16")


def test_tied_embeddings_are_kept_by_the_first_stage_and_the_last() -> None:
    shape = setup("llama-3.2-1b").shape
    both = stages(setup(shape, pp=2))
    copy = 128_256 * 2_048 * 2
    assert sum(stage.weights_bytes for stage in both) == shape.weights_bytes("bfloat16") + copy


def test_the_stage_with_the_least_room_decides() -> None:
    sizing = size(setup("llama-3.1-70b", pp=3, memory_bytes=80 * GIB))
    # 27, 27 and 26 layers; the first has the embeddings, too.
    assert (sizing.stage.first_layer, len(sizing.stage.layers)) == (0, 27)
    assert sizing.low
    rooms = [int(80 * GIB * 0.9) - stage.weights_bytes - 2 * GIB for stage in stages(sizing.setup)]
    per_conversation = [stage.sequence_bytes(8_192) for stage in stages(sizing.setup)]
    fitting = [room // each for room, each in zip(rooms, per_conversation, strict=True)]
    assert sizing.low.conversations == min(fitting)


def test_a_stage_without_kv_limits_nothing_but_its_weights_must_fit() -> None:
    shape = shape_from_config(llama_config(num_key_value_heads=[0, 0, 2, 2]), "m")
    sizing = size(setup(shape, context=4_096, pp=2, memory_bytes=4 * GIB))
    assert sizing.low
    assert sizing.low.conversations == sizing.low.kv_bytes // (4_096 * 1_024)
    assert sizing.stage.first_layer == 2

    wide = shape_from_config(
        llama_config(num_key_value_heads=[0, 0, 2, 2], vocab_size=10**7, tie_word_embeddings=False),
        "m",
    )
    with pytest.raises(InvalidArgument, match=r"the weights do not fit: 9\.54"):
        size(setup(wide, context=4_096, pp=2, memory_bytes=4 * GIB))


def test_every_stage_bounds_the_longest_request_and_the_best_case() -> None:
    """The first stage keeps windows and is short of room, the second keeps whole contexts."""
    shape = shape_from_config(
        llama_config(sliding_window=[64, 64, 0, 0], max_position_embeddings=10**7), "m"
    )
    sizing = size(setup(shape, context=64, pp=2, memory_bytes=4 * GIB))
    assert sizing.low
    first, second = stages(sizing.setup)
    assert sizing.low.stage == first
    room = int(4 * GIB * 0.9) - second.weights_bytes - 2 * GIB
    assert second.sequence_bytes(sizing.low.max_context) <= room
    assert sizing.low.max_context == room // (16 * 1_024) * 16
