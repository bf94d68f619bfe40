"""The options by which commands take a prompt and an identity, and how they are read."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from prefix_cache.cli.common_options import Command, with_options
from prefix_cache.cli.option_types import FILE

if TYPE_CHECKING:
    from prefix_cache.replay.encoding import Encoding
    from prefix_cache.replay.last_prompt import LastPrompt

_PROMPT = (
    click.argument("text", required=False),
    click.option("--file", type=click.File("rb"), help="Read the prompt from a file; - is stdin."),
    click.option("--tokens", metavar="ID,ID,...", help="The prompt as token ids."),
    click.option(
        "--messages",
        type=FILE,
        help="One conversation as .jsonl, with messages; the prompt is that of its last turn.",
    ),
    click.option(
        "--tokenizer",
        type=FILE,
        help="A tokenizer.json for the text.  [default: its UTF-8 bytes are the tokens]",
    ),
)
_IDENTITY = (
    click.option("--model", default="", show_default=False, help="Model of the identity."),
    click.option("--revision", default="", show_default=False, help="Revision of the model."),
    click.option("--adapter", default="", show_default=False, help="Adapter (LoRA)."),
    click.option(
        "--adapter-revision", default="", show_default=False, help="Revision of the adapter."
    ),
    click.option("--kv-dtype", default="bfloat16", help="KV dtype."),
    click.option("--salt", default="", show_default=False, help="Cache salt."),
)


@dataclass(frozen=True)
class Prompt:
    """Token ids, uint32 little-endian; what made them of text, and of messages, if any did."""

    tokens: bytes
    encoding: Encoding | None = None
    messages: LastPrompt | None = None

    @property
    def tokens_are(self) -> str:
        """What the ids are, for people."""
        return self.encoding.tokens_are if self.encoding else "ids"


def prompt_options(command: Command) -> Command:
    """Add TEXT, ``--file``, ``--tokens``, ``--messages`` and ``--tokenizer``."""
    return with_options(command, _PROMPT)


def identity_options(command: Command) -> Command:
    """Add one option for each field of an ``Identity``, named like it."""
    return with_options(command, _IDENTITY)


def read_prompt(
    text: str | None,
    file: IO[bytes] | None,
    tokens: str | None,
    messages: Path | None,
    tokenizer: Path | None,
) -> Prompt:
    """Return the prompt that the options name; without any it comes from stdin."""
    from prefix_cache.index.tokens import as_token_bytes
    from prefix_cache.replay.encoding import load_encoding

    if sum(value is not None for value in (text, file, tokens, messages)) > 1:
        raise click.UsageError("give one of TEXT, --file, --tokens and --messages")
    if tokens is not None:
        if tokenizer:
            raise click.UsageError("--tokenizer goes with text, not with --tokens")
        return Prompt(as_token_bytes(_token_ids(tokens)))
    encoding = load_encoding(tokenizer)
    if messages is not None:
        return _last_prompt(messages, encoding)
    raw = os.fsencode(text) if text is not None else (file or sys.stdin.buffer).read()
    return Prompt(encoding.encode(_text(raw)), encoding)


def _last_prompt(path: Path, encoding: Encoding) -> Prompt:
    from prefix_cache.replay.conversations import read_conversations
    from prefix_cache.replay.last_prompt import last_prompt

    conversations = list(read_conversations(path))
    if len(conversations) > 1:
        raise click.UsageError(f"{path} holds {len(conversations)} conversations, expected one")
    prompt = last_prompt(conversations[0], encoding)
    if prompt is None:
        raise click.UsageError(f"{path} has no turn, expected a user or assistant message")
    return Prompt(prompt.tokens, encoding, prompt)


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
