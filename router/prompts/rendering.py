"""The engine's own tokens of a request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from prefix_cache.chat_template import (
    ChatTemplate,
    JinjaTemplate,
    PlainTemplate,
    read_tokenizer_config,
    special_tokens,
)
from prefix_cache.index.tokens import TOKEN_BYTES
from router.prompts.bodies import Body, Place
from router.prompts.tokenizer import ByteTokenizer, FileTokenizer, Tokenizer


class Rendering:
    """What an engine makes of requests: with ``template`` text of chats, tokens of any text."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None) -> None:
        self._tokenizer = tokenizer
        self._template = template

    @property
    def has_template(self) -> bool:
        """Whether it makes tokens of chats, too."""
        return self._template is not None

    def tokens(self, body: Body) -> bytes:
        """Return the tokens of the prompt, uint32 little-endian; empty for a form that has none.

        Raises InvalidArgument or msgspec.DecodeError for what cannot be rendered.
        """
        if ids := body.tokens():
            return ids
        if prompt := body.bare():
            return self._tokenizer.prompt(prompt)
        chat = body.chat() if self._template is not None else None
        return b"" if chat is None else self._chat(*chat, body)

    def place(self, body: Body, token: int) -> Place | None:
        """The message that a token of a chat is in, tools being part of the first one.

        None for what is no chat.  Raises what `tokens` does, also for a chat without its last
        messages.
        """
        chat = body.chat()
        if chat is None:
            return None
        messages, tools = chat
        end = (token + 1) * TOKEN_BYTES
        beginning = self._chat(messages, tools, body)[:end]

        def reach(count: int) -> bool:
            return self._chat(messages[:count], tools, body)[:end] == beginning

        index = bisect_left(range(1, len(messages)), True, key=reach)
        return Place(index, messages[index]["role"])

    def _chat(self, messages: Sequence[Any], tools: Sequence[Any], body: Body) -> bytes:
        if self._template is None:
            return b""
        options = _options.decode(body.chat_template_kwargs or b"{}")
        return self._tokenizer.chat(self._template.render(messages, tools, options or {}))


@cache  # a vocabulary takes seconds to load and much memory
def load_rendering(tokenizer: str, chat_template: str) -> Rendering | None:
    """Return what a pool of this configuration makes of requests; None without a tokenizer.

    Raises InvalidArgument for a file that is none of its kind, and MissingExtra.
    """
    if not tokenizer:
        return None
    return Rendering(
        ByteTokenizer() if tokenizer == "bytes" else FileTokenizer(tokenizer),
        _template(chat_template, tokenizer) if chat_template else None,
    )


def _template(chat_template: str, tokenizer: str) -> ChatTemplate:
    if chat_template == "plain":
        return PlainTemplate()
    config = read_tokenizer_config(Path(tokenizer).with_name("tokenizer_config.json"))
    return JinjaTemplate.of_file(Path(chat_template), special_tokens(config))


_options = msgspec.json.Decoder(dict[str, Any] | None)
