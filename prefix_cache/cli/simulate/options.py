"""The options of ``prefix-cache simulate`` that say what is served, and on what."""

from __future__ import annotations

from dataclasses import dataclass

import click

from prefix_cache.cli.common_options import Command, with_options
from prefix_cache.cli.option_types import BLOCK_SIZE

_OPTIONS = (
    click.option("--model", default="opt-13b", help="A name, or the path of a config.json."),
    click.option("--gpu", default="a100-40g", help="A card, such as h100."),
    click.option("--gpus", type=click.IntRange(1, 1024), default=1, help="Tensor parallel."),
    click.option(
        "--max-length",
        type=click.IntRange(2, 2**24),
        default=2_048,
        help="Tokens of the longest request that is served.",
    ),
    click.option(
        "--block-size", type=BLOCK_SIZE, default=16, help="Tokens of a block, when paged."
    ),
    click.option(
        "--lengths",
        metavar="NAME|FILE",
        default="sharegpt",
        help="sharegpt or alpaca: like their lengths; or a file that prefix-cache replay reads.",
    ),
    click.option("--skip-bad", is_flag=True, help="Leave out bad records of the file."),
    click.option("--requests", type=click.IntRange(1, 1_000_000), default=1_000, help="How many."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """What was asked for."""

    model: str
    gpu: str
    gpus: int
    max_length: int
    block_size: int
    lengths: str
    skip_bad: bool
    requests: int


def simulate_options(command: Command) -> Command:
    """Add the options, each named like its field of ``SimulateOptions``."""
    return with_options(command, _OPTIONS)
