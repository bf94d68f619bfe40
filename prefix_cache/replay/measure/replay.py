"""Replays requests, and measures what was cached, what was not, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from prefix_cache.errors import DeadlineExceeded, PrefixCacheError, Unavailable
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.formats import TOKENS, Grain, Request
from prefix_cache.replay.measure.block_sizes import BlockSizes
from prefix_cache.replay.measure.divergence import Divergence, divergence
from prefix_cache.replay.measure.loss import Loss, Prospect
from prefix_cache.replay.measure.seen import Seen
from prefix_cache.replay.measure.stack_distance import StackDistances, findable_blocks
from prefix_cache.replay.measure.targets import Served, Target
from prefix_cache.replay.savings import Totals


@dataclass(slots=True)
class Tally:
    """Requests, and the tokens of their prompts."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def add(self, prompt_tokens: int, cached_tokens: int) -> None:
        """Count one request."""
        self.requests += 1
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens

    @property
    def totals(self) -> Totals:
        """The tokens, and what follows from them."""
        return Totals(self.prompt_tokens, self.cached_tokens)


@dataclass(slots=True)
class Divergences:
    """Those of one kind, in messages of one role; ``example`` is the first of them."""

    example: Divergence
    requests: int = 0
    repeated_tokens: int = 0


@dataclass(slots=True)
class BlockTally:
    """Blocks of prompts, partial ones among them, and how many an unlimited cache would hold.

    As published hit rates of traces count: also what must be computed again as it is the last.
    """

    blocks: int = 0
    seen: int = 0


@dataclass(slots=True)
class NotServed:
    """Requests that the target refused, and why it refused the first."""

    requests: int = 0
    error: str = ""


class Replay:
    """What came of the requests played so far against one target.

    ``grain`` says what the words of prompts are.  With ``compares`` it looks for what repeats
    behind a difference, which hashes and made-up tokens do not tell; ``text_of`` makes text of
    words where it can.
    Memory grows with what is new in prompts and answers, as that of ``Seen`` does.
    """

    def __init__(
        self,
        target: Target,
        grain: Grain = TOKENS,
        *,
        compares: bool = True,
        text_of: Callable[[bytes], str] | None = None,
    ) -> None:
        self.all = Tally()
        self.by_turn: defaultdict[int, Tally] = defaultdict(Tally)
        self.reported = Tally()
        self.loss = Loss()
        self.divergences: dict[tuple[str, str], Divergences] = {}
        self.not_served = NotServed()
        self.carried_over_tokens = 0
        self.blocks = BlockTally()
        self.block_sizes = BlockSizes(grain)
        self.distances = StackDistances(target.block_words)
        self.block_size = grain.tokens_in(target.block_words)
        self._target = target
        self._grain = grain
        self._compares = compares
        self._text_of = text_of
        self._seen = Seen()
        self._seen_at: defaultdict[str, Seen] = defaultdict(Seen)
        self._served = 0

    def play(self, request: Request) -> int | None:
        """Play one request; return how many tokens of its prompt were cached.

        None for one that the target refuses, for example because it exceeds the pool: it is
        counted as that only.  Raises Unavailable or DeadlineExceeded when the target is gone.
        """
        try:
            served = self._target.serve(request)
        except (Unavailable, DeadlineExceeded):
            raise
        except PrefixCacheError as error:
            self.not_served.requests += 1
            self.not_served.error = self.not_served.error or str(error)
            return None
        self._served += 1
        words = request.prompt + request.answer
        prompt_words, num_words = len(request.prompt) // TOKEN_BYTES, len(words) // TOKEN_BYTES
        found = self._seen.find(words)
        seen_words = min(found.num_words, prompt_words)
        diverged = None
        if self._compares and seen_words < prompt_words:
            diverged = divergence(request, found, self._text_of)
        for each in (self.distances, self.block_sizes):
            each.use(found.stretches, prompt_words, num_words, self._served)
        self._seen.use(words, found, self._served)
        at_node = self._seen_at_node(served, words)
        return self._count(request, served, seen_words, min(seen_words, at_node), diverged)

    def _seen_at_node(self, served: Served, words: bytes) -> int:
        """How many words the node has had before, where there are several."""
        if not served.node:
            return len(words) // TOKEN_BYTES
        seen = self._seen_at[served.node]
        found = seen.find(words)
        seen.use(words, found, self._served)
        return found.num_words

    def _count(
        self,
        request: Request,
        served: Served,
        seen_words: int,
        at_node_words: int,
        diverged: Divergence | None,
    ) -> int:
        grain, block_words = self._grain, self._target.block_words
        prompt_words = len(request.prompt) // TOKEN_BYTES
        whole = seen_words == prompt_words
        findable = self.block_size * findable_blocks(seen_words, prompt_words, block_words)
        at_node = self.block_size * findable_blocks(at_node_words, prompt_words, block_words)
        cached = findable if served.cached_words is None else grain.tokens_in(served.cached_words)
        seen = request.prompt_tokens if whole else grain.tokens_in(seen_words)
        self.carried_over_tokens += max(0, cached - at_node)
        prospect = Prospect(
            prompt_tokens=request.prompt_tokens,
            block_size=self.block_size,
            seen=max(seen, cached),
            findable=max(findable, cached),
            at_node=max(at_node, cached),
            reencoded=request.reencoded_tokens,
            repeated=diverged.repeated_tokens if diverged else 0,
        )
        loss = prospect.loss(cached)
        self.loss.add(loss)
        self.all.add(request.prompt_tokens, cached)
        self.by_turn[request.turn].add(request.prompt_tokens, cached)
        if request.reported:
            self.reported.add(request.reported.prompt_tokens, request.reported.cached_tokens)
        if diverged and loss.divergence:
            group = self.divergences.setdefault(
                (diverged.kind, diverged.role), Divergences(diverged)
            )
            group.requests += 1
            group.repeated_tokens += loss.divergence
        self.blocks.blocks += -(-prompt_words // block_words)
        self.blocks.seen += seen_words // block_words + bool(whole and prompt_words % block_words)
        return cached
