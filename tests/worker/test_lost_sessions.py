"""When the cache goes away all that runs is preempted, and goes on when it is back."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from prefix_cache import BlockCache
from prefix_cache.client import CacheSession, LocalSession, NodeClient, Operation, Result
from prefix_cache.errors import IdentityMismatch, Unavailable
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker import cache_link
from prefix_cache.worker.engine import Engine
from prefix_cache.worker.engine_config import EngineConfig
from prefix_cache.worker.node_sessions import node_sessions
from prefix_cache.worker.sampling import SamplingParams

from ..node.nodes import node_process
from .engines import WHO, Bench, greedy, request
from .fake_model import LAYOUT, FakeModel, FakeTokenizer, answer

PROMPT = [(7 * position) % 50 for position in range(50)]


class FragileCache:
    """A cache whose sessions break after the steps of ``lives``, the last one never.

    Who asks for a session while it is ``away`` is turned down.  ``forgets``: the index behind the
    next session is a new one, as that of another node.
    """

    def __init__(
        self, lives: Sequence[int], *, forgets: bool = False, num_blocks: int = 64
    ) -> None:
        self.cache = BlockCache(num_blocks)
        self.away = False
        self.asked = 0
        self._lives = list(lives)
        self._forgets = forgets

    @contextmanager
    def open(self) -> Iterator[LocalSession]:
        self.asked += 1
        if self.away:
            raise Unavailable("nobody is there")
        session = _FragileSession(self.cache, self._lives.pop(0) if self._lives else None)
        yield session
        if self._forgets:
            self.cache = BlockCache(self.cache.num_blocks)
        else:
            session.release_all()


class _FragileSession(LocalSession):
    def __init__(self, cache: BlockCache, steps_left: int | None) -> None:
        super().__init__(cache)
        self._steps_left = steps_left

    def step(self, operations: Sequence[Operation]) -> list[Result]:
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
                super().step(operations)  # carried out, but the answer never comes
                raise Unavailable("the stream broke")
        return super().step(operations)

    def release_all(self) -> None:
        for number in list(self._sequences):
            self._release(number)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_link, "_FIRST_PAUSE_S", 0.001)


def engine_over(fragile: FragileCache, **config: float) -> Bench:
    model, pool = FakeModel(), KVPool(LAYOUT, fragile.cache.num_blocks)
    engine = Engine(
        model,
        FakeTokenizer(),
        fragile.open,
        pool,
        WHO,
        EngineConfig(**config),  # type: ignore[arg-type]
    )
    return Bench(engine, fragile.cache, model, pool)


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("lives", [[0], [1], [2], [3, 1, 5], [1, 1, 1, 1]])
def test_answers_are_the_same_when_sessions_break_in_between(
    lives: list[int], forgets: bool
) -> None:
    fragile = FragileCache(lives, forgets=forgets)
    engine = engine_over(fragile)
    params = SamplingParams(max_tokens=9, seed=1, n=3)
    engine.add("one", PROMPT, greedy(12))
    engine.add("three", PROMPT[:30], params)

    answers = engine.run()

    assert answers.pop(("one", 0)) == answer(PROMPT, greedy(12))
    assert answers == {("three", index): answer(PROMPT[:30], params, index) for index in range(3)}
    fragile.cache.audit()
    assert fragile.cache.stats().private == fragile.cache.stats().live_sequences == 0


def test_what_a_living_node_still_has_is_not_computed_again() -> None:
    engine = engine_over(FragileCache([2]))
    assert engine.answer(PROMPT, greedy(4)) == answer(PROMPT, greedy(4))

    assert engine.engine.stats.preemptions == 1
    assert engine.engine.stats.recomputed_tokens == 51 - 48


def test_a_node_that_knows_nothing_is_told_everything_anew() -> None:
    engine = engine_over(FragileCache([2], forgets=True))
    assert engine.answer(PROMPT, greedy(4)) == answer(PROMPT, greedy(4))

    assert engine.engine.stats.recomputed_tokens == 51


def test_requests_wait_for_a_cache_that_is_away_and_are_answered_when_it_is_back() -> None:
    fragile = FragileCache([])
    fragile.away = True
    engine = engine_over(fragile)
    engine.add("r", PROMPT, greedy(3))
    while fragile.asked < 3:
        assert engine.engine.step() == []
    fragile.away = False

    assert engine.run() == {("r", 0): answer(PROMPT, greedy(3))}


def test_requests_fail_when_the_cache_stays_away() -> None:
    fragile = FragileCache([2])
    engine = engine_over(fragile, patience_s=0.02)
    engine.add("r", PROMPT, greedy(9, n=2))
    outputs = engine.engine.step() + engine.engine.step()
    fragile.away = True
    while not any(output.finish_reason for output in outputs):
        outputs += engine.engine.step()

    failed = [output for output in outputs if output.finish_reason == "error"]
    assert [output.index for output in failed] == [0, 1]
    assert isinstance(failed[0].error, Unavailable)
    assert "the cache is away for" in str(failed[0].error)
    assert "nobody is there" in str(failed[0].error)
    while engine.engine.has_work:
        assert engine.engine.step() == []


def test_a_cache_of_other_blocks_than_the_memory_is_refused() -> None:
    for cache, message in [
        (BlockCache(8, block_size=32), "the cache has blocks of 32 tokens, the KV memory of 16"),
        (BlockCache(9), "the cache counts on 9 num_blocks, the KV memory has 8"),
        (BlockCache(8, host_blocks=1), "the cache counts on 1 host_blocks, the KV memory has 0"),
    ]:
        engine = Engine(
            FakeModel(),
            FakeTokenizer(),
            lambda cache=cache: nullcontext(LocalSession(cache)),  # type: ignore[misc]
            KVPool(LAYOUT, 8),
            WHO,
        )
        with pytest.raises(IdentityMismatch) as caught:
            engine.open()
        assert str(caught.value) == message


def test_a_node_is_killed_and_another_one_takes_over_at_its_address(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/node.sock"
    tokens: list[int] = []
    with NodeClient(address, timeout_s=5.0) as client:
        engine = Engine(
            FakeModel(),
            FakeTokenizer(),
            node_sessions(client, WHO, 16),
            KVPool(LAYOUT, 64),
            WHO,
        )
        engine.add(request("r", PROMPT, greedy(30)))
        with node_process(listen=[address]):
            while len(tokens) < 10:
                tokens += [token for output in engine.step() for token in output.token_ids]
        with node_process(listen=[address]):
            while engine.has_work:
                tokens += [token for output in engine.step() for token in output.token_ids]
            engine.close()
            stats = client.stats()

    assert tokens == answer(PROMPT, greedy(30))
    assert engine.stats.preemptions == 1
    assert engine.stats.recomputed_tokens == 50 + 9
    assert (stats.private, stats.live_sequences) == (0, 0)


def test_streams_to_a_node_with_a_host_tier_break_at_random_and_no_copy_is_left_over(
    tmp_path: Path,
) -> None:
    rng = random.Random(4)
    address = f"unix://{tmp_path}/node.sock"
    with node_process(listen=[address], num_blocks=20, host_blocks=30), NodeClient(address) as node:
        open_node = node_sessions(node, WHO, 16)

        @contextmanager
        def open_session() -> Iterator[CacheSession]:
            with open_node() as session:
                yield _Breaking(session, rng.randrange(40))

        pool = KVPool(LAYOUT, 20, host_blocks=30)
        engine = Engine(FakeModel(), FakeTokenizer(), open_session, pool, WHO)
        expected: dict[tuple[str, int], list[int]] = {}
        answers: dict[tuple[str, int], list[int]] = {}
        while len(expected) < 60 or engine.has_work:
            if len(expected) < 60 and rng.random() < 0.3:
                prompt = PROMPT[: rng.randrange(50)] + [rng.randrange(60) for _ in range(20)]
                params = SamplingParams(max_tokens=rng.randrange(1, 30), seed=1)
                name = str(len(expected))
                engine.add(request(name, prompt, params))
                expected[name, 0] = answer(prompt, params)
            for output in engine.step():
                answers.setdefault((output.id, output.index), []).extend(output.token_ids)
        engine.close()
        stats = node.stats()

    assert answers == expected
    assert engine.stats.preemptions > 5
    assert stats.loaded_tokens > 0
    assert (stats.private, stats.live_sequences, stats.pending_copies) == (0, 0, 0)


class _Breaking:
    """A session that is good for so many steps; the node carries out one more."""

    def __init__(self, session: CacheSession, steps: int) -> None:
        self.block_size = session.block_size
        self.num_blocks = session.num_blocks
        self.host_blocks = session.host_blocks
        self._session = session
        self._steps = steps

    def step(self, operations: Sequence[Operation]) -> list[Result]:
        self._steps -= 1
        results = self._session.step(operations)
        if self._steps < 0:
            raise Unavailable("the stream broke")
        return results
