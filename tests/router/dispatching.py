"""A dispatcher whose nodes answered, and turns played through it without any network."""

from __future__ import annotations

from typing import Any

from router.config import NodeSpec, PoolConfig, RouterConfig
from router.dispatcher import Dispatcher
from router.nodes import Node
from router.open_routes import OpenRoute
from router.turn import DEFAULT_POOL, ConversationKey, Prompt, Turn
from tests.router.clock import Clock

CHAT = ConversationKey("", "chat")


def specs(names: str) -> tuple[NodeSpec, ...]:
    """Nodes named by single letters."""
    return tuple(NodeSpec(name, f"127.0.0.1:{ord(name)}") for name in names)


def dispatcher_over(
    names: str,
    clock: Clock | None = None,
    policy: str = "sticky",
    *,
    hard: bool = False,
    **settings: Any,
) -> Dispatcher:
    """A router whose nodes answered their first probe: every incarnation is 1."""
    config = RouterConfig(
        pools=(PoolConfig(nodes=specs(names), policy=policy, hard=hard),),
        **{"pin_ttl_s": 1000.0, "route_ttl_s": 60.0, **settings},
    )
    clock = clock or Clock()
    dispatcher = Dispatcher(config, clock=clock, wall_clock=clock)
    answer_all(dispatcher)
    return dispatcher


def answer_all(dispatcher: Dispatcher) -> None:
    for node in dispatcher.nodes():
        dispatcher.node_answered(node, 1)


def key(conversation: object, tenant: str = "") -> ConversationKey:
    return ConversationKey(tenant, f"{conversation}")


def turn(
    conversation: ConversationKey | None = CHAT,
    tokens: int = 100,
    *,
    pool: str = DEFAULT_POOL,
    model: str = "",
    exclude: str = "",
    text: bytes = b"",
) -> Turn:
    return Turn(conversation, Prompt(tokens, text), pool, model, frozenset(exclude))


def serve(
    dispatcher: Dispatcher,
    conversation: ConversationKey | None = CHAT,
    tokens: int = 100,
    cached_tokens: int | None = 0,
) -> OpenRoute:
    """One whole turn."""
    route = dispatcher.route(turn(conversation, tokens))
    dispatcher.accepted(route)
    dispatcher.served(route, cached_tokens=cached_tokens)
    return route


def load(dispatcher: Dispatcher) -> dict[str, tuple[int, int]]:
    """Turns in flight and their tokens, by node."""
    return {node.name: (node.in_flight, node.in_flight_tokens) for node in dispatcher.nodes()}


def all_load(node: Node) -> tuple[int, ...]:
    """Every counter of a node that open turns are in."""
    return node.in_flight, node.in_flight_tokens, node.queued_prefill, node.decoding


class RememberedTexts:
    """Claims that remember whole prompts: what an accepted turn began with is held.

    One promise that was not kept is enough: the engine has lost everything else.
    """

    def __init__(self) -> None:
        self.texts: list[Prompt] = []
        self.asked = 0

    def is_told(self, prompt: Prompt) -> bool:
        return False

    def held_tokens(self, prompt: Prompt) -> int:
        self.asked += 1
        held = (each.num_tokens for each in self.texts if prompt.text.startswith(each.text))
        return max(held, default=0)

    def accepted(self, prompt: Prompt) -> None:
        self.texts.append(prompt)

    def served(self, prompt: Prompt, promised: int, delivered: int | None) -> bool:
        has_lost = delivered is not None and delivered < promised
        if has_lost:
            self.texts[:] = [prompt]
        return has_lost

    def clear(self) -> None:
        self.texts.clear()


def remember_texts(dispatcher: Dispatcher) -> dict[str, RememberedTexts]:
    """Give every node such claims; return them by name."""
    claims = {}
    for node in dispatcher.nodes():
        node.claims = claims[node.name] = RememberedTexts()
    return claims
