from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_cache.worker.hf_tokenizer import HFTokenizer
from prefix_cache.worker.stream_decoder import StreamDecoder
from prefix_cache.worker.tokenizer import Tokenizer
from tests.worker.libraries import byte_level, with_spaces

BYTE_LEVEL = HFTokenizer(byte_level(), [1])
WITH_SPACES = HFTokenizer(with_spaces(), [2])


def streamed(tokenizer: Tokenizer, ids: list[int], after: int | None = None) -> list[str]:
    """What each token adds, and what the end does."""
    decoder = StreamDecoder(tokenizer, after)
    return [*(decoder.add(token) for token in ids), decoder.finish()]


def test_a_character_is_shown_when_it_is_complete() -> None:
    ids = [3 + byte for byte in "é漢".encode()]
    assert streamed(WITH_SPACES, ids) == ["", "é", "", "", "漢", ""]


def test_a_character_that_is_never_completed_shows_at_the_end() -> None:
    assert streamed(WITH_SPACES, [3 + 0xE6, 3 + 0xBC]) == ["", "", "\N{REPLACEMENT CHARACTER}"]


def test_a_character_that_another_interrupts_shows_before_it() -> None:
    assert streamed(WITH_SPACES, [3 + 0xE6, 260]) == ["", "\N{REPLACEMENT CHARACTER}a", ""]


def test_an_answer_has_no_space_where_the_prompt_is_empty() -> None:
    assert streamed(WITH_SPACES, [266, 266], after=1) == ["cat", " cat", ""]
    assert streamed(WITH_SPACES, [266, 266], after=260) == [" cat", " cat", ""]


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, WITH_SPACES])
@given(ids=st.lists(st.integers(0, 275), max_size=30))
def test_pieces_joined_are_the_whole_decoded(tokenizer: Tokenizer, ids: list[int]) -> None:
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids)


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, WITH_SPACES])
@given(text=st.text("aé漢🙂", min_size=1))
def test_no_replacement_is_shown_for_text_that_is_whole(tokenizer: Tokenizer, text: str) -> None:
    pieces = streamed(tokenizer, tokenizer.encode(text, bos=True))
    assert "".join(pieces) == text
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
