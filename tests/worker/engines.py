"""Engines over the fake model, and what their tests share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from prefix_cache import BlockCache, Identity
from prefix_cache.client import LocalSession, Operation, Result
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker.engine import Engine
from prefix_cache.worker.engine_config import EngineConfig
from prefix_cache.worker.request import GenerationRequest, RequestOutput
from prefix_cache.worker.sampling import SamplingParams

from .fake_model import LAYOUT, FakeModel, FakeTokenizer

WHO = Identity(model="fake", kv_dtype="float32")


def greedy(max_tokens: int, **settings: Any) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True, **settings)


def request(request_id: str, prompt: Sequence[int], params: SamplingParams) -> GenerationRequest:
    return GenerationRequest(request_id, list(prompt), params)


class RecordingSession(LocalSession):
    """Keeps the messages, and checks the whole index after each."""

    def __init__(self, cache: BlockCache, messages: list[list[Operation]]) -> None:
        super().__init__(cache)
        self._audited = cache
        self._messages = messages

    def step(self, operations: Sequence[Operation]) -> list[Result]:
        self._messages.append(list(operations))
        results = super().step(operations)
        self._audited.audit()
        return results


@dataclass
class Bench:
    """An engine over the fake model, its cache, and what it told it."""

    engine: Engine
    cache: BlockCache
    model: FakeModel
    pool: KVPool
    messages: list[list[Operation]] = field(default_factory=list)

    def add(self, request_id: str, prompt: Sequence[int], params: SamplingParams) -> None:
        self.engine.add(request(request_id, prompt, params))

    def run(
        self, on_step: Callable[[list[RequestOutput]], object] | None = None
    ) -> dict[tuple[str, int], list[int]]:
        """Step until there is nothing to do; tokens by request and index of the answer."""
        answers: dict[tuple[str, int], list[int]] = {}
        while self.engine.has_work:
            outputs = self.engine.step()
            for output in outputs:
                assert output.error is None, output.error
                answers.setdefault((output.id, output.index), []).extend(output.token_ids)
            if on_step is not None:
                on_step(outputs)
        return answers

    def answer(self, prompt: Sequence[int], params: SamplingParams) -> list[int]:
        """Answer one request on its own."""
        self.add("only", prompt, params)
        return self.run()["only", 0]


def bench(
    num_blocks: int = 64,
    host_blocks: int = 0,
    max_position: int = 100_000,
    block_size: int = 16,
    **config: Any,
) -> Bench:
    cache = BlockCache(num_blocks, block_size, host_blocks=host_blocks)
    model, messages = FakeModel(max_position), list[list[Operation]]()
    layout = replace(LAYOUT, block_size=block_size)
    pool = KVPool(layout, num_blocks, host_blocks=host_blocks)
    engine = Engine(
        model,
        FakeTokenizer(),
        lambda: nullcontext(RecordingSession(cache, messages)),
        pool,
        WHO,
        EngineConfig(**config),
    )
    return Bench(engine, cache, model, pool, messages)
