"""Late turns of a conversation against early ones, at a node process."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncGenerator

from prefix_cache.cli.bench.harness import Case, Sample, Side
from prefix_cache.client import Acquire, Append, AsyncNodeClient, AsyncSession, Commit, Release
from prefix_cache.client.results import Committed
from prefix_cache.index import Prefix
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.fleet import running_node
from tests.bench.dialogue import Dialogue
from tests.bench.prompts import WHO
from tests.bench.scale import Scale
from tests.bench.steps import carry_out


async def node_conversation_cases(scale: Scale) -> AsyncGenerator[Case, None]:
    """The delta form, then the full form; each turn is two steps of a session."""
    early, late = 2, scale.conversation_turns
    async with (
        running_node(num_blocks=scale.conversation_blocks) as node,
        AsyncNodeClient(node.address) as client,
        client.session() as session,
    ):
        for form, delta in (("delta form", True), ("full form", False)):
            yield Case(
                f"node, TCP: {form}, turn {late} against turn {early}",
                _turns(client, session, scale, early, delta),
                _turns(client, session, scale, late, delta),
            )


def _turns(
    client: AsyncNodeClient, session: AsyncSession, scale: Scale, turns: int, delta: bool
) -> Side:
    async def side() -> Sample:
        await client.reset()
        last_turns = []
        for _ in range(scale.conversations):
            dialogue = Dialogue(scale)
            after: Prefix | None = None
            for _ in range(turns):
                prompt, answered = dialogue.next_turn()
                new = prompt[after.num_tokens * TOKEN_BYTES :] if after else prompt
                start = time.perf_counter()
                await carry_out(
                    session,
                    [Acquire(1, WHO, new, after=after), Commit(1, len(prompt) // TOKEN_BYTES)],
                )
                _, committed, _ = await carry_out(
                    session,
                    [
                        Append(1, dialogue.answer),
                        Commit(1, len(answered) // TOKEN_BYTES),
                        Release(1),
                    ],
                )
                assert isinstance(committed, Committed)
                after = committed.prefix if delta else None
            last_turns.append(time.perf_counter() - start)
        return {"": statistics.median(last_turns) * 1e6}

    return side
