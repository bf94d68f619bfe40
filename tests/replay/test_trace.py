"""Mooncake traces: what is read, and what is refused with its line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from prefix_cache.errors import MalformedFile
from prefix_cache.replay.trace import TraceRequest, read_trace

LINE = {"timestamp": 1500, "input_length": 1000, "output_length": 7, "hash_ids": [0, 46]}


def block(hash_id: int) -> bytes:
    return hash_id.to_bytes(8, "little")


def written(path: Path, *lines: Any) -> Path:
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.gz"])
def test_requests_are_read_plain_or_packed_in_order_of_time(tmp_path: Path, name: str) -> None:
    path = written(
        tmp_path / name,
        LINE,
        "",
        {"timestamp": 0, "input_length": 1, "output_length": 0, "hash_ids": [2**64 - 1, 5, 6]},
    )

    assert read_trace(path) == [
        TraceRequest(0.0, 1, 0, (block(2**64 - 1), block(5), block(6)), f"{2**64 - 1}-5"),
        TraceRequest(1.5, 1000, 7, (block(0), block(46)), "0-46"),
    ]


def test_a_conversation_is_told_by_its_first_two_blocks(tmp_path: Path) -> None:
    """Not by the first alone, which is a system prompt; 1 and 23 are not 12 and 3."""
    heads = [[0, 1], [0, 1, 2], [0, 2], [0], [1, 23], [12, 3], []]
    path = written(tmp_path / "trace.jsonl", *({**LINE, "hash_ids": ids} for ids in heads))

    assert [request.conversation for request in read_trace(path)] == [
        "0-1",
        "0-1",
        "0-2",
        "0",
        "1-23",
        "12-3",
        "",
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 2: expected JSON, but Expecting property name"),
        ([LINE], "line 2: expected a JSON object, got a list"),
        ({}, "line 2: hash_ids: expected a list, got null"),
        ({**LINE, "hash_ids": {"0": 1}}, "line 2: hash_ids: expected a list, got an object"),
        (
            {**LINE, "hash_ids": [1, -1]},
            "line 2: hash_ids: expected a whole number from 0 to 18446744073709551615, got -1",
        ),
        ({**LINE, "hash_ids": [2**64]}, "got 18446744073709551616"),
        ({**LINE, "hash_ids": ["1"]}, "got '1'"),
        ({**LINE, "hash_ids": [True]}, "got True"),
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
    path = written(tmp_path / "trace.jsonl", LINE, line)

    with pytest.raises(MalformedFile) as caught:
        read_trace(path)

    assert problem in str(caught.value)
    assert caught.value.details == {"file": str(path), "line": 2}


def test_a_trace_without_a_request_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match="no request in it; expected one a line, as JSON"):
        read_trace(written(tmp_path / "trace.jsonl", "", " "))


def test_a_cut_gzip_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "trace.jsonl.gz", *[LINE] * 100)
    path.write_bytes(path.read_bytes()[:-9])

    with pytest.raises(MalformedFile, match="no whole gzip stream"):
        read_trace(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match=r"none\.jsonl: cannot be read \(No such file"):
        read_trace(tmp_path / "none.jsonl")
