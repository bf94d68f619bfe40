"""``prefix-cache kv-error``: what FP8 and 16-bit KV cost in accuracy."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefix_cache.cli.common_options import json_object_option
from prefix_cache.cli.option_types import FILE

if TYPE_CHECKING:
    from prefix_cache.kv.measured_error import MeasuredError
    from prefix_cache.kv.model_error import ModelError

_SHORTEST = 128


@click.command(
    "kv-error",
    short_help="Measure what KV in fewer bits costs.",
    epilog="\b\nExamples:\n"
    "  prefix-cache kv-error\n"
    "  prefix-cache kv-error --context 32768 --json\n"
    "  prefix-cache kv-error --model ./SmolLM2-135M --text book.txt --context 2048",
)
@click.option(
    "--context",
    type=click.IntRange(_SHORTEST, 1_048_576),
    default=8192,
    help="Longest context, in tokens; measured are 128, twice that, and so on up to it.",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Of the synthetic KV.")
@click.option(
    "--model",
    type=click.Path(exists=True, path_type=Path),
    help="Measure the logits of this model instead, on --text.",
)
@click.option(
    "--text",
    type=FILE,
    help="UTF-8 text for --model to read; as many contexts are measured as it has tokens for.",
)
@json_object_option
def kv_error(context: int, seed: int, model: Path | None, text: Path | None, as_json: bool) -> None:
    """Compare ways of storing KV, against context length.

    Without --model, keys and values are synthetic: normal, and a few channels of the keys ten
    times as large, as in real models.  Errors are relative (norm of the difference / norm of the
    exact): of what is stored, and of the attention of the last 64 tokens.  With --model, of the
    logits of the last 64 tokens, and the share of them whose most likely next token is the same.
    """
    from prefix_cache.cli.kv_error_report import as_object, print_errors
    from prefix_cache.kv.measured_error import measured_errors

    if (model is None) != (text is None):
        raise click.UsageError("--model and --text go together")
    errors: Iterable[MeasuredError | ModelError] = (
        measured_errors(_contexts(context), seed=seed)
        if model is None or text is None
        else _model_errors(model, text, context)
    )
    if as_json:
        click.echo(json.dumps({"measured": [as_object(error) for error in errors]}))
    else:
        print_errors(errors)


def _contexts(longest: int) -> list[int]:
    """128, twice that, and so on; the longest closes the list."""
    contexts = [_SHORTEST]
    while contexts[-1] * 2 <= longest:
        contexts.append(contexts[-1] * 2)
    return contexts if contexts[-1] == longest else [*contexts, longest]


def _model_errors(model: Path, text: Path, context: int) -> Iterable[ModelError]:
    from prefix_cache.kv.model_error import model_errors
    from prefix_cache.worker.loading import load_model

    try:
        prompt = text.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{text} is not UTF-8: {error}") from None
    loaded = load_model(model)
    token_ids = loaded.tokenizer.encode(prompt, bos=True)
    longest = min(context, len(token_ids), loaded.model.config.max_position)
    if longest < _SHORTEST:
        raise click.UsageError(f"the text has {longest} tokens; at least {_SHORTEST} are needed")
    return model_errors(loaded.model, token_ids, _contexts(longest))
