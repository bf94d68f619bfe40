"""All benchmarks that need nothing but this repository: ``make bench``."""

from __future__ import annotations

import json

import click

from prefix_cache.cli.bench.report import print_rows
from prefix_cache.cli.common_options import json_object_option
from prefix_cache.cli.signals import run_stoppable
from tests.bench.groups import GROUPS, measure_group
from tests.bench.scale import Scale


@click.command()
@click.option("--only", type=click.Choice(list(GROUPS)), multiple=True, help="Only this group.")
@click.option("--rounds", type=click.IntRange(1), default=7, help="Samples taken of each case.")
@json_object_option
def main(only: tuple[str, ...], rounds: int, as_json: bool) -> None:
    """Measure index and node, each case in turns with its baseline.

    Shown is the median sample (and the least and the greatest), and by how many times ours is
    less than the baseline.
    """
    measured = {}
    for name in only or GROUPS:
        rows = run_stoppable(measure_group(name, Scale(), rounds))
        if not as_json:
            print_rows(f"{name}, {rows[0].unit}", rows)
        measured[name] = [row.as_json() for row in rows]
    if as_json:
        click.echo(json.dumps({"rounds": rounds, "groups": measured}))


if __name__ == "__main__":
    main()
