"""``prefix-cache match``: how much of a prompt a node has cached."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

import click

from prefix_cache.cli.common_options import json_object_option
from prefix_cache.cli.prompt_options import identity_options, prompt_options, read_prompt


@click.command(
    epilog="\b\nExamples:\n"
    '  prefix-cache match --node 127.0.0.1:50051 --model llama "You are a helpful assistant."\n'
    "  prefix-cache match --node 127.0.0.1:50051 --tokens 128000,882,271"
)
@click.option("--node", "address", required=True, metavar="ADDRESS", help="Node to ask.")
@prompt_options
@identity_options
@json_object_option
def match(
    address: str,
    text: str | None,
    file: IO[bytes] | None,
    tokens: str | None,
    messages: Path | None,
    tokenizer: Path | None,
    as_json: bool,
    **identity: str,
) -> None:
    """Say how much of a prompt a node has cached.  Changes nothing at the node.

    The prompt is TEXT, a file, token ids, a conversation, or what comes from stdin.
    """
    from prefix_cache import Identity
    from prefix_cache.client import NodeClient
    from prefix_cache.index.tokens import TOKEN_BYTES

    prompt = read_prompt(text, file, tokens, messages, tokenizer)
    with NodeClient(address) as node:
        found = node.match(Identity(**identity), prompt.tokens)
    num_tokens = len(prompt.tokens) // TOKEN_BYTES
    blocks = found.block_ids.tolist()
    if as_json:
        answer = {
            "prompt_tokens": num_tokens,
            "cached_tokens": found.num_cached_tokens,
            "host_tokens": found.num_host_tokens,
            "block_ids": blocks,
            "tokens_are": prompt.tokens_are,
        }
        click.echo(json.dumps(answer))
        return
    share = found.num_cached_tokens / num_tokens
    click.echo(f"{found.num_cached_tokens:,} of {num_tokens:,} tokens cached ({share:.1%})")
    if found.num_host_tokens:
        click.echo(f"on the host: {found.num_host_tokens:,} of them")
    click.echo(f"tokens: {prompt.tokens_are}")
    click.echo(f"blocks: {' '.join(map(str, blocks)) or 'none'}")
