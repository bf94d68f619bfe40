"""Engines over a real model, with the logits that they answered by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from prefix_cache import BlockCache, Identity
from prefix_cache.client import LocalSession
from prefix_cache.kv.batch import PagedBatch
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker.cache_link import SessionFactory
from prefix_cache.worker.engine import Engine
from prefix_cache.worker.engine_config import EngineConfig
from prefix_cache.worker.llama import Llama
from prefix_cache.worker.loading import LoadedModel
from prefix_cache.worker.request import GenerationRequest, RequestOutput
from prefix_cache.worker.sampling import SamplingParams

WHO = Identity(model="stories260K", kv_dtype="float32")

# The logits after the first n tokens of sequences, by n.
Logits = dict[int, list[Tensor]]


class RecordingModel:
    """Keeps the logits after each sequence of at least ``from_length`` tokens."""

    def __init__(self, model: Llama) -> None:
        self.config = model.config
        self.from_length = 0
        self.logits: Logits = {}
        self._model = model

    def forward(
        self, token_ids: Tensor, batch: PagedBatch, pool: KVPool, rows: Tensor | None = None
    ) -> Tensor:
        logits = self._model.forward(token_ids, batch, pool, rows)
        assert rows is not None
        for row, place in zip(logits, rows.tolist(), strict=True):
            length = int(batch.positions[place]) + 1
            if length >= self.from_length:
                self.logits.setdefault(length, []).append(row)
        return logits


@dataclass
class Worker:
    """An engine over the model; ``cache`` is its index in process."""

    engine: Engine
    model: RecordingModel
    cache: BlockCache
    pool: KVPool

    def run(self, on_step: Callable[[], object] = lambda: None) -> dict[tuple[str, int], list[int]]:
        """Step until there is nothing to do; tokens by request and index of the answer."""
        answers: dict[tuple[str, int], list[int]] = {}
        while self.engine.has_work:
            collect(self.engine.step(), answers)
            on_step()
        return answers

    def answer(self, prompt: Sequence[int], params: SamplingParams, salt: str = "") -> list[int]:
        """Answer one request on its own."""
        self.engine.add(GenerationRequest("only", prompt, params, salt))
        return self.run()["only", 0]


def collect(outputs: Iterable[RequestOutput], answers: dict[tuple[str, int], list[int]]) -> None:
    for output in outputs:
        assert output.error is None, output.error
        answers.setdefault((output.id, output.index), []).extend(output.token_ids)


def worker(
    stories: LoadedModel,
    num_blocks: int = 256,
    host_blocks: int = 0,
    *,
    open_session: SessionFactory | None = None,
    **config: Any,
) -> Worker:
    cache = BlockCache(num_blocks, host_blocks=host_blocks)
    model = RecordingModel(stories.model)
    pool = KVPool(
        stories.model.kv_layout(),
        num_blocks,
        host_blocks=host_blocks,
        compute_dtype=stories.model.dtype,
    )
    engine = Engine(
        model,
        stories.tokenizer,
        open_session or (lambda: nullcontext(LocalSession(cache))),
        pool,
        WHO,
        EngineConfig(**config),
    )
    return Worker(engine, model, cache, pool)


def greedy(max_tokens: int, **settings: Any) -> SamplingParams:
    return SamplingParams(max_tokens, temperature=0.0, ignore_eos=True, **settings)


def gap(logits: Tensor) -> float:
    """How far the second best token is behind the best."""
    best, second = torch.topk(logits, 2).values.tolist()
    return float(best - second)
