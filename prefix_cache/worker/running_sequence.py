"""One sequence as the engine sees it: its tokens, and how far cache and KV memory have them."""

from __future__ import annotations

from collections.abc import Iterable

from prefix_cache.client import AcquiredSequence, Appended


class RunningSequence:
    """The prompt and what was generated of one answer, or of one beam.

    ``number`` is its number in the session, None where it is not open there.  The first
    ``num_held`` tokens have slots in the blocks of ``block_table``, the first ``num_computed``
    have their KV written, and the first ``num_committed`` of these the cache was told of.
    ``num_seen`` is the most that was ever computed: computing it again is recomputation.
    """

    __slots__ = (
        "block_table",
        "fork_of",
        "num_committed",
        "num_computed",
        "num_held",
        "num_prompt",
        "num_seen",
        "number",
        "tokens",
    )

    def __init__(self, tokens: Iterable[int]) -> None:
        self.tokens = list(tokens)
        self.num_prompt = len(self.tokens)
        self.num_seen = 0
        self.close()

    def close(self) -> None:
        """It is not open in the session (any more): it holds no blocks and no KV."""
        self.number: int | None = None
        self.fork_of: int | None = None  # number of the open sequence it is to be forked from
        self.block_table: list[int] = []
        self.num_held = 0
        self.num_computed = 0
        self.num_committed = 0

    @property
    def generated(self) -> list[int]:
        """The tokens after the prompt."""
        return self.tokens[self.num_prompt :]

    @property
    def num_generated(self) -> int:
        """How many they are."""
        return len(self.tokens) - self.num_prompt

    @property
    def remaining(self) -> int:
        """Tokens to compute before the next one can be sampled: 1 in a decode."""
        return len(self.tokens) - self.num_computed

    @property
    def is_held(self) -> bool:
        """Whether every token has its slot, so that it may be computed."""
        return self.number is not None and self.num_held == len(self.tokens)

    def fork(self) -> RunningSequence:
        """Return a sequence that shares the blocks of this open one, to be opened as its fork."""
        child = RunningSequence(self.tokens)
        child.num_prompt = self.num_prompt
        child.num_seen = self.num_seen
        child.fork_of = self.number
        child.block_table = self.block_table.copy()
        child.num_held = self.num_held
        child.num_computed = self.num_computed
        child.num_committed = self.num_committed
        return child

    def opened(self, number: int, result: AcquiredSequence) -> None:
        """The cache has opened it, with slots for all of its tokens."""
        self.number = number
        self.block_table = result.block_table.tolist()
        self.num_held = result.num_tokens
        self.num_computed = result.num_cached_tokens
        # Loaded blocks are findable on the host only, until they are committed over.
        self.num_committed = result.num_cached_tokens - result.num_loaded_tokens

    def not_loaded(self) -> None:
        """What was to be loaded is not there: it is computed."""
        self.num_computed = self.num_committed

    def appended(self, result: Appended) -> None:
        """The cache has given slots to the tokens that had none."""
        for _, dst in result.copies:
            self.block_table[-1] = dst
        self.block_table += result.new_block_ids
        self.num_held = result.num_tokens

    def computed(self, count: int) -> None:
        """The KV of the next ``count`` tokens is written."""
        self.num_computed += count
        self.num_seen = max(self.num_seen, self.num_computed)
