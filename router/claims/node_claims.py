"""All that is believed of one node: block by block where that can be known, else by text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from router.claims.claims import Claims
from router.claims.held_blocks import HeldBlocks
from router.claims.sent_text import SentText
from router.turn import Prompt


class Left(NamedTuple):
    """Where a prompt leaves what a node is believed to hold."""

    position: int
    """The first token of the first block that is not held; of the prompt's text, the very byte."""
    is_token: bool
    differs: bool | None
    """Whether something else is held from there on; None: of blocks that cannot be known."""


class NodeClaims:
    """Claims of one node: ``held`` are its blocks, ``sent`` is what its engine was sent.

    A prompt with block hashes is looked up in ``held`` while the node's own word on its blocks can
    be had and trusted; any other by its text, which is always remembered.  ``block_size`` is the
    node's, 0 while it does not answer.  ``tokens_differ`` says that its engine makes other tokens
    than the router.
    """

    def __init__(self, sent: SentText) -> None:
        self.held = HeldBlocks()
        self.sent = sent
        self.block_size = 0
        self.tokens_differ = False
        self._has_delivered = False
        """Whether the engine ever said that tokens were cached."""

    @property
    def exact(self) -> bool:
        """Whether the node tells, now, which blocks it holds."""
        return self.held.is_current and not self.tokens_differ

    def held_tokens(self, prompt: Prompt) -> int:
        """Tokens of the prompt claimed to be cached there."""
        if prompt.block_hashes and self.exact:
            return self.held.held_tokens(prompt)
        return self.sent.held_tokens(prompt) if prompt.text else 0

    def is_told(self, prompt: Prompt) -> bool:
        """Whether the node's events say what it holds of the prompt."""
        return bool(prompt.block_hashes) and self.exact

    def leaves(self, prompt: Prompt) -> Left:
        """Where the prompt leaves what is claimed: by blocks, and where none is held by text."""
        if self.is_told(prompt) and (held := self.held.held_tokens(prompt)):
            return Left(held, True, None)
        position, differs = self.sent.leaves(prompt)
        return Left(position, False, differs)

    def accepted(self, prompt: Prompt) -> None:
        """Remember what was sent; of its blocks the node itself will tell."""
        if prompt.text:
            self.sent.accepted(prompt)

    def served(self, prompt: Prompt, promised: int, delivered: int | None) -> bool:
        """Take the engine's word on what it had cached; return whether it lost everything."""
        if delivered:
            self._has_delivered = True
        elif delivered is None or not self._has_delivered:
            return False  # an engine that never says anything but 0 does not count
        if self.is_told(prompt):
            self.held.served(prompt, promised, delivered)
            return False
        return self.sent.served(prompt, promised, delivered)

    def clear(self) -> None:
        """Drop every claim."""
        self.held.clear()
        self.sent.clear()


def block_size_of(claims: Iterable[Claims]) -> int:
    """The block size of the nodes that have these claims; 0 while none of them says it."""
    sizes = (of.block_size for of in claims if isinstance(of, NodeClaims))
    return next(filter(None, sizes), 0)
