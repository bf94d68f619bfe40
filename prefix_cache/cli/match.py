"""``prefix-cache match``: how much of a prompt a node has cached."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import IO

import click


@click.command(
    epilog="\b\nExamples:\n"
    '  prefix-cache match --node 127.0.0.1:50051 --model llama "You are a helpful assistant."\n'
    "  prefix-cache match --node 127.0.0.1:50051 --tokens 128000,882,271"
)
@click.argument("text", required=False)
@click.option("--node", "address", required=True, metavar="ADDRESS", help="Node to ask.")
@click.option("--file", type=click.File("rb"), help="Read the prompt from a file; - is stdin.")
@click.option("--tokens", metavar="ID,ID,...", help="The prompt as token ids.")
@click.option(
    "--tokenizer",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A tokenizer.json for the text.  [default: its UTF-8 bytes are the tokens]",
)
@click.option("--model", default="", show_default=False, help="Model of the identity.")
@click.option("--revision", default="", show_default=False, help="Revision of the model.")
@click.option("--adapter", default="", show_default=False, help="Adapter (LoRA).")
@click.option("--adapter-revision", default="", show_default=False, help="Revision of the adapter.")
@click.option("--kv-dtype", default="bfloat16", help="KV dtype.")
@click.option("--salt", default="", show_default=False, help="Cache salt.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def match(
    text: str | None,
    address: str,
    file: IO[bytes] | None,
    tokens: str | None,
    tokenizer: Path | None,
    as_json: bool,
    **identity: str,
) -> None:
    """Say how much of a prompt a node has cached.  Changes nothing at the node.

    The prompt is TEXT, a file, token ids, or what comes from stdin.
    """
    from prefix_cache import Identity
    from prefix_cache.client import NodeClient
    from prefix_cache.index.tokens import TOKEN_BYTES, as_token_bytes
    from prefix_cache.replay.encoding import load_encoding

    if sum(value is not None for value in (text, file, tokens)) > 1:
        raise click.UsageError("give one of TEXT, --file and --tokens")
    if tokens is not None:
        if tokenizer:
            raise click.UsageError("--tokenizer goes with text, not with --tokens")
        prompt, tokens_are = as_token_bytes(_token_ids(tokens)), "ids"
    else:
        raw = os.fsencode(text) if text is not None else (file or sys.stdin.buffer).read()
        encoding = load_encoding(tokenizer)
        prompt, tokens_are = encoding.encode(_text(raw)), encoding.tokens_are
    with NodeClient(address) as node:
        found = node.match(Identity(**identity), prompt)
    num_tokens = len(prompt) // TOKEN_BYTES
    blocks = found.block_ids.tolist()
    if as_json:
        answer = {
            "prompt_tokens": num_tokens,
            "cached_tokens": found.num_cached_tokens,
            "block_ids": blocks,
            "tokens_are": tokens_are,
        }
        click.echo(json.dumps(answer))
        return
    share = found.num_cached_tokens / num_tokens
    click.echo(f"{found.num_cached_tokens:,} of {num_tokens:,} tokens cached ({share:.1%})")
    click.echo(f"tokens: {tokens_are}")
    click.echo(f"blocks: {' '.join(map(str, blocks)) or 'none'}")


def _token_ids(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no list of integers such as 1,2,3", param_hint="--tokens"
        ) from None


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the prompt is no UTF-8 (byte {error.start})") from None
