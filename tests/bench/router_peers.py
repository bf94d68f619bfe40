"""The proxy against other routers: ``python -m tests.bench.router_peers --peers FOLDER``.

The folder has the routers prepared, with the harness that starts each before four dummy workers
and drives it by a load generator in C, router and load each on a core of its own.  Ours is one
row more, or with ``--compiled`` two.  All routers are measured once in every round, so that they
share the machine's moods.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from prefix_cache.cli.option_types import FILE

OURS = "prefix-cache"
COMPILED = "prefix-cache-compiled"
DIRECT = "direct"
STICKY = ("vllm/sticky_least_loaded", "vllm/consistent_hash", "sglang/manual")
_FIRST_WORKER = 19100  # port of the harness's first dummy worker
SCENARIOS = ("lat_short", "lat_long", "lat_stream", "thr_short", "thr_long", "thr_stream")

# Runs the harness with rows for ours, in the place of any of their names: its file, names and
# commands as JSON, its own arguments.
_WITH_OUR_ROWS = """
import json
import sys
file, ours, *sys.argv[1:] = sys.argv[1:]
ours = json.loads(ours)
rows = f"ROWS[:] = [row for row in ROWS if row.name not in {list(ours)}]; " + "".join(
    f"ROWS.append(Row({name!r}, {command!r}, hdr='X-Session-ID')); "
    for name, command in ours.items()
)
source = open(file).read().replace("SCEN = {", rows + "SCEN = {", 1)
exec(compile(source, file, "exec"), {"__file__": file, "__name__": "__main__"})
"""

Results = Mapping[str, Mapping[str, list[Mapping[str, float]]]]
"""By router and scenario, one measurement per round."""


@dataclass(frozen=True)
class Figure:
    """What is compared: median of the rounds, by router."""

    title: str
    of: Callable[[Results, str], float]
    at_most: float
    """Times the best peer's."""


def _added(scenario: str, quantile: str) -> Callable[[Results, str], float]:
    """Microseconds more than asking a worker directly in the same round."""

    def figure(results: Results, router: str) -> float:
        pairs = zip(results[router][scenario], results[DIRECT][scenario], strict=True)
        return statistics.median(through[quantile] - direct[quantile] for through, direct in pairs)

    return figure


def _cpu(scenario: str) -> Callable[[Results, str], float]:
    return lambda results, router: statistics.median(
        measured["cpu_us_req"] for measured in results[router][scenario]
    )


FIGURES = (
    Figure("1 KB, added p50, us", _added("lat_short", "p50"), 0.95),
    Figure("1 KB, added p99, us", _added("lat_short", "p99"), 1.05),
    Figure("64 KB, added p50, us", _added("lat_long", "p50"), 1.05),
    Figure("first streamed byte, added p50, us", _added("lat_stream", "ttfb50"), 1.05),
    Figure("1 KB, CPU per request, us", _cpu("thr_short"), 0.95),
    Figure("64 KB, CPU per request, us", _cpu("thr_long"), 1.05),
    Figure("1 KB streamed, CPU per request, us", _cpu("thr_stream"), 1.05),
)


@click.command()
@click.option(
    "--peers",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder with the prepared routers.",
)
@click.option(
    "--compiled",
    type=FILE,
    help="The prefix-cache command of a virtual environment with the compiled wheel.",
)
@click.option("--rounds", type=click.IntRange(1), default=7, help="Rounds that each router plays.")
def main(peers: Path, compiled: Path | None, rounds: int) -> None:
    """Measure the proxy in turns with other routers, and say which targets it meets."""
    ours = {OURS: Path(sys.executable).with_name("prefix-cache")}
    if compiled is not None:
        ours[COMPILED] = compiled.absolute()
    results: defaultdict[str, defaultdict[str, list[Mapping[str, float]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for number in range(rounds):
        for measured in _round(peers.resolve(), ours):
            results[str(measured["router"])][str(measured["scen"])].append(measured)
        click.echo(f"round {number + 1} of {rounds}", err=True)
    for figure in FIGURES:
        values = {router: figure.of(results, router) for router in (*STICKY, *ours)}
        best = min(STICKY, key=values.__getitem__)
        shown = ", ".join(f"{router} {value:.0f}" for router, value in values.items())
        click.echo(f"{figure.title}: {shown}")
        for router in ours:
            ratio = values[router] / values[best]
            verdict = "pass " if ratio <= figure.at_most else "SHORT"
            click.echo(f"  {verdict} {router}: {ratio:.2f} of {best}, wanted {figure.at_most}")
    _print_errors(results)


def _round(peers: Path, ours: Mapping[str, Path]) -> list[Mapping[str, float]]:
    nodes = " ".join(f"--node w{i}=http://127.0.0.1:{_FIRST_WORKER + i}" for i in range(4))
    faces = "--http 127.0.0.1:{PORT} --listen 127.0.0.1:0"
    commands = {name: f"{command} router {faces} {nodes}" for name, command in ours.items()}
    routers = (DIRECT, *STICKY, *ours)
    with tempfile.NamedTemporaryFile("r") as out:
        harness = subprocess.run(
            [
                *(peers / "venv/bin/python", "-c", _WITH_OUR_ROWS, peers / "bench_routers.py"),
                *(json.dumps(commands), "--quick", "--out", out.name),
                *("--only", ",".join(routers), "--scen", ",".join(SCENARIOS)),
            ],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        measured = [json.loads(line) for line in out]
    if len(measured) != len(routers) * len(SCENARIOS):
        raise click.ClickException(f"not each router was measured once:\n{harness.stdout}")
    return measured


def _print_errors(results: Results) -> None:
    for router, scenarios in results.items():
        errors = sum(measured["err"] for rounds in scenarios.values() for measured in rounds)
        if errors:
            click.echo(f"{router}: {errors:g} requests failed")


if __name__ == "__main__":
    main()
