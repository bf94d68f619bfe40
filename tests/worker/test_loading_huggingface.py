from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from prefix_cache.errors import InvalidArgument, MalformedFile, MissingTensors, UnsupportedModel
from prefix_cache.worker.llama import Llama
from prefix_cache.worker.loading import load_model
from prefix_cache.worker.rope import LinearScaling, Llama3Scaling
from tests.worker.checkpoints import CONFIG, write_huggingface
from tests.worker.paged import all_logits
from tests.worker.tiny_llama import random_tensors, tiny_config

TOKENS = [5, 17, 200, 3, 99]
USER = [{"role": "user", "content": "hi"}]


def tensors(**changes: Any) -> dict[str, torch.Tensor]:
    return random_tensors(tiny_config(**changes))


@pytest.mark.parametrize("shards", [1, 3])
def test_a_model_comes_back_as_it_was_written(tmp_path: Path, shards: int) -> None:
    loaded = load_model(write_huggingface(tmp_path, tensors(), shards=shards))
    assert loaded.model.config == tiny_config(name=tmp_path.name)
    expected = all_logits(Llama(tiny_config(), tensors()), TOKENS)
    torch.testing.assert_close(all_logits(loaded.model, TOKENS), expected, atol=0, rtol=0)
    assert loaded.tokenizer.encode("the cat", bos=True)[0] == 0
    assert loaded.tokenizer.eos_ids == {1}


def test_a_tied_head_is_the_embeddings_and_tables_of_positions_are_not_read(tmp_path: Path) -> None:
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    config = CONFIG | {"tie_word_embeddings": True}
    loaded = load_model(write_huggingface(tmp_path, tensors() | extra, config))
    tied = Llama(tiny_config(tie_word_embeddings=True), tensors(tie_word_embeddings=True))
    assert torch.equal(all_logits(loaded.model, TOKENS), all_logits(tied, TOKENS))


def test_weights_are_kept_in_the_dtype_asked_for(tmp_path: Path) -> None:
    loaded = load_model(write_huggingface(tmp_path, tensors()), "bfloat16")
    assert loaded.model.dtype == torch.bfloat16


def test_another_architecture_is_named_whatever_fields_it_has(tmp_path: Path) -> None:
    write_huggingface(tmp_path, {}, {"architectures": ["GPT2LMHeadModel"], "n_embd": 768})
    with pytest.raises(
        UnsupportedModel, match=r"architectures is \('GPT2LMHeadModel',\), expected"
    ):
        load_model(tmp_path)


def test_what_a_config_leaves_out_is_as_usual(tmp_path: Path) -> None:
    config = CONFIG | {"head_dim": None, "num_key_value_heads": None, "num_attention_heads": 4}
    sizes = {"num_heads": 4, "num_kv_heads": 4, "head_dim": 8}
    loaded = load_model(write_huggingface(tmp_path, tensors(**sizes), config))
    assert loaded.model.config == tiny_config(name=tmp_path.name, **sizes)


@pytest.mark.parametrize(
    ("changes", "theta", "scaling"),
    [
        ({"rope_theta": 5e5}, 5e5, None),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 1e4, LinearScaling(4.0)),
        (
            {
                "rope_parameters": {
                    "rope_theta": 2e4,
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 32,
                }
            },
            2e4,
            Llama3Scaling(8.0, 1.0, 4.0, 32),
        ),
    ],
)
def test_scaled_positions_are_read_in_the_old_form_and_the_new(
    tmp_path: Path, changes: dict[str, Any], theta: float, scaling: object
) -> None:
    loaded = load_model(write_huggingface(tmp_path, tensors(), CONFIG | changes))
    assert loaded.model.config.rope_theta == theta
    assert loaded.model.config.rope_scaling == scaling


