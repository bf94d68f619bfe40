"""Why the tokens of a prompt hit or missed, range by range."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from itertools import groupby, islice

import numpy as np
import numpy.typing as npt

from prefix_cache.index.extra_keys import ExtraKeys
from prefix_cache.index.host_tier import HostTier
from prefix_cache.index.identity import Identity
from prefix_cache.index.place import Place
from prefix_cache.index.prefix_tree import PrefixTree
from prefix_cache.index.run import Root
from prefix_cache.index.sequence import Sequence
from prefix_cache.index.tokens import TOKEN_BYTES

Ids = npt.NDArray[np.uint32]

# A diagnosis must not hold up the calls that serve.  It looks at so many of the latest neighbours,
# at so many of their tokens to choose the nearest, and at so many live sequences that begin alike.
MAX_NEIGHBOURS = 1000
MAX_NEIGHBOUR_TOKENS = 1024
MAX_SEQUENCES = 16


class ReasonKind(StrEnum):
    """Why a range of tokens hit or missed."""

    CACHED = "cached"
    ON_HOST = "on_host"
    NEVER_SEEN = "never_seen"
    DIVERGED = "diverged"
    EVICTED = "evicted"
    OTHER_IDENTITY = "other_identity"
    EXTRA_KEY = "extra_key"
    UNCOMMITTED = "uncommitted"
    PARTIAL_BLOCK = "partial_block"
    LAST_TOKEN = "last_token"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the tokens from ``start`` up to ``end`` hit or missed.

    - ``on_host``: a hit, by a load from the host.
    - ``uncommitted``: a live sequence has not committed them, or their copy to the host is not
      acknowledged.
    - ``diverged``: at ``position`` the prompt has ``prompt_token``, and what is cached after the
      same prefix has ``cached_token``; ``agrees_from`` is where the two agree again for at least
      a block, if they do.
    - ``evicted``: ``releases_ago`` releases ago, those of all identities counted.
    - ``other_identity``: cached, under an identity that differs in ``fields``.
    """

    kind: ReasonKind
    start: int
    end: int
    position: int | None = None
    prompt_token: int | None = None
    cached_token: int | None = None
    agrees_from: int | None = None
    releases_ago: int | None = None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """What ``acquire`` would find, and the reasons for every token of the prompt, in order."""

    num_cached_tokens: int
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a diagnosis looks at.  It changes nothing."""

    tree: PrefixTree
    host: HostTier
    live: Iterable[Sequence]

    def explain(
        self, identity: Identity, prompt: bytes, keys: ExtraKeys, *, across_salts: bool
    ) -> Explanation:
        """Say for every token why it hits or misses.

        Unless ``across_salts``, nothing is said of what is cached under another salt.
        """
        size = self.tree.block_size
        num_tokens = len(prompt) // TOKEN_BYTES
        full = num_tokens // size
        stop = full if keys.limit is None else min(full, keys.limit)
        place = self.tree.find(Place(self.tree.root(identity), 0, 0), prompt, keys, stop)
        on_gpu, slots = self.host.split(place)
        there = on_gpu.depth + len(slots)
        hit = min(there, (num_tokens - 1) // size)
        loaded = max(0, hit - on_gpu.depth)
        ranges = [
            Reason(ReasonKind.CACHED, 0, (hit - loaded) * size),
            Reason(ReasonKind.ON_HOST, (hit - loaded) * size, hit * size),
        ]
        if hit < there:
            ranges.append(Reason(ReasonKind.LAST_TOKEN, hit * size, num_tokens))
        else:
            ranges.append(Reason(ReasonKind.UNCOMMITTED, there * size, place.depth * size))
            ranges += self._misses(identity, prompt, keys, place, stop, across_salts)
            ranges.append(Reason(ReasonKind.EXTRA_KEY, stop * size, full * size))
            ranges.append(Reason(ReasonKind.PARTIAL_BLOCK, full * size, num_tokens))
        reasons = tuple(reason for reason in ranges if reason.start < reason.end)
        return Explanation(hit * size, reasons)

    def _misses(
        self,
        identity: Identity,
        prompt: bytes,
        keys: ExtraKeys,
        place: Place,
        stop: int,
        across_salts: bool,
    ) -> Iterator[Reason]:
        """Reasons for the full blocks from ``place`` up to ``stop``."""
        start = place.depth
        if start == stop:
            return
        size = self.tree.block_size
        rest = prompt[start * self.tree.block_bytes : stop * self.tree.block_bytes]
        hasher = self.tree.hasher
        hashes = hasher.split(hasher.chain(place.block_hash, rest, keys.for_blocks(start, stop)))
        evicted = self.tree.evictions.releases_by_hash()
        uncommitted = self._uncommitted_until(place, prompt, keys, stop)
        elsewhere, who = self._cached_elsewhere(identity, prompt, keys, place, stop, across_salts)

        def kind_of(block: int) -> ReasonKind:
            if block < uncommitted:
                return ReasonKind.UNCOMMITTED
            if hashes[block - start] in evicted:
                return ReasonKind.EVICTED
            return ReasonKind.OTHER_IDENTITY if block < elsewhere else ReasonKind.NEVER_SEEN

        if kind_of(start) is ReasonKind.NEVER_SEEN:
            nearest = self._nearest(place, rest, stop)
            if nearest is not None:
                yield nearest
                yield Reason(ReasonKind.NEVER_SEEN, nearest.end, stop * size)
                return
        for kind, blocks in groupby(range(start, stop), kind_of):
            first, *others = blocks
            reason = Reason(kind, first * size, (first + 1 + len(others)) * size)
            if kind is ReasonKind.EVICTED:
                ago = self.tree.releases - evicted[hashes[first - start]]
                reason = replace(reason, releases_ago=ago)
            elif kind is ReasonKind.OTHER_IDENTITY:
                reason = replace(reason, fields=_differing(identity, who))
            yield reason

    def _uncommitted_until(self, place: Place, prompt: bytes, keys: ExtraKeys, stop: int) -> int:
        """How deep a live sequence has the prompt, but has not committed it yet."""
        size, block_bytes = self.tree.block_size, self.tree.block_bytes
        deepest = place.depth
        for seq in islice(self._on_the_way(place, prompt), MAX_SEQUENCES):
            end = min(stop, seq.findable_blocks(seq.num_tokens))
            mine = _ids(prompt[seq.depth * block_bytes : end * block_bytes])
            agreed = _likeness(mine, _ids(seq.pending))[0] // size
            my_keys = keys.for_blocks(seq.depth, seq.depth + agreed)
            their_keys = seq.extra_keys.for_blocks(seq.depth, seq.depth + agreed)
            either = my_keys.keys() | their_keys.keys()
            other = (index for index in either if my_keys.get(index) != their_keys.get(index))
            deepest = max(deepest, seq.depth + min(other, default=agreed))
        return deepest

    def _on_the_way(self, place: Place, prompt: bytes) -> Iterator[Sequence]:
        """Live sequences whose findable part ends before ``place``, and go on as the prompt."""
        run = place.run if place.into == len(place.run.blocks) else place.run.parent
        way = set()
        while run is not None:
            way.add(run)
            run = run.parent
        size = self.tree.block_bytes
        for seq in self.live:
            if seq.run in way and seq.pending.startswith(
                prompt[seq.depth * size : (seq.depth + 1) * size]
            ):
                yield seq

    def _cached_elsewhere(
        self,
        identity: Identity,
        prompt: bytes,
        keys: ExtraKeys,
        place: Place,
        stop: int,
        across_salts: bool,
    ) -> tuple[int, Identity]:
        """How deep the prompt is cached under another identity, and under which."""
        deepest, who = place.depth, identity
        others = (root for other, root in self.tree.roots.items() if other != identity)
        visible = (r for r in others if across_salts or r.identity.salt == identity.salt)
        for root in islice(visible, MAX_NEIGHBOURS):
            depth = self.tree.find(Place(root, 0, 0), prompt, keys, stop).depth
            if depth > deepest:
                deepest, who = depth, root.identity
        return deepest, who

    def _nearest(self, place: Place, rest: bytes, stop: int) -> Reason | None:
        """How the prompt leaves what is cached after the same prefix."""
        size = self.tree.block_size
        start = place.depth * size
        mine = _ids(rest)
        nearest = max(
            islice(self._continuations(place), MAX_NEIGHBOURS),
            key=lambda theirs: _likeness(mine, theirs[:MAX_NEIGHBOUR_TOKENS]),
            default=None,
        )
        if nearest is None:
            return None
        agreed, _ = _likeness(mine, nearest)
        if agreed >= size:
            # The tokens are there; so it is the extra keys that are not.
            return Reason(ReasonKind.EXTRA_KEY, start, start + agreed // size * size)
        agrees = _agrees_again(mine, nearest, agreed, size)
        if not agreed and agrees is None and isinstance(place.run, Root):
            return None
        return Reason(
            ReasonKind.DIVERGED,
            start,
            stop * size,
            position=start + agreed,
            prompt_token=int(mine[agreed]),
            cached_token=int(nearest[agreed]),
            agrees_from=None if agrees is None else start + agrees,
        )

    def _continuations(self, place: Place) -> Iterator[Ids]:
        """Tokens cached right after ``place``, each as far as its run goes, latest first."""
        if place.into < len(place.run.blocks):
            yield _ids(place.run.tokens)[place.into * self.tree.block_size :]
            return
        for bucket in reversed(place.run.children.values()):
            for child in reversed(bucket):
                yield _ids(child.tokens)


def _differing(one: Identity, other: Identity) -> tuple[str, ...]:
    return tuple(
        field.name
        for field in fields(Identity)
        if getattr(one, field.name) != getattr(other, field.name)
    )


def _ids(tokens: bytes | bytearray) -> Ids:
    """View token bytes as ids.  A buffer that is viewed cannot grow: let go of it soon."""
    return np.frombuffer(tokens, np.uint32)


def _likeness(mine: Ids, theirs: Ids) -> tuple[int, int]:
    """How many leading tokens are equal, and how many at all, place by place."""
    length = min(len(mine), len(theirs))
    differ = np.flatnonzero(mine[:length] != theirs[:length])
    return int(differ[0]) if len(differ) else length, length - len(differ)


def _agrees_again(mine: Ids, theirs: Ids, position: int, size: int) -> int | None:
    """First place after ``position`` from which ``size`` tokens are equal."""
    length = min(len(mine), len(theirs))
    differ = np.flatnonzero(mine[position:length] != theirs[position:length]) + position
    gaps = np.diff(np.append(differ, length))
    wide = np.flatnonzero(gaps > size)
    return int(differ[wide[0]]) + 1 if len(wide) else None
