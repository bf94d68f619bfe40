"""One decision of the router: 8 to 256 nodes, a prompt that half of them hold in parts."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence

from prefix_cache.cli.bench.harness import Case, Side, repeated
from prefix_cache.client import NodeEvent
from prefix_cache.index import Identity
from prefix_cache.index.block_hash import BlockHasher
from prefix_cache.index.events import BlocksStored
from prefix_cache.index.tokens import TOKEN_BYTES
from router.claims.node_claims import NodeClaims
from router.claims.sent_text import SentText
from router.claims.text_tree import TextTree
from router.config import NodeSpec, PoolConfig, RouterConfig
from router.dispatcher import Dispatcher
from router.prompts.token_chain import TokenChains
from router.turn import ConversationKey, Prompt, Turn
from tests.bench.prompts import BLOCK_SIZE, WHO, random_tokens, unlike_from
from tests.bench.scale import Scale

_INCARNATION = 1


async def pick_cases(scale: Scale) -> AsyncGenerator[Case]:
    """Hash what is new, filter, score and pick; against one block's holders after the other's.

    The baseline is given the hashes and only counts what each node holds: no filter, no load, no
    choice.
    """
    hasher = BlockHasher(BLOCK_SIZE, None)
    for num_tokens in (scale.short_prompt, scale.long_prompt):
        tokens = random_tokens(num_tokens)
        chain = hasher.split(hasher.chain(hasher.root(WHO), tokens, {}))
        seen = chain[: (num_tokens - scale.new_tokens) // BLOCK_SIZE]
        for num_nodes in scale.fleets:
            # Every second node holds something, each less than the one before.
            held = {
                f"n{number}": seen[: len(seen) // (number // 2 + 1)] if number % 2 == 0 else ()
                for number in range(num_nodes)
            }
            yield Case(
                f"{num_nodes} nodes, {num_tokens:,} tokens",
                _block_by_block(chain, held, scale.picks),
                _picks(tokens, scale.new_tokens, held, scale.picks),
            )


def _picks(tokens: bytes, new_tokens: int, held: Mapping[str, Sequence[bytes]], times: int) -> Side:
    nodes = tuple(NodeSpec(name, f"{name}:1") for name in held)
    dispatcher = Dispatcher(RouterConfig(pools=(PoolConfig(nodes=nodes),)), clock=time.monotonic)
    for node in dispatcher.nodes():
        node.claims = claims = NodeClaims(SentText(node.name, 1, TextTree()))
        dispatcher.node_answered(node, _INCARNATION)
        if blocks := tuple(held[node.name]):
            claims.held.apply(NodeEvent(_INCARNATION, 1, _stored(blocks)))
    num_tokens = len(tokens) // TOKEN_BYTES
    # Each is known but for its last tokens, whichever came before it.
    prompts = itertools.cycle([unlike_from(tokens, num_tokens - new_tokens) for _ in range(4)])
    conversation = ConversationKey("", "chat")
    chains = TokenChains(BLOCK_SIZE)

    async def work() -> None:
        prompt = next(prompts)
        chain = chains.hashes(conversation, WHO, prompt)
        turn = Turn(conversation, Prompt(num_tokens, prompt, chain, BLOCK_SIZE))
        assert dispatcher.decide(turn).promised_tokens > 0

    return repeated(work, times)


def _block_by_block(
    chain: Sequence[bytes], held: Mapping[str, Sequence[bytes]], times: int
) -> Side:
    holders: defaultdict[bytes, set[str]] = defaultdict(set)
    for name, blocks in held.items():
        for block_hash in blocks:
            holders[block_hash].add(name)

    async def work() -> None:
        counts = dict.fromkeys(held, 0)
        for number, block_hash in enumerate(chain, 1):
            if not (names := holders.get(block_hash)):
                break
            for name in names:
                counts[name] = number
        assert max(counts.values()) > 0

    return repeated(work, times)


def _stored(blocks: tuple[bytes, ...]) -> BlocksStored:
    return BlocksStored(
        block_hashes=blocks,
        parent_block_hash=None,
        token_ids=b"",
        block_size=BLOCK_SIZE,
        extra_keys=(),
        identity=Identity(model=WHO.model),
    )
