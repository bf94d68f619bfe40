"""Many clients, engines that fail in every way: nothing is left over, and no answer is wrong."""

from __future__ import annotations

import asyncio
import json
from random import Random

from tests.router.http.engines import (
    STREAM_END,
    STREAM_HEAD,
    Behaviour,
    answers,
    chunk,
    closes,
    hangs,
    resets,
    whole,
)
from tests.router.http.proxies import Proxy, chat_body, client_of, post, proxy_and_engines

EVENTS = [b'data: {"n": %d}\n\n' % n for n in range(5)]


def some_behaviour(random: Random) -> Behaviour:
    chunks = [chunk(event) for event in EVENTS]
    cut = chunks[: random.randrange(5)]
    return random.choice(
        [
            answers(STREAM_HEAD, *chunks, STREAM_END),
            answers(STREAM_HEAD + b"".join(chunks) + STREAM_END),
            answers(whole(b"".join(EVENTS))),
            answers(whole(b"{}", "429 x")),
            answers(whole(b"{}", "503 x")),
            closes(),
            closes(STREAM_HEAD, *cut),
            resets(STREAM_HEAD, *cut),
            hangs(STREAM_HEAD, *cut),
            answers(b"nonsense"),
        ]
    )


async def play(proxy: Proxy, random: Random, statuses: list[int]) -> None:
    async with client_of(proxy) as client:
        for turn in range(10):
            client.send(post(chat_body(f"{random.random()} {turn}")))
            if random.random() < 0.1:
                return
            got = await client.answer()
            statuses.append(got.status)
            if got.status == 200 and got.is_whole:
                assert got.body == b"".join(EVENTS)
            elif got.status == 200:
                whole_events = got.body.split(b"\n\n")[:-1]
                assert "error" in json.loads(whole_events[-1].removeprefix(b"data: "))
                return
            else:
                assert got.is_whole


async def test_load_comes_back_to_zero_and_nothing_is_left_open() -> None:
    random = Random(7)
    async with proxy_and_engines(4, idle_timeout_s=0.1, first_byte_timeout_s=0.1) as (
        proxy,
        engines,
    ):
        tasks = len(asyncio.all_tasks())
        for engine in engines:
            engine.next_ones = [some_behaviour(random) for _ in range(500)]
        revival = asyncio.ensure_future(_revive(proxy))
        statuses: list[int] = []
        async with asyncio.TaskGroup() as clients:
            for _ in range(60):
                clients.create_task(play(proxy, random, statuses))
        await proxy.settles()
        revival.cancel()
        await asyncio.wait([revival])
        assert {200, 429} <= set(statuses) <= {200, 429, 502, 503, 504}
        assert len(asyncio.all_tasks()) == tasks


async def _revive(proxy: Proxy) -> None:
    """Answer for the probes."""
    while True:
        for node in proxy.dispatcher.nodes():
            proxy.dispatcher.node_answered(node, 1)
        await asyncio.sleep(0.005)
