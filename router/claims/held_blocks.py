"""What a cache node says that its worker's memory holds, block by block."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from prefix_cache.client import NodeEvent, NodeHoldings, SnapshotStarted
from prefix_cache.client.stream_position import StreamPosition
from prefix_cache.errors import EventGap
from prefix_cache.index.events import BlocksRemoved, BlocksStored, Cleared
from router.turn import Prompt

# So many blocks that were not delivered are remembered: each is looked at for each prompt.
_MAX_MISSING = 256


class HeldBlocks:
    """Blocks that one node holds, from its events, without those that its engine did not deliver.

    A node never holds a block without the one before it.  So the held part of a chain is found by
    halving, whatever its length, and one block that was not delivered takes all behind it away.
    """

    def __init__(self) -> None:
        self._holdings = NodeHoldings()
        self._missing: dict[bytes, int] = {}
        """Blocks told to be held that were not delivered, with their place in their chain."""
        self._has_gap = False

    def __len__(self) -> int:
        return len(self._holdings)

    @property
    def position(self) -> StreamPosition:
        """What to watch from."""
        return self._holdings.position

    @property
    def is_current(self) -> bool:
        """Whether the node has told all that it holds, and no event since was missed."""
        return self.position.incarnation != 0 and not self._has_gap

    def apply(self, event: NodeEvent) -> None:
        """Take note of an event; one that was applied before changes nothing.

        Raises EventGap when events before this one were missed: the node is to be watched from
        ``position`` on.  Where a block came whose parent is not held, that is from a snapshot.
        """
        before = self.position.incarnation, self.position.number
        try:
            self._holdings.apply(event)
        except EventGap:
            self._has_gap = True
            raise
        if before != (self.position.incarnation, self.position.number):
            self._has_gap = False
        match event.event:
            case BlocksStored(block_hashes, parent):
                if parent and parent not in self._holdings and block_hashes[0] in self._holdings:
                    self.clear()
                    raise EventGap(
                        f"event {event.number} of incarnation {event.incarnation} stores a block "
                        f"after {parent.hex()}, which is not held: a snapshot is needed",
                        number=event.number,
                        incarnation=event.incarnation,
                        parent_block_hash=parent.hex(),
                    )
                self._not_missing(block_hashes)
            case BlocksRemoved(block_hashes):
                self._not_missing(block_hashes)
            case Cleared() | SnapshotStarted():
                self._missing.clear()

    def held_tokens(self, prompt: Prompt) -> int:
        """Tokens of the prompt in held blocks; at least its last one is to be computed."""
        chain, holdings = prompt.block_hashes, self._holdings
        if not chain or chain[0] not in holdings:
            return 0
        blocks = bisect_left(chain, True, key=lambda block_hash: block_hash not in holdings)
        for block_hash, place in self._missing.items():
            if place < blocks and chain[place] == block_hash:
                blocks = place
        return max(0, min(blocks, (prompt.num_tokens - 1) // prompt.block_size)) * prompt.block_size

    def served(self, prompt: Prompt, promised: int, delivered: int) -> None:
        """Believe the engine: blocks behind what it delivered are not there, those before are.

        What it did not deliver is claimed again when the node stores it again, when the engine
        delivers it, or when so much else was not delivered since.
        """
        blocks = delivered // prompt.block_size
        self._not_missing(prompt.block_hashes[:blocks])
        if delivered < promised:
            for block_hash in prompt.block_hashes[blocks : blocks + 1]:
                if block_hash in self._holdings:
                    self._missing[block_hash] = blocks
            if len(self._missing) > _MAX_MISSING:
                del self._missing[next(iter(self._missing))]

    def clear(self) -> None:
        """Drop every claim; the node is to be watched from a snapshot."""
        self._holdings = NodeHoldings()
        self._missing.clear()
        self._has_gap = False

    def _not_missing(self, block_hashes: Iterable[bytes]) -> None:
        if self._missing:
            for block_hash in block_hashes:
                self._missing.pop(block_hash, None)
