"""``prefix-cache explain``: why each range of a prompt hits or misses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

import click

from prefix_cache.cli.common_options import json_object_option
from prefix_cache.cli.prompt_options import identity_options, prompt_options, read_prompt


@click.command(
    epilog="\b\nExamples:\n"
    '  prefix-cache explain --node 127.0.0.1:50051 "It is 10:15. You are a helpful assistant."\n'
    "  prefix-cache explain --node 127.0.0.1:50051 --messages chat.jsonl --tokenizer tokenizer.json"
)
@click.option("--node", "address", required=True, metavar="ADDRESS", help="Node to ask.")
@prompt_options
@identity_options
@click.option(
    "--across-salts", is_flag=True, help="Look under other salts too, if the node allows it."
)
@json_object_option
def explain(
    address: str,
    text: str | None,
    file: IO[bytes] | None,
    tokens: str | None,
    messages: Path | None,
    tokenizer: Path | None,
    across_salts: bool,
    as_json: bool,
    **identity: str,
) -> None:
    """Say for every range of a prompt why it hits or misses.  Changes nothing at the node.

    Where the prompt leaves what is cached, the token that differs is named, with the text around
    it and the message it is in.  The prompt is TEXT, a file, token ids, a conversation, or what
    comes from stdin.
    """
    from prefix_cache import Identity
    from prefix_cache.cli.explain_report import as_json_object, print_report
    from prefix_cache.client import NodeClient

    prompt = read_prompt(text, file, tokens, messages, tokenizer)
    with NodeClient(address) as node:
        explanation = node.explain(Identity(**identity), prompt.tokens, across_salts=across_salts)
    if as_json:
        click.echo(json.dumps(as_json_object(explanation, prompt), ensure_ascii=False))
    else:
        print_report(explanation, prompt)
