"""The engine: requests in, tokens out, one step at a time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from prefix_cache.errors import InvalidArgument, PrefixCacheError, Unavailable
from prefix_cache.index import Identity
from prefix_cache.kv.batch import PagedBatch, SequenceSlice
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker.answer import Answer
from prefix_cache.worker.beam_search import BeamSearch
from prefix_cache.worker.cache_dialogue import Answers, CacheDialogue
from prefix_cache.worker.cache_link import CacheLink, SessionFactory
from prefix_cache.worker.engine_config import EngineConfig
from prefix_cache.worker.engine_stats import EngineStats
from prefix_cache.worker.limits import Limits
from prefix_cache.worker.memory_use import MemoryUse, memory_use
from prefix_cache.worker.model_config import ModelConfig
from prefix_cache.worker.request import GenerationRequest, RequestOutput
from prefix_cache.worker.resume_costs import ResumeCosts
from prefix_cache.worker.running_sequence import RunningSequence
from prefix_cache.worker.sampled_answers import SampledAnswers
from prefix_cache.worker.sampling import sample
from prefix_cache.worker.scheduler import Scheduler, Share
from prefix_cache.worker.tokenizer import Tokenizer

# A cache that has no blocks for anybody, because others hold them, is asked again after this.
_NO_BLOCKS_PAUSE_S = 0.01


class Model(Protocol):
    """What the engine asks of a model; ``Llama`` is one."""

    @property
    def config(self) -> ModelConfig:
        """Its sizes."""

    def forward(
        self, token_ids: Tensor, batch: PagedBatch, pool: KVPool, rows: Tensor | None = None
    ) -> Tensor:
        """Write the KV of a batch; return logits [rows, vocab_size], float32."""


class Engine:
    """Serves requests from the KV memory of ``pool``, whose blocks a cache keeps account of.

    Each step is one message to the cache, the copies it asks for, one forward pass over decodes
    and prefills together, and one sampled token for each sequence that is computed to its end.
    The engine is for one thread.

    ``open_session`` opens a session with the cache: ``lambda: nullcontext(LocalSession(cache))``
    for one in this process, ``node_sessions`` for a node.  When a session breaks, all that runs
    is preempted, and resumed in the next one.  When another worker has taken the node over, all
    requests fail, and ``WorkerReplaced`` is what ``check_not_replaced`` and ``add`` raise.

    Warns of a ``max_model_len`` that is longer than what the model was trained on.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        open_session: SessionFactory,
        pool: KVPool,
        identity: Identity,
        config: EngineConfig | None = None,
    ) -> None:
        self.config = config or EngineConfig()
        self.stats = EngineStats()
        self.limits = _limits(model.config, pool, self.config)
        self._model = model
        self._tokenizer = tokenizer
        self._pool = pool
        self._block_size = pool.layout.block_size
        self._link = CacheLink(open_session, pool)
        self._dialogue = CacheDialogue(self._link, identity, self._block_size)
        self._scheduler = Scheduler(self.config)
        self._costs = ResumeCosts(self.config.preemption, self._block_size)
        self._ended: list[RequestOutput] = []  # what the next step is to tell besides

    # --- requests -----------------------------------------------------------------------------

    def add(self, request: GenerationRequest) -> None:
        """Take on a request.

        Raises PromptTooLarge, InvalidTokens or InvalidArgument for one that can never be served,
        or whose id another one has, and WorkerReplaced.
        """
        self._link.check_not_replaced()
        self.limits.check(request)
        if self._scheduler.find(request.id) is not None:
            raise InvalidArgument(f"request {request.id!r} is under way already", id=request.id)
        kind = BeamSearch if request.params.beam_width else SampledAnswers
        self._scheduler.add(kind(request, self._tokenizer))

    def abort(self, request_id: str) -> None:
        """End a request; the next step says so.  One that has ended already is no error."""
        group = self._scheduler.find(request_id)
        if group is not None:
            self._ended += group.end("abort")

    @property
    def has_work(self) -> bool:
        """Whether a step has something to do: to compute, or to tell the cache."""
        return self._scheduler.has_work or bool(self._dialogue.news)

    def memory_use(self) -> MemoryUse:
        """Return what the live sequences hold of the KV memory."""
        return memory_use(self._scheduler.sequences(), self._block_size)

    @property
    def is_replaced(self) -> bool:
        """Whether another worker has taken the cache over: nothing is served any more."""
        return self._link.replaced() is not None

    def check_not_replaced(self) -> None:
        """Raise WorkerReplaced once another worker has taken the cache over."""
        self._link.check_not_replaced()

    def open(self) -> None:
        """Open the session with the cache now, not with the first request; raises what fails."""
        self._link.open()

    def look(self) -> None:
        """Notice what has become of the session with the cache, for when there is no work."""
        try:
            self._link.look()
        except PrefixCacheError as error:
            self._link.broke(error)

    def close(self) -> None:
        """End the session with the cache."""
        self._link.close()

    # --- a step -------------------------------------------------------------------------------

    def step(self) -> list[RequestOutput]:
        """Do one step; return what it brought to each answer.

        Without a cache it waits up to 2 s for the next attempt to reach it.
        """
        began = time.monotonic()
        outputs, self._ended = self._ended, []
        self._scheduler.prepare()
        load = self._costs.should_load()
        try:
            answers = self._dialogue.exchange(self._scheduler, load=load)
        except PrefixCacheError as error:
            self._link.broke(error)
            self._scheduler.preempt_all()
            outputs += self._give_up(error)
        else:
            outputs += self._take(answers)
            shares = self._scheduler.shares()
            if shares:
                outputs += self._compute(shares)
            elif answers.refused:
                time.sleep(_NO_BLOCKS_PAUSE_S)
        self._count_step(began)
        return outputs

    def _take(self, answers: Answers) -> list[RequestOutput]:
        """Make the copies, and note what the cache had of each prompt and what it has not."""
        self._dialogue.news = answers.copies.make(self._pool, self._costs)
        for group, sequence in answers.acquired:
            # As it came out: what the host had lost is not among it.
            num_cached = sequence.num_computed
            num_loaded = num_cached - sequence.num_committed
            self.stats.loaded_tokens += num_loaded
            if not group.was_opened:
                group.was_opened = True
                group.cached_tokens = num_cached
                self.stats.prompt_tokens += sequence.num_prompt
                self.stats.cached_tokens += num_cached
            elif num_loaded:
                self.stats.resumed_by_swap += 1
            else:
                self.stats.resumed_by_recompute += 1
        for group in answers.refused:
            self._scheduler.refused(group)
        return [output for group, error in answers.failed for output in group.end("error", error)]

    def _compute(self, shares: Sequence[Share]) -> list[RequestOutput]:
        """Compute the shares and go on from them; only who can not be computed fails."""
        try:
            logits = self._forward(shares)
        except PrefixCacheError as error:
            groups = list(dict.fromkeys(share.group for share in shares))
            if len(groups) == 1:
                return groups[0].end("error", error)
            apart = ([share for share in shares if share.group is group] for group in groups)
            return [output for of_group in apart for output in self._compute(of_group)]
        return self._go_on(shares, logits)

    def _forward(self, shares: Sequence[Share]) -> Tensor:
        """Compute the shares; return a row of logits for each that is computed to its end."""
        began = time.monotonic()
        slices, token_ids, ends = [], [], []
        for row, share in enumerate(shares):
            sequence, first = share.sequence, share.sequence.num_computed
            slices.append(SequenceSlice(sequence.block_table, first, share.count))
            token_ids += sequence.tokens[first : first + share.count]
            if share.is_last:
                ends.append(row)
        device = self._pool.device
        batch = PagedBatch.of(slices, self._block_size, device)
        rows = batch.last_rows[torch.tensor(ends, dtype=torch.long, device=device)]
        ids = torch.tensor(token_ids, dtype=torch.long, device=device)
        logits = self._model.forward(ids, batch, self._pool, rows)
        seconds = time.monotonic() - began
        self.stats.forward_seconds += seconds
        if any(share.count > 1 for share in shares):
            self._costs.prefilled(len(token_ids), seconds)
        return logits

    def _go_on(self, shares: Sequence[Share], logits: Tensor) -> list[RequestOutput]:
        """Note what is computed; go on with each sequence that ``logits`` has a row for."""
        last = [share for share in shares if share.is_last]
        for share in shares:
            self.stats.count_computed(share.sequence, share.count)
            share.sequence.computed(share.count)
        beams: dict[BeamSearch, list[int]] = {}
        draws: list[tuple[SampledAnswers, RunningSequence, Answer, int]] = []
        for row, share in enumerate(last):
            if isinstance(share.group, BeamSearch):
                beams.setdefault(share.group, []).append(row)
            elif isinstance(share.group, SampledAnswers):
                draws += [
                    (share.group, sequence, answer, row)
                    for sequence, answer in share.group.samplers(share.sequence)
                ]
        outputs: list[RequestOutput] = []
        if draws:
            tokens = sample(
                logits[[row for *_, row in draws]],
                [group.request.params for group, *_ in draws],
                [answer.generator for *_, answer, _ in draws],
            )
            for (group, sequence, *_), token in zip(draws, tokens, strict=True):
                outputs.append(group.add(sequence, token))
        for search, rows in beams.items():
            outputs += search.advance(logits[rows])
        self.stats.generated_tokens += sum(len(output.token_ids) for output in outputs)
        return outputs

    def _give_up(self, error: PrefixCacheError) -> list[RequestOutput]:
        """End the requests that have waited too long for the cache to come back, or in vain."""
        now, outputs = time.monotonic(), []
        for group in self._scheduler.waiting:
            waited = now - max(self._link.down_since or now, group.request.arrival)
            replaced = self._link.replaced()
            if replaced is not None:
                outputs += group.end("error", replaced)
            elif waited >= self.config.patience_s:
                away = Unavailable(f"the cache is away for {waited:.1f} s: {error}")
                outputs += group.end("error", away)
        return outputs

    def _count_step(self, began: float) -> None:
        self.stats.steps += 1
        self.stats.step_seconds += time.monotonic() - began
        self.stats.running = len(self._scheduler.running)
        self.stats.waiting = len(self._scheduler.waiting)
        self.stats.preemptions = self._scheduler.num_preemptions


def _limits(model: ModelConfig, pool: KVPool, config: EngineConfig) -> Limits:
    trained = model.max_position
    max_model_len = config.max_model_len or trained
    if max_model_len > trained:
        warnings.warn(
            f"max_model_len is {max_model_len}, the model was trained on {trained} positions",
            stacklevel=3,
        )
    return Limits(
        vocab_size=model.vocab_size,
        max_model_len=max_model_len,
        max_n=config.max_n,
        num_blocks=pool.num_blocks,
        block_size=pool.layout.block_size,
    )
