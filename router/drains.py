"""Which nodes were told to drain: by name, so that it outlives them, and shared by routers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MAX_NAMES = 512


class Word(NamedTuple):
    """What an operator said of a node; of two the later one counts."""

    said_at: float
    """Seconds since the epoch."""
    drains: bool
    """Whether it is to be empty, or takes turns again."""


class Drains:
    """The last word on each node that there was one on, by name; ``in``: whether it drains.

    At most ``MAX_NAMES``: those of whom nothing was said for longest are forgotten first.
    """

    def __init__(self) -> None:
        self._words: dict[str, Word] = {}

    def __contains__(self, name: str) -> bool:
        word = self._words.get(name)
        return word is not None and word.drains

    @property
    def words(self) -> dict[str, Word]:
        """All of them."""
        return dict(self._words)

    def say(self, name: str, *, drains: bool, now: float) -> None:
        """Take the word of an operator, which is the last one whatever clocks say."""
        known = self._words.get(name)
        # A millisecond: a double tells that apart, after so many seconds.
        said_at = now if known is None else max(now, known.said_at + 0.001)
        self.learn({name: Word(said_at, drains)})

    def learn(self, words: Mapping[str, Word]) -> None:
        """Take over what was said to other routers, where it was said later."""
        for name, word in words.items():
            if name not in self._words or self._words[name] < word:
                self._words[name] = word
        for name in sorted(self._words, key=self._words.__getitem__)[:-MAX_NAMES]:
            del self._words[name]
