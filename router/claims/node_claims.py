"""All that is believed of one node: block by block where that can be known, else by text."""

from __future__ import annotations

from collections.abc import Iterable

from router.claims.claims import Claims
from router.claims.held_blocks import HeldBlocks
from router.claims.sent_text import SentText
from router.turn import Prompt


class NodeClaims:
    """Claims of one node: ``held`` are its blocks, ``sent`` is what its engine was sent.

    A prompt with block hashes is looked up in ``held`` while the node's own word on its blocks can
    be had and trusted (``exact``); any other by its text.  ``block_size`` is the node's, 0 until
    it has said it.  ``tokens_differ`` says that its engine makes other tokens than the router.
    """

    def __init__(self, sent: SentText) -> None:
        self.held = HeldBlocks()
        self.sent = sent
        self.exact = False
        self.block_size = 0
        self.tokens_differ = False

    def held_tokens(self, prompt: Prompt) -> int:
        """Tokens of the prompt claimed to be cached there."""
        if self.exact and prompt.block_hashes:
            return self.held.held_tokens(prompt)
        return self.sent.held_tokens(prompt) if prompt.text else 0

    def is_told(self, prompt: Prompt) -> bool:
        """Whether the node's events say what it holds of the prompt."""
        return self.exact and bool(prompt.block_hashes)

    def served(self, prompt: Prompt, promised: int, delivered: int | None) -> None:
        """Take the engine's word on what it had cached."""
        if self.is_told(prompt):
            self.held.served(prompt, promised, delivered)
        elif prompt.text:
            self.sent.served(prompt, promised, delivered)

    def clear(self) -> None:
        """Drop every claim."""
        self.held.clear()
        self.sent.clear()


def block_size_of(claims: Iterable[Claims]) -> int:
    """The block size of the nodes that have these claims; 0 while none has said it."""
    sizes = (of.block_size for of in claims if isinstance(of, NodeClaims))
    return next(filter(None, sizes), 0)
