"""Replaying conversations in process, against the obvious way: a dictionary of hashed blocks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence

import xxhash

from prefix_cache.cli.bench.harness import Case, repeated
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.formats import Request
from prefix_cache.replay.measure.curve import cache_sizes
from prefix_cache.replay.measure.replay import Replay
from prefix_cache.replay.measure.targets import UnlimitedCache
from prefix_cache.replay.rotation import in_rotation
from tests.bench.prompts import BLOCK_SIZE, random_tokens
from tests.bench.scale import Scale

UNLIMITED = 2**31 - 1
"""Blocks of a cache that never evicts anything."""

_SIZES = 10


async def replay_cases(scale: Scale) -> AsyncGenerator[Case]:
    """Conversations in rotation; the baseline has a hit rate, ours its reasons and all sizes.

    The second case asks both for the hit rates of ten cache sizes.
    """
    conversations = [_turns(number, scale) for number in range(scale.conversations)]
    requests = list(in_rotation(map(iter, conversations), scale.conversations))
    tokens = sum(request.prompt_tokens for request in requests)
    hit = whole_replay(requests)
    assert hit.all.cached_tokens == hashed_blocks(requests, UNLIMITED)
    sizes = cache_sizes(hit.distances.largest_request, hit.distances.num_blocks, _SIZES)

    async def one_size() -> None:
        hashed_blocks(requests, UNLIMITED)

    async def each_size() -> None:
        for size in sizes:
            hashed_blocks(requests, size)

    async def ours() -> None:
        whole_replay(requests).distances.hit_blocks(sizes)

    what = f"{len(requests):,} requests, {tokens:,} prompt tokens"
    yield Case(what, repeated(one_size, 1), repeated(ours, 1))
    yield Case(f"{what}, {_SIZES} cache sizes", repeated(each_size, 1), repeated(ours, 1))


def whole_replay(requests: Sequence[Request]) -> Replay:
    """Replay on an unlimited cache, with everything that is measured."""
    replay = Replay(UnlimitedCache(BLOCK_SIZE))
    for request in requests:
        replay.play(request)
    return replay


def hashed_blocks(requests: Sequence[Request], num_blocks: int) -> int:
    """Return the tokens hit in a dictionary of chained hashes, least recently used out first."""
    size = BLOCK_SIZE * TOKEN_BYTES
    held: OrderedDict[bytes, None] = OrderedDict()
    hit_blocks = 0
    for request in requests:
        words = request.prompt + request.answer
        hashes, parent = [], b""
        for at in range(0, len(words) - size + 1, size):
            parent = xxhash.xxh3_128_digest(parent + words[at : at + size])
            hashes.append(parent)
        for block_hash in hashes[: (request.prompt_tokens - 1) // BLOCK_SIZE]:
            if block_hash not in held:
                break
            hit_blocks += 1
        for block_hash in reversed(hashes):
            held[block_hash] = None
            held.move_to_end(block_hash)
        while len(held) > num_blocks:
            held.popitem(last=False)
    return hit_blocks * BLOCK_SIZE


def _turns(number: int, scale: Scale) -> list[Request]:
    """A conversation that no other one shares anything with."""
    turn_tokens = scale.question + scale.answer
    words = random_tokens(scale.conversation_turns * turn_tokens)
    requests = []
    for turn in range(scale.conversation_turns):
        middle = (turn * turn_tokens + scale.question) * TOKEN_BYTES
        end = (turn + 1) * turn_tokens * TOKEN_BYTES
        requests.append(Request.of_tokens(str(number), turn + 1, words[:middle], words[middle:end]))
    return requests
