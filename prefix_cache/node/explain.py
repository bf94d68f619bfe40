"""What a node is ready to explain, and to whom."""

from __future__ import annotations

from prefix_cache.errors import InvalidArgument, PermissionDenied
from prefix_cache.index import Explanation
from prefix_cache.node.node import Node
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import extra_keys_from_wire, prefix_from_prompt


def explain(node: Node, request: node_pb2.ExplainRequest) -> Explanation:
    """Say why each range of a prompt hits or misses.

    Raises ``InvalidArgument`` for a prompt in delta form, and ``PermissionDenied`` where other
    salts are to be looked at and the node was not started to allow it.
    """
    prompt = request.prompt
    identity = node.admit(prompt)
    if prefix_from_prompt(prompt) is not None:
        raise InvalidArgument(
            "a prompt in delta form cannot be explained: send it in full", field="parent_block_hash"
        )
    if request.across_salts and not node.config.allow_explain_across_salts:
        raise PermissionDenied(
            f"node {node.config.name!r} explains nothing across salts: it was started without "
            "--allow-explain-across-salts",
            node=node.config.name,
        )
    return node.cache.explain(
        identity,
        prompt.tokens,
        extra_keys_from_wire(prompt.extra_keys),
        across_salts=request.across_salts,
    )
