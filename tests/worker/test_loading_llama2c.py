from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch

from prefix_cache.errors import MalformedFile, UnsupportedModel
from prefix_cache.worker.llama import Llama
from prefix_cache.worker.loading import load_model
from tests.worker.checkpoints import write_llama2c, write_llama2c_tokenizer
from tests.worker.paged import all_logits
from tests.worker.tiny_llama import random_tensors, tiny_config

TOKENS = [5, 17, 200, 3, 99]
# In this format the size of a head is that of the hidden state divided by their number.
SIZES = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8}


@pytest.mark.parametrize("tied", [False, True])
def test_the_same_weights_give_the_same_logits_as_in_the_other_formats(
    tmp_path: Path, tied: bool
) -> None:
    config = tiny_config(**SIZES, tie_word_embeddings=tied)
    tensors = random_tensors(config)
    loaded = load_model(write_llama2c(tmp_path / "tiny.bin", config, tensors))
    assert loaded.model.config == config
    expected = all_logits(Llama(config, tensors), TOKENS)
    torch.testing.assert_close(all_logits(loaded.model, TOKENS), expected, atol=0, rtol=0)


def test_a_directory_with_one_checkpoint_is_that_checkpoint(tmp_path: Path) -> None:
    config = tiny_config(**SIZES)
    write_llama2c(tmp_path / "tiny.bin", config, random_tensors(config))
    assert load_model(tmp_path).model.config == config
    (tmp_path / "other.bin").touch()
    with pytest.raises(MalformedFile, match=r"of other models other.bin, tiny.bin, expected"):
        load_model(tmp_path)


def test_a_chat_is_plain_and_still_needs_its_bos(tmp_path: Path) -> None:
    config = tiny_config(**SIZES)
    chat = load_model(write_llama2c(tmp_path / "tiny.bin", config, random_tensors(config))).chat
    assert chat.render([{"role": "user", "content": "hi"}]) == "<|user|>\nhi\n<|assistant|>\n"
    assert chat.needs_bos


def test_files_of_another_length_than_their_header_says_are_refused(tmp_path: Path) -> None:
    config = tiny_config(**SIZES)
    path = write_llama2c(tmp_path / "tiny.bin", config, random_tensors(config))
    whole = path.read_bytes()
    for data in (whole[:-4], whole + b"0"):
        path.write_bytes(data)
        with pytest.raises(MalformedFile, match=f"has {len(data)} bytes, expected {len(whole)}"):
            load_model(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\1" * 20,
        bytes(100),
        struct.pack("<7i", 32, 48, 2, 5, 1, 272, 8) + bytes(300),  # 32 is no multiple of 5 heads
        struct.pack("<7i", 32, 48, 2**30, 4, 2, 272, 8) + bytes(300),  # more layers than bytes
        struct.pack("<7i", 32, 48, 2, 4, 2, 258, 8) + bytes(300),  # no tokens for all bytes
    ],
)
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "random.bin"
    path.write_bytes(data)
    with pytest.raises(MalformedFile, match=r"random.bin is no llama2.c checkpoint"):
        load_model(path)


def test_later_formats_are_refused_by_their_version(tmp_path: Path) -> None:
    path = tmp_path / "quantised.bin"
    path.write_bytes(struct.pack("<7i", 0x616B3432, 2, 0, 0, 0, 0, 0))
    with pytest.raises(UnsupportedModel, match="checkpoint of version 2, expected one of the fir"):
        load_model(path)


def test_a_tokenizer_that_is_missing_or_too_short_is_refused(tmp_path: Path) -> None:
    config = tiny_config(**SIZES)
    path = write_llama2c(tmp_path / "tiny.bin", config, random_tensors(config))
    write_llama2c_tokenizer(tmp_path / "tok272.bin", ["a"] * 271)
    with pytest.raises(MalformedFile, match=r"tok272.bin ends after 271 tokens, expected 272"):
        load_model(path)
    (tmp_path / "tok272.bin").unlink()
    with pytest.raises(MalformedFile, match=r"no tokenizer beside it: tok272.bin or tokenizer.bin"):
        load_model(path)
    write_llama2c_tokenizer(tmp_path / "tokenizer.bin", ["a"] * 272)
    assert load_model(path).tokenizer.vocab_size == 272
