"""Lengths alone: conversations are made up as assumed, and as the lengths allow."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefix_cache.errors import InvalidArgument, MalformedFile
from tests.replay.formats.files import requests, written


def lengths(path: Path, *pairs: tuple[int, int]) -> Path:
    return written(
        path, *({"input_length": prompt, "output_length": answer} for prompt, answer in pairs)
    )


def test_a_request_goes_on_with_the_longest_history_that_is_shorter(tmp_path: Path) -> None:
    """Histories of 120 and 60; 100 goes on with 60, 200 with 120."""
    path = lengths(tmp_path / "lengths", (100, 20), (50, 10), (100, 1), (200, 1))

    first, other, next_of_other, next_of_first = requests(path, assume_turns=2)

    assert next_of_other.prompt.startswith(other.prompt + other.answer)
    assert next_of_first.prompt.startswith(first.prompt + first.answer)
    assert [each.turn for each in (first, other, next_of_other, next_of_first)] == [1, 1, 2, 2]
    assert (first.prompt_tokens, first.answer_tokens) == (100, 20)


def test_a_history_as_long_as_the_prompt_is_not_its_history(tmp_path: Path) -> None:
    one, other = requests(lengths(tmp_path / "lengths", (10, 2), (12, 2)), assume_turns=2)

    assert other.prompt[:4] != one.prompt[:4]


def test_a_conversation_is_over_after_its_turns(tmp_path: Path) -> None:
    path = lengths(tmp_path / "lengths", *((10 * n, 1) for n in range(1, 6)))

    names = [request.conversation for request in requests(path, assume_turns=2)]

    assert names == ["0", "0", "1", "1", "2"]


def test_with_one_turn_nothing_is_shared(tmp_path: Path) -> None:
    played = requests(lengths(tmp_path / "lengths", *[(40, 1)] * 4), assume_turns=1)

    assert len({request.prompt[:4] for request in played}) == 4


def test_without_the_assumption_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="says lengths only, not what prompts share"):
        requests(lengths(tmp_path / "lengths", (1, 1)))


def test_a_csv_file_is_read_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )

    one, other = requests(path, assume_turns=1)

    assert (one.prompt_tokens, one.answer_tokens, one.at) == (374, 44, 0.0)
    assert other.at == pytest.approx(4.314579)


def test_a_length_that_is_none_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("input_length,output_length\n5,1\nfive,1\n")

    with pytest.raises(MalformedFile, match="line 3: prompt length: expected a whole number from"):
        requests(path, assume_turns=1)


def test_a_csv_file_may_be_quoted_spaced_and_of_another_system(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_bytes(
        b'\xef\xbb\xbf"TIMESTAMP", "ContextTokens", "GeneratedTokens"\r\n'
        b'"2023-11-16 18:15:46", "374.0", 44\r\n'
    )

    (request,) = requests(path, assume_turns=1)

    assert (request.prompt_tokens, request.answer_tokens) == (374, 44)


def test_a_field_that_csv_cannot_hold_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "lengths.csv"
    path.write_text("input_length,output_length\n" + "9" * 200_000 + ",1\n")

    with pytest.raises(MalformedFile, match="line 2: expected CSV, but field larger than"):
        requests(path, assume_turns=1)
