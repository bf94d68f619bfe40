"""``proto/`` changes in compatible ways only: ``wire.txtpb`` is what clients rely on."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet

BUF = Path(sys.executable).with_name("buf")
PROTO = Path(__file__).parents[2] / "proto"
CONTRACT = Path(__file__).with_name("wire.txtpb")


def buf(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BUF, *arguments], capture_output=True, text=True, check=False)


def test_proto_breaks_nothing_of_the_contract() -> None:
    done = buf("breaking", PROTO, "--against", CONTRACT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_contract_holds_all_of_proto(tmp_path: Path) -> None:
    """What is added is part of it from then on: `make wire` records it."""
    built = tmp_path / "wire.binpb"
    assert buf("build", PROTO, "--exclude-source-info", "-o", built).returncode == 0
    recorded = text_format.Parse(CONTRACT.read_text(), FileDescriptorSet())
    assert [file.name for file in recorded.file] == [
        "google/protobuf/duration.proto",
        "prefix_cache/v1/node.proto",
        "prefix_cache/v1/router.proto",
    ]
    current = FileDescriptorSet.FromString(built.read_bytes())
    for file in current.file:
        file.DiscardUnknownFields()  # what buf adds to a file of an image
    assert recorded == current


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ("bytes tokens = 2;", "bytes tokens = 7;", "tokens"),
        ("uint32 num_cached_tokens = 1;", "string num_cached_tokens = 1;", "changed type"),
        ("uint32 num_cached_tokens = 1;", "repeated uint32 num_cached_tokens = 1;", "cardinality"),
        ("  optional uint32 end = 2;\n", "", "was deleted"),
        ("bytes block_table = 4;", "bytes table = 4;", "block_table"),
        ("REASON_KIND_EVICTED = 4;", "REASON_KIND_EVICTED = 44;", "4"),
        ("rpc Fork(ForkRequest)", "rpc Fork(ReleaseRequest)", "changed request type"),
        ("  rpc Reset(ResetRequest) returns (ResetResponse);\n", "", "was deleted"),
    ],
    ids=["number", "type", "cardinality", "deletion", "name", "enum", "request", "rpc"],
)
def test_a_breaking_change_is_noticed(
    tmp_path: Path, before: str, after: str, complaint: str
) -> None:
    copy = shutil.copytree(PROTO, tmp_path / "proto")
    node = copy / "prefix_cache/v1/node.proto"
    text = node.read_text()
    assert before in text
    node.write_text(text.replace(before, after, 1))
    done = buf("breaking", copy, "--against", CONTRACT)
    assert done.returncode == 100
    assert complaint in done.stdout


def test_an_addition_is_none(tmp_path: Path) -> None:
    copy = shutil.copytree(PROTO, tmp_path / "proto")
    node = copy / "prefix_cache/v1/node.proto"
    node.write_text(
        node.read_text().replace(
            "message ReleaseRequest {", "message ReleaseRequest {\n  bool now = 2;"
        )
    )
    assert buf("breaking", copy, "--against", CONTRACT).returncode == 0
