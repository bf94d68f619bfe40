"""Memory of a router per conversation, in a fresh process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterator

from prefix_cache.cli.bench.harness import Case, Sample, Side
from router.claims.node_claims import NodeClaims
from router.claims.sent_text import SentText
from router.config import NodeSpec, PoolConfig, RouterConfig
from router.decisions import Decisions
from router.dispatcher import Dispatcher
from router.turn import ConversationKey, Prompt, Turn
from tests.bench.memory import resident_bytes
from tests.bench.scale import Scale

_PROMPT_BYTES = 4_000


async def router_memory_cases(scale: Scale) -> AsyncGenerator[Case]:
    """Pins, accounts, decisions and what was sent where, with their default bounds.

    The baseline is the least that a sticky router can keep: the node by the conversation's key.
    """
    count = scale.pinned_conversations
    yield Case(
        f"one of {count:,} conversations with prompts of {_PROMPT_BYTES:,} bytes",
        _fresh_process("least", count),
        _fresh_process("router", count),
        unit="bytes",
    )


def _fresh_process(kind: str, count: int) -> Side:
    async def side() -> Sample:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.router_memory", kind, str(count)),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        return {"": float(output)}

    return side


def _turns(count: int) -> Iterator[Turn]:
    for number in range(count):
        text = (b"%016d " % number) * (_PROMPT_BYTES // 17)
        yield Turn(ConversationKey("tenant", f"chat-{number}"), Prompt(len(text) // 4, text))


def _bytes_per_conversation(kind: str, count: int) -> float:
    nodes = tuple(NodeSpec(f"n{number}", url=f"http://h{number}:1") for number in range(4))
    dispatcher = Dispatcher(RouterConfig(pools=(PoolConfig(nodes=nodes),)))
    decisions = Decisions(max_decisions=10_000)
    tree = dispatcher.default_pool.sent_texts
    for node in dispatcher.nodes():
        node.claims = NodeClaims(SentText(node.name, 65_536, tree))
        dispatcher.node_answered(node, 0)
    least: dict[ConversationKey, str] = {}
    before = resident_bytes()
    for turn in _turns(count):
        if kind == "least":
            assert turn.conversation is not None
            least[turn.conversation] = nodes[0].name
            continue
        route = dispatcher.route(turn)
        decisions.keep(str(turn.conversation), route.decision)
        dispatcher.accepted(route)
        dispatcher.served(route, cached_tokens=None)
    return (resident_bytes() - before) / count


if __name__ == "__main__":
    print(_bytes_per_conversation(sys.argv[1], int(sys.argv[2])))
