"""The options of ``prefix-cache replay``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefix_cache.cli.common_options import Command, html_option, json_object_option, with_options
from prefix_cache.cli.option_types import BLOCK_SIZE, COUNT, FILE, NUM_BLOCKS, SecondsRange

if TYPE_CHECKING:
    from prefix_cache.replay.formats import Source

_ABOVE_ZERO = SecondsRange(min=1e-6, max=1e9)
_NODES = 8
_BLOCKS_OF_NODE = 3_000

_OPTIONS = (
    click.argument("file", required=False, type=FILE),
    click.option(
        "--format",
        "file_format",
        metavar="NAME",
        help="openai, sharegpt, sessions, mooncake, hash16, tokens, engine-log or lengths.  "
        "[default: the file tells]",
    ),
    click.option(
        "--blocks",
        type=NUM_BLOCKS,
        help="Blocks of the cache, or of each of several nodes.  "
        "[default: as many as it takes; 3,000 a node]",
    ),
    click.option(
        "--block-size",
        type=BLOCK_SIZE,
        help="Tokens per block.  [default: 16, or as many as the file has one hash for]",
    ),
    click.option(
        "--tokenizer",
        type=FILE,
        help="A tokenizer.json for text.  [default: its UTF-8 bytes are the tokens]",
    ),
    click.option("--window", type=COUNT, default=8, help="Conversations that are live at once."),
    click.option(
        "--reencode", is_flag=True, help="Encode each prompt anew from its text, answers included."
    ),
    click.option(
        "--normalise",
        is_flag=True,
        help="Make all dates, times, uuids and long numbers in system prompts and tools the same.",
    ),
    click.option(
        "--assume-turns",
        type=COUNT,
        help="Turns of a conversation, where the file says nothing but lengths.",
    ),
    click.option(
        "--sample",
        type=click.FloatRange(0, 1, min_open=True),
        metavar="SHARE",
        help="For long files: only the hit rate against cache size, from that share of the "
        "blocks, such as 0.01.",
    ),
    click.option("--skip-bad", is_flag=True, help="Leave out bad records, and count them."),
    click.option("--model", help="Say what is saved for a model: a name, or a config.json."),
    click.option("--gpu", help="Say how long that would take a card, such as h100."),
    click.option("--node", metavar="ADDRESS", help="Replay against a running node."),
    click.option("--router", metavar="ADDRESS", help="Replay through a running router."),
    click.option(
        "--salt",
        help="Salt of the prompts at the running node; with an equal one, two runs share what is "
        "cached.  [default: another one for each run]",
    ),
    click.option(
        "--nodes",
        type=click.IntRange(1, 1024),
        multiple=True,
        help="Simulated nodes; may be repeated, to compare fleets.  [default: 8]",
    ),
    click.option(
        "--policy",
        "policies",
        multiple=True,
        metavar="NAME",
        help="Compare policies on simulated nodes: a policy of the router, a baseline, or all; "
        "may be repeated.",
    ),
    click.option(
        "--load",
        type=click.Choice(["light"]),
        help="Instead of a file: many chats with one system prompt, on nodes mostly idle.",
    ),
    click.option("--speed", type=_ABOVE_ZERO, default=1.0, help="Times as fast as the file says."),
    click.option(
        "--prefill-rate",
        type=_ABOVE_ZERO,
        default=8_000.0,
        help="Tokens a second that a simulated node prefills.",
    ),
    click.option(
        "--event-lag",
        type=SecondsRange(0, 1e9),
        default=50.0,
        help="Milliseconds until the simulated router hears of what a node holds.",
    ),
    html_option,
    json_object_option,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What was asked for.  Raises UsageError for what does not go together."""

    file: Path | None
    file_format: str | None
    blocks: int | None
    block_size: int | None
    tokenizer: Path | None
    window: int
    reencode: bool
    normalise: bool
    assume_turns: int | None
    sample: float | None
    skip_bad: bool
    model: str | None
    gpu: str | None
    node: str | None
    router: str | None
    salt: str | None
    nodes: tuple[int, ...]
    policies: tuple[str, ...]
    load: str | None
    speed: float
    prefill_rate: float
    event_lag: float
    html: Path | None
    as_json: bool

    def __post_init__(self) -> None:
        if (self.file is None) == (self.load is None):
            raise click.UsageError("give either a FILE or --load")
        if self.gpu and not self.model:
            raise click.UsageError("--gpu goes with --model")
        if self.load and self.html:
            raise click.UsageError("--html goes with a FILE")
        if self.is_running and (
            (self.node and self.router) or self.simulates or self.blocks or self.block_size
        ):
            raise click.UsageError(
                "give one of --node and --router, without --blocks, --block-size, --nodes, "
                "--policy and --load: those are the running node's"
            )
        if self.sample and (self.is_running or self.simulates or self.model or self.html):
            raise click.UsageError(
                "--sample measures cache sizes only: leave out --node, --router, --nodes, "
                "--policy, --load, --model and --html"
            )
        if self.salt is not None and not self.is_running:
            raise click.UsageError("--salt goes with --node or --router")

    @property
    def is_running(self) -> bool:
        """Whether the replay is against a node or a router that runs."""
        return bool(self.node or self.router)

    @property
    def simulates(self) -> bool:
        """Whether policies are compared on simulated nodes."""
        return bool(self.nodes or self.policies or self.load)

    @property
    def fleets(self) -> tuple[int, ...]:
        """How many nodes each simulated fleet has."""
        return self.nodes or (_NODES,)

    @property
    def blocks_of_node(self) -> int:
        """Blocks of each simulated node."""
        return self.blocks or _BLOCKS_OF_NODE

    @property
    def blocks_together(self) -> int | None:
        """Blocks of the one cache in this process; None for as many as it takes."""
        return self.fleets[0] * self.blocks_of_node if self.simulates else self.blocks


def replay_options(command: Command) -> Command:
    """Add the options, each named like its field of ``ReplayOptions``."""
    return with_options(command, _OPTIONS)


def opened_source(options: ReplayOptions) -> Source:
    """Return the file as the options say to read it.  Raises MalformedFile."""
    from prefix_cache.replay.encoding import load_encoding
    from prefix_cache.replay.formats import ReadOptions, Source

    assert options.file
    reading = ReadOptions(
        encoding=load_encoding(options.tokenizer),
        window=options.window,
        reencode=options.reencode,
        normalise=options.normalise,
        assume_turns=options.assume_turns,
    )
    return Source(options.file, reading, file_format=options.file_format, skip_bad=options.skip_bad)
