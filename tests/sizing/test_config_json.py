"""Shapes from a ``config.json``: each way of attention, and what is wrong with a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefix_cache.errors import InvalidArgument, MalformedFile
from prefix_cache.sizing import shape_of
from prefix_cache.sizing.config_json import shape_from_config
from tests.sizing.setups import llama_config


def kv_bytes(**fields: Any) -> int:
    return shape_from_config(llama_config(**fields), "m").kv_bytes_per_token("bfloat16")


def test_query_heads_never_appear_in_the_size_of_kv() -> None:
    assert kv_bytes() == 4 * 2 * (64 + 64) * 2
    assert kv_bytes(num_attention_heads=16, head_dim=64) == kv_bytes()


def test_without_kv_heads_every_head_is_one_and_multi_query_has_one() -> None:
    assert kv_bytes(num_key_value_heads=None) == 4 * 8 * 128 * 2
    assert kv_bytes(num_key_value_heads=None, multi_query=True) == 4 * 1 * 128 * 2


def test_an_explicit_head_dim_is_not_derived_from_the_hidden_size() -> None:
    config = llama_config(
        num_hidden_layers=28,
        hidden_size=1024,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
    )
    per_token = shape_from_config(config, "m").kv_bytes_per_token("bfloat16")
    assert per_token == 114_688
    assert per_token * 40_960 == 4.375 * 2**30


def test_kv_size_knows_neither_the_number_of_parameters_nor_the_dtype_of_weights() -> None:
    small, large = kv_bytes(), kv_bytes(intermediate_size=1024 * 40)
    four_bits = kv_bytes(quantization_config={"quant_method": "awq", "bits": 4})
    assert small == large == four_bits
    parameters = [
        shape_from_config(llama_config(intermediate_size=inner), "m").num_parameters
        for inner in (1024, 1024 * 40)
    ]
    assert parameters[1] > 20 * parameters[0]


def test_kv_heads_and_windows_may_be_listed_per_layer() -> None:
    shape = shape_from_config(
        llama_config(num_key_value_heads=[8, 4, 2, 0], sliding_window=[None, 32, 0, 64]),
        "m",
    )
    assert [layer.kv_heads for layer in shape.layers] == [8, 4, 2, 0]
    assert [layer.window for layer in shape.layers] == [None, 32, None, 64]
    assert shape.kv_bytes_per_token("bfloat16") == 14 * 128 * 2


@pytest.mark.parametrize(
    ("fields", "windows"),
    [
        ({"sliding_window": 32}, [32, 32, 32, 32]),
        ({"sliding_window": None}, [None, None, None, None]),
        ({"sliding_window": 32, "use_sliding_window": False}, [None, None, None, None]),
        (
            {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 3},
            [None, None, None, 32],
        ),
        ({"sliding_window": 32, "sliding_window_pattern": 2}, [32, None, 32, None]),
        ({"model_type": "qwen3", "sliding_window": 32}, [None, None, None, None]),
        ({"model_type": "llama4_text", "attention_chunk_size": 48}, [48, 48, 48, None]),
        (
            {
                "sliding_window": 32,
                "attention_chunk_size": 48,
                "layer_types": [
                    "full_attention",
                    "sliding_attention",
                    "chunked_attention",
                    "full_attention",
                ],
            },
            [None, 32, 48, None],
        ),
    ],
)
def test_windows_are_read_in_every_form(fields: dict[str, Any], windows: list[int | None]) -> None:
    shape = shape_from_config(llama_config(**fields), "m")
    assert [layer.window for layer in shape.layers] == windows


def test_a_latent_is_one_head_and_the_answer_says_so() -> None:
    shape = shape_of("deepseek-v3")
    assert {(layer.kv_heads, layer.kv_width) for layer in shape.layers} == {(1, 576)}
    assert shape.notes[0].startswith("MLA in its compressed layout: one latent per layer and token")


def test_linear_attention_keeps_a_constant_state_instead_of_kv() -> None:
    shape = shape_from_config(
        llama_config(
            full_attention_interval=4,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=32,
            linear_value_head_dim=16,
            linear_conv_kernel_dim=4,
        ),
        "m",
    )
    assert [layer.kv_heads for layer in shape.layers] == [0, 0, 0, 2]
    channels = 2 * 2 * 32 + 4 * 16
    assert shape.layers[0].state_bytes == channels * 3 * 2 + 4 * 32 * 16 * 4
    assert shape.layers[3].state_bytes == 0
    assert shape.notes[0].startswith("constant states")


def test_mamba_of_both_generations_keeps_a_constant_state() -> None:
    first = llama_config(
        attn_layer_period=4, attn_layer_offset=2, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2
    )
    second = llama_config(
        layer_types=["mamba", "attention", "mamba", "mamba"],
        mamba_n_heads=16,
        mamba_d_head=64,
        mamba_n_groups=1,
        mamba_d_state=128,
        mamba_d_conv=4,
    )
    shapes = [shape_from_config(config, "m") for config in (first, second)]
    assert [layer.kv_heads for layer in shapes[0].layers] == [0, 0, 2, 0]
    assert shapes[0].layers[0].state_bytes == 1024 * 3 * 2 + 1024 * 16 * 4
    assert [layer.kv_heads for layer in shapes[1].layers] == [0, 2, 0, 0]
    assert shapes[1].layers[0].state_bytes == (1024 + 256) * 3 * 2 + 1024 * 128 * 4


def nemotron_h(**more: Any) -> dict[str, Any]:
    """The published config of Nemotron-H 8B."""
    return {
        "model_type": "nemotron_h",
        "num_hidden_layers": 52,
        "hidden_size": 4096,
        "intermediate_size": 21_504,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "attention_head_dim": 128,
        "vocab_size": 131_072,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        "mamba_head_dim": 64,
        "mamba_num_heads": 128,
        "n_groups": 8,
        "ssm_state_size": 128,
        "conv_kernel": 4,
        **more,
    }


def test_layers_of_nemotron_h_are_attention_or_mamba_or_an_mlp() -> None:
    shape = shape_from_config(nemotron_h(), "m")
    state = (128 * 64 + 2 * 8 * 128) * 3 * 2 + 128 * 64 * 128 * 4
    assert [(layer.kv_heads, layer.state_bytes) for layer in shape.layers[5:9]] == [
        (0, 0),
        (0, state),
        (8, 0),
        (0, 0),
    ]
    assert shape.kv_bytes_per_token("bfloat16") == 4 * 8 * 256 * 2
    assert sum(layer.state_bytes for layer in shape.layers) == 24 * state
    assert 8.0e9 < shape.num_parameters < 8.2e9


def test_attention_and_mamba_may_stand_in_one_layer() -> None:
    config = llama_config(
        model_type="falcon_h1",
        mamba_d_conv=4,
        mamba_d_head=64,
        mamba_d_state=128,
        mamba_n_groups=1,
        mamba_n_heads=16,
    )
    shape = shape_from_config(config, "m")
    assert {layer.kv_heads for layer in shape.layers} == {2}
    assert {layer.state_bytes for layer in shape.layers} == {(1024 + 256) * 3 * 2 + 1024 * 128 * 4}


def test_layers_that_use_the_kv_of_others_keep_none() -> None:
    config = llama_config(num_kv_shared_layers=1, intermediate_size=[1024, 1024, 2048, 2048])
    shape = shape_from_config(config, "m")
    assert [layer.kv_heads for layer in shape.layers] == [2, 2, 2, 0]
    assert shape.notes == ("layers from 3 on use the KV of earlier ones and keep none",)
    wide, narrow = shape.layers[2].parameters, shape.layers[1].parameters
    assert wide - narrow == 3 * 512 * 1024


@pytest.mark.parametrize(
    ("fields", "kv_heads"),
    [
        ({"multi_query": True, "num_kv_heads": 8}, 1),
        ({"multi_query": True, "num_kv_heads": 4, "new_decoder_architecture": True}, 4),
        ({"multi_query_attention": True, "multi_query_group_num": 2}, 2),
        ({"attn_config": {"kv_n_heads": 4}}, 4),
        ({"num_key_value_heads_per_layer": [4, 4, 4, 4]}, 4),
    ],
)
def test_kv_heads_are_read_under_every_name(fields: dict[str, Any], kv_heads: int) -> None:
    shape = shape_from_config(llama_config(num_key_value_heads=None, **fields), "m")
    assert [layer.kv_heads for layer in shape.layers] == [kv_heads] * 4


@pytest.mark.parametrize("section", ["text_config", "llm_config", "language_config"])
def test_the_language_model_is_found_in_its_section(section: str) -> None:
    shape = shape_from_config({"model_type": "seer", section: llama_config()}, "m")
    assert shape.kv_bytes_per_token("bfloat16") == 2048
    told = "the language model only: other parts, such as a vision tower, come on top"
    assert shape.notes == (told,)
    around = {"text_config": {"num_key_value_heads": None}, "vision_config": None}
    assert shape_from_config(llama_config(**around), "m").layers == shape.layers
    assert shape_from_config(llama_config(text_config=None), "m").notes == ()
    nested = {"model_type": "seer", "thinker_config": {"text_config": llama_config()}}
    assert shape_from_config(nested, "m") == shape


@pytest.mark.parametrize(
    "fields",
    [
        {"is_encoder_decoder": True},
        {"block_configs": [{}] * 4},
        {"linear_attn_config": {"kda_layers": [1]}},
        {"hybrid_layer_pattern": [0, 1, 1, 0]},
    ],
)
def test_better_no_answer_than_one_that_overlooks_what_layers_keep(fields: dict[str, Any]) -> None:
    with pytest.raises(
        InvalidArgument, match=f"m: cannot size model type 'llama': {next(iter(fields))} says that"
    ):
        shape_from_config(llama_config(**fields), "m")


def test_older_names_of_fields_are_understood() -> None:
    config = {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_inner": None,
        "n_positions": 1024,
        "vocab_size": 50_257,
    }
    shape = shape_from_config(config, "m")
    assert shape.kv_bytes_per_token("bfloat16") == 12 * 12 * 128 * 2
    assert shape.num_parameters == 124_439_808
    assert shape.max_context == 1024
    assert shape.notes == ()


def test_an_unknown_model_type_is_sized_and_the_answer_says_so() -> None:
    shape = shape_from_config(llama_config(model_type="novel"), "m")
    assert shape.kv_bytes_per_token("bfloat16") == 2048
    assert shape.notes == ("model type 'novel' is not known: weights are counted as Llama's are",)


@pytest.mark.parametrize(
    ("quantisation", "dtype"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "gptq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "gptq", "bits": "4"}, "int4"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
    ],
)
def test_the_dtype_of_published_weights_is_read(quantisation: dict[str, Any], dtype: str) -> None:
    shape = shape_from_config(
        llama_config(torch_dtype="float16", quantization_config=quantisation), "m"
    )
    assert (shape.dtype, shape.kv_dtype) == (dtype, "float16")


@pytest.mark.parametrize("quantisation", [{"quant_method": "hqq"}, {"bits": [4]}, ["gptq"]])
def test_quantisation_that_is_not_understood_is_told(quantisation: Any) -> None:
    shape = shape_from_config(llama_config(quantization_config=quantisation), "m")
    assert shape.dtype == "bfloat16"
    assert shape.notes == (
        "how the weights are quantised is not understood: they are counted as if they were not",
    )


def test_what_published_gemma_configs_leave_out_is_known() -> None:
    """Such as that of Gemma 3 4B: no heads, no vocabulary, no pattern of windows."""
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2_560,
        "intermediate_size": 10_240,
        "num_hidden_layers": 34,
        "sliding_window": 1_024,
    }
    shape = shape_from_config({"model_type": "gemma3", "text_config": text}, "m")
    assert shape.num_parameters == 3_880_263_168
    assert shape.kv_bytes_per_token("bfloat16") == 34 * 4 * 512 * 2
    assert [layer.window for layer in shape.layers].count(None) == 5


def test_an_unknown_architecture_lists_all_that_is_missing() -> None:
    with pytest.raises(
        InvalidArgument,
        match="m: cannot size model type 'rwkv' without num_attention_heads, vocab_size, "
        "intermediate_size",
    ):
        shape_from_config({"model_type": "rwkv", "num_hidden_layers": 2, "hidden_size": 8}, "m")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"num_hidden_layers": "4"}, "num_hidden_layers is '4'; expected a whole number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0; expected a whole number of at least 1"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True; expected a whole number"),
        ({"num_key_value_heads": [2, 2]}, "num_key_value_heads is .*; expected 4 entries"),
        ({"hidden_size": 500}, "hidden_size is 500; expected a multiple of 8 heads, or head_dim"),
        ({"layer_types": ["rnn"] * 4}, "layer_types is 'rnn'; expected any of attention"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no'; expected true or false"),
        ({"kv_lora_rank": 512}, "without qk_rope_head_dim"),
        ({"num_key_value_heads": 3}, "is 3; expected a divisor of the 8 query heads"),
        ({"num_key_value_heads": 16}, "is 16; expected a divisor of the 8 query heads"),
        ({"num_hidden_layers": 10**7}, "is 10000000; expected at most 10,000 layers"),
        (
            {"hidden_size": 10**400, "head_dim": 64},
            r"hidden_size is 1000\S{1,60}; expected at most",
        ),
        ({"hidden_size": float("nan")}, "hidden_size is nan; expected a whole number"),
        ({"max_position_embeddings": 0}, "is 0; expected a whole number of at least 1"),
        ({"layer_types": "full_attention"}, "is 'full_attention'; expected a list"),
        ({"layer_types": [[1]] * 4}, "layer_types is .1.; expected any of attention"),
        ({"attn_layer_indices": 1}, "is 1; expected a list of layers from 0 to 3"),
        ({"attn_layer_indices": [4]}, "is .4.; expected a list of layers from 0 to 3"),
        ({"attn_layer_period": 8, "attn_layer_offset": 9}, "is 9; expected less than the period"),
        ({"attn_type_list": [0, 0, 0, 1]}, "expected 1 for each layer, full attention"),
        ({"hybrid_override_pattern": "M-*"}, "expected 4 letters of M . - E, one per layer"),
        ({"num_experts": 2, "num_experts_per_tok": 8}, "is 8; expected at most the 2 experts"),
        ({"num_kv_shared_layers": 5}, "is 5; expected at most the 4 layers"),
    ],
)
def test_a_field_of_a_wrong_value_is_named(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        shape_from_config(llama_config(**fields), "m")


def test_a_config_is_read_from_its_file_or_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(llama_config()))
    shape = shape_of(str(tmp_path))
    assert shape.kv_bytes_per_token("bfloat16") == 2048
    assert shape == shape_of(str(tmp_path / "config.json"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [("", "expected JSON, but"), ("{", "expected JSON, but"), ("[1]", "expected a JSON object")],
)
def test_a_file_without_a_json_object_is_refused(
    tmp_path: Path, content: str, problem: str
) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(MalformedFile, match=problem):
        shape_of(str(tmp_path / "config.json"))


def test_a_file_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match="cannot be read"):
        shape_of(str(tmp_path / "missing.json"))
