"""Every line of a sizing's calculation, and every assumption behind it."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from prefix_cache.sizing.byte_sizes import show_bytes
from prefix_cache.sizing.dtypes import UNQUANTISED_BITS, kv_bytes, weight_bits
from prefix_cache.sizing.fit import Fit, Sizing
from prefix_cache.sizing.setup import Setup
from prefix_cache.sizing.stages import Stage


class Step(NamedTuple):
    """What is computed, from what, and the result."""

    what: str
    how: str
    result: str


def steps(sizing: Sizing) -> list[Step]:
    """Return the calculation line by line, in the order in which it is made."""
    setup, stage = sizing.setup, sizing.stage
    context = setup.context
    result = [] if setup.pp == 1 else [_stage_step(sizing)]
    result += [*_layer_steps(stage), *_sequence_steps(stage)]
    if sizing.low is None or sizing.high is None or setup.memory_bytes is None:
        return result
    low, high = sizing.low, sizing.high
    budget = setup.memory_bytes * setup.utilization
    least, most = map(show_bytes, setup.overhead)
    fixed, block = stage.fixed_bytes(context), stage.block_bytes(context)
    replicas = f" x {setup.dp} replicas" if setup.dp > 1 else ""
    result += [
        Step(
            "budget",
            f"{setup.utilization:g} x {show_bytes(setup.memory_bytes)} of one GPU",
            show_bytes(budget),
        ),
        Step("weights", _weights(sizing), show_bytes(stage.weights_bytes)),
        Step(
            "KV memory",
            "budget - weights - overhead of " + (most if least == most else f"{most} or {least}"),
            span(show_bytes(low.kv_bytes), show_bytes(high.kv_bytes)),
        ),
        Step(
            "blocks",
            f"KV memory / {show_bytes(block)}"
            if not fixed
            else f"whole conversations of {show_bytes(fixed)} + blocks, then one more begun",
            span(low.blocks, high.blocks),
        ),
        Step(
            "tokens",
            f"blocks x {setup.block_size}{replicas}",
            span(low.tokens, high.tokens),
        ),
        Step(
            f"conversations of {context:,}",
            _conversations(stage) + replicas,
            conversations(low, high),
        ),
        Step(
            "longest request",
            "whose blocks fit alone, no longer than the model's longest or the context",
            span(low.max_context, high.max_context),
        ),
    ]
    return result


def conversations(low: Fit, high: Fit) -> str:
    """Return how many conversations fit, whole ones and by division.

    Division is rounded down, too: 1.96 conversations are not 2.0.
    """
    divided = [f"{math.floor(10 * end.by_division) / 10:,.1f}" for end in (low, high)]
    return f"{span(low.conversations, high.conversations)} ({span(*divided)} by division)"


def span(low: float | str, high: float | str, form: str = ",") -> str:
    """Return a range for people, one number where both ends read the same."""
    first, last = (end if isinstance(end, str) else format(end, form) for end in (low, high))
    return first if first == last else f"{first} to {last}"


def assumptions(sizing: Sizing) -> list[str]:
    """Return what the answer takes for granted."""
    setup = sizing.setup
    shape = setup.shape
    told = [f"KV in {setup.kv_dtype}, weights in {setup.dtype}", *shape.notes]
    if setup.kv_scales:
        what = {"layer": "layer", "head": "layer and KV head", "block": "block, layer and KV head"}
        told.append(
            f"FP8 KV halves memory and needs scales, here one per {what[setup.kv_scales]}: without "
            "any, a scale of 1 clips what is beyond the format's largest value (448 in E4M3)"
        )
    if setup.dtype == "int4":
        told.append("4-bit weights in groups of 128 with a scale and a zero point each")
    if weight_bits(setup.dtype) < UNQUANTISED_BITS:
        told.append("embeddings and output head stay at 16 bits")
    if any(layer.window for layer in shape.layers):
        told.append("layers with a window keep no more than the blocks that it touches")
    if setup.num_gpus > 1:
        told.append("all sizes in bytes are those of one GPU")
    if setup.tp > 1:
        told += _tensor_parallel(setup)
    if setup.dp > 1:
        told.append("a conversation lives on one data-parallel replica")
    if setup.pp > 1:
        told.append("layers split evenly over stages, those left over before the last")
        if sizing.high and sizing.high.stage != sizing.stage:
            told.append(
                f"at best another stage decides, {_layers(sizing.high.stage)}; the calculation is "
                f"that of {_layers(sizing.stage)}"
            )
    if setup.shared_prefix:
        told.append("whole blocks of the shared prefix are kept once, but in windows and states")
    if shape.max_context and setup.context > shape.max_context:
        told.append(f"the context is above the {shape.max_context:,} tokens of the model's config")
    if setup.memory_bytes is not None:
        told.append(_overhead(setup))
    return told


def _stage_step(sizing: Sizing) -> Step:
    sizes = ", ".join(str(len(stage.layers)) for stage in sizing.stages)
    return Step(
        "stage that decides",
        f"{sizes} layers: the one with the least room for conversations",
        _layers(sizing.stage),
    )


def _layers(stage: Stage) -> str:
    return f"layers {stage.first_layer} to {stage.first_layer + len(stage.layers) - 1}"


def _layer_steps(stage: Stage) -> list[Step]:
    """A line for each kind of layer."""
    setup = stage.setup
    element = kv_bytes(setup.kv_dtype)
    result = []
    alike = Counter((layer.kv_heads, layer.kv_width, layer.window) for layer in stage.layers)
    for (heads, width, window), count in alike.items():
        if heads == 0:
            continue
        on_gpu = -(-heads // setup.tp)
        split = f" of {heads}" if setup.tp > 1 else ""
        result.append(
            Step(
                f"KV per token, window {window:,}" if window else "KV per token",
                f"{_count(count, 'layer')} x {_count(on_gpu, 'KV head')}{split} x {width} elements "
                f"x {_count(element, 'byte')}",
                show_bytes(count * on_gpu * width * element),
            )
        )
    return result


def _sequence_steps(stage: Stage) -> list[Step]:
    setup = stage.setup
    context = setup.context
    fixed, block = stage.fixed_bytes(context), stage.block_bytes(context)
    token = stage.bytes_per_token(context)
    scales = block - token * setup.block_size
    result = [
        Step(
            "block",
            f"{setup.block_size} tokens x {show_bytes(token)}"
            + (f" + {show_bytes(scales)} of scales" if scales else ""),
            show_bytes(block),
        )
    ]
    result += _fixed_steps(stage)
    result.append(
        Step(
            f"one request of {context:,}",
            f"{stage.num_blocks(context):,} blocks x {show_bytes(block)}"
            + (f" + {show_bytes(fixed)}" if fixed else ""),
            show_bytes(stage.sequence_bytes(context)),
        )
    )
    return result


def _fixed_steps(stage: Stage) -> list[Step]:
    """A line for each kind of layer with a full window or a constant state."""
    tp, context = stage.setup.tp, stage.setup.context
    full = Counter(
        (stage.window_blocks(layer), stage.layer_block_bytes(layer))
        for layer in stage.layers
        if stage.is_full(layer, context) and layer.kv_heads
    )
    states = Counter(-(-layer.state_bytes // tp) for layer in stage.layers if layer.state_bytes)
    return [
        Step(
            "full windows",
            f"{_count(count, 'layer')} x {blocks:,} blocks x {show_bytes(block)}",
            show_bytes(count * blocks * block),
        )
        for (blocks, block), count in full.items()
    ] + [
        Step(
            "constant states",
            f"{_count(count, 'layer')} x {show_bytes(state)}",
            show_bytes(count * state),
        )
        for state, count in states.items()
    ]


def _weights(sizing: Sizing) -> str:
    setup = sizing.setup
    if setup.pp == 1:
        what = f"{setup.shape.num_parameters / 1e9:,.2f} B parameters in {setup.dtype}"
    else:
        what = f"those of the stage in {setup.dtype}"
    return f"{what} / {setup.tp} GPUs" if setup.tp > 1 else what


def _conversations(stage: Stage) -> str:
    setup = stage.setup
    shared = setup.shared_prefix // setup.block_size
    if not shared:
        return f"KV memory / {show_bytes(stage.sequence_bytes(setup.context))}"
    kept = shared * stage.block_bytes(setup.context)
    own = stage.sequence_bytes(setup.context) - kept
    return f"(KV memory - {show_bytes(kept)} shared) / {show_bytes(own)}"


def _overhead(setup: Setup) -> str:
    least, most = map(show_bytes, setup.overhead)
    taken = "activations, graphs and libraries take"
    if least == most:
        return f"{taken} {least} of each GPU, as told"
    return (
        f"{taken} {least} to {most} of each GPU: that cannot be known beforehand, so the answer is "
        "a range"
    )


def _tensor_parallel(setup: Setup) -> list[str]:
    tp = setup.tp
    told = []
    for heads in sorted({layer.kv_heads for layer in setup.shape.layers} - {0}):
        over = f"{_count(heads, 'KV head')} over {tp} GPUs"
        if tp > heads and tp % heads == 0:
            told.append(
                f"{over}: each keeps a whole one, so {tp // heads} times as much KV is kept in all"
            )
        elif heads % tp:
            told.append(
                f"{over} do not divide: sized by a GPU that keeps {-(-heads // tp)}, where engines "
                "may refuse"
            )
    return told or ["KV heads and weights split evenly over the tensor-parallel GPUs"]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" + ("s" if number != 1 else "")