def test_a_mistral_is_a_llama_where_its_window_hides_nothing(tmp_path: Path) -> None:
    mistral = CONFIG | {"architectures": ["MistralForCausalLM"], "sliding_window": 64}
    load_model(write_huggingface(tmp_path, tensors(), mistral))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architectures": ["Qwen3ForCausalLM"]},
            r"architectures is \('Qwen3ForCausalLM',\), expected \('LlamaForCausalLM',\) or",
        ),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', expected 'silu'"),
        ({"attention_bias": True}, "attention_bias is True, expected False"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5, expected 1.0"),
        ({"sliding_window": 32}, "sliding_window is 32, expected None"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config is 'awq'"),
        (
            {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
            "rope_type is 'yarn', expected 'default' or 'linear' or 'llama3'",
        ),
    ],
)
def test_what_the_worker_does_not_compute_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        load_model(write_huggingface(tmp_path, {}, CONFIG | changes))


def test_configs_that_are_none_are_refused(tmp_path: Path) -> None:
    write_huggingface(tmp_path, {}, {"architectures": ["LlamaForCausalLM"]})
    with pytest.raises(MalformedFile, match=r"config.json .*required field `vocab_size`"):
        load_model(tmp_path)
    write_huggingface(tmp_path, {}, CONFIG | {"rope_scaling": {"type": "linear"}})
    with pytest.raises(MalformedFile, match=r"required field `factor` in the scaling of positions"):
        load_model(tmp_path)
    write_huggingface(tmp_path, {}, CONFIG | {"num_attention_heads": 0})
    with pytest.raises(MalformedFile, match=r"`int` >= 1 - at `\$.num_attention_heads`"):
        load_model(tmp_path)
    write_huggingface(tmp_path, {}, CONFIG | {"num_key_value_heads": 0})
    with pytest.raises(MalformedFile, match=r"`int` >= 1 - at `\$.num_key_value_heads`"):
        load_model(tmp_path)
    write_huggingface(tmp_path, {}, CONFIG | {"rope_theta": 0})
    with pytest.raises(MalformedFile, match=r"`float` > 0.0 - at `\$.rope_theta`"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures":' * 100_000)
    with pytest.raises(MalformedFile, match=r"config.json cannot be read"):
        load_model(tmp_path)
    write_huggingface(tmp_path, {}, CONFIG | {"hidden_size": -1})
    with pytest.raises(InvalidArgument, match="hidden_size is -1, expected a positive integer"):
        load_model(tmp_path)


def test_missing_weights_are_named(tmp_path: Path) -> None:
    without = tensors()
    del without["model.norm.weight"]
    with pytest.raises(MissingTensors, match=r"lacks model.norm.weight; expected 21 tensors"):
        load_model(write_huggingface(tmp_path, without))


def test_missing_and_truncated_files_are_named(tmp_path: Path) -> None:
    write_huggingface(tmp_path, tensors(), shards=2)
    shard = tmp_path / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(MalformedFile, match=r"model-00002-of-00002.safetensors cannot be read"):
        load_model(tmp_path)
    shard.unlink()
    with pytest.raises(MalformedFile, match=r"model-00002-of-00002.safetensors cannot be read"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(MalformedFile, match=r"has no weights: model.safetensors or"):
        load_model(tmp_path)
    write_huggingface(tmp_path, tensors())
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(MalformedFile, match=r"tokenizer.json is no tokenizer"):
        load_model(tmp_path)


def test_tokens_that_end_an_answer_come_from_both_configs(tmp_path: Path) -> None:
    write_huggingface(tmp_path, tensors(), CONFIG | {"eos_token_id": [1, 7]})
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 9}')
    assert load_model(tmp_path).tokenizer.eos_ids == {1, 7, 9}


def test_the_chat_template_is_the_models_own_wherever_it_is(tmp_path: Path) -> None:
    write_huggingface(tmp_path, tensors())
    plain = load_model(tmp_path).chat
    assert (plain.render(USER), plain.needs_bos) == ("<|user|>\nhi\n<|assistant|>\n", True)

    def own(template: Any) -> str:
        config = {"bos_token": {"content": "<s>"}, "chat_template": template}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
        chat = load_model(tmp_path).chat
        assert not chat.needs_bos
        return chat.render(USER)

    text = "{{ bos_token }}{{ messages[0].content }}!"
    assert own(text) == "<s>hi!"
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": text}]
    assert own(named) == "<s>hi!"
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].role }}")
    assert own(text) == "user"


@pytest.mark.parametrize("template", [5, ["text"], [{"name": {}, "template": "text"}]])
def test_chat_templates_that_are_none_are_refused(tmp_path: Path, template: Any) -> None:
    write_huggingface(tmp_path, tensors())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    with pytest.raises(MalformedFile, match=r"tokenizer_config.json: chat_template: Expected"):
        load_model(tmp_path)


def test_dtypes_and_devices_that_are_none_are_refused(tmp_path: Path) -> None:
    write_huggingface(tmp_path, tensors())
    with pytest.raises(UnsupportedModel, match="dtype is 'int4', expected one of float32, bfl"):
        load_model(tmp_path, "int4")
    with pytest.raises(InvalidArgument, match="device 'abacus' cannot be used"):
        load_model(tmp_path, device="abacus")


def test_a_path_to_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match=r"has no config.json and of other models none, exp"):
        load_model(tmp_path)
    with pytest.raises(MalformedFile, match=r"missing is no model, expected a Hugging Face dir"):
        load_model(tmp_path / "missing")
    (tmp_path / "model.onnx").touch()
    with pytest.raises(MalformedFile, match=r"model.onnx is no model"):
        load_model(tmp_path / "model.onnx")
