"""The KV memory of a worker: settings that cannot be are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prefix_cache.errors import InvalidArgument, MalformedFile
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker.config import WorkerConfig
from prefix_cache.worker.kv_memory import kv_memory
from prefix_cache.worker.loading import load_model

Memory = Callable[..., KVPool]


@pytest.fixture(scope="module")
def memory(shared_data: Path) -> Memory:
    """The memory of a worker with these settings, of two blocks."""
    model = shared_data / "models" / "stories260K"
    loaded = load_model(model)

    def memory(**settings: Any) -> KVPool:
        return kv_memory(WorkerConfig(model=model, **settings), loaded, 16, 2, 1)

    return memory


def test_more_blocks_than_there_is_memory_for_are_told(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*arguments: object, **settings: object) -> None:
        raise RuntimeError("you tried to allocate 2048 GB")

    monkeypatch.setattr("prefix_cache.worker.kv_memory.KVPool", no_memory)
    with pytest.raises(InvalidArgument, match="no memory for 2 blocks on cpu and 1 on the host"):
        memory()


def test_scales_of_what_is_not_fp8_are_refused(memory: Memory, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="KV is stored in float32, only FP8 has scales"):
        memory(kv_scales="layer")
    with pytest.raises(InvalidArgument, match="KV is stored in float16, only FP8 has scales"):
        memory(kv_dtype="float16", calibration=tmp_path / "text")


@pytest.mark.parametrize("data", [b"", b" \n", b"Once \xff"])
def test_a_file_without_a_text_calibrates_nothing(
    memory: Memory, tmp_path: Path, data: bytes
) -> None:
    text = tmp_path / "text"
    text.write_bytes(data)
    with pytest.raises(MalformedFile, match="no text"):
        memory(kv_dtype="fp8_e4m3", kv_scales="head", calibration=text)
