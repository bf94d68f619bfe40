"""Filter, score, pick, explain: one turn to one node.  Whoever asks twice gets one answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prefix_cache.client import NodeState, RouteReason
from prefix_cache.errors import NoNodeAvailable
from router.conversations import Pin
from router.nodes import Node
from router.policies import Candidate, Cost, Policy, rendezvous_score
from router.turn import Prompt, Turn

# A member of an enum is looked up slowly, and these are asked for with every turn.
_READY = NodeState.READY
_NEW, _PINNED, _MOVED = RouteReason.NEW, RouteReason.PINNED, RouteReason.MOVED


class Decision:
    """The node chosen, and why.

    PINNED: it is the conversation's home.  NEW: the conversation has none yet.  MOVED: the home
    cannot take the turn, lost the conversation, or the policy left it.

    When moved, ``moved_from`` names the home left behind and ``lost_tokens`` counts the tokens
    committed there, which may be prefilled again.  A home that lost its KV can
    be chosen anew: then both names are equal.

    ``candidates`` and their ``costs``, with parts named ``terms``, are the whole score table;
    ``left_out`` says of each node that was no candidate why not.  ``index`` is the chosen one's
    place in the table.  Nothing here keeps the prompt alive.
    """

    __slots__ = (
        "candidates",
        "costs",
        "index",
        "is_hashable",
        "left_out",
        "lost_tokens",
        "moved_from",
        "prompt_tokens",
        "reason",
        "terms",
    )

    def __init__(
        self,
        prompt_tokens: int,
        is_hashable: bool,
        index: int,
        reason: RouteReason,
        candidates: Sequence[Candidate],
        costs: Sequence[Cost],
        terms: tuple[str, ...],
        left_out: Sequence[tuple[Node, str]],
        moved_from: str = "",
        lost_tokens: int = 0,
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.is_hashable = is_hashable
        self.index = index
        self.reason = reason
        self.candidates = candidates
        self.costs = costs
        self.terms = terms
        self.left_out = left_out
        self.moved_from = moved_from
        self.lost_tokens = lost_tokens

    @property
    def node(self) -> Node:
        """The node chosen."""
        return self.candidates[self.index].node

    @property
    def promised_tokens(self) -> int:
        """Tokens of the prompt that the chosen node is claimed to hold."""
        return self.candidates[self.index].cached_tokens

    @property
    def rests_on_pin(self) -> bool:
        """Whether that is so by another router's word only."""
        return self.candidates[self.index].rests_on_pin

    @property
    def available_tokens(self) -> int:
        """The most that any candidate is claimed to hold."""
        return max([candidate.cached_tokens for candidate in self.candidates])

    @property
    def runner_up(self) -> Candidate | None:
        """The candidate of the second lowest cost; None when there was no choice."""
        others = [index for index in range(len(self.candidates)) if index != self.index]
        if not others:
            return None
        return self.candidates[min(others, key=lambda index: sum(self.costs[index]))]


def pick(
    nodes: Iterable[Node], turn: Turn, pin: Pin | None, policy: Policy, now: float
) -> Decision:
    """Choose a node for ``turn``, whose conversation has ``pin``.  Raises NoNodeAvailable."""
    candidates: list[Candidate] = []
    left_out: list[tuple[Node, str]] = []
    prompt = turn.prompt
    prompt_tokens, is_hashable = prompt.num_tokens, prompt.is_hashable
    exclude, model, needs_url = turn.exclude, turn.model, turn.needs_url
    home_name, home_incarnation = ("", 0) if pin is None else pin.home
    learned_tokens = _learned_tokens(pin, prompt)
    for node in nodes:
        serves = not (model and node.models) or model in node.models
        if (
            node.state is not _READY
            or node.name in exclude
            or not serves
            or (needs_url and not node.url)
        ):
            left_out.append((node, _why_not(node, turn)))
            continue
        held = node.claims.held_tokens(prompt) if is_hashable else 0
        is_home = node.name == home_name and node.lives(home_incarnation)
        rests_on_pin = (
            is_home
            and pin is not None
            and learned_tokens > held
            and pin.written_at > node.lost_at
            and not node.claims.is_told(prompt)
        )
        if rests_on_pin:
            held = learned_tokens
        candidates.append(
            Candidate(node, held if held < prompt_tokens else prompt_tokens, is_home, rests_on_pin)
        )
    if not candidates:
        raise _no_node_available(left_out)
    costs = policy.costs(turn, candidates, now)
    index = _cheapest(turn, candidates, costs)
    moved_from, lost_tokens = "", 0
    if pin is None:
        reason = _NEW
    elif candidates[index].is_home:
        reason = _PINNED
    else:
        reason = _MOVED
        moved_from, lost_tokens = pin.home.node, pin.committed_tokens
    return Decision(
        prompt_tokens,
        is_hashable,
        index,
        reason,
        candidates,
        costs,
        policy.terms,
        left_out,
        moved_from,
        lost_tokens,
    )


def _learned_tokens(pin: Pin | None, prompt: Prompt) -> int:
    """Tokens that another router sent home; none for a prompt that cannot go on from them."""
    if pin is None or not pin.is_learned:
        return 0
    if pin.text_bytes:  # of how many tokens these are, its estimate may be another
        text_bytes = len(prompt.text)
        if text_bytes < pin.text_bytes:
            return 0
        return prompt.num_tokens * pin.text_bytes // text_bytes
    return pin.committed_tokens if pin.committed_tokens <= prompt.num_tokens else 0


def _why_not(node: Node, turn: Turn) -> str:
    if node.state is not _READY:
        return f"is {node.state.name}"
    if node.name in turn.exclude:
        return "is excluded"
    if turn.needs_url and not node.url:
        return "has no URL"
    return f"does not serve {turn.model!r}"


def _cheapest(turn: Turn, candidates: Sequence[Candidate], costs: Sequence[Cost]) -> int:
    sums = list(map(sum, costs))
    lowest = min(sums)
    if sums.count(lowest) == 1:
        return sums.index(lowest)
    tied = [index for index, cost in enumerate(sums) if cost == lowest]
    digest = turn.spread_digest()
    return max(tied, key=lambda index: rendezvous_score(digest, candidates[index].node))


def _no_node_available(left_out: Iterable[tuple[Node, str]]) -> NoNodeAvailable:
    states = ", ".join(f"{node.name} {why}" for node, why in left_out) or "the pool has no node"
    return NoNodeAvailable(f"no node can take the turn: {states}", nodes=states)
