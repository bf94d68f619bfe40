"""Random histories with a host tier: copies are made late or never, acknowledged or withdrawn."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from .machine import PLAIN, CacheMachine, opened, words

some_copies = st.integers(0, 3)


class TierMachine(CacheMachine):
    """Pools are small, so that what is cached goes to the host and comes back all the time."""

    @initialize(
        num_blocks=st.integers(4, 12),
        block_size=st.sampled_from([1, 2]),
        host_blocks=st.sampled_from([2, 5, 9, 20]),
    )
    def start(self, num_blocks: int, block_size: int, host_blocks: int) -> None:
        self.begin(num_blocks, block_size, host_blocks)

    # --- what callers do --------------------------------------------------------------------

    @rule(word=words, acknowledged=st.booleans())
    def swap_out(self, word: str, acknowledged: bool) -> None:
        """A request is served, and then everything that is not in use has to go."""
        self.serve(word)
        self.fill_the_pool(acknowledged)

    @rule(
        target=CacheMachine.sequences,
        word=words,
        acknowledged=st.booleans(),
        load=st.booleans(),
        loaded=st.booleans(),
    )
    def acquire_swapped_out(self, word: str, acknowledged: bool, load: bool, loaded: bool) -> Any:
        self.swap_out(word, acknowledged)
        pair = self.acquire_tokens(PLAIN, self.spell(word + "a"), (), load)
        if pair is not None and loaded:
            self.finish_loading(pair)
        return opened(pair)

    @rule(word=words, commits=st.booleans())
    def cancel_while_loading(self, word: str, commits: bool) -> None:
        self.swap_out(word, acknowledged=True)
        pair = self.acquire_tokens(PLAIN, self.spell(word + "a"), ())
        if pair is not None:
            if commits:  # which is refused while there is something to load
                self.commit_tokens(pair, len(pair.kv))
            self.release_pair(pair)
            self.serve("BB")

    @precondition(lambda self: self.worker.pending)
    @rule(which=some_copies)
    def make_copies(self, which: int) -> None:
        """The acknowledgement comes later, or never."""
        self.worker.make(self.some_copy(which))

    @precondition(lambda self: self.worker.pending)
    @rule(which=some_copies)
    def acknowledge(self, which: int) -> None:
        self.acknowledge_copy(self.some_copy(which))

    @precondition(lambda self: self.worker.pending)
    @rule(which=some_copies)
    def withdraw(self, which: int) -> None:
        """Whether they were made or not, they will not be made from now on."""
        copy_id = self.some_copy(which)
        self.worker.forget(copy_id)
        self.both(lambda side, _: side.withdraw(copy_id))

    @rule(copy_id=st.integers(0, 9))
    def end_what_may_not_be_pending(self, copy_id: int) -> None:
        if copy_id not in self.worker.pending:
            assert self.both(lambda side, _: side.acknowledge(copy_id)) is None
            assert self.both(lambda side, _: side.withdraw(copy_id)) is None

    # --- how a step is played ---------------------------------------------------------------

    def fill_the_pool(self, acknowledged: bool) -> None:
        """A prompt that needs every block that is not in use, cancelled before its first commit."""
        stats = self.model.stats()
        tokens = [2] * max(1, stats.free + stats.evictable) * self.block_size
        pair = self.acquire_tokens(PLAIN, tokens, ())
        if pair is not None:
            if acknowledged:
                self.finish_loading(pair)
            self.release_pair(pair)

    def some_copy(self, which: int) -> int:
        copy_ids = list(self.worker.pending)
        return copy_ids[which % len(copy_ids)]
