from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models

from prefix_cache.errors import InvalidArgument, UnsupportedModel
from prefix_cache.worker.hf_tokenizer import HFTokenizer
from tests.worker.libraries import byte_level, with_spaces

BYTE_LEVEL = HFTokenizer(byte_level(), [1])
WITH_SPACES = HFTokenizer(with_spaces(), [2])


def test_a_bare_prompt_gets_its_bos_and_special_tokens_are_read() -> None:
    assert WITH_SPACES.encode("a cat", bos=True) == [1, 263, 266]
    assert WITH_SPACES.encode("a cat", bos=False) == [263, 266]
    assert BYTE_LEVEL.encode("<s></s>", bos=False) == [0, 1]
    assert BYTE_LEVEL.eos_ids == {1}


def test_characters_that_have_no_token_are_bytes() -> None:
    assert WITH_SPACES.encode("é", bos=False) == [259, 3 + 0xC3, 3 + 0xA9]
    assert WITH_SPACES.decode([3 + 0xC3, 3 + 0xA9]) == "é"


def test_half_a_character_shows_as_a_replacement() -> None:
    assert WITH_SPACES.decode([3 + 0xC3]) == "\N{REPLACEMENT CHARACTER}"


def test_text_goes_on_with_its_space_but_does_not_begin_with_one() -> None:
    assert WITH_SPACES.decode([266, 266]) == " cat cat"
    assert WITH_SPACES.decode([1, 266, 266]) == "cat cat"


def test_special_tokens_stand_for_nothing_and_others_for_their_text() -> None:
    tool = BYTE_LEVEL.encode("<tool>", bos=False)
    assert len(tool) == 1
    assert BYTE_LEVEL.decode([0, *tool, 1]) == "<tool>"


def test_ids_beyond_the_vocabulary_stand_for_nothing() -> None:
    assert BYTE_LEVEL.vocab_size == 271
    assert BYTE_LEVEL.decode([271, 100_000]) == ""


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"character 2 of the text is '\\ud800'"):
        BYTE_LEVEL.encode("hi\ud800", bos=False)


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, WITH_SPACES])
@given(text=st.text() | st.text("the cat ▁<>x0A"))
def test_text_comes_back_as_it_was(tokenizer: HFTokenizer, text: str) -> None:
    if tokenizer is WITH_SPACES:
        text = text.replace("▁", "")  # which is a space to it
        assert tokenizer.decode(tokenizer.encode(text, bos=True)) == text
    assert tokenizer.decode(tokenizer.encode(text, bos=False)).removeprefix(" ") == (
        text.removeprefix(" ") if tokenizer is BYTE_LEVEL else text
    )


@given(st.text("the cat sat ~éñ漢🙂"))
def test_decoding_is_that_of_the_library(text: str) -> None:
    for tokenizer, library in ((BYTE_LEVEL, byte_level()), (WITH_SPACES, with_spaces())):
        ids = library.encode(text).ids
        assert tokenizer.decode(ids) == library.decode(ids)


@pytest.mark.parametrize("decoder", [None, decoders.WordPiece()])
def test_another_kind_of_decoder_is_refused(decoder: decoders.Decoder | None) -> None:
    library = tokenizers.Tokenizer(models.BPE())
    library.decoder = decoder
    with pytest.raises(UnsupportedModel, match=r"decodes by .*, expected some of"):
        HFTokenizer(library, [])
