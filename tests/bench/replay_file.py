"""How fast a file is replayed: ``python -m tests.bench.replay_file FILE``."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import click

from prefix_cache.cli.option_types import FILE
from prefix_cache.replay.formats import TOKENS, ReadOptions, Source, checked_block_size
from prefix_cache.replay.measure.replay import Replay
from prefix_cache.replay.measure.targets import UnlimitedCache
from tests.bench.replay import UNLIMITED, hashed_blocks


@click.command()
@click.argument("file", type=FILE)
@click.option("--rounds", type=click.IntRange(1), default=7, help="Samples taken.")
def main(file: Path, rounds: int) -> None:
    """Read and replay FILE; show prompt tokens a second, by the median sample.

    Beside it, where the file has tokens: a dictionary of hashed blocks, which only has the hit
    rate of one cache.
    """
    source = Source(file, ReadOptions(assume_turns=5))
    block_words = source.grain.words_in(checked_block_size(None, source.grain))

    def ours() -> int:
        replay = Replay(
            UnlimitedCache(block_words),
            source.grain,
            compares=source.has_tokens,
            text_of=source.text_of,
        )
        for request in source:
            replay.play(request)
        return replay.all.prompt_tokens

    def baseline() -> int:
        requests = list(source)
        hashed_blocks(requests, UNLIMITED)
        return sum(request.prompt_tokens for request in requests)

    sides: dict[str, Callable[[], int]] = {"ours": ours}
    if source.grain == TOKENS:
        sides["hashed blocks"] = baseline
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    tokens = 0
    for _ in range(rounds):
        for name, side in sides.items():
            began = time.perf_counter()
            tokens = side()
            seconds[name].append(time.perf_counter() - began)
    for name, samples in seconds.items():
        median = statistics.median(samples)
        click.echo(f"{name}: {tokens / median / 1e6:,.1f} M tokens/s, {median:.2f} s")


if __name__ == "__main__":
    main()
