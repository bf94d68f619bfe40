"""``prefix-cache size``: how large KV is, and how many conversations fit."""

from __future__ import annotations

import json
from pathlib import Path

import click

from prefix_cache.cli.common_options import html_option, json_object_option
from prefix_cache.cli.option_types import BLOCK_SIZE

_TOKENS = click.IntRange(1, 2**31)
_GPUS = click.IntRange(1, 65_536)


@click.command(
    short_help="Say how large KV is, and how many conversations fit.",
    epilog="\b\nExamples:\n"
    "  prefix-cache size llama-3.1-8b\n"
    "  prefix-cache size llama-3.1-8b --gpu rtx4090 --context 8192 --explain\n"
    "  prefix-cache size ./config.json --gpu 80GiB --gpus 4 --kv-dtype fp8 --html size.html",
)
@click.argument("model")
@click.option("--gpu", "memory", metavar="SIZE|CARD", help="Memory of one GPU: 24GiB, h100, ...")
@click.option("--gpus", type=_GPUS, help="GPUs in all.  [default: tp x pp x dp]")
@click.option("--tp", type=_GPUS, help="Tensor parallel.  [default: what --gpus leaves]")
@click.option("--pp", type=_GPUS, default=1, help="Pipeline parallel.")
@click.option("--dp", type=_GPUS, default=1, help="Data parallel: replicas of the model.")
@click.option(
    "--context", type=_TOKENS, help="Tokens of a conversation.  [default: the model's longest]"
)
@click.option("--dtype", help="Of the weights: bfloat16, fp8, int4, ...  [default: as published]")
@click.option("--kv-dtype", help="Of KV: bfloat16, fp8, ...  [default: as the model computes]")
@click.option(
    "--kv-scales",
    type=click.Choice(["layer", "head", "block"]),
    help="What shares a scale of FP8 KV.  [default with FP8: layer]",
)
@click.option("--utilization", type=float, default=0.9, help="Share of memory that is used.")
@click.option(
    "--overhead",
    default="1GiB..2GiB",
    metavar="SIZE[..SIZE]",
    help="What activations, graphs and libraries take of each GPU.",
)
@click.option(
    "--shared-prefix",
    type=click.IntRange(0, 2**31),
    default=0,
    help="Tokens that all conversations begin with.",
)
@click.option("--block-size", type=BLOCK_SIZE, default=16, help="Tokens of a block.")
@click.option("--explain", is_flag=True, help="Show each line of the calculation.")
@json_object_option
@html_option
def size(
    model: str,
    memory: str | None,
    gpus: int | None,
    tp: int | None,
    pp: int,
    dp: int,
    context: int | None,
    dtype: str | None,
    kv_dtype: str | None,
    kv_scales: str | None,
    utilization: float,
    overhead: str,
    shared_prefix: int,
    block_size: int,
    explain: bool,
    as_json: bool,
    html: Path | None,
) -> None:
    """Say how large KV is for MODEL, and how many conversations fit into memory.

    MODEL is the path of a Hugging Face config.json, or a name such as llama-3.1-8b.  Without
    --gpu, only KV is sized.  What cannot be known beforehand is a range, and so is the answer.
    """
    from prefix_cache.cli.size.report import print_sizing, sizing_as_json
    from prefix_cache.sizing import Setup, gpu_memory, shape_of
    from prefix_cache.sizing import size as size_setup

    shape = shape_of(model)
    context = context or shape.max_context
    if context is None:
        raise click.UsageError(f"{model} does not say its longest context; give --context")
    kv_dtype = kv_dtype or shape.kv_dtype
    sizing = size_setup(
        Setup(
            shape=shape,
            context=context,
            dtype=dtype or shape.dtype,
            kv_dtype=kv_dtype,
            kv_scales=kv_scales or ("layer" if kv_dtype.startswith("fp8") else None),
            memory_bytes=None if memory is None else gpu_memory(memory),
            utilization=utilization,
            overhead=_range_of_sizes(overhead),
            tp=_tensor_parallel(gpus, tp, pp, dp),
            pp=pp,
            dp=dp,
            block_size=block_size,
            shared_prefix=shared_prefix,
        )
    )
    if html is not None:
        from prefix_cache.cli.size.page import sizing_page

        sizing_page(sizing).write(html)
    if as_json:
        click.echo(json.dumps(sizing_as_json(sizing)))
    else:
        print_sizing(sizing, explain=explain)


def _range_of_sizes(text: str) -> tuple[int, int]:
    from prefix_cache.sizing import parse_bytes

    low, dots, high = text.partition("..")
    return parse_bytes(low), parse_bytes(high if dots else low)


def _tensor_parallel(gpus: int | None, tp: int | None, pp: int, dp: int) -> int:
    if tp is None:
        tp = max((gpus or 1) // (pp * dp), 1)
    if gpus is not None and tp * pp * dp != gpus:
        raise click.UsageError(f"tp {tp} x pp {pp} x dp {dp} are {tp * pp * dp} GPUs, not {gpus}")
    return tp
