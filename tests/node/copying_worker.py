"""A worker with KV memory on a GPU and a host, whose work is done later than it is asked for.

The KV of a block is stood for by all tokens up to its end: so whoever reads a block can tell
whether it holds what it should, as a checksum would.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from prefix_cache import Identity
from prefix_cache.client import (
    Acknowledge,
    Acquire,
    AcquiredSequence,
    AsyncSession,
    Commit,
    Release,
)
from prefix_cache.errors import PoolExhausted
from prefix_cache.index.results import Copies

WHO = Identity("m")
BLOCK_SIZE = 4


class WrongKV(AssertionError):
    """A block holds the KV of other tokens than it should."""


@dataclass
class Running:
    tokens: list[int]
    table: list[int]
    is_written: bool = False


class CopyingWorker:
    """Runs sequences of a session.

    All that touches KV waits in one stream, as kernels do, and is done when ``work`` says so.
    Unless ``in_order``, copies do not wait there: they are made as soon as the node asks for them.
    """

    def __init__(self, session: AsyncSession, *, in_order: bool) -> None:
        self._session = session
        self._in_order = in_order
        self._gpu: dict[int, tuple[int, ...]] = {}
        self._host: dict[int, tuple[int, ...]] = {}
        self._stream: deque[Callable[[], None]] = deque()
        self._made: list[int] = []
        self.running: dict[int, Running] = {}
        self.loaded_blocks = 0

    async def start(self, number: int, tokens: list[int]) -> None:
        """Open a sequence; compute what is not cached, and read it all."""
        (opened,) = await self._session.step([Acquire(number, WHO, tokens)])
        if isinstance(opened, PoolExhausted):
            # Blocks of cancelled sequences are held until they are loaded.
            self.work(len(self._stream))
            *_, opened = await self._session.step(
                [*self._acknowledgements(), Acquire(number, WHO, tokens)]
            )
        assert isinstance(opened, AcquiredSequence), opened
        copies = opened.copies
        table = opened.block_table.tolist()
        sequence = self.running[number] = Running(tokens, table)
        if self._in_order:
            self._stream.append(lambda: self._copy(copies))
        else:
            self._copy(copies)
        computed = opened.num_cached_tokens // BLOCK_SIZE
        self._stream.append(lambda: self._write(sequence, computed))
        self._stream.append(lambda: self._read(sequence))

    async def finish(self, number: int) -> None:
        """Commit a sequence, unless it is cancelled before its KV is written, and release it."""
        sequence = self.running.pop(number)
        commit = [Commit(number, len(sequence.tokens))] if sequence.is_written else []
        results = await self._session.step([*self._acknowledgements(), *commit, Release(number)])
        assert not any(isinstance(result, Exception) for result in results), results

    def work(self, count: int) -> None:
        """Do the next ``count`` things in the stream."""
        for _ in range(min(count, len(self._stream))):
            self._stream.popleft()()

    def _acknowledgements(self) -> list[Acknowledge]:
        made, self._made = self._made, []
        return [Acknowledge(copy_id) for copy_id in made]

    def _copy(self, copies: Copies) -> None:
        for block, slot in copies.offloads:
            self._host[slot] = self._gpu.get(block, ())
        for slot, block in copies.loads:
            self._gpu[block] = self._host.get(slot, ())
        self.loaded_blocks += len(copies.loads)
        if copies.copy_id:
            self._made.append(copies.copy_id)

    def _write(self, sequence: Running, first: int) -> None:
        for index, block in enumerate(sequence.table[first:], first):
            self._gpu[block] = _kv(sequence.tokens, index)
        sequence.is_written = True

    def _read(self, sequence: Running) -> None:
        for index, block in enumerate(sequence.table):
            if self._gpu[block] != _kv(sequence.tokens, index):
                raise WrongKV(f"block {block}, number {index} of its sequence")


def _kv(tokens: list[int], index: int) -> tuple[int, ...]:
    return tuple(tokens[: (index + 1) * BLOCK_SIZE])
