"""How far a prompt is cached: on the GPU, and from there on the host."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from prefix_cache.index.arguments import check_identity, check_prefix, prompt_bytes
from prefix_cache.index.extra_keys import ExtraKey, ExtraKeys
from prefix_cache.index.host_tier import HostTier
from prefix_cache.index.identity import Identity
from prefix_cache.index.place import Place
from prefix_cache.index.prefix_ends import PrefixEnds
from prefix_cache.index.prefix_tree import PrefixTree
from prefix_cache.index.results import Prefix
from prefix_cache.index.tokens import TOKEN_BYTES, Tokens

NO_SLOTS = array("i")


# Where on the GPU the cached prefix ends and the slots it goes on in; how many tokens the prompt
# has, their bytes and from where on these are not cached on the GPU; extra keys.
Found = tuple[Place, "array[int]", int, bytes, int, ExtraKeys]


class Lookup:
    """Finds prompts, in full and in delta form, and changes nothing."""

    def __init__(self, tree: PrefixTree, ends: PrefixEnds, host: HostTier) -> None:
        self._tree = tree
        self._ends = ends
        self._host = host
        self._no_keys = ExtraKeys((), tree.block_size)  # those of nearly every prompt

    def keys(self, extra_keys: Iterable[ExtraKey]) -> ExtraKeys:
        """Read extra keys.  Raises ``InvalidExtraKeys``."""
        if isinstance(extra_keys, tuple | list) and not extra_keys:
            return self._no_keys
        return ExtraKeys(extra_keys, self._tree.block_size)

    def find(
        self,
        identity: Identity,
        tokens: Tokens,
        extra_keys: Iterable[ExtraKey],
        after: Prefix | None,
    ) -> Found:
        """Find the longest cached prefix that leaves a token to compute.

        Raises what says that an argument is invalid, and ``UnknownPrefix`` where a prompt in
        delta form goes on from nothing known.
        """
        prompt = prompt_bytes(tokens)
        keys = self.keys(extra_keys)
        check_identity(identity)
        tree = self._tree
        if after is None:
            start = Place(tree.root(identity), 0, 0)
        else:
            check_prefix(after)
            start = self._ends.find(identity, after, keys)
            if start.run.on_host:
                # What follows the GPU part is found anew: not all of it need be written.
                part = start.host_part()
                known = b"".join(run.tokens[: into * tree.block_bytes] for run, into in part)
                prompt, start = known + prompt, start.gpu_end()
        num_tokens = start.depth * tree.block_size + len(prompt) // TOKEN_BYTES
        limit = (num_tokens - 1) // tree.block_size
        if keys.limit is not None:
            limit = min(limit, keys.limit)
        place = tree.find(start, prompt, keys, limit)
        slots = NO_SLOTS
        if place.run.on_host:
            place, slots = self._host.split(place)
        begin = (place.depth - start.depth) * tree.block_bytes
        return place, slots, num_tokens, prompt, begin, keys
