"""The index against prepared peers: ``python -m tests.bench.peers --peers FOLDER``.

Each side is a process in the Python it is installed in; they play their rounds in turns.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from pathlib import Path

import click

from prefix_cache.cli.bench.harness import Case, Row, Sample, Spread, measure
from prefix_cache.cli.bench.report import print_rows
from prefix_cache.cli.common_options import json_object_option
from tests.bench.conversation import delta_case
from tests.bench.memory import index_memory
from tests.bench.node_conversation import node_conversation_cases
from tests.bench.scale import Scale
from tests.bench.side_process import running_side

_MAX_BYTES_PER_BLOCK = 120


@dataclass(frozen=True)
class Target:
    """Ours is to cost so many times less than the peer's; both by the name their side gives."""

    title: str
    ours: str
    peer: str
    theirs: str
    at_least: float


TARGETS = (
    Target("full hit of 8,192 tokens as bytes", "full hit, bytes", "vllm", "full hit", 100),
    Target("full hit of 8,192 tokens as uint32", "full hit, uint32", "vllm", "full hit", 100),
    Target(
        "full hit of 8,192 tokens as bytes in a full pool",
        "full hit, full pool",
        "vllm",
        "full hit, full pool",
        100,
    ),
    Target("512 blocks evicted, events off", "evict", "vllm", "evict", 8),
    Target("512 blocks evicted, events on", "evict, events", "vllm", "evict, events", 8),
    Target("find 512 blocks, tokens as bytes", "find, bytes", "dynamo", "find", 10),
    Target("find 512 blocks, tokens as uint32", "find, uint32", "dynamo", "find", 10),
)


@dataclass(frozen=True)
class Judged:
    """A row, what it is held against, and whether it holds."""

    row: Row
    wanted: str
    is_met: bool


@click.command()
@click.option(
    "--peers",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with the prepared peers.",
)
@click.option("--rounds", type=click.IntRange(1), default=7, help="Rounds that each side plays.")
@json_object_option
def main(peers: Path, rounds: int, as_json: bool) -> None:
    """Measure the index in turns with vLLM and Dynamo, and say which targets it meets."""
    judged = [
        *_against_peers(peers, rounds),
        *asyncio.run(_late_turns(rounds)),
        *asyncio.run(_memory(peers)),
    ]
    if as_json:
        rows = [{**of.row.as_json(), "wanted": of.wanted, "is_met": of.is_met} for of in judged]
        click.echo(json.dumps({"rounds": rounds, "rows": rows}))
        return
    print_rows("peer is the baseline", [of.row for of in judged])
    for of in judged:
        click.echo(f"{'pass ' if of.is_met else 'SHORT'} {of.row.case}: {of.wanted}")


def _against_peers(peers: Path, rounds: int) -> list[Judged]:
    """Judge the times.  The first round only warms up."""
    commands = {
        "index": Path(sys.executable),
        "vllm": peers / "vllm-venv/bin/python",
        "dynamo": peers / "dynamo-venv/bin/python",
    }
    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(running_side(python, f"side_{name}", peers))
            for name, python in commands.items()
        }
        played = [{name: side.play() for name, side in sides.items()} for _ in range(rounds + 1)]
    judged = []
    for target in TARGETS:
        row = Row(
            f"{target.title}, {target.peer}",
            "",
            "us",
            baseline=Spread.of(medians[target.peer][target.theirs] for medians in played[1:]),
            ours=Spread.of(medians["index"][target.ours] for medians in played[1:]),
        )
        wanted = f"at least {target.at_least:g} times faster"
        judged.append(Judged(row, wanted, row.ratio >= target.at_least))
    return judged


async def _late_turns(rounds: int) -> list[Judged]:
    """Judge the delta form, in the index and at a node."""
    async with aclosing(node_conversation_cases(Scale())) as at_node:
        cases = [delta_case(Scale()), await anext(at_node)]
        rows = [row for case in cases for row in await measure(case, rounds)]
    return [Judged(row, "at most 1.3 times as long", row.ratio >= 1 / 1.3) for row in rows]


async def _memory(peers: Path) -> list[Judged]:
    """Memory per block, which does not vary: one round tells."""
    num_blocks = Scale().memory_blocks

    async def vllm() -> Sample:
        process = await asyncio.create_subprocess_exec(
            *(peers / "vllm-venv/bin/python", "bench_vllm_core.py", "--mem", str(num_blocks)),
            cwd=peers,
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        return {"": json.loads(output.splitlines()[-1])["all_cached_bytes_per_block"]}

    case = Case("cached block, vllm without its tokens", vllm, index_memory(num_blocks), "bytes")
    [row] = await measure(case, rounds=1)
    wanted = f"at most {_MAX_BYTES_PER_BLOCK} bytes"
    return [Judged(row, wanted, row.ours.median <= _MAX_BYTES_PER_BLOCK)]


if __name__ == "__main__":
    main()
