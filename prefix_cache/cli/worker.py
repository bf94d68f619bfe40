"""``prefix-cache worker``: run the reference inference worker."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from prefix_cache.cli.common_options import given_names, json_lines_option
from prefix_cache.cli.option_types import BLOCK_SIZE, COUNT, FILE, NUM_BLOCKS, SecondsRange
from prefix_cache.cli.serving import announce, log_to_stderr, until_eof_option

_DTYPES = ("float32", "bfloat16", "float16")
_NODE_SAYS = ("num_blocks", "kv_memory", "block_size", "host_blocks")
_ENGINE = (
    "max_model_len",
    "max_batch_tokens",
    "max_sequences",
    "max_n",
    "preemption",
    "patience_s",
)


@click.command(
    short_help="Run an inference worker on a model, with its KV in blocks.",
    epilog="\b\nExamples:\n"
    "  prefix-cache worker --model ./SmolLM2-135M-Instruct --http 127.0.0.1:8001\n"
    "  prefix-cache worker --model SmolLM2.gguf --kv-memory 2GiB --dtype bfloat16\n"
    "  prefix-cache worker --model stories260K.bin --node unix:///run/pc.sock\n"
    "  prefix-cache worker --model ./llama --kv-dtype fp8_e4m3 --kv-scales layer --calibrate a.txt",
)
@click.option(
    "--model",
    required=True,
    type=click.Path(exists=True, path_type=Path),
    help="A Hugging Face directory, a .gguf file, or a .bin file of llama2.c.",
)
@click.option(
    "--http",
    "listen",
    default="127.0.0.1:8001",
    metavar="HOST:PORT",
    help="Serve here (port 0: a free one).",
)
@click.option(
    "--name", metavar="NAME", show_default="as the files say", help="The model's name for clients."
)
@click.option(
    "--node",
    default="",
    show_default="an index in this process",
    metavar="ADDRESS",
    help="The cache node that keeps account of the KV memory: HOST:PORT or unix:///PATH.  It "
    "says how many blocks there are.",
)
@click.option(
    "--num-blocks", type=NUM_BLOCKS, show_default="as --kv-memory", help="Blocks of KV memory."
)
@click.option(
    "--kv-memory", default="1GiB", metavar="SIZE", help="KV memory, such as 2GiB or 500MB."
)
@click.option("--block-size", type=BLOCK_SIZE, default=16, help="Tokens per block.")
@click.option(
    "--host-blocks",
    type=click.IntRange(0, NUM_BLOCKS.max),
    default=0,
    help="Slots of a block each on the host, where evicted blocks move to.",
)
@click.option("--device", default="cpu", help="Where to compute, such as cpu or cuda.")
@click.option("--dtype", type=click.Choice(_DTYPES), default="float32", help="To compute in.")
@click.option(
    "--kv-dtype",
    type=click.Choice((*_DTYPES, "fp8_e4m3", "fp8_e5m2")),
    show_default="as --dtype",
    help="To store KV in.",
)
@click.option(
    "--kv-scales",
    type=click.Choice(["block", "head", "layer"]),
    default="block",
    help="What a scale of FP8 KV is of; those per head and layer are calibrated.",
)
@click.option(
    "--calibrate", "calibration", type=FILE, help="UTF-8 text to calibrate FP8 scales on."
)
@click.option(
    "--max-model-len",
    type=COUNT,
    show_default="as trained",
    help="Tokens of prompt and answer together.",
)
@click.option("--max-batch-tokens", type=COUNT, default=512, help="Tokens computed in a step.")
@click.option("--max-sequences", type=COUNT, default=64, help="Sequences computed in a step.")
@click.option("--max-n", type=COUNT, default=16, help="Answers, or beams, of a request.")
@click.option(
    "--preemption",
    type=click.Choice(["auto", "recompute", "swap"]),
    default="auto",
    help="How KV comes back to what was preempted: by what was cheaper so far, by computing it "
    "again, or from the host.",
)
@click.option(
    "--patience",
    "patience_s",
    type=SecondsRange(min=0),
    default=30.0,
    help="Seconds that requests wait for a node that is away.",
)
@click.option("--threads", type=COUNT, show_default="one per core", help="Threads to compute with.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    show_default="by chance",
    help="For sampling, where a request has none.",
)
@click.option(
    "--drain-grace",
    "drain_grace_s",
    type=SecondsRange(min=0),
    default=30.0,
    help="Seconds that answers get to end in.",
)
@until_eof_option
@json_lines_option
@click.pass_context
def worker(
    context: click.Context,
    /,
    as_json: bool,
    until_eof: bool,
    kv_memory: str,
    **options: Any,
) -> None:
    """Run a small Llama on real weights that keeps its KV in blocks and reuses them.

    Serves /v1/chat/completions, /v1/completions and /v1/models as OpenAI does, /health and
    /metrics.  SIGTERM or Ctrl-C drains it.
    """
    given = given_names(context)
    if options["node"] and given.intersection(_NODE_SAYS):
        raise click.UsageError("with --node, the node says which blocks there are")
    if {"num_blocks", "kv_memory"} <= given:
        raise click.UsageError("give one of --num-blocks and --kv-memory")

    from prefix_cache.sizing import parse_bytes
    from prefix_cache.worker.config import WorkerConfig
    from prefix_cache.worker.engine_config import EngineConfig
    from prefix_cache.worker.serving import run_worker

    engine = EngineConfig(**{name: options.pop(name) for name in _ENGINE})
    config = WorkerConfig(engine=engine, kv_memory=parse_bytes(kv_memory), **options)
    log_to_stderr()
    on_ready = announce(as_json, until_eof)
    stats = run_worker(config, lambda url: on_ready([url]))
    if as_json:
        click.echo(json.dumps({"event": "stopped", "stats": asdict(stats)}))
    else:
        click.echo(
            f"stopped: {stats.cached_tokens:,} of {stats.prompt_tokens:,} prompt tokens were "
            f"cached, {stats.generated_tokens:,} tokens were generated"
        )
