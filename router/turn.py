"""One turn that asks for a node, and the key of the conversation it belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import xxhash

DEFAULT_POOL = "default"

MAX_KEY_CHARACTERS = 1024
"""Of tenant and conversation together: pins are bounded in number, and this bounds each."""


class ConversationKey(NamedTuple):
    """Names a conversation.  Compared whole: neither tenants nor ids that begin alike mix."""

    tenant: str
    conversation: str


class Prompt:
    """What a turn asks a node to prefill, in the forms that claims can be asked about.

    ``num_tokens`` is exact where the prompt was tokenized, else estimated.  ``block_hashes`` are
    the chain hashes of its full blocks of ``block_size`` tokens, as a cache node makes them.
    ``text`` is a rendering whose first bytes are equal for prompts that begin alike.  A prompt
    that has neither is unhashable: nothing can be said of what is cached of it.
    """

    __slots__ = ("block_hashes", "block_size", "num_tokens", "text")

    def __init__(
        self,
        num_tokens: int,
        text: bytes = b"",
        block_hashes: Sequence[bytes] = (),
        block_size: int = 0,
    ) -> None:
        self.num_tokens = num_tokens
        self.text = text
        self.block_hashes = block_hashes
        self.block_size = block_size

    @property
    def is_hashable(self) -> bool:
        """Whether claims can say anything about it."""
        return bool(self.text or self.block_hashes)


class Turn:
    """One turn that asks for a node.

    ``conversation`` is None for a turn that belongs to none.  ``exclude`` names the nodes not to
    choose.  ``model`` is what the client asked for, empty for any of the pool.  One that
    ``needs_url`` is to be sent to an engine by this router.  ``number`` counts the turns routed
    before it; who routes it says so.
    """

    __slots__ = ("conversation", "exclude", "model", "needs_url", "number", "pool", "prompt")

    def __init__(
        self,
        conversation: ConversationKey | None,
        prompt: Prompt,
        pool: str = DEFAULT_POOL,
        model: str = "",
        exclude: frozenset[str] = frozenset(),
        needs_url: bool = False,
        number: int = 0,
    ) -> None:
        self.conversation = conversation
        self.prompt = prompt
        self.pool = pool
        self.model = model
        self.exclude = exclude
        self.needs_url = needs_url
        self.number = number

    def spread_digest(self) -> bytes:
        """16 bytes that spread turns over nodes.

        The same for all turns of a conversation, in every process.  Turns without a
        conversation have nothing to come back to: they differ by their number, so that they
        do not herd on one node.
        """
        if self.conversation is None:
            return xxhash.xxh3_128_digest(self.number.to_bytes(8, "little"))
        tenant = self.conversation.tenant.encode()
        conversation = self.conversation.conversation.encode()
        # The length keeps ("ab", "c") and ("a", "bc") apart.
        return xxhash.xxh3_128_digest(len(tenant).to_bytes(8, "little") + tenant + conversation)
