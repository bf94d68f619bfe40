"""Chats to the text that a model makes tokens of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefix_cache.chat_template import ChatTemplate, PlainTemplate

_NO_OPTIONS: Mapping[str, Any] = {}


class ChatRenderer:
    """Renders chats by a model's own template, or by the plain one where it has none.

    ``needs_bos``: the text lacks what the model wants around a prompt, so it is to be encoded
    with ``bos=True``.  A template of the model's own writes that itself.
    """

    def __init__(self, own: ChatTemplate | None) -> None:
        self._template = own or PlainTemplate()
        self.needs_bos = own is None

    def render(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] | None = None,
        options: Mapping[str, Any] = _NO_OPTIONS,
    ) -> str:
        """Return the text of a chat, with the head of the answer to come.

        ``options`` are a request's ``chat_template_kwargs``.  Raises InvalidArgument for what
        the template refuses.
        """
        return self._template.render(messages, tools or (), options)
