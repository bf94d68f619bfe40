"""The prefix tree: per identity a tree of runs; in all of them one order of eviction.

Finding hashes one block to choose a child and then compares bytes, so the price of a hit follows
the number of runs, not of blocks.  Runs split where prompts diverge and merge again where nothing
tells them apart.

Eviction is exact per-block LRU.  A release stamps what it leaves unused, from the last run up to
the first, and in this order those runs go to the end of one list.  So a run stands before its
ancestors in the list: the first has no children but on the host, and its last block is the next
to go.  From there it may go to the host, to the end of a second list, which thus has the same
order.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict

from prefix_cache.index.block_hash import BlockHasher
from prefix_cache.index.eviction_memory import EvictionMemory
from prefix_cache.index.extra_keys import ExtraKeys
from prefix_cache.index.identity import Identity
from prefix_cache.index.place import Place
from prefix_cache.index.run import Root, Run
from prefix_cache.index.tokens import TOKEN_BYTES

# Evicted blocks remembered to explain a miss: from 16 bytes each, to 150 where each went alone.
MAX_EVICTIONS = 32_768


class PrefixTree:
    """All cached blocks.  ``evictable`` is how many of those on the GPU nobody uses."""

    def __init__(self, block_size: int, hasher: BlockHasher) -> None:
        self.block_size = block_size
        self.block_bytes = block_size * TOKEN_BYTES
        self.hasher = hasher
        self.roots: dict[Identity, Root] = {}
        self.unused: OrderedDict[Run, None] = OrderedDict()  # next to be evicted first
        self.hosted: OrderedDict[Run, None] = OrderedDict()  # likewise, those on the host
        self.evictable = 0
        self.releases = 0
        self.evictions = EvictionMemory(MAX_EVICTIONS, hasher.size)

    # --- find -------------------------------------------------------------------------------

    def root(self, identity: Identity) -> Root:
        """Root of an identity; a new one, where it has none, is kept from its first pin on."""
        return self.roots.get(identity) or Root(identity, self.hasher.root(identity))

    def root_of(self, run: Run) -> Root:
        """Root of the chains a run belongs to."""
        while run.parent is not None:
            run = run.parent
        assert isinstance(run, Root), "only a root has no parent"
        return run

    def find(
        self, start: Place, tokens: bytes | bytearray, extra_keys: ExtraKeys, limit: int
    ) -> Place:
        """Follow ``tokens``, whose first block comes after ``start``, for as long as cached.

        Not deeper than ``limit`` blocks from the root.
        """
        run, into, depth = start
        at = 0
        if into < len(run.blocks) and depth < limit:
            equal = run.common_blocks(into, tokens, at, limit - depth, depth, extra_keys)
            into, depth, at = into + equal, depth + equal, equal * self.block_bytes
            if into < len(run.blocks):
                return Place(run, into, depth)
        while depth < limit and run.children:
            block = bytes(tokens[at : at + self.block_bytes])
            extra = extra_keys.for_block(depth)
            block_hash = self.hasher.block(run.last_hash, block, extra)
            # Children of equal hash are told apart by comparison.
            for child in run.children.get(block_hash, ()):
                equal = child.common_blocks(0, tokens, at, limit - depth, depth, extra_keys)
                if equal:
                    break
            else:
                break
            run, into, depth = child, equal, depth + equal
            at += equal * self.block_bytes
            if equal < len(child.blocks):
                break
        return Place(run, into, depth)

    def on_path(self, run: Run, depth: int) -> Place | None:
        """Place ``depth`` blocks from the root on the way to ``run``, if the way goes that far.

        Works for runs that are gone, too: those lead to what they were merged into.
        """
        path = [run]
        while path[-1].parent is not None:
            path.append(path[-1].parent)
        root = path.pop()
        if not isinstance(root, Root) or self.roots.get(root.identity) is not root:
            return None
        above = 0
        for node in reversed(path):
            if above < depth <= above + len(node.blocks):
                return Place(node, depth - above, depth)
            above += len(node.blocks)
        return None

    # --- use --------------------------------------------------------------------------------

    def pin(self, run: Run) -> None:
        """Add a user; what was unused up to the root is in use from now on."""
        run.users += 1
        node: Run | None = run
        while node is not None:
            node.uses += 1
            if node.uses > 1:
                return
            if isinstance(node, Root):
                self.roots[node.identity] = node
            else:
                del self.unused[node]
                self.evictable -= len(node.blocks)
            node = node.parent

    def unpin(self, run: Run) -> None:
        """Take a user away; what is left unused is stamped and becomes evictable."""
        run.users -= 1
        self.releases += 1
        node: Run | None = run
        while node is not None:
            node.uses -= 1
            if node.uses:
                break
            if isinstance(node, Root):
                self._drop_if_empty(node)
            else:
                self._unuse(node, self.releases)
            node = node.parent
        self._merge_from(run)

    def move_pin(self, old: Run, new: Run) -> None:
        """Move a user from ``old`` to its descendant ``new``; nothing is released by that."""
        self.pin(new)
        old.users -= 1
        old.uses -= 1
        self._merge(old)

    # --- change -----------------------------------------------------------------------------

    def boundary(self, place: Place) -> Run:
        """Return a run that ends at ``place``, split off if need be.

        The caller pins or moves it at once.
        """
        run, into, _ = place
        if into == len(run.blocks):
            return run
        parent, first_hash = _parent(run), run.first_hash
        head = run.cut_front(into)
        parent.drop_child(run, first_hash)
        parent.put_child(head)
        head.put_child(run)
        head.stamp = run.stamp
        if run.uses:
            head.uses = 1
        else:
            # Right behind its tail would be its place; the caller puts it where it belongs.
            self._order(run)[head] = None
        return head

    def grow(
        self,
        run: Run,
        sole_users: int,
        tokens: bytes | bytearray,
        hashes: bytearray,
        blocks: array[int],
        extra: dict[int, bytes],
    ) -> Run:
        """Add blocks after ``run`` and return the run that ends with them.

        It is ``run`` itself where it has no children and no users but ``sole_users``, whose pins
        are to move along; else a new run, unused so far.
        """
        if not isinstance(run, Root) and not run.children and run.users == sole_users:
            run.extend(tokens, hashes, blocks, extra)
            return run
        child = Run(run, self.hasher.size)
        child.extend(tokens, hashes, blocks, extra)
        run.put_child(child)
        self._unuse(child, run.stamp)
        return child

    def evict(self, count: int, removed: list[bytes] | None) -> array[int]:
        """Take the ``count`` next blocks out; ``removed`` gathers their hashes.

        At least ``count`` blocks must be evictable.
        """
        blocks = array("i")
        while len(blocks) < count:
            run = next(iter(self.unused))
            blocks += self.drop(run, min(count - len(blocks), len(run.blocks)), removed)
        return blocks

    def drop(self, run: Run, count: int, removed: list[bytes] | None) -> array[int]:
        """Drop the last blocks of an unused run without children; returns them, last first."""
        first_hash = run.first_hash
        blocks = self._trim(run, count, removed)
        if not run.on_host:
            self.evictable -= count
        if not run.blocks:
            self._remove(run, first_hash)
        return blocks

    def drop_after(self, run: Run, removed: list[bytes] | None) -> array[int]:
        """Drop all that follows a run and is on the host; returns the slots in that order."""
        below = list(run.all_children())
        for follower in below:
            below += follower.all_children()
        # By the order of eviction: runs of one stamp lie on one path, the last goes first.
        below.reverse()
        below.sort(key=lambda follower: follower.stamp)
        slots = array("i")
        for follower in below:
            slots += self._trim(follower, len(follower.blocks), removed)
            follower.children.clear()
            del self.hosted[follower]
        run.children.clear()
        return slots

    def to_host(self, run: Run, slots: array[int]) -> array[int]:
        """Move as many blocks as there are ``slots`` from the end of the next run to be evicted.

        Returns the blocks, last first; the slots are in the same order.
        """
        keep = len(run.blocks) - len(slots)
        if keep:
            head = self.boundary(Place(run, keep, 0))
            self.unused.move_to_end(head, last=False)
        del self.unused[run]
        self.evictable -= len(slots)
        blocks, run.blocks = run.blocks[::-1], slots[::-1]
        run.on_host = True
        self.hosted[run] = None
        self._merge(run)
        return blocks

    def to_gpu(self, run: Run, blocks: array[int]) -> array[int]:
        """Give a run on the host, which follows one on the GPU, these blocks; returns its slots.

        The caller pins it at once.
        """
        del self.hosted[run]
        slots, run.blocks = run.blocks, blocks
        run.on_host = False
        self._unuse(run, _parent(run).stamp)
        return slots

    # --- inside -----------------------------------------------------------------------------

    def _unuse(self, run: Run, stamp: int) -> None:
        run.stamp = stamp
        self.unused[run] = None
        self.evictable += len(run.blocks)

    def _order(self, run: Run) -> OrderedDict[Run, None]:
        return self.hosted if run.on_host else self.unused

    def _trim(self, run: Run, count: int, removed: list[bytes] | None) -> array[int]:
        hashes = bytes(run.hashes[(len(run.blocks) - count) * self.hasher.size :])
        self.evictions.remember(hashes, self.releases)
        if removed is not None:
            removed += reversed(self.hasher.split(hashes))
        return run.trim(count)

    def _remove(self, run: Run, first_hash: bytes) -> None:
        del self._order(run)[run]
        parent = _parent(run)
        parent.drop_child(run, first_hash)
        if isinstance(parent, Root):
            self._drop_if_empty(parent)
        else:
            self._merge(parent)

    def _drop_if_empty(self, root: Root) -> None:
        if not root.children and not root.uses:
            del self.roots[root.identity]

    def _merge_from(self, run: Run) -> None:
        """Merge what a release has made alike, from ``run`` upwards."""
        node = run
        while node.parent is not None:
            above = node.parent
            self._merge(node)
            if node.uses:
                return
            node = above

    def _merge(self, run: Run) -> None:
        """Merge a run with its only child where nothing tells the two apart; the child stays.

        Merging copies the child.  On the host, where runs come block by block, a child more than
        twice as long stays apart for now, so that no block is copied more than a few times.
        """
        child = run.only_child()
        if child is None or isinstance(run, Root) or run.users or child.stamp != run.stamp:
            return
        if child.on_host is not run.on_host:
            return
        if run.on_host and len(child.blocks) > 2 * len(run.blocks):
            return
        parent = _parent(run)
        parent.drop_child(run, run.first_hash)
        child.put_front(run)
        parent.put_child(child)
        run.parent = child  # who still knows the run finds its blocks there
        if not run.uses:
            del self._order(run)[run]
        if child.on_host:
            self._merge(child)


def _parent(run: Run) -> Run:
    assert run.parent is not None, "only a root has no parent"
    return run.parent
