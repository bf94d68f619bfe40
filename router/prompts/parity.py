"""Whether an engine makes the tokens of a request that the router makes of it."""

from __future__ import annotations

import aiohttp
import msgspec

from prefix_cache.errors import Unsupported
from prefix_cache.index.tokens import TOKEN_BYTES, as_token_bytes
from router.prompts.bodies import Body, ChatBody, CompletionBody
from router.prompts.rendering import Rendering

_CHAT = {
    "messages": [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "What is the weather in Zürich?\n"},
        {"role": "assistant", "content": "  It is 20 °C and sunny. 🌞"},
        {"role": "user", "content": "And tomorrow?"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "description": "The weather of a place & day.",
                "parameters": {
                    "type": "object",
                    "properties": {"place": {"type": "string"}, "day": {"type": "string"}},
                    "required": ["place"],
                },
            },
        }
    ],
}
_COMPLETION = {"prompt": "What is the weather in Zürich?\n  It is 20 °C and sunny. 🌞"}


class _Tokens(msgspec.Struct):
    tokens: list[int]


async def first_difference(
    session: aiohttp.ClientSession, url: str, model: str, rendering: Rendering
) -> int | None:
    """Return the first token of a conversation with tools that differs, None where none does.

    Without a chat template it is a bare prompt that is compared.  The engine is asked at
    ``/tokenize``; raises Unsupported where it has no such thing, or no answer there.
    """
    kind, sample = (ChatBody, _CHAT) if rendering.has_template else (CompletionBody, _COMPLETION)
    request = msgspec.json.encode({"model": model, "add_generation_prompt": True, **sample})
    body: Body = msgspec.json.decode(request, type=kind)
    ours, theirs = rendering.tokens(body), await _tokens_of_engine(session, url, request)
    for start in range(0, max(len(ours), len(theirs)), TOKEN_BYTES):
        if ours[start : start + TOKEN_BYTES] != theirs[start : start + TOKEN_BYTES]:
            return start // TOKEN_BYTES
    return None


async def _tokens_of_engine(session: aiohttp.ClientSession, url: str, request: bytes) -> bytes:
    headers = {"content-type": "application/json"}
    try:
        async with session.post(f"{url}/tokenize", data=request, headers=headers) as response:
            if response.status != 200:
                raise Unsupported(f"{url}/tokenize answered {response.status}", url=url)
            answer = msgspec.json.decode(await response.read(), type=_Tokens)
        return as_token_bytes(answer.tokens)
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError, ValueError) as error:
        raise Unsupported(f"{url}/tokenize: {error or type(error).__name__}", url=url) from error
