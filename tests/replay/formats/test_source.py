"""Every format is told by its first records, and read as the same kind of requests."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from prefix_cache.errors import CutShort, InvalidArgument, MalformedFile
from prefix_cache.replay.formats import (
    FORMATS,
    Grain,
    ReadOptions,
    Source,
    checked_block_size,
    in_tokens,
)
from tests.replay.formats.files import ids, requests, written

MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
RECORDS: dict[str, Any] = {
    "openai": {"messages": MESSAGES},
    "sharegpt": {"conversations": [{"from": "human", "value": "Hi"}]},
    "sessions": {"messages": MESSAGES, "usage": {"prompt_tokens": 9}},
    "mooncake": {"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [4]},
    "hash16": {
        "chat_id": 7,
        "parent_chat_id": -1,
        "timestamp": 0.5,
        "input_length": 17,
        "output_length": 1,
        "hash_ids": [4, 5],
    },
    "tokens": {"input_tok_ids": [1, 2], "output_tok_ids": [3], "arrival_time_ns": 5},
    "engine-log": "INFO 05-01 12:00:00 logger.py:39] Received request a: prompt: 'Hi', "
    "params: SamplingParams(n=1), prompt_token_ids: [1, 2], lora_request: None.",
    "lengths": {"input_length": 10, "output_length": 2},
}


def test_there_is_a_record_of_every_format() -> None:
    assert set(RECORDS) == set(FORMATS)


@pytest.mark.parametrize("name", list(RECORDS))
def test_the_file_tells_its_format_plain_or_packed(tmp_path: Path, name: str) -> None:
    plain = written(tmp_path / "file", RECORDS[name])
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(plain.read_bytes()))

    source = Source(plain, ReadOptions(assume_turns=1))

    assert source.format == name
    assert len(list(source)) == 1
    assert list(Source(packed, ReadOptions(assume_turns=1))) == list(source)


def test_a_record_that_tells_nothing_does_not_hide_the_next(tmp_path: Path) -> None:
    path = written(tmp_path / "file", "{", {"note": 1}, RECORDS["openai"])

    assert Source(path, ReadOptions(), skip_bad=True).format == "openai"


def test_a_file_without_a_known_record_is_refused_with_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match="no record in it tells its format; expected one of op"):
        Source(written(tmp_path / "file", {"note": 1}), ReadOptions())


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match="file: it is empty; expected one record a line"):
        Source(written(tmp_path / "file"), ReadOptions())


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match=r"none: cannot be read \(No such file"):
        Source(tmp_path / "none", ReadOptions())


def test_a_format_can_be_named_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "file", RECORDS["mooncake"])

    named = Source(path, ReadOptions(assume_turns=1), file_format="lengths")
    assert [request.prompt_tokens for request in named] == [1]
    with pytest.raises(InvalidArgument, match="unknown format 'csv'; expected one of openai"):
        Source(path, ReadOptions(), file_format="csv")


def test_bad_records_are_left_out_and_counted_at_each_reading(tmp_path: Path) -> None:
    path = written(tmp_path / "file", RECORDS["openai"], "{", {"messages": 5}, RECORDS["openai"])
    source = Source(path, ReadOptions(), skip_bad=True)

    for _ in range(2):
        assert len(list(source)) == 2
        assert source.skipped == 2


def test_the_first_and_the_last_bad_record_are_named(tmp_path: Path) -> None:
    good = RECORDS["openai"]
    path = written(tmp_path / "file", good, "{", {"messages": 5}, good, "[")
    source = Source(path, ReadOptions(), skip_bad=True)

    assert len(list(source)) == 2
    assert source.skipped == 3
    assert [problem.split(": ")[0] for problem in source.problems] == [
        f"{path}, line 2",
        f"{path}, line 5",
    ]


@pytest.mark.parametrize("form", ["lines", "array"])
def test_a_packed_file_that_is_cut_is_read_up_to_there_where_bad_records_are_left_out(
    tmp_path: Path, form: str
) -> None:
    """What is lost is one bad record, at the line of the cut."""
    lines = [json.dumps({"messages": [{"role": "user", "content": f"{n}"}]}) for n in range(5_000)]
    text = "[" + ",\n".join(lines) + "]" if form == "array" else "\n".join(lines)
    path = tmp_path / "cut.gz"
    whole = gzip.compress(text.encode())
    path.write_bytes(whole[: len(whole) // 2])

    with pytest.raises(CutShort, match=r"cut\.gz, line \d+: no whole gzip stream") as refused:
        list(Source(path, ReadOptions()))
    line = refused.value.details["line"]
    assert isinstance(line, int)
    source = Source(path, ReadOptions(), skip_bad=True)

    assert len(list(source)) == line - 1
    assert 1_000 < line < 4_000
    assert (source.skipped, source.problems) == (1, [str(refused.value)])


def test_a_packed_file_that_is_cut_in_its_first_line_is_refused_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(json.dumps(RECORDS["openai"]).encode())[:20])

    with pytest.raises(CutShort, match="line 1: no whole gzip stream"):
        Source(path, ReadOptions(), skip_bad=True)


def test_one_array_of_records_is_read_as_lines_are(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([RECORDS["sharegpt"]] * 3, indent=2))

    source = Source(path, ReadOptions())

    assert source.format == "sharegpt"
    assert len(list(source)) == 3


def test_an_array_larger_than_what_is_read_at_once_is_read_whole(tmp_path: Path) -> None:
    """An element, and characters of several bytes, stand where two pieces meet."""
    path = tmp_path / "sharegpt.json"
    record = {"conversations": [{"from": "human", "value": "ü" * 300_000}]}
    path.write_text(json.dumps([record] * 5, ensure_ascii=False))

    assert {request.prompt_tokens for request in Source(path, ReadOptions())} == {600_031}


def test_an_array_may_begin_far_behind(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_text(" " * (1 << 20) + "\n" + json.dumps([RECORDS["openai"]] * 2))

    assert len(list(Source(path, ReadOptions(), file_format="openai"))) == 2


def test_a_bad_element_of_an_array_is_named_with_the_line_in_which_it_begins(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chats.json"
    record = json.dumps(RECORDS["openai"], indent=1)
    path.write_text(f"\n[\n{record},\n\n{{bad}},\n{record}]")
    bad = 3 + record.count("\n") + 2

    with pytest.raises(
        MalformedFile, match=f'line {bad}: expected a JSON array that ends with "]"'
    ):
        list(Source(path, ReadOptions()))


def test_a_pipe_is_refused_because_it_can_be_read_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)  # so that nobody waits for the other end

    with pytest.raises(MalformedFile, match="pipe: is a pipe; expected a file"):
        Source(path, ReadOptions())
    os.close(writer)


@pytest.mark.parametrize(
    ("head", "name"),
    [(b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh91", "bzip2"), (b"PK\3\4", "zip")],
)
def test_files_that_are_packed_otherwise_are_refused_by_name(
    tmp_path: Path, head: bytes, name: str
) -> None:
    path = tmp_path / "chats"
    path.write_bytes(head + bytes(100))

    with pytest.raises(MalformedFile, match=f"is packed with {name}; expected plain text or gzip"):
        Source(path, ReadOptions())


def test_an_array_that_does_not_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([RECORDS["sharegpt"]] * 2)[:-5])

    with pytest.raises(MalformedFile, match='expected a JSON array that ends with "]"'):
        list(Source(path, ReadOptions()))


@pytest.mark.parametrize("form", ["lines", "array", "packed"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, form: str) -> None:
    """24 MB are read in less than 8, of which an array is read 1 MB at a time."""
    record = {"messages": [{"role": "user", "content": "x" * 4_000}]}
    records = [json.dumps(record)] * 6_000
    text = "[" + ",".join(records) + "]" if form == "array" else "\n".join(records)
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(text.encode()) if form == "packed" else text.encode())
    del text, records

    tracemalloc.start()
    count = sum(1 for _ in Source(path, ReadOptions()))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 6_000
    assert most < 8_000_000


def test_block_sizes_are_multiples_of_what_one_hash_stands_for() -> None:
    assert checked_block_size(None, Grain()) == 16
    assert checked_block_size(None, Grain(512, 2)) == 512
    assert checked_block_size(48, Grain(16, 2)) == 48
    with pytest.raises(InvalidArgument, match="one hash for 512 tokens, expected a multiple of"):
        checked_block_size(16, Grain(512, 2))


def test_hashes_become_made_up_tokens_that_are_equal_where_the_hashes_are(tmp_path: Path) -> None:
    record = {**RECORDS["hash16"], "input_length": 35, "hash_ids": [4, 2**40, 6]}
    (request,) = requests(written(tmp_path / "file", record))

    asked = in_tokens(request, Grain(16, 2))

    assert asked.prompt == ids(4, 0) * 8 + ids(0, 256) * 8 + ids(6) * 3


def test_every_file_of_real_data_is_read(shared_data: Path) -> None:
    counts = {
        "conversations/bfcl_v4_multi_turn_800": ("openai", 3_336),
        "conversations/mt_bench_questions": ("openai", 160),
        "conversations/oasst_en_100_tree_paths": ("openai", 1_212),
        "conversations/sweagent_mit_trajs": ("openai", 308),
        "traces/mooncake_conversation_trace": ("mooncake", 12_031),
        "traces/sharegpt_qwen3_token_ids_300": ("tokens", 300),
    }
    for name, (file_format, count) in counts.items():
        source = Source(shared_data / f"{name}.jsonl.gz", ReadOptions())
        assert (source.format, sum(1 for _ in source)) == (file_format, count)
    azure = Source(
        shared_data / "traces" / "azure_llm_2023_conv.csv.gz", ReadOptions(assume_turns=3)
    )
    assert (azure.format, sum(1 for _ in azure)) == ("lengths", 19_366)
