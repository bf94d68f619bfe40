"""``prefix-cache bench``: a quick benchmark on the user's own machine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import click

from prefix_cache.cli.common_options import json_object_option
from prefix_cache.cli.signals import run_stoppable

if TYPE_CHECKING:
    from prefix_cache.cli.bench.harness import Case, Row


@click.command(
    short_help="Measure index and node on this machine.",
    epilog="\b\nExample:\n  prefix-cache bench --rounds 9",
)
@click.option(
    "--rounds", type=click.IntRange(1, 100), default=7, help="Samples taken of each case."
)
@json_object_option
def bench(rounds: int, as_json: bool) -> None:
    """Measure the index and a node on this machine, in some seconds.

    A turn is acquire, commit and release.  The index is compared with a block manager that
    hashes, looks up and counts every block; at a node, one step of a session with three unary
    calls.  Both take turns; shown is the median sample (and the fastest and slowest).
    """
    rows = run_stoppable(_measure_all(rounds))
    if as_json:
        click.echo(json.dumps({"rounds": rounds, "cases": [row.as_json() for row in rows]}))
        return
    from prefix_cache.cli.bench.report import print_rows

    print_rows("microseconds", rows)


async def _measure_all(rounds: int) -> list[Row]:
    from prefix_cache.cli.bench.harness import measure

    return [row async for case in _cases() for row in await measure(case, rounds)]


async def _cases() -> AsyncIterator[Case]:
    import tempfile

    from prefix_cache.cli.bench.cases import index_cases, node_case
    from prefix_cache.client import AsyncNodeClient
    from prefix_cache.replay.fleet import running_node

    for case in index_cases():
        yield case
    with tempfile.TemporaryDirectory() as directory:
        for transport, listen in (
            ("TCP", "127.0.0.1:0"),
            ("unix", f"unix://{directory}/node.sock"),
        ):
            async with (
                running_node(listen=listen) as node,
                AsyncNodeClient(node.address) as client,
                client.session() as session,
            ):
                yield node_case(transport, client, session)
