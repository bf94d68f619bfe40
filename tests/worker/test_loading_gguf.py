from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from prefix_cache.errors import InvalidArgument, MalformedFile, MissingTensors, UnsupportedModel
from prefix_cache.worker.llama import Llama
from prefix_cache.worker.loading import load_model
from prefix_cache.worker.rope import FrequencyDivisors, LinearScaling
from tests.worker.checkpoints import Q8_0, is_quantised, write_gguf
from tests.worker.libraries import byte_level
from tests.worker.paged import all_logits
from tests.worker.tiny_llama import random_tensors, tiny_config

TOKENS = [5, 17, 200, 3, 99]
CONFIG = tiny_config()
TENSORS = random_tensors(CONFIG)


@pytest.mark.parametrize("tied", [False, True])
def test_the_same_weights_give_the_same_logits_as_in_the_other_formats(
    tmp_path: Path, tied: bool
) -> None:
    config = tiny_config(tie_word_embeddings=tied)
    tensors = random_tensors(config)
    model = load_model(write_gguf(tmp_path / "tiny.gguf", config, tensors)).model
    expected = all_logits(Llama(config, tensors), TOKENS)
    torch.testing.assert_close(all_logits(model, TOKENS), expected, atol=1e-5, rtol=0)
    assert model.config.tie_word_embeddings is tied
    assert model.config.rms_norm_eps == pytest.approx(1e-5)


def test_quantised_weights_are_dequantised(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", CONFIG, TENSORS, quantised=True)
    rounded = {
        name: torch.from_numpy(gguf.dequantize(gguf.quantize(tensor.numpy(), Q8_0), Q8_0))
        if is_quantised(tensor)
        else tensor
        for name, tensor in TENSORS.items()
    }
    assert not torch.equal(rounded["lm_head.weight"], TENSORS["lm_head.weight"])
    logits, expected = (
        all_logits(load_model(path).model, TOKENS),
        all_logits(Llama(CONFIG, rounded), TOKENS),
    )
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_its_tokenizer_is_that_of_the_library(tmp_path: Path) -> None:
    tokenizer = load_model(write_gguf(tmp_path / "tiny.gguf", CONFIG, TENSORS)).tokenizer
    text = "<s>the cat<tool> é 123"
    assert tokenizer.encode(text, bos=True) == byte_level().encode(text).ids
    assert tokenizer.decode(tokenizer.encode(text, bos=True)) == "the cat<tool> é 123"
    assert tokenizer.eos_ids == {1}


def test_numbers_are_cut_as_the_model_says(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", CONFIG, TENSORS, pre="smollm")
    ids = load_model(path).tokenizer.encode("12", bos=False)
    assert ids == byte_level().encode("1", add_special_tokens=False).ids + (
        byte_level().encode("2", add_special_tokens=False).ids
    )


def test_its_chat_template_knows_its_special_tokens(tmp_path: Path) -> None:
    template = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"
    path = write_gguf(tmp_path / "tiny.gguf", CONFIG, TENSORS, chat_template=template)
    chat = load_model(path).chat
    assert chat.render([{"role": "user", "content": "hi"}]) == "<s>hi</s>"
    assert not chat.needs_bos
    assert load_model(write_gguf(path, CONFIG, TENSORS)).chat.needs_bos


def test_scaled_positions_are_read(tmp_path: Path) -> None:
    linear: dict[str, str | float] = {
        "llama.rope.scaling.type": "linear",
        "llama.rope.scaling.factor": 4.0,
    }
    path = write_gguf(tmp_path / "tiny.gguf", CONFIG, TENSORS, more=linear)
    assert load_model(path).model.config.rope_scaling == LinearScaling(4.0)
    divisors = {"rope_freqs.weight": np.array([1, 2, 4, 8], np.float32)}
    write_gguf(path, CONFIG, TENSORS, more_tensors=divisors, more={"llama.rope.freq_base": 5e5})
    config = load_model(path).model.config
    assert config.rope_scaling == FrequencyDivisors((1.0, 2.0, 4.0, 8.0))
    assert config.rope_theta == 5e5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "qwen3"}, "tiny: architecture is 'qwen3', expected 'llama'"),
        ({"tokenizer": "llama"}, "tokenizer.ggml.model is 'llama', expected 'gpt2'"),
        ({"pre": "unheard-of"}, "tokenizer.ggml.pre is 'unheard-of', expected 'default' or"),
        (
            {"more": {"llama.rope.scaling.type": "yarn"}},
            "rope.scaling.type is 'yarn', expected 'none' or 'linear'",
        ),
    ],
)
def test_what_the_worker_does_not_compute_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        load_model(write_gguf(tmp_path / "tiny.gguf", CONFIG, TENSORS, **changes))


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    without = {name: TENSORS[name] for name in TENSORS if name != "model.norm.weight"}
    with pytest.raises(MissingTensors, match=r"lacks model.norm.weight; expected 21 tensors"):
        load_model(write_gguf(tmp_path / "tiny.gguf", CONFIG, without))
    del without["model.embed_tokens.weight"]
    with pytest.raises(MissingTensors, match=r"lacks model.embed_tokens.weight"):
        load_model(write_gguf(tmp_path / "tiny.gguf", CONFIG, without))


def test_weights_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    name = "model.layers.1.self_attn.q_proj.weight"
    others = {other: TENSORS[other] for other in TENSORS if other != name}
    odd = {"blk.1.attn_q.weight": np.ones((30, 32), np.float32)}
    write_gguf(path, CONFIG, others, more_tensors=odd)
    with pytest.raises(InvalidArgument, match=rf"{name} is \[30, 32\], expected \[48, 32\]"):
        load_model(path)
    doubles = {"double.weight": np.ones(8, np.float64)}
    write_gguf(path, CONFIG, TENSORS, more_tensors=doubles)
    with pytest.raises(UnsupportedModel, match="F64 is not yet implemented, expected float32"):
        load_model(path)
    bias = {"blk.0.attn_q.bias": np.ones(48, np.float32)}
    write_gguf(path, CONFIG, TENSORS, more_tensors=bias)
    with pytest.raises(UnsupportedModel, match=r"tiny has blk.0.attn_q.bias, which a Llama has"):
        load_model(path)


@pytest.mark.parametrize("kept", [0, 3, 20, 1000, -1000])
def test_a_truncated_file_is_refused(tmp_path: Path, kept: int) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", CONFIG, TENSORS)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(MalformedFile, match=r"tiny.gguf cannot be read"):
        load_model(path)


def test_counts_that_lie_are_refused_at_the_end_of_the_file(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", CONFIG, TENSORS)
    data = bytearray(path.read_bytes())
    key = b"tokenizer.ggml.token_type"
    # After the key: the kind of the value, an array; that of its elements, now bytes; how many.
    struct.pack_into("<IQ", data, data.index(key) + len(key) + 4, 0, 2**62)
    path.write_bytes(data)
    with pytest.raises(MalformedFile, match=r"tiny.gguf cannot be read: it ends within the 1 val"):
        load_model(path)


def test_text_that_is_not_unicode_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", CONFIG, TENSORS)
    path.write_bytes(path.read_bytes().replace(b"<tool>", b"<t\xffol>"))
    with pytest.raises(MalformedFile, match=r"tokenizer.ggml.tokens: 'utf-8' codec can't decode"):
        load_model(path)
