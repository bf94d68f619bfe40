"""The tokens of the prompts that clients send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prefix_cache.errors import PromptTooLarge
from prefix_cache.worker.loading import LoadedModel

# The names of special tokens stand in a text, too, though they stand for no bytes.
_LONGEST_NAME = 32


class Prompts:
    """Makes tokens of texts and chats for a model that serves up to ``max_model_len`` tokens.

    Raises PromptTooLarge for a text that is longer than so many of the longest tokens: a body may
    hold one that takes minutes to tokenize.
    """

    def __init__(self, model: LoadedModel, max_model_len: int) -> None:
        self._tokenizer, self._chat = model.tokenizer, model.chat
        self._max_model_len = max_model_len
        pieces = (self._tokenizer.piece(token, None) for token in range(self._tokenizer.vocab_size))
        self._longest_token = max(_LONGEST_NAME, *map(len, pieces))

    def of_text(self, text: str, *, bos: bool = True) -> list[int]:
        """Return the tokens of a text; with ``bos`` those, too, that the model wants around it."""
        if len(text) > self._max_model_len * self._longest_token:
            longest = self._max_model_len - 1
            raise PromptTooLarge(
                f"the prompt has {len(text)} characters, at most {longest} tokens fit",
                num_characters=len(text),
                limit=longest,
            )
        return self._tokenizer.encode(text, bos=bos)

    def of_chat(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> list[int]:
        """Return the tokens of a chat; ``options`` are its ``chat_template_kwargs``."""
        text = self._chat.render(messages, tools, options or {})
        return self.of_text(text, bos=self._chat.needs_bos)
