"""A generated trace: many chats with one system prompt, on nodes that are idle most of the time."""

from __future__ import annotations

from random import Random

from prefix_cache.replay.policies.trace import BLOCK_TOKENS, TraceRequest

_CHATS = 400
_TURNS = 6
_SYSTEM_TOKENS = 2_000
_SECONDS_BETWEEN_CHATS = 6.0
_SECONDS_BETWEEN_TURNS = 60.0


def light_load(seed: int = 0) -> list[TraceRequest]:
    """400 chats of 6 turns in about 45 minutes; the same for the same seed.

    All begin with the same 2,000 tokens.  A question has 50 to 500 tokens, an answer 50 to 400.
    About one turn comes a second, so that a fleet hardly ever has anything to wait for.
    """
    random = Random(seed)
    requests: list[TraceRequest] = []
    started = 0.0
    for chat in range(_CHATS):
        started += random.expovariate(1 / _SECONDS_BETWEEN_CHATS)
        at, tokens = started, _SYSTEM_TOKENS
        for _ in range(_TURNS):
            tokens += random.randint(50, 500)
            answer = random.randint(50, 400)
            hashes = _block_hashes(chat, tokens)
            requests.append(TraceRequest(at, tokens, answer, hashes, f"chat-{chat}"))
            tokens += answer
            at += random.expovariate(1 / _SECONDS_BETWEEN_TURNS)
    return sorted(requests, key=lambda request: request.at)


def _block_hashes(chat: int, tokens: int) -> tuple[bytes, ...]:
    """Of whole blocks of the system prompt, then of the chat's; of a partial one, its own."""
    full, partial = divmod(tokens, BLOCK_TOKENS)
    shared = _SYSTEM_TOKENS // BLOCK_TOKENS
    names = [f"{index}" if index < shared else f"{chat}/{index}" for index in range(full)]
    if partial:
        names.append(f"{chat}/{full}+{partial}")
    return tuple(name.encode() for name in names)
