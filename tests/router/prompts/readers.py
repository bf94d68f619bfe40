"""Readers of bodies, and bodies to read."""

from __future__ import annotations

import json
from collections.abc import Mapping

from router.config import NodeSpec, PoolConfig, RouterConfig
from router.dispatcher import Dispatcher
from router.prompts import BodyReader
from router.turn import ConversationKey, Turn

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
EMBEDDINGS = "/v1/embeddings"

Message = dict[str, object]


def user(content: object) -> Message:
    return {"role": "user", "content": content}


def assistant(content: object) -> Message:
    return {"role": "assistant", "content": content}


def system(content: object) -> Message:
    return {"role": "system", "content": content}


def dispatcher(*pools: PoolConfig) -> Dispatcher:
    only = PoolConfig(nodes=(NodeSpec("a", url="http://127.0.0.1:1"),))
    return Dispatcher(RouterConfig(pools=pools or (only,)))


def reader(*pools: PoolConfig, tenant_header: str = "") -> BodyReader:
    return BodyReader(dispatcher(*pools).pools, tenant_header)


def read(
    body: object,
    path: str = CHAT,
    headers: Mapping[bytes, bytes] | None = None,
    by: BodyReader | None = None,
) -> Turn:
    """Read ``body``, with a model where it names none."""
    if isinstance(body, dict):
        body = json.dumps({"model": "m", **body}).encode()
    assert isinstance(body, bytes)
    return (by or reader()).read(path, headers or {}, body)


def text(body: object, path: str = CHAT) -> bytes:
    return read(body, path).prompt.text


def key(
    body: object,
    path: str = CHAT,
    headers: Mapping[bytes, bytes] | None = None,
    by: BodyReader | None = None,
) -> ConversationKey | None:
    return read(body, path, headers, by).conversation
