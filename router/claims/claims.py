"""What the picker asks of a node's claims, and what the engine's word does to them."""

from __future__ import annotations

from typing import Protocol

from router.turn import Prompt


class Claims(Protocol):
    """What one life of one node is believed to hold."""

    def held_tokens(self, prompt: Prompt) -> int:
        """Tokens of ``prompt`` claimed to be cached, from its first; changes nothing."""

    def is_told(self, prompt: Prompt) -> bool:
        """Whether the node itself says what it holds of ``prompt``; else it is guessed here."""

    def accepted(self, prompt: Prompt) -> None:
        """Take note that the whole prompt is at the node: its prefill is done."""

    def served(self, prompt: Prompt, promised: int, delivered: int | None) -> bool:
        """Take the engine's word: of ``prompt``, ``delivered`` tokens were cached (None: unsaid).

        ``promised`` is what ``held_tokens`` said when the turn was routed, in the engine's
        tokens; 0 where that counts no more.  Returns whether the word shows that the engine lost
        all that it held before.
        """

    def clear(self) -> None:
        """Drop every claim: the node lost its KV."""


class NoClaims:
    """Claims of a node of which nothing is known."""

    def held_tokens(self, prompt: Prompt) -> int:
        """None."""
        return 0

    def is_told(self, prompt: Prompt) -> bool:
        """No."""
        return False

    def accepted(self, prompt: Prompt) -> None:
        """Nothing to remember."""

    def served(self, prompt: Prompt, promised: int, delivered: int | None) -> bool:
        """Nothing to learn."""
        return False

    def clear(self) -> None:
        """Nothing to drop."""
