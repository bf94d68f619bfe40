"""Where sequences ended lately, by chain hash: what a prompt in delta form goes on from."""

from __future__ import annotations

from collections import OrderedDict

from prefix_cache.errors import UnknownPrefix
from prefix_cache.index.extra_keys import ExtraKeys
from prefix_cache.index.identity import Identity
from prefix_cache.index.place import Place
from prefix_cache.index.prefix_tree import PrefixTree
from prefix_cache.index.results import Prefix
from prefix_cache.index.run import Root, Run

# Root, hash of the last block, blocks from the root.
_End = tuple[Root, bytes, int]


class PrefixEnds:
    """The latest ``capacity`` ends.  An end is found while its blocks are where they were."""

    def __init__(self, tree: PrefixTree, capacity: int) -> None:
        self._tree = tree
        self._capacity = capacity
        # None where two places have the same hash at the same depth.
        self._ends: OrderedDict[_End, Run | None] = OrderedDict()

    def remember(self, run: Run, depth: int) -> None:
        """A sequence was released whose findable part ends with ``run``, ``depth`` blocks deep."""
        key = self._tree.root_of(run), run.last_hash, depth
        known = self._ends.get(key, run)
        same = known is run or (known is not None and self._may_be(known, key, run))
        self._ends[key] = run if same else None
        self._ends.move_to_end(key)
        if len(self._ends) > self._capacity:
            self._ends.popitem(last=False)

    def find(self, identity: Identity, prefix: Prefix, keys: ExtraKeys) -> Place:
        """Place where ``prefix`` ends.

        Raises ``UnknownPrefix`` also where an extra key of the prompt forbids to reuse all of it.
        """
        depth, rest = divmod(prefix.num_tokens, self._tree.block_size)
        key = self._tree.root(identity), prefix.block_hash, depth
        allowed = not rest and (keys.limit is None or depth <= keys.limit)
        run = self._ends.get(key) if allowed else None
        place = None if run is None else self._place(run, key)
        if place is None:
            raise UnknownPrefix(
                f"no known sequence of this identity ends after {prefix.num_tokens} tokens with "
                f"block hash {prefix.block_hash.hex()!r} (a sequence counts once it is released, "
                "with its last commit): send the prompt in full",
                num_tokens=prefix.num_tokens,
                block_hash=prefix.block_hash.hex(),
            )
        return place

    def _may_be(self, known: Run, key: _End, run: Run) -> bool:
        """Whether a known end is the end of ``run``, or is gone."""
        place = self._place(known, key)
        return place is None or place.run is run

    def _place(self, run: Run, key: _End) -> Place | None:
        """Where the end is now, after all splits and merges; None when it is gone."""
        _, block_hash, depth = key
        place = self._tree.on_path(run, depth)
        if place is None or place.block_hash != block_hash:
            return None
        return place
