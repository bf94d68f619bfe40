from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_cache.worker.llama2c_tokenizer import Llama2cTokenizer

SPECIAL = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *(b"<0x%02X>" % byte for byte in range(256))]
PIECES = [*SPECIAL, b" ", b"a", b"b", b"ab", b"ba", b"aba", b" a"]
SCORES = [0.0] * 262 + [-1.0, -2.0, -3.0, -1.0]
SPACE, A, B, AB, BA, ABA, SPACE_A = range(259, 266)
TOKENIZER = Llama2cTokenizer(PIECES, SCORES)


def merged_one_by_one(tokens: list[int]) -> list[int]:
    """The rule word for word: of all neighbours the best score, the first of equals."""
    while True:
        best = None
        for place in range(len(tokens) - 1):
            piece = PIECES[tokens[place]] + PIECES[tokens[place + 1]]
            if piece in PIECES:
                made = PIECES.index(piece)
                if best is None or SCORES[made] > SCORES[best[1]]:
                    best = place, made
        if best is None:
            return tokens
        place, made = best
        tokens = [*tokens[:place], made, *tokens[place + 2 :]]


def test_the_best_score_is_merged_first_and_the_first_of_equals() -> None:
    assert TOKENIZER.encode("bab", bos=True) == [1, SPACE, B, AB]
    assert TOKENIZER.encode("ab", bos=False) == [SPACE_A, B]
    assert TOKENIZER.encode("", bos=True) == [1]


@given(st.text("ab ", max_size=30))
def test_merging_is_that_of_the_rule_word_for_word(text: str) -> None:
    single = {" ": SPACE, "a": A, "b": B}
    expected = merged_one_by_one([single[character] for character in " " + text]) if text else []
    assert TOKENIZER.encode(text, bos=False) == expected


@given(st.text())
def test_text_comes_back_as_it_was(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text, bos=True)) == text


def test_characters_that_have_no_token_are_bytes() -> None:
    assert TOKENIZER.encode("é", bos=False) == [SPACE, 3 + 0xC3, 3 + 0xA9]


def test_special_tokens_and_ids_beyond_the_vocabulary_stand_for_nothing() -> None:
    assert TOKENIZER.decode([1, A, 2, 266, 5000]) == "a"
    assert TOKENIZER.eos_ids == {1, 2}
    assert TOKENIZER.vocab_size == 266


def test_a_long_text_is_encoded_in_one_go() -> None:
    """What takes the square of 120,000 characters would not end."""
    assert len(TOKENIZER.encode("abaab " * 20_000, bos=False)) > 20_000


@pytest.fixture(scope="module")
def stories(shared_data: Path) -> Llama2cTokenizer:
    from prefix_cache.worker.loading import load_model

    tokenizer = load_model(shared_data / "models" / "stories260K").tokenizer
    assert isinstance(tokenizer, Llama2cTokenizer)
    return tokenizer


def test_a_real_vocabulary_gives_the_tokens_of_its_program(stories: Llama2cTokenizer) -> None:
    assert stories.vocab_size == 512
    assert stories.encode("Once upon a time", bos=True) == [1, 403, 407, 261, 378]
    assert stories.decode([1, 403, 407, 261, 378]) == "Once upon a time"
