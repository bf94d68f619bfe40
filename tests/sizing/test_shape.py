"""Shapes of well-known models, against what their makers publish."""

from __future__ import annotations

import pytest

from prefix_cache.errors import InvalidArgument
from prefix_cache.sizing import shape_of
from prefix_cache.sizing.known_models import KNOWN_MODELS

PUBLISHED = {
    "llama-3.1-8b": (8_030_261_248, 131_072),
    "llama-3.1-70b": (70_553_706_496, 327_680),
    "llama-3.2-1b": (1_235_814_400, 32_768),
    "qwen3-0.6b": (596_049_920, 114_688),
    "qwen3-8b": (8_190_735_360, 147_456),
    "qwen3-32b": (32_762_123_264, 262_144),
    "mistral-7b": (7_248_023_552, 131_072),
    "gemma-3-27b": (27_009_346_304, 507_904),
    "deepseek-v3": (671_026_419_200, 70_272),
    "opt-13b": (12_853_473_280, 819_200),
    "opt-66b": (65_719_701_504, 2_359_296),
    "opt-175b": (174_604_468_224, 4_718_592),
    "llama-13b": (13_015_864_320, 819_200),
    "smollm2-135m": (134_515_008, 23_040),
}


@pytest.mark.parametrize("name", KNOWN_MODELS)
def test_parameters_and_kv_per_token_are_the_published_ones(name: str) -> None:
    shape = shape_of(name)
    assert (shape.num_parameters, shape.kv_bytes_per_token("bfloat16")) == PUBLISHED[name]


def test_fp8_halves_kv_and_nothing_else_does() -> None:
    shape = shape_of("llama-3.1-8b")
    assert shape.kv_bytes_per_token("fp8") == 65_536
    assert shape.kv_bytes_per_token("float32") == 262_144


def test_weights_are_parameters_times_their_dtype() -> None:
    shape = shape_of("llama-3.1-8b")
    assert shape.weights_bytes("bfloat16") == 16_060_522_496
    assert shape.weights_bytes("float32") == 32_121_044_992
    # 6,979,584,000 parameters in layers at 8 bits, 1,050,677,248 around them at 16.
    assert shape.weights_bytes("fp8") == 6_979_584_000 + 2 * 1_050_677_248
    assert shape.weights_bytes("int4") == 5_727_466_496


def test_a_mixture_of_experts_computes_with_the_chosen_experts_only() -> None:
    shape = shape_of("deepseek-v3")
    assert shape.dtype == "fp8"
    assert shape.kv_dtype == "bfloat16"
    active = sum(layer.active_parameters for layer in shape.layers)
    assert 35e9 < active + shape.head_parameters < 38e9  # the makers say 37 B


def test_prefill_costs_two_operations_per_parameter_and_pair_of_tokens() -> None:
    shape = shape_of("smollm2-135m")
    layers = sum(layer.parameters for layer in shape.layers)
    head = 49_152 * 576
    one_pair = 2 * 30 * 9 * (64 + 64)
    assert shape.prefill_flops(0) == 0
    assert shape.prefill_flops(1) == 2 * (layers + head) + one_pair
    assert shape.prefill_flops(3) == 2 * (3 * layers + head) + 6 * one_pair
    assert shape.prefill_flops(2, 1) == 2 * (2 * layers + head) + 5 * one_pair


def test_prefill_attends_to_no_more_than_the_window() -> None:
    shape = shape_of("gemma-3-27b")
    pair = 2 * 32 * (128 + 128)  # in one layer
    more = shape.prefill_flops(1, 10_000) - shape.prefill_flops(1, 9_999)
    assert more == 10 * pair
    assert shape.prefill_flops(1, 500) - shape.prefill_flops(1, 499) == 62 * pair
    pieces = shape.prefill_flops(1_000) + shape.prefill_flops(1_000, 1_000)
    head = 2 * shape.embedding_parameters
    assert shape.prefill_flops(2_000) == pieces - head


def test_names_may_be_those_of_hugging_face() -> None:
    same = ("meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B", "Llama-3.1-8B")
    assert {shape_of(name) for name in same} == {shape_of("llama-3.1-8b")}
    assert shape_of("mistralai/Mistral-7B-Instruct-v0.3") == shape_of("mistral-7b")


def test_an_unknown_name_lists_those_most_alike() -> None:
    with pytest.raises(
        InvalidArgument,
        match=r"unknown model 'lama-3\.1-8b': expected .*, or a name such as llama-3\.1-8b",
    ):
        shape_of("lama-3.1-8b")
