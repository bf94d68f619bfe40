"""What ``/v1/completions`` is asked: one prompt, or several at once."""

from __future__ import annotations

from typing import cast

from prefix_cache.errors import InvalidRequest
from prefix_cache.openai_api.bodies import GeneratingBody, TokenId

# Each of them is a request of its own for the engine.
_MAX_PROMPTS = 512

Prompt = str | list[int]


class CompletionBody(GeneratingBody, kw_only=True):
    """A prompt is a text or a list of token ids; several are a list of prompts."""

    prompt: str | list[TokenId | str | list[TokenId]]

    def prompts(self) -> list[Prompt]:
        """Return the prompts.  Raises InvalidRequest for too many, and for ids among prompts."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        kinds = set(map(type, self.prompt))
        if kinds <= {int}:
            return [cast("list[int]", self.prompt)]
        if int in kinds:
            raise InvalidRequest(
                "the prompt is a list of token ids and of prompts, expected one or the other",
                param="prompt",
            )
        if len(self.prompt) > _MAX_PROMPTS:
            raise InvalidRequest(
                f"there are {len(self.prompt)} prompts, expected at most {_MAX_PROMPTS}",
                param="prompt",
            )
        return cast("list[Prompt]", self.prompt)
