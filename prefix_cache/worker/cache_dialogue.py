"""What the engine tells its cache, in one message a step, and what the answers mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

from prefix_cache.client import (
    Acknowledge,
    Acquire,
    AcquiredSequence,
    Append,
    Appended,
    Commit,
    Fork,
    Operation,
    Release,
    Result,
)
from prefix_cache.errors import (
    ClientLimit,
    PoolExhausted,
    PrefixCacheError,
    PromptTooLarge,
    UnknownCopy,
)
from prefix_cache.index import Identity
from prefix_cache.worker.cache_link import CacheLink
from prefix_cache.worker.request_group import RequestGroup
from prefix_cache.worker.running_sequence import RunningSequence
from prefix_cache.worker.scheduler import Scheduler
from prefix_cache.worker.step_copies import StepCopies


@dataclass(slots=True)
class Answers:
    """What a message brought, besides what the sequences themselves took note of.

    There are no blocks now for a sequence of a ``refused`` group, and never will be for a
    ``failed`` one.  ``acquired`` are the sequences that were opened.
    """

    copies: StepCopies = field(default_factory=StepCopies)
    acquired: list[tuple[RequestGroup, RunningSequence]] = field(default_factory=list)
    refused: list[RequestGroup] = field(default_factory=list)
    failed: list[tuple[RequestGroup, PrefixCacheError]] = field(default_factory=list)

    def turned_down(self, group: RequestGroup, error: PrefixCacheError) -> None:
        """Take note of what an operation for ``group`` failed with."""
        waiting_helps = isinstance(error, PoolExhausted | ClientLimit)
        if waiting_helps and not isinstance(error, PromptTooLarge):
            self.refused.append(group)
        else:
            self.failed.append((group, error))


_Handler = Callable[[Result, Answers], None]


class CacheDialogue:
    """Writes the messages; sequences get numbers that no session has seen before.

    ``news`` of copies that were made goes into the next one.
    """

    def __init__(self, link: CacheLink, identity: Identity, block_size: int) -> None:
        self._link = link
        self._identity = identity
        self._block_size = block_size
        self._numbers = count(1)
        self.news: list[Acknowledge] = []

    def exchange(self, scheduler: Scheduler, *, load: bool) -> Answers:
        """Tell the cache where we are and ask for what the next step needs.

        Who resumes is to ``load`` what is on the host, or to compute it again.  Raises what the
        step failed with as a whole; the session is gone then, and what was to be acknowledged
        with it.  Opens a session first where none is open.

        The order matters.  Commits come before what may find them.  Forks come before their
        parent ends or gets its next token.  What ends comes before all that takes blocks: so no
        block that is given away in this step is still to be copied from.
        """
        message = _Message()
        for acknowledgement in self.news:
            message.add(acknowledgement, _acknowledged)
        for group in scheduler.running:
            for sequence in group.sequences:
                self._commit(message, sequence)
        for group in scheduler.running:
            for sequence in group.sequences:
                self._fork(message, group, sequence)
        for closing in scheduler.take_closing():
            message.add(Commit(closing.number, closing.num_computed))
            message.add(Release(closing.number))
        for group in scheduler.running:
            for sequence in group.sequences:
                self._append(message, group, sequence)
        for group, sequence in scheduler.to_open():
            self._acquire(message, group, sequence, load=load)
        self.news = []
        return message.send(self._link)

    def _commit(self, message: _Message, sequence: RunningSequence) -> None:
        """Only what fills a block can be found."""
        number, computed = sequence.number, sequence.num_computed
        if number is None or self._blocks(computed) == self._blocks(sequence.num_committed):
            return
        message.add(Commit(number, computed))
        sequence.num_committed = computed

    def _fork(self, message: _Message, group: RequestGroup, sequence: RunningSequence) -> None:
        if sequence.fork_of is None:
            return

        def forked(result: Result, answers: Answers) -> None:
            if isinstance(result, PrefixCacheError):
                sequence.close()  # it is acquired later
                answers.turned_down(group, result)

        number = next(self._numbers)
        message.add(Fork(number, sequence.fork_of), forked)
        sequence.number, sequence.fork_of = number, None

    def _append(self, message: _Message, group: RequestGroup, sequence: RunningSequence) -> None:
        if sequence.number is None or sequence.is_held:
            return

        def appended(result: Result, answers: Answers) -> None:
            if isinstance(result, Appended):
                sequence.appended(result)
                answers.copies.add_appended(result)
            elif isinstance(result, PrefixCacheError) and sequence.number is not None:
                answers.turned_down(group, result)

        message.add(Append(sequence.number, sequence.tokens[sequence.num_held :]), appended)

    def _acquire(
        self, message: _Message, group: RequestGroup, sequence: RunningSequence, *, load: bool
    ) -> None:
        number, resumed = next(self._numbers), group.was_opened

        def acquired(result: Result, answers: Answers) -> None:
            if isinstance(result, AcquiredSequence):
                sequence.opened(number, result)
                answers.copies.add_acquired(sequence, result)
                answers.acquired.append((group, sequence))
            elif isinstance(result, PrefixCacheError):
                answers.turned_down(group, result)

        identity = replace(self._identity, salt=group.request.salt)
        operation = Acquire(
            number, identity, sequence.tokens, resumed=resumed, load=load or not resumed
        )
        message.add(operation, acquired)

    def _blocks(self, num_tokens: int) -> int:
        return num_tokens // self._block_size


class _Message:
    """Operations, and what is to be done with the result of each."""

    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._handlers: list[_Handler] = []

    def add(self, operation: Operation, handler: _Handler | None = None) -> None:
        """Without a handler the operation can not fail, unless by a fault of ours."""
        self._operations.append(operation)
        self._handlers.append(handler or _raise_error)

    def send(self, link: CacheLink) -> Answers:
        """Raises what failed that can not; the session is closed then."""
        answers = Answers()
        if self._operations:
            results = link.open().step(self._operations)
            for handler, result in zip(self._handlers, results, strict=True):
                handler(result, answers)
        return answers


def _acknowledged(result: Result, _: Answers) -> None:
    # The cache may have waited no longer: what was copied is no worse for that.
    if isinstance(result, PrefixCacheError) and not isinstance(result, UnknownCopy):
        raise result


def _raise_error(result: Result, _: Answers) -> None:
    if isinstance(result, PrefixCacheError):
        raise result
