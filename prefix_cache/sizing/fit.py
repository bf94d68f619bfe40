"""How much KV fits into memory: bytes to blocks to tokens to conversations, by one rule.

A conversation of the stated context takes its fixed bytes and whole blocks.  As many as fit are
taken; what memory is then left begins one more, and the blocks of all are the tokens that fit.
Where nothing is fixed, that is ``floor(bytes / block_bytes) * block_size`` tokens.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, replace

from prefix_cache.errors import InvalidArgument
from prefix_cache.sizing.byte_sizes import show_bytes
from prefix_cache.sizing.setup import Setup
from prefix_cache.sizing.stages import Stage, stages

_NO_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class Fit:
    """What fits beside one amount of overhead.

    ``kv_bytes`` and ``blocks`` are those of one GPU of the stage that decides; ``tokens`` and
    ``conversations`` those of all data-parallel replicas together.  ``by_division``: the blocks
    by those of a conversation, not rounded down.  ``max_context``: the longest request that fits
    alone, up to the stated context or the model's longest.
    """

    stage: Stage
    kv_bytes: int
    blocks: int
    tokens: int
    conversations: int
    by_division: float
    max_context: int


@dataclass(frozen=True, slots=True)
class Sizing:
    """The answer: ``stage`` is the one that decides.

    ``low`` is what surely fits, ``high`` what fits at best, where another stage may decide; None
    where no memory was told.
    """

    setup: Setup
    stages: list[Stage]
    stage: Stage
    low: Fit | None
    high: Fit | None


def size(setup: Setup) -> Sizing:
    """Size a setup.

    Raises InvalidArgument where weights and overhead leave no memory for KV even at best.
    """
    all_stages = stages(setup)
    holding = [stage for stage in all_stages if stage.sequence_bytes(setup.context)]
    if setup.memory_bytes is None:
        largest = max(holding, key=lambda stage: stage.sequence_bytes(setup.context))
        return Sizing(setup, all_stages, largest, None, None)
    least, most = setup.overhead
    fullest = min(all_stages, key=lambda stage: _room(stage, least))
    if _room(fullest, least) <= 0:
        raise InvalidArgument(
            f"the weights do not fit: {show_bytes(fullest.weights_bytes)} of them and at least "
            f"{show_bytes(least)} of overhead on each GPU leave nothing of {setup.utilization:g} x "
            f"{show_bytes(setup.memory_bytes)}",
            weights_bytes=fullest.weights_bytes,
            memory_bytes=setup.memory_bytes,
        )
    low, high = _fit_of_all(holding, most), _fit_of_all(holding, least)
    return Sizing(setup, all_stages, low.stage, low, high)


def _fit_of_all(holding: list[Stage], overhead: int) -> Fit:
    """Return what fits into every stage: that of the one with the least room."""
    fits = [fit(stage, max(_room(stage, overhead), 0)) for stage in holding]
    tightest = min(fits, key=lambda found: found.by_division)
    return replace(tightest, max_context=min(found.max_context for found in fits))


def fit(stage: Stage, kv_bytes: int) -> Fit:
    """Return what fits into ``kv_bytes`` of one GPU."""
    setup = stage.setup
    context, block_bytes = setup.context, stage.block_bytes(setup.context)
    fixed = stage.fixed_bytes(context)
    shared = setup.shared_prefix // setup.block_size
    if shared * block_bytes > kv_bytes:
        shared = 0
    own = stage.num_blocks(context) - shared
    each = fixed + own * block_bytes
    room = kv_bytes - shared * block_bytes
    conversations, left = divmod(room, each)
    begun = max(left - fixed, 0) // block_bytes if block_bytes else 0
    used = fixed + begun * block_bytes if begun else 0
    blocks = shared + conversations * own + begun
    limit = max(setup.shape.max_context or _NO_LIMIT, context)
    return Fit(
        stage=stage,
        kv_bytes=kv_bytes,
        blocks=blocks,
        tokens=setup.dp * blocks * setup.block_size,
        conversations=setup.dp * conversations,
        by_division=setup.dp * (conversations + used / each),
        max_context=bisect.bisect_right(range(1, limit + 1), kv_bytes, key=stage.sequence_bytes),
    )


def _room(stage: Stage, overhead: int) -> int:
    setup = stage.setup
    assert setup.memory_bytes is not None
    return int(setup.memory_bytes * setup.utilization) - stage.weights_bytes - overhead
