"""Requests with token ids: traces, logs as JSON, and the text logs of engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefix_cache.errors import MalformedFile
from prefix_cache.replay.formats import ReadOptions, Source, Usage
from tests.replay.formats.files import ids, requests, written


def test_ids_of_prompt_and_answer_with_the_time_in_nanoseconds(tmp_path: Path) -> None:
    first = {"input_tok_ids": [1, 2], "output_tok_ids": [3], "arrival_time_ns": 1_000_000_000}
    later = {**first, "arrival_time_ns": 2_500_000_000, "session_id": "a"}

    one, other = requests(written(tmp_path / "trace", first, later))

    assert (one.prompt, one.answer, one.at) == (ids(1, 2), ids(3), 0.0)
    assert (one.conversation, other.conversation) == ("line 1", "a")
    assert other.at == pytest.approx(1.5)


def test_turns_of_a_session_are_counted(tmp_path: Path) -> None:
    records = [{"prompt_token_ids": [1], "session_id": name} for name in "abab"]

    assert [request.turn for request in requests(written(tmp_path / "t", *records))] == [1, 1, 2, 2]


def test_a_log_that_keeps_request_and_response_apart_is_read_with_its_usage(tmp_path: Path) -> None:
    record = {
        "obj": {"input_ids": [5, 6, 7]},
        "out": {"output_ids": [8], "meta_info": {"prompt_tokens": 3, "cached_tokens": 2}},
    }

    (request,) = requests(written(tmp_path / "log", record))

    assert (request.prompt, request.answer) == (ids(5, 6, 7), ids(8))
    assert request.reported == Usage(prompt_tokens=3, cached_tokens=2)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], "prompt token ids: expected at least one"),
        ([1, -2], "prompt token ids: token 1 is -2, expected 0 to 4294967295"),
        ([1, "2"], "prompt token ids: token 1 is '2'"),
        ("1,2", "prompt token ids: expected a list of token ids, got text"),
    ],
)
def test_ids_that_are_none_are_named(tmp_path: Path, value: object, problem: str) -> None:
    path = written(tmp_path / "trace", {"input_ids": [1]}, {"input_ids": value})

    with pytest.raises(MalformedFile, match=f"line 2: {problem}"):
        requests(path)


LOG = """\
INFO 05-01 11:59:58 api_server.py:1] Started server process
INFO 05-01 12:00:00 logger.py:39] Received request cmpl-1: prompt: 'Hi', params: \
SamplingParams(n=1), prompt_token_ids: [1, 2, 3], lora_request: None.
[2025-05-01 12:00:09] Receive: obj=GenerateReqInput(rid='a', text=None, input_ids=[9, 9])
[2025-05-01 12:00:10] Finish: obj=GenerateReqInput(rid='a', input_ids=[4, 5]), \
out={'meta_info': {'prompt_tokens': 2, 'completion_tokens': 1, 'cached_tokens': 1}, \
'output_ids': [6]}
"""


def test_lines_of_an_engine_s_log_that_hold_ids_are_requests(tmp_path: Path) -> None:
    path = tmp_path / "engine.log"
    path.write_text(LOG)

    vllm, sglang = requests(path)

    assert (vllm.prompt, vllm.answer, vllm.reported) == (ids(1, 2, 3), b"", None)
    assert (sglang.prompt, sglang.answer) == (ids(4, 5), ids(6))
    assert sglang.reported == Usage(prompt_tokens=2, cached_tokens=1)
    assert vllm.at == 0.0


def test_a_log_without_ids_named_as_one_is_refused(tmp_path: Path) -> None:
    from prefix_cache.replay.formats import ReadOptions, Source

    path = tmp_path / "engine.log"
    path.write_text("INFO started\n")

    with pytest.raises(MalformedFile, match="no request with token ids in it; log the requests"):
        list(Source(path, ReadOptions(), file_format="engine-log"))


@pytest.mark.parametrize("token", ["99999999999", "9" * 5000])
def test_a_line_of_a_log_with_ids_that_are_none_is_named_or_left_out(
    tmp_path: Path, token: str
) -> None:
    path = written(tmp_path / "log", f"prompt_token_ids: [1, {token}]", "prompt_token_ids: [1, 2]")

    with pytest.raises(MalformedFile, match="line 1: token ids: "):
        requests(path)
    source = Source(path, ReadOptions(), skip_bad=True)
    assert [each.prompt for each in source] == [ids(1, 2)]
    assert source.skipped == 1
