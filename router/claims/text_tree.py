"""Texts that were sent to the engines of a pool, as one tree of runs."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable

PIECE_BYTES = 64

# Runs are no longer than this, so that forgetting one forgets little.
_RUN_BYTES = 256 * PIECE_BYTES


class Run:
    """A stretch of text without a fork, and who was sent it with all that comes before."""

    __slots__ = ("before", "children", "holders", "text")

    def __init__(self, text: bytes, before: Run | None) -> None:
        self.text = text
        self.before = before
        self.children: dict[bytes, Run] = {}
        self.holders: set[Holder] = set()

    def common(self, text: bytes, at: int) -> int:
        """How many bytes, in whole pieces, ``text`` from ``at`` on has in common with the run."""
        own = self.text
        if text.startswith(own, at):
            return len(own)
        counts = range(1, len(own) // PIECE_BYTES + 1)
        return PIECE_BYTES * bisect_left(
            counts, True, key=lambda count: not text.startswith(own[: count * PIECE_BYTES], at)
        )


class Holder:
    """Who was sent texts: the runs of them, the one sent least recently first.

    Every run comes after those that follow it in the text, and who holds a run holds the one
    before it.  So the first can be forgotten at any time.
    """

    __slots__ = ("num_bytes", "runs")

    def __init__(self) -> None:
        self.runs: OrderedDict[Run, None] = OrderedDict()
        self.num_bytes = 0


class TextTree:
    """Who of the holders was sent what.

    One walk says it of all of them, however many there are.  Text is compared, from its first
    byte; only whole pieces of 64 bytes count.
    """

    def __init__(self) -> None:
        self._root = Run(b"", None)
        self._asked = b""
        self._held: dict[Holder, int] = {}

    def held_bytes(self, text: bytes, holder: Holder) -> int:
        """Bytes of ``text``, from its first, that ``holder`` was sent."""
        # Holders are asked about one text one after the other: one walk answers all of them.
        if text is not self._asked:
            self._asked, self._held = text, self._walk(text)
        return self._held.get(holder, 0)

    def leaves(self, text: bytes, holder: Holder) -> tuple[int, bool]:
        """Where ``text`` leaves what ``holder`` was sent, to the byte; whether that goes on, too.

        Takes time in proportion to the number of ways in which it goes on.
        """
        run, at = self._root, 0
        while (child := run.children.get(text[at : at + PIECE_BYTES])) and holder in child.holders:
            common = child.common(text, at)
            at += common
            if common < len(child.text):
                others = [child.text[common : common + PIECE_BYTES]]
                break
            run = child
        else:
            others = [key for key, child in run.children.items() if holder in child.holders]
        lengths = range(1, len(text[at : at + PIECE_BYTES]) + 1)
        most = bisect_left(
            lengths, True, key=lambda length: not _begins_any(others, text[at : at + length])
        )
        return at + most, bool(others)

    def add(self, text: bytes, holder: Holder) -> None:
        """Take note that ``holder`` was sent the whole pieces of ``text``."""
        self._asked = b""
        run, at, end = self._root, 0, len(text) // PIECE_BYTES * PIECE_BYTES
        while at < end and (child := run.children.get(text[at : at + PIECE_BYTES])):
            common = child.common(text, at)
            if common < len(child.text):
                self._split(child, common)
            at += common
            run = child
        if at < end:
            run = self._grow(run, text[at:end], holder)
        self._use(run, holder)

    def forget_oldest(self, holder: Holder) -> None:
        """Forget the run that ``holder`` was sent least recently, of which there is one."""
        self._asked = b""
        run, _ = holder.runs.popitem(last=False)
        holder.num_bytes -= len(run.text)
        run.holders.discard(holder)
        if not run.holders and run.before is not None:
            # Nobody holds what follows it either.
            del run.before.children[run.text[:PIECE_BYTES]]

    def _walk(self, text: bytes) -> dict[Holder, int]:
        held: dict[Holder, int] = {}
        run, at = self._root, 0
        while child := run.children.get(text[at : at + PIECE_BYTES]):
            common = child.common(text, at)
            at += common
            held.update(dict.fromkeys(child.holders, at))
            if common < len(child.text):
                break
            run = child
        return held

    def _grow(self, run: Run, text: bytes, holder: Holder) -> Run:
        """Put ``text`` behind ``run``; return the last run of it."""
        at = 0
        if run.holders == {holder} and not run.children:  # a chat that goes on stays one run
            at = min(_RUN_BYTES - len(run.text), len(text))
            run.text += text[:at]
            holder.num_bytes += at
        while at < len(text):
            new = Run(text[at : at + _RUN_BYTES], run)
            run.children[new.text[:PIECE_BYTES]] = new
            at += len(new.text)
            run = new
        return run

    def _split(self, run: Run, at: int) -> None:
        """Make the end of ``run``, from byte ``at`` on, a run of its own behind it."""
        end = Run(run.text[at:], run)
        end.children, run.children = run.children, {run.text[at : at + PIECE_BYTES]: end}
        for child in end.children.values():
            child.before = end
        end.holders = set(run.holders)
        run.text = run.text[:at]
        for holder in end.holders:
            holder.runs[end] = None
            self._use(run, holder)  # what comes before the end is used no less recently

    def _use(self, run: Run | None, holder: Holder) -> None:
        """Take note that ``holder`` was sent the text that ends with ``run``."""
        while run is not None and run is not self._root:
            if run not in holder.runs:
                holder.num_bytes += len(run.text)
                run.holders.add(holder)
            holder.runs[run] = None
            holder.runs.move_to_end(run)
            run = run.before


def _begins_any(texts: Iterable[bytes], beginning: bytes) -> bool:
    return any(text.startswith(beginning) for text in texts)
