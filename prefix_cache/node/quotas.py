"""How much of the node one client may hold."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakValueDictionary

from prefix_cache.errors import ClientLimit, PromptTooLarge
from prefix_cache.node.config import NodeConfig


@dataclass(slots=True, weakref_slot=True)
class Holding:
    """What one client holds: a session, or all unary callers of one host.

    ``blocks`` are those its block tables name, one that two of them name counted twice.  That
    follows from the client's own calls alone, not from what happens to be cached.  Blocks that are
    still being loaded when their sequence ends count until the copies are acknowledged.
    """

    sequences: int = 0
    blocks: int = 0


class Holdings:
    """What the unary callers hold, by host, as long as they hold something."""

    def __init__(self) -> None:
        self._by_host: WeakValueDictionary[str, Holding] = WeakValueDictionary()

    def of_peer(self, peer: str) -> Holding:
        """What the host of ``peer`` holds; all callers by unix socket count as one."""
        host = peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else "unix"
        return self._by_host.setdefault(host, Holding())


class Quotas:
    """The limits of every client, and how often one was met."""

    def __init__(self, config: NodeConfig) -> None:
        self._max_sequences = config.max_sequences_per_client
        self._max_blocks = config.max_blocks_per_client
        self.refusals = 0

    def check(self, holding: Holding, *, sequences: int, blocks: int) -> None:
        """Raise what ``refusal`` returns; it is counted."""
        refusal = self.refusal(holding, sequences=sequences, blocks=blocks)
        if refusal is not None:
            self.refusals += 1
            raise refusal

    def refusal(
        self, holding: Holding, *, sequences: int, blocks: int
    ) -> ClientLimit | PromptTooLarge | None:
        """Say why that many more are too many; ``PromptTooLarge`` where no release helps."""
        for what, held, more, limit in (
            ("sequences", holding.sequences, sequences, self._max_sequences),
            ("blocks", holding.blocks, blocks, self._max_blocks),
        ):
            if not limit or not more or held + more <= limit:
                continue
            if more > limit:
                return PromptTooLarge(
                    f"one client may hold {limit} {what}, {more} are needed at once",
                    what=what,
                    needed=more,
                    limit=limit,
                )
            return ClientLimit(
                f"this client holds {held} {what} and needs {more} more, "
                f"one client may hold {limit}: release or acknowledge something first",
                what=what,
                held=held,
                needed=more,
                limit=limit,
            )
        return None
