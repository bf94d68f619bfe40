"""How a worker is set up."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from prefix_cache.worker.engine_config import EngineConfig

KVScales = Literal["block", "head", "layer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """A worker that serves ``model``, a path, as ``name`` over HTTP at ``listen``.

    With the address of a cache node as ``node``, its KV memory has the blocks that the node says.
    Else it has ``num_blocks`` blocks, or as many as ``kv_memory`` bytes hold, of ``block_size``
    tokens, and ``host_blocks`` slots on the host, and the index is in this process.

    Computes in ``dtype`` on ``device`` with ``threads`` threads (None: torch's default), and
    stores KV in ``kv_dtype`` (None: the same).  FP8 is scaled per ``kv_scales``; other than per
    block, the scales are calibrated on the text of the file ``calibration``.  ``seed`` is for
    requests without one.  A worker told to end gives answers ``drain_grace_s`` seconds to end.
    """

    model: Path
    listen: str = "127.0.0.1:0"
    name: str | None = None
    node: str = ""
    num_blocks: int | None = None
    kv_memory: int = 2**30
    block_size: int = 16
    host_blocks: int = 0
    device: str = "cpu"
    dtype: str = "float32"
    kv_dtype: str | None = None
    kv_scales: KVScales = "block"
    calibration: Path | None = None
    threads: int | None = None
    seed: int | None = None
    drain_grace_s: float = 30.0
    engine: EngineConfig = field(default_factory=EngineConfig)
