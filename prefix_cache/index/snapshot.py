"""All findable blocks at one moment, copied in one step and told as events afterwards."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from prefix_cache.index.events import BlocksStored
from prefix_cache.index.identity import Identity
from prefix_cache.index.prefix_tree import PrefixTree
from prefix_cache.index.run import Root, Run

# Blocks of one event: enough to be cheap for each, few enough to be told in a millisecond.
_BLOCKS_PER_EVENT = 1_024


class Snapshot:
    """What was findable when it was taken; iterate over it for ``BlocksStored`` events.

    Parents come before their children.  Taking one copies buffers, run behind run into one, and
    makes as few objects as it can; an event is made when it is asked for.
    """

    def __init__(self, tree: PrefixTree, with_tokens: bool) -> None:
        self._block_size = tree.block_size
        self._hasher = tree.hasher
        self._token_bytes = tree.block_bytes if with_tokens else 0
        self._hashes = bytearray()
        self._tokens = bytearray()
        # One entry for each run.
        self._lengths = array("i")
        self._parents: list[bytes | None] = []
        self._identities: list[Identity] = []
        self._extra: dict[int, dict[int, bytes]] = {}  # for the few that have any
        for root in tree.roots.values():
            for run in _runs_below(root):
                self._copy(run, root)

    def drop(self) -> None:
        """Forget everything: who is iterating comes to the end early."""
        self._hashes.clear()
        self._tokens.clear()
        self._lengths = array("i")
        self._parents.clear()
        self._identities.clear()
        self._extra.clear()

    def __iter__(self) -> Iterator[BlocksStored]:
        first = 0
        for index, length in enumerate(self._lengths):
            for start in range(0, length, _BLOCKS_PER_EVENT):
                if not self._hashes:
                    return
                yield self._event(index, first, start, min(start + _BLOCKS_PER_EVENT, length))
            first += length

    def _copy(self, run: Run, root: Root) -> None:
        parent = run.parent
        self._parents.append(None if parent is None or parent is root else parent.last_hash)
        self._identities.append(root.identity)
        if run.extra:
            self._extra[len(self._lengths)] = run.extra.copy()
        self._lengths.append(len(run.blocks))
        self._hashes += run.hashes
        if self._token_bytes:
            self._tokens += run.tokens

    def _event(self, index: int, first: int, start: int, stop: int) -> BlocksStored:
        """Blocks ``start`` to ``stop`` of a run whose first block is the ``first`` of all."""
        extra = self._extra.get(index, {})
        hash_size = self._hasher.size
        begin, end = first + start, first + stop
        before = bytes(self._hashes[(begin - 1) * hash_size : begin * hash_size])
        return BlocksStored(
            block_hashes=self._hasher.split(self._hashes[begin * hash_size : end * hash_size]),
            parent_block_hash=before if start else self._parents[index],
            token_ids=bytes(self._tokens[begin * self._token_bytes : end * self._token_bytes]),
            block_size=self._block_size,
            extra_keys=tuple(extra.get(block, b"") for block in range(start, stop)),
            identity=self._identities[index],
        )


def _runs_below(root: Root) -> Iterator[Run]:
    """Every run, parents first."""
    rest = [run for bucket in root.children.values() for run in bucket]
    while rest:
        run = rest.pop()
        yield run
        for bucket in run.children.values():
            rest += bucket
