"""What an engine without a cache node is believed to hold: the text that was sent there."""

from __future__ import annotations

import logging

from router.claims.text_tree import PIECE_BYTES, Holder, TextTree
from router.turn import Prompt

log = logging.getLogger(__name__)

# A shorter promise says nothing: engines count what was cached in blocks of their own, of up to
# several hundred tokens.
_SHORTEST_PROMISE = 1024


class SentText:
    """Text sent to ``engine``, in pieces of 64 bytes; what was sent least recently goes first.

    The engines of a pool share a ``tree``; at most ``max_pieces`` of each are remembered.
    """

    def __init__(self, engine: str, max_pieces: int, tree: TextTree) -> None:
        self._engine = engine
        self._max_bytes = max_pieces * PIECE_BYTES
        self._tree = tree
        self._sent = Holder()
        self.times_forgotten = 0
        """How often the engine turned out to have lost what was sent."""
        self._is_doubted = False
        """Whether the engine did not keep the last promise."""

    def __len__(self) -> int:
        """Pieces remembered."""
        return self._sent.num_bytes // PIECE_BYTES

    def held_tokens(self, prompt: Prompt) -> int:
        """Tokens of the prompt whose text was sent, in proportion to its bytes."""
        text = prompt.text
        sent = self._tree.held_bytes(text, self._sent)
        return prompt.num_tokens * sent // len(text) if sent else 0

    def leaves(self, prompt: Prompt) -> tuple[int, bool]:
        """The byte at which the prompt's text leaves what was sent; whether that goes on, too."""
        return self._tree.leaves(prompt.text, self._sent)

    def accepted(self, prompt: Prompt) -> None:
        """Remember the text."""
        self._tree.add(prompt.text[: self._max_bytes], self._sent)
        while self._sent.num_bytes > self._max_bytes:
            self._tree.forget_oldest(self._sent)

    def served(self, prompt: Prompt, promised: int, delivered: int) -> bool:
        """Forget everything but ``prompt`` if the engine has lost its KV; return whether it has.

        It has when of two promises, one after the other, it delivered less than half: as if it
        had been restarted, or had dropped its cache without anyone being told.  One alone may be
        a conversation that it evicted.
        """
        if promised < _SHORTEST_PROMISE:
            return False
        was_doubted, self._is_doubted = self._is_doubted, delivered < promised / 2
        if not (was_doubted and self._is_doubted):
            return False
        log.warning(
            "engine %s delivered %d cached tokens of %d promised, and as little of what was "
            "promised before: what was sent there is forgotten",
            self._engine,
            delivered,
            promised,
        )
        self.times_forgotten += 1
        self.clear()
        self.accepted(prompt)
        return True

    def clear(self) -> None:
        """Forget everything."""
        self._is_doubted = False
        while self._sent.runs:
            self._tree.forget_oldest(self._sent)
