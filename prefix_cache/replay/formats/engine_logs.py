"""Requests from the text logs of vLLM and SGLang, where these hold token ids.

vLLM writes a line with ``prompt_token_ids: [1, 2]`` when a request comes (since 0.11 at debug
level), SGLang one with ``Finish: ... input_ids=[1, 2]`` and perhaps ``'output_ids': [3]`` when it
is done.  All other lines are passed over, also those whose ids were cut short.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from prefix_cache.index.tokens import as_token_bytes
from prefix_cache.replay.formats.fields import time_of
from prefix_cache.replay.formats.records import Records
from prefix_cache.replay.formats.request import Request, Usage
from prefix_cache.replay.json_lines import Unexpected, malformed

_IDS = r"\[(\d+(?:, *\d+)*)\]"
_VLLM = re.compile(rf"prompt_token_ids: {_IDS}")
_SGLANG = re.compile(rf"Finish: .*?\binput_ids={_IDS}")
_ANSWER = re.compile(rf"'output_ids': {_IDS}")
_USAGE = re.compile(r"'prompt_tokens': (\d{1,9}).*?'cached_tokens': (\d{1,9})")
_TIME = re.compile(r"(?:(\d{4})-)?(\d{2}-\d{2})[ T](\d{2}:\d{2}:\d{2}(?:\.\d+)?)")
_SOME_YEAR = "2000"  # vLLM's lines have none, and only the time between them counts


def is_engine_log(line: str) -> bool:
    """Whether a line of a log holds a request with token ids."""
    return bool(_VLLM.search(line) or _SGLANG.search(line))


def read_engine_log(records: Records) -> Iterator[Request]:
    """Read the requests of a log.  Raises MalformedFile when there is none."""
    found = False

    def request(line: str, number: int) -> Request | None:
        nonlocal found
        match = _VLLM.search(line) or _SGLANG.search(line)
        found = found or bool(match)
        return _request(line, match[1], number) if match else None

    yield from (made for made in records.read_lines(request) if made)
    if not found:
        raise malformed(records.path, "no request with token ids in it; log the requests in full")


def _request(line: str, prompt: str, number: int) -> Request:
    answer = _ANSWER.search(line)
    request = Request.of_tokens(
        f"line {number}", 1, _ids(prompt), _ids(answer[1]) if answer else b"", _time(line)
    )
    usage = _USAGE.search(line)
    return replace(request, reported=Usage(int(usage[1]), int(usage[2])) if usage else None)


def _ids(text: str) -> bytes:
    try:
        return as_token_bytes([int(part) for part in text.split(",")])
    except ValueError as error:  # also where a number has more digits than Python reads
        raise Unexpected(f"token ids: {error}") from None


def _time(line: str) -> float | None:
    match = _TIME.search(line)
    if match is None:
        return None
    try:
        return time_of({"time": f"{match[1] or _SOME_YEAR}-{match[2]} {match[3]}"})
    except Unexpected:  # no date after all
        return None
