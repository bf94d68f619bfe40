"""Round trips to a node process: calls, steps of a session, and turns of a conversation."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator

from prefix_cache.cli.bench.cases import node_case
from prefix_cache.cli.bench.harness import Case, Sample, Side, Stopwatch, repeated
from prefix_cache.client import Acquire, Append, AsyncNodeClient, AsyncSession, Commit, Release
from prefix_cache.client.operations import Operation
from prefix_cache.replay.fleet import running_node
from tests.bench.prompts import BLOCK_SIZE, WHO, random_tokens
from tests.bench.scale import Scale
from tests.bench.steps import carry_out

_PROMPT = random_tokens(2 * BLOCK_SIZE)
_TOKEN = random_tokens(1)


async def node_cases(scale: Scale) -> AsyncGenerator[Case]:
    """A session against unary calls, over TCP and a unix socket."""
    with tempfile.TemporaryDirectory() as directory:
        for transport, listen in (
            ("TCP", "127.0.0.1:0"),
            ("unix", f"unix://{directory}/node.sock"),
        ):
            async with (
                running_node(listen=listen, num_blocks=2**14) as node,
                AsyncNodeClient(node.address) as client,
                client.session() as session,
            ):
                yield _round_trip_case(transport, client, session, scale)
                yield node_case(transport, client, session)
                for sequences in (1, 8, 64):
                    yield Case(
                        f"node, {transport}: one operation of {sequences} sequences per step",
                        _calls(client, scale.calls),
                        _steps(session, sequences, -(-scale.calls // sequences)),
                    )


def _round_trip_case(
    transport: str, client: AsyncNodeClient, session: AsyncSession, scale: Scale
) -> Case:
    async def call() -> None:
        await client.stats()

    async def step() -> None:
        await session.step([])

    return Case(
        f"node, {transport}: round trip", repeated(call, scale.calls), repeated(step, scale.calls)
    )


def _calls(client: AsyncNodeClient, times: int) -> Side:
    """Append and commit one token by calls."""

    async def side() -> Sample:
        sequence = await client.acquire(WHO, _PROMPT)
        watch = Stopwatch()
        watch.start()
        for new in range(1, times + 1):
            await client.append(sequence.id, _TOKEN)
            await client.commit(sequence.id, 2 * BLOCK_SIZE + new)
        watch.lap("")
        await client.release(sequence.id)
        return watch.sample(2 * times)

    return side


def _steps(session: AsyncSession, sequences: int, steps: int) -> Side:
    """Append and commit one token of each of so many sequences per step."""

    async def side() -> Sample:
        numbers = range(sequences)
        await carry_out(session, [Acquire(number, WHO, _PROMPT) for number in numbers])
        watch = Stopwatch()
        watch.start()
        for new in range(1, steps + 1):
            operations: list[Operation] = []
            for number in numbers:
                operations.append(Append(number, _TOKEN))
                operations.append(Commit(number, 2 * BLOCK_SIZE + new))
            await carry_out(session, operations)
        watch.lap("")
        await carry_out(session, [Release(number) for number in numbers])
        return watch.sample(2 * sequences * steps)

    return side
