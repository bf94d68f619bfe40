"""Which requests run, and what of them is computed in a step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from prefix_cache.worker.engine_config import EngineConfig
from prefix_cache.worker.request_group import RequestGroup
from prefix_cache.worker.running_sequence import RunningSequence


@dataclass(frozen=True, slots=True)
class Share:
    """``count`` tokens of a sequence that a step computes."""

    group: RequestGroup
    sequence: RunningSequence
    count: int

    @property
    def is_last(self) -> bool:
        """Whether a token can be sampled after it."""
        return self.count == self.sequence.remaining


@dataclass(frozen=True, slots=True)
class Closing:
    """An open sequence that has ended or was preempted, when ``num_computed`` tokens had KV."""

    number: int
    num_computed: int


class Scheduler:
    """First come, first served: whoever runs came before whoever waits.

    When blocks run out, the newest request is preempted and waits at the head of the queue.  So
    the oldest always goes on.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self.waiting: deque[RequestGroup] = deque()
        self.running: list[RequestGroup] = []
        self.num_preemptions = 0
        self._closing: list[Closing] = []
        self._lacks_blocks = False  # what runs was refused blocks in the last step
        self._head_refused = False  # and nothing has ended since

    def add(self, group: RequestGroup) -> None:
        """Queue a request."""
        self.waiting.append(group)

    def find(self, request_id: str) -> RequestGroup | None:
        """Return the request of this id, if it is under way."""
        for group in (*self.running, *self.waiting):
            if group.request.id == request_id and group.sequences:
                return group
        return None

    # --- before the message to the cache ------------------------------------------------------

    def prepare(self) -> None:
        """Put away what has ended; preempt or admit."""
        if self._put_away_ended():
            self._head_refused = self._lacks_blocks = False
        if self._lacks_blocks:
            # What it gave up is not enough for itself: it waits until another one has ended.
            self._lacks_blocks, self._head_refused = False, True
            self.num_preemptions += 1
            self._send_back(self.running[-1])
        elif not self._head_refused or not self.running:
            self._admit()

    def take_closing(self) -> list[Closing]:
        """Return what the cache is to be told has ended; it is not asked for again."""
        closing, self._closing = self._closing, []
        return closing

    def to_open(self) -> Iterator[tuple[RequestGroup, RunningSequence]]:
        """Yield what is to be acquired, in order."""
        for group in self.running:
            sequence = group.next_to_open()
            if sequence is not None:
                yield group, sequence

    def sequences(self) -> Iterator[RunningSequence]:
        """Yield the sequences of what runs."""
        for group in self.running:
            yield from group.sequences

    @property
    def has_work(self) -> bool:
        """Whether there is something to compute, or to tell the cache."""
        return bool(self.running or self.waiting or self._closing)

    # --- after it -----------------------------------------------------------------------------

    def refused(self, group: RequestGroup) -> None:
        """There are no blocks now for one of its sequences."""
        if group not in self.running:
            return
        if group.is_open:
            self._lacks_blocks = True
        else:  # It was to be admitted.  Who came later must not pass.
            self._head_refused = True
            self._send_back(group)

    def shares(self) -> list[Share]:
        """Decodes first, then prefills in order, as many tokens as a step may have."""
        decodes: list[Share] = []
        prefills: list[Share] = []
        for group in self.running:
            for sequence in group.sequences:
                count = group.computable(sequence)
                if count:
                    (decodes if count == 1 else prefills).append(Share(group, sequence, count))
        budget = self._config.max_batch_tokens - len(decodes)
        chunks: list[Share] = []
        for share in prefills:
            if budget:
                count = min(share.count, budget)
                chunks.append(Share(share.group, share.sequence, count))
                budget -= count
        return decodes + chunks

    def preempt_all(self) -> None:
        """The session is gone, and with it every sequence that was open."""
        self._put_away_ended()
        self.num_preemptions += sum(group.is_open for group in self.running)
        if self.running:
            self._send_back(self.running[0])
        self._closing.clear()
        self._head_refused = self._lacks_blocks = False

    # --- inside -------------------------------------------------------------------------------

    def _put_away_ended(self) -> bool:
        """Return whether there was any."""
        groups = [*self.running, *self.waiting]
        any_ended = any(group.dropped for group in groups)
        for group in groups:
            self._close(group.dropped)
            group.dropped = []
        self.running = [group for group in self.running if group.sequences]
        self.waiting = deque(group for group in self.waiting if group.sequences)
        return any_ended

    def _send_back(self, group: RequestGroup) -> None:
        """It waits again, and with it all that came later."""
        at = self.running.index(group)
        self.waiting.extendleft(reversed(self.running[at:]))
        for preempted in self.running[at:]:
            self._close(preempted.sequences)
        del self.running[at:]

    def _admit(self) -> None:
        self._head_refused = False
        seats = self._config.max_sequences - sum(group.seats for group in self.running)
        budget = self._config.max_batch_tokens - sum(
            sequence.remaining for sequence in self.sequences()
        )
        while self.waiting and self.waiting[0].seats <= seats and budget > 0:
            group = self.waiting.popleft()
            self.running.append(group)
            seats -= group.seats
            # How much of it is cached, the cache has yet to say.
            budget -= len(group.sequences[0].tokens)

    def _close(self, sequences: list[RunningSequence]) -> None:
        for sequence in sequences:
            if sequence.number is not None:
                self._closing.append(Closing(sequence.number, sequence.num_computed))
            sequence.close()
