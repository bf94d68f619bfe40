"""One turn that asks for a node, and the key of the conversation it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import xxhash


class ConversationKey(NamedTuple):
    """Names a conversation.  Compared whole: neither tenants nor ids that begin alike mix."""

    tenant: str
    conversation: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn that asks for a node.

    ``conversation`` is None for a turn that belongs to none.  ``prompt_tokens`` is its load
    until it is reported.  ``exclude`` names the nodes not to choose.  ``number`` counts the
    turns routed before it.
    """

    conversation: ConversationKey | None
    prompt_tokens: int
    exclude: frozenset[str]
    number: int

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
