"""Prompts for tests, as words."""

from __future__ import annotations

from random import Random

from prefix_cache.replay.formats import Request

UNLIMITED = 2**31 - 1
"""Blocks of a cache that never evicts anything."""


def ids(*tokens: int) -> bytes:
    return b"".join(token.to_bytes(4, "little") for token in tokens)


def counting(start: int, count: int) -> bytes:
    return ids(*range(start, start + count))


def request(
    prompt: bytes, answer: bytes = b"", conversation: str = "chat", turn: int = 1
) -> Request:
    return Request.of_tokens(conversation, turn, prompt, answer)


def random_requests(seed: int, most: int = 40) -> list[Request]:
    """Prompts of few words that often go on from, repeat or cut those before."""
    random = Random(seed)

    def new(count: int) -> bytes:
        return ids(*(random.randint(0, 2) for _ in range(count)))

    told: list[bytes] = []
    requests = []
    for _ in range(random.randint(1, most)):
        if told and random.random() < 0.3:
            whole = random.choice(told)
            cut = 4 * random.randint(1, len(whole) // 4)
            prompt, answer = whole[:cut], whole[cut:]
        else:
            base = random.choice(told) if told and random.random() < 0.8 else b""
            base = base[: 4 * random.randint(0, 30)]
            prompt = base + new(random.randint(0 if base else 1, 6))
            answer = new(random.choice([0, 0, 3, 4, random.randint(0, 9)]))
        told.append(prompt + answer)
        requests.append(request(prompt, answer))
    return requests
