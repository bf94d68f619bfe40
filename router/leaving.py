"""Where a prompt leaves what the nodes are believed to hold of it."""

from __future__ import annotations

from router.claims.node_claims import Left, NodeClaims
from router.picker import Decision
from router.turn import Prompt


def where_left(decision: Decision, prompt: Prompt) -> tuple[str, Left] | None:
    """Of the candidate believed to hold most of the prompt, its name and where that ends.

    None where nothing is known of what any of them holds.
    """
    held = [
        (candidate.cached_tokens, candidate.node.claims.leaves(prompt), candidate.node.name)
        for candidate in decision.candidates
        if isinstance(candidate.node.claims, NodeClaims)
    ]
    if not held:
        return None
    _, left, node = max(held, key=lambda each: (each[0], each[1].position))
    return node, left
