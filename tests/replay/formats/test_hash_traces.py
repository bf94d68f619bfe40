"""Traces of hashes: what is read, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefix_cache.errors import MalformedFile
from prefix_cache.replay.formats import Request
from tests.replay.formats.files import ids, requests, written

LINE = {"timestamp": 1500, "input_length": 1000, "output_length": 7, "hash_ids": [0, 46]}


def test_a_hash_is_two_words_and_one_for_the_partial_block(tmp_path: Path) -> None:
    """Times count from the first request."""
    earlier = {"timestamp": 500, "input_length": 1024, "output_length": 0, "hash_ids": [1, 2**33]}

    assert requests(written(tmp_path / "trace", LINE, earlier)) == [
        Request(f"1-{2**33}", 1, ids(1, 0, 0, 2), b"", 1024, 0, 0.0),
        Request("0-46", 1, ids(0, 0, 46), b"", 1000, 7, 1.0),
    ]


def test_a_conversation_is_told_by_its_first_two_blocks(tmp_path: Path) -> None:
    """Not by the first alone, which is a system prompt; 1 and 23 are not 12 and 3."""
    heads = [[0, 1], [0, 1, 2], [0, 2], [0], [1, 23], [12, 3]]
    path = written(
        tmp_path / "trace",
        *({**LINE, "hash_ids": head, "input_length": 512 * len(head)} for head in heads),
    )

    assert [(request.conversation, request.turn) for request in requests(path)] == [
        ("0-1", 1),
        ("0-1", 2),
        ("0-2", 1),
        ("0", 1),
        ("1-23", 1),
        ("12-3", 1),
    ]


def test_chats_go_on_from_their_parents(tmp_path: Path) -> None:
    """Two chats go on from the first, one of them once more; null is no parent either."""
    parents = [(10, -1), (11, 10), (12, 10), (13, 12), (20, None), (30, 999)]
    path = written(
        tmp_path / "trace",
        *(
            {**LINE, "chat_id": chat, "parent_chat_id": parent, "input_length": 20}
            for chat, parent in parents
        ),
    )

    assert [(request.conversation, request.turn) for request in requests(path)] == [
        ("10", 1),
        ("10", 2),
        ("10", 2),
        ("10", 3),
        ("20", 1),
        ("30", 1),
    ]


def test_a_chat_whose_parent_came_before_the_trace_says_its_turn(tmp_path: Path) -> None:
    record = {**LINE, "chat_id": 5, "parent_chat_id": 3, "turn": 4, "input_length": 32}

    (request,) = requests(written(tmp_path / "trace", record))

    assert (request.conversation, request.turn) == ("5", 4)


def test_a_partial_block_may_be_without_a_hash(tmp_path: Path) -> None:
    (request,) = requests(written(tmp_path / "trace", {**LINE, "hash_ids": [46]}))

    assert request.prompt == ids(46, 0, 2**32 - 1)
    assert request.prompt_tokens == 1000


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2: expected JSON, but Expecting property name"),
        ([LINE], "line 2: expected a JSON object, got a list"),
        ({}, "line 2: timestamp: expected milliseconds from 0, got None"),
        ({**LINE, "hash_ids": {"0": 1}}, "line 2: hash_ids: expected a list, got an object"),
        (
            {**LINE, "hash_ids": [1, -1]},
            "line 2: hash_ids: expected a whole number from 0 to 18446744073709551615, got -1",
        ),
        ({**LINE, "hash_ids": [2**64, 1]}, "got 18446744073709551616"),
        ({**LINE, "hash_ids": [True, 1]}, "got True"),
        (
            {**LINE, "hash_ids": []},
            "line 2: hash_ids: expected 2, one for 512 tokens of 1000, got 0",
        ),
        ({**LINE, "timestamp": -1}, "line 2: timestamp: expected milliseconds from 0, got -1"),
        ({**LINE, "timestamp": "soon"}, "got 'soon'"),
        ('{"timestamp": NaN, "hash_ids": []}', "got nan"),
        ('{"timestamp": 1e999, "hash_ids": []}', "got inf"),
        (
            {**LINE, "input_length": 0},
            "line 2: input_length: expected a whole number from 1 to 2147483648, got 0",
        ),
        ({**LINE, "output_length": 1.5}, "line 2: output_length: expected a whole number from 0"),
    ],
)
def test_a_line_that_is_no_request_is_named_with_what_was_expected(
    tmp_path: Path, line: Any, problem: str
) -> None:
    path = written(tmp_path / "trace", LINE, line)

    with pytest.raises(MalformedFile) as caught:
        requests(path)

    assert problem in str(caught.value)
    assert caught.value.details == {"file": str(path), "line": 2}


def test_chat_0_can_be_a_parent_and_numbers_may_be_text(tmp_path: Path) -> None:
    path = written(
        tmp_path / "trace",
        {**LINE, "chat_id": 0, "parent_chat_id": -1, "input_length": 20},
        {**LINE, "chat_id": "1", "parent_chat_id": "0", "input_length": 20},
    )

    assert [(each.conversation, each.turn) for each in requests(path)] == [("0", 1), ("0", 2)]


def test_a_parent_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "trace", {**LINE, "chat_id": 1, "parent_chat_id": [1]})

    with pytest.raises(MalformedFile, match="line 1: parent_chat_id: expected a whole number"):
        requests(path)
