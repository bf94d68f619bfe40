"""The prompt of a caller that has its tokens: chain hashes as a cache node makes them."""

from __future__ import annotations

from prefix_cache.errors import InvalidArgument
from prefix_cache.index.arguments import MAX_BLOCK_SIZE, prompt_bytes
from prefix_cache.index.block_hash import BlockHasher
from prefix_cache.index.extra_keys import ExtraKeys
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import extra_keys_from_wire, identity_from_wire, prefix_from_prompt
from router.turn import Prompt


def prompt_from_wire(message: node_pb2.Prompt) -> Prompt:
    """Return what claims can be asked about a prompt given in full.

    Raises InvalidArgument for one in delta form or without its block size, and for tokens,
    identity or extra keys that no node takes either.
    """
    block_size = message.block_size
    if prefix_from_prompt(message) is not None:
        raise InvalidArgument("the prompt is in delta form: the router needs it in full")
    if not 0 < block_size <= MAX_BLOCK_SIZE:
        raise InvalidArgument(
            f"the prompt's block_size is {block_size}: expected that of the nodes, "
            f"1 to {MAX_BLOCK_SIZE}",
            block_size=block_size,
        )
    tokens = prompt_bytes(message.tokens)
    keys = ExtraKeys(extra_keys_from_wire(message.extra_keys), block_size)
    hasher = BlockHasher(block_size, None)
    num_tokens = len(tokens) // TOKEN_BYTES
    findable = num_tokens // block_size if keys.limit is None else keys.limit
    full = min(findable, num_tokens // block_size)
    root = hasher.root(identity_from_wire(message.identity))
    hashes = hasher.chain(root, tokens[: full * block_size * TOKEN_BYTES], keys.for_blocks(0, full))
    return Prompt(num_tokens, tokens, hasher.split(hashes), block_size)
