"""Plays a file against a cache in this process, or against what runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from prefix_cache.cli.replay.interrupt import Interrupt
from prefix_cache.cli.replay.options import ReplayOptions
from prefix_cache.cli.replay.progress import counted_tokens
from prefix_cache.errors import DeadlineExceeded, Unavailable
from prefix_cache.replay.formats import (
    TOKENS,
    Grain,
    Request,
    Source,
    checked_block_size,
    in_tokens,
)
from prefix_cache.replay.measure.pace import paced
from prefix_cache.replay.measure.replay import Replay
from prefix_cache.replay.measure.report import Report
from prefix_cache.replay.measure.running import RunningNode, RunningRouter
from prefix_cache.replay.measure.targets import LocalCache, Target, UnlimitedCache
from prefix_cache.replay.measure.value import Value
from prefix_cache.sizing import gpu, shape_of


def measured(source: Source, options: ReplayOptions) -> Report:
    """Play the file until its end, until Ctrl-C, or until what it is played against is gone."""
    value = None
    if options.model:
        value = Value(shape_of(options.model), gpu(options.gpu) if options.gpu else None)
    with Interrupt() as interrupt, _stage(source, options, interrupt.wait) as stage:
        replay = Replay(
            stage.target, stage.grain, compares=source.has_tokens, text_of=source.text_of
        )
        ended_by: BaseException | None = None
        try:
            with counted_tokens() as count:
                for request in stage.requests:
                    cached_tokens = replay.play(request)
                    if value and cached_tokens is not None:
                        value.add(request.prompt_tokens, cached_tokens)
                    count(request.prompt_tokens)
                    interrupt.check()
        except (KeyboardInterrupt, Unavailable, DeadlineExceeded) as error:
            ended_by = error
        return Report(source, replay, stage.num_blocks, value, ended_by)


class _Stage(NamedTuple):
    """What is played, and against what."""

    target: Target
    requests: Iterable[Request]
    grain: Grain
    num_blocks: int | None


@contextmanager
def _stage(
    source: Source, options: ReplayOptions, wait: Callable[[float], None]
) -> Iterator[_Stage]:
    if options.is_running:
        requests = (in_tokens(request, source.grain) for request in source)
        running = (
            RunningNode(options.node, options.salt)
            if options.node
            else RunningRouter(str(options.router), options.salt)
        )
        with running as target:
            yield _Stage(target, paced(requests, options.speed, wait), TOKENS, target.num_blocks)
        return
    grain = source.grain
    block_words = grain.words_in(checked_block_size(options.block_size, grain))
    num_blocks = options.blocks_together
    cache = LocalCache(num_blocks, block_words) if num_blocks else UnlimitedCache(block_words)
    yield _Stage(cache, source, grain, num_blocks)
