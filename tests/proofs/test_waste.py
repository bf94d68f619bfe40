"""Little of the KV memory that is given out is empty, on lengths of a real service.

A model that computes nothing answers here: it is about the blocks.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

import pytest
import torch
from torch import Tensor

from prefix_cache import BlockCache, Identity
from prefix_cache.client import AcquiredSequence, Appended, LocalSession, Operation, Release, Result
from prefix_cache.kv.batch import PagedBatch
from prefix_cache.kv.layout import KVLayout
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker.engine import Engine
from prefix_cache.worker.engine_config import EngineConfig
from prefix_cache.worker.model_config import ModelConfig
from prefix_cache.worker.request import GenerationRequest
from prefix_cache.worker.sampling import SamplingParams

from ..worker.fake_model import FakeTokenizer

BLOCK_SIZE = 16
NUM_BLOCKS = 1500
MAX_MODEL_LEN = 4096
REQUESTS = 160


@dataclass(frozen=True)
class Lengths:
    prompt: int
    answer: int


@pytest.fixture(scope="module")
def lengths(shared_data: Path) -> list[Lengths]:
    path = shared_data / "traces" / "azure_llm_2023_conv.csv.gz"
    with gzip.open(path, "rt", newline="") as lines:
        rows = (
            Lengths(int(row["ContextTokens"]), int(row["GeneratedTokens"]))
            for row in csv.DictReader(lines)
        )
        fitting = (row for row in rows if row.answer and row.prompt + row.answer <= MAX_MODEL_LEN)
        return list(islice(fitting, REQUESTS))


class SilentModel:
    config = ModelConfig(
        name="silent",
        vocab_size=16,
        hidden_size=2,
        intermediate_size=2,
        num_layers=1,
        num_heads=1,
        num_kv_heads=1,
        head_dim=2,
        max_position=MAX_MODEL_LEN,
    )

    def forward(
        self, token_ids: Tensor, batch: PagedBatch, pool: KVPool, rows: Tensor | None = None
    ) -> Tensor:
        assert rows is not None
        return torch.zeros(len(rows), self.config.vocab_size)


class CountingSession(LocalSession):
    """Knows the most slots that were ever empty in one sequence, by what was answered."""

    def __init__(self, cache: BlockCache) -> None:
        super().__init__(cache)
        self.most_empty = 0
        self._blocks: dict[int, int] = {}

    def step(self, operations: Sequence[Operation]) -> list[Result]:
        results = super().step(operations)
        for operation, result in zip(operations, results, strict=True):
            number = operation.sequence_id
            match result:
                case AcquiredSequence():
                    self._blocks[number] = len(result.block_table)
                case Appended():
                    self._blocks[number] += len(result.new_block_ids)
                case _:
                    continue
            empty = self._blocks[number] * BLOCK_SIZE - result.num_tokens
            self.most_empty = max(self.most_empty, empty)
        for operation in operations:
            if isinstance(operation, Release):
                self._blocks.pop(operation.sequence_id)
        return results


def reserve_max_share(lengths: list[Lengths]) -> float:
    """Share of slots that hold tokens where every request has ``MAX_MODEL_LEN`` of its own."""
    held = sum(row.prompt + generated for row in lengths for generated in range(row.answer))
    return held / (MAX_MODEL_LEN * sum(row.answer for row in lengths))


def test_at_least_96_percent_of_the_slots_given_out_hold_tokens(lengths: list[Lengths]) -> None:
    cache = BlockCache(NUM_BLOCKS, BLOCK_SIZE)
    session = CountingSession(cache)
    engine = Engine(
        SilentModel(),
        FakeTokenizer(),
        lambda: nullcontext(session),
        KVPool(KVLayout(1, 1, 2, BLOCK_SIZE), NUM_BLOCKS),
        Identity(model="silent", kv_dtype="float32"),
        EngineConfig(max_batch_tokens=2048),
    )
    for number, row in enumerate(lengths):
        params = SamplingParams(row.answer, temperature=0.0, ignore_eos=True)
        # Conversations of different users have nothing in common.
        request = GenerationRequest(str(number), [1] * row.prompt, params, salt=str(number))
        engine.add(request)
    shares: list[float] = []
    while engine.has_work:
        engine.step()
        use = engine.memory_use()
        # From when the memory is full until nobody waits for it any more.
        if engine.stats.waiting and (shares or use.blocks > 0.9 * NUM_BLOCKS):
            shares.append(use.share_filled)

    assert len(shares) > 200
    assert fmean(shares) >= 0.96
    assert session.most_empty == BLOCK_SIZE - 1
    assert reserve_max_share(lengths) < 0.4
