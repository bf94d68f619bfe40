"""Everything that was played so far, as a tree of words, and when each stretch was used last."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.measure.words import common_bytes, packed, unpacked, width_of


class _Node:
    """Words that were always used together; ``stamp`` says when last.

    ``latest`` is the child that was used last.
    """

    __slots__ = ("children", "latest", "stamp", "words")

    def __init__(self, words: bytearray, stamp: int) -> None:
        self.words = words
        self.stamp = stamp
        self.children: dict[bytes, _Node] = {}
        self.latest: _Node | None = None


class Stretch(NamedTuple):
    """The words up to ``end``, from where the stretch before it ends, were last used at ``stamp``.

    Stamps fall along a path: whoever used a word used all before it.
    """

    end: int
    stamp: int


@dataclass(frozen=True, slots=True)
class Found:
    """The longest beginning of a sequence that was seen before."""

    stretches: tuple[Stretch, ...]
    _path: tuple[_Node, ...]
    _into: int
    """Bytes of the path's last node that belong to it."""
    _width: int
    """Bytes of a word."""

    @property
    def num_words(self) -> int:
        """How long it is."""
        return self.stretches[-1].end if self.stretches else 0

    def went_on(self, max_words: int) -> bytes:
        """Return how the sequence went on that came here last; not more than ``max_words``."""
        node, most = self._path[-1], max_words * self._width
        words = node.words[self._into : self._into + most]
        while len(words) < most and node.latest:
            node = node.latest
            words += node.words[: most - len(words)]
        return unpacked(words, self._width)


class Seen:
    """All sequences that were used, of any identity.

    Memory grows with what is new in them: by as many bytes a word as the largest one needs.
    """

    def __init__(self) -> None:
        self._root = _Node(bytearray(), 0)
        self._width = 1

    def find(self, words: bytes) -> Found:
        """Return what of a sequence was seen; changes nothing."""
        self._widen(width_of(words))
        width, words = self._width, packed(words, self._width)
        node, path, at, into = self._root, [self._root], 0, 0
        stretches: list[Stretch] = []
        while at < len(words):
            child = node.children.get(words[at : at + width])
            if child is None:
                break
            into = _common(child.words, words, at, width)
            at += into
            if stretches and stretches[-1].stamp == child.stamp:
                stretches.pop()
            stretches.append(Stretch(at // width, child.stamp))
            path.append(child)
            node = child
            if into < len(child.words):
                break
        return Found(tuple(stretches), tuple(path), into, width)

    def use(self, words: bytes, found: Found, stamp: int) -> None:
        """Note that a sequence was used, of which ``found`` was just found; stamps only grow."""
        width = self._width
        last = found._path[-1]
        if found._into < len(last.words):
            _split(last, found._into, width)
        for above, node in pairwise(found._path):
            above.latest = node
            node.stamp = stamp
        rest = packed(words[found.num_words * TOKEN_BYTES :], width)
        if not rest:
            return
        if last.children or last is self._root:
            last.latest = last.children[rest[:width]] = _Node(bytearray(rest), stamp)
        else:
            last.words += rest

    def _widen(self, width: int) -> None:
        """Make room for words of ``width`` bytes."""
        if width <= self._width:
            return
        nodes = [self._root]
        for node in nodes:
            nodes += node.children.values()
            node.words = bytearray(packed(unpacked(node.words, self._width), width))
        for node in nodes:
            node.children = {bytes(each.words[:width]): each for each in node.children.values()}
        self._width = width


def _common(known: bytearray, words: bytes, at: int, width: int) -> int:
    """Bytes that ``known`` and ``words`` from ``at`` on have in common, in whole words."""
    return len(known) if words.startswith(known, at) else common_bytes(known, 0, words, at, width)


def _split(node: _Node, into: int, width: int) -> None:
    """Cut a node in two; the object keeps the head."""
    tail = _Node(node.words[into:], node.stamp)
    tail.children, tail.latest = node.children, node.latest
    node.words = node.words[:into]
    node.children, node.latest = {bytes(tail.words[:width]): tail}, tail
