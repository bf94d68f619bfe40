"""The engine's own tokens of a request."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from router.prompts.bodies import Body
from router.prompts.chat_template import ChatTemplate, JinjaTemplate, PlainTemplate
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
        if chat is None or self._template is None:
            return b""
        options = _options.decode(body.chat_template_kwargs or b"{}")
        return self._tokenizer.chat(self._template.render(*chat, options or {}))


@cache  # a vocabulary takes seconds to load and much memory
def load_rendering(tokenizer: str, chat_template: str) -> Rendering | None:
    """Return what a pool of this configuration makes of requests; None without a tokenizer.

    Raises InvalidArgument for a file that is none of its kind, and MissingExtra.
    """
    if not tokenizer:
        return None
    template: ChatTemplate | None = None
    if chat_template:
        is_plain = chat_template == "plain"
        template = PlainTemplate() if is_plain else JinjaTemplate(chat_template, tokenizer)
    return Rendering(
        ByteTokenizer() if tokenizer == "bytes" else FileTokenizer(tokenizer), template
    )


_options = msgspec.json.Decoder(dict[str, Any] | None)
