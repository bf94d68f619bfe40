"""Chats to the text that an engine makes tokens of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn, Protocol

import msgspec

from prefix_cache.errors import InvalidArgument, InvalidRequest, MissingExtra
from prefix_cache.plain_template import render


class ChatTemplate(Protocol):
    """Renders a chat, with the head of the answer to come.  Raises InvalidArgument."""

    def render(
        self, messages: Sequence[Any], tools: Sequence[Any], options: Mapping[str, Any]
    ) -> str:
        """Return the text; ``options`` are the request's ``chat_template_kwargs``."""


class PlainTemplate:
    """The template of the test engine, which has no options."""

    def render(
        self, messages: Sequence[Any], tools: Sequence[Any], options: Mapping[str, Any]
    ) -> str:
        """Return the text."""
        return render(messages, tools)


class JinjaTemplate:
    """A template in Jinja, written as those that come with models; ``name`` is where it is from.

    It sees ``messages``, ``tools`` (None without any), ``add_generation_prompt``, the request's
    options, and ``special_tokens``: ``bos_token`` and ``eos_token``.  Text in parts is joined by
    line ends, and the arguments of tool calls are objects.  What becomes of a part that is no
    text, only the engine knows: that is refused.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str], name: str) -> None:
        try:
            from jinja2 import TemplateError
            from jinja2.ext import loopcontrols
            from jinja2.sandbox import ImmutableSandboxedEnvironment
        except ImportError as error:
            raise MissingExtra(
                f"the chat template {name} needs: pip install 'prefix-cache[tokenizers]'",
                extra="tokenizers",
            ) from error
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise _no_template(name, error) from error
        self._special_tokens = special_tokens

    @classmethod
    def of_file(cls, path: Path, special_tokens: Mapping[str, str]) -> JinjaTemplate:
        """Read a template.  Raises InvalidArgument for a file that is none."""
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise _no_template(str(path), error) from error
        return cls(source, special_tokens, str(path))

    def render(
        self, messages: Sequence[Any], tools: Sequence[Any], options: Mapping[str, Any]
    ) -> str:
        """Return the text."""
        values = {
            **self._special_tokens,
            **options,
            "messages": [_prepared(message) for message in messages],
            "tools": tools or None,
            "add_generation_prompt": True,
        }
        try:
            return self._template.render(values)
        except Exception as error:  # a template may do anything
            raise InvalidRequest(f"the chat template fails: {error}", param="messages") from error


def read_tokenizer_config(path: Path) -> dict[str, Any]:
    """Return what a ``tokenizer_config.json`` holds; nothing where there is none.

    Raises InvalidArgument for a file that cannot be read.
    """
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgument(f"{path} cannot be read: {error}", path=path) from error


def special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """Return ``bos_token`` and ``eos_token``, as far as a tokenizer's config has them."""
    tokens = {}
    for name in ("bos_token", "eos_token"):
        token = config.get(name)
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            tokens[name] = token
    return tokens


def _no_template(name: str, error: Exception) -> InvalidArgument:
    return InvalidArgument(f"{name} is no chat template: {error}", chat_template=name)


def _prepared(message: Any) -> Any:
    """A message as engines hand it to templates."""
    if not isinstance(message, dict):
        raise InvalidRequest(f"a message is {message!r}, expected an object", param="messages")
    message = dict(message)
    if isinstance(message.get("content"), list):
        message["content"] = "\n".join(map(_part_text, message["content"]))
    if message.get("tool_calls"):
        message["tool_calls"] = [_prepared_call(call) for call in message["tool_calls"]]
    return message


def _part_text(part: Any) -> str:
    match part:
        case str():
            return part
        case {"text": str(text)}:
            return text
        case _:
            raise InvalidRequest("a part of a message is no text", param="messages")


def _prepared_call(call: Any) -> Any:
    match call:
        case {"function": {"arguments": str(arguments)} as function}:
            try:
                parsed = json.loads(arguments) if arguments else {}
            except ValueError as error:
                raise InvalidRequest(
                    f"the arguments of a tool call are no JSON: {error}", param="messages"
                ) from error
            return {**call, "function": {**function, "arguments": parsed}}
        case _:
            return call


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own it escapes nothing for HTML and keeps the order of keys."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> NoReturn:
    raise InvalidRequest(message, param="messages")
