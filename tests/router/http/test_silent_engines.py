"""F102: an engine that says nothing for long within a stream keeps it, and is asked once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.router.http.engines import STREAM_END, STREAM_HEAD, answers, chunk, waits_for
from tests.router.http.proxies import (
    Client,
    Proxy,
    chat_body,
    client_of,
    is_failed,
    post,
    proxy_and_engines,
)

FIRST, LAST = b'data: {"n": 1}\n\n', b"data: [DONE]\n\n"


class FastLoop(asyncio.SelectorEventLoop):
    """A loop in which time passes on demand, for every timer there is."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s

    async def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.ahead_s += 1.0
            for _ in range(3):  # for timers, and for what they set off
                await asyncio.sleep(0)


def with_a_stream_silent_for(
    seconds: int, then: Callable[[Client, Proxy], Awaitable[None]]
) -> list[int]:
    """Let a stream fall silent after its first event; return how often each engine was asked.

    All settings are the defaults.  After the silence the engine goes on, ``then`` looks.
    """

    async def story() -> list[int]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, FastLoop)
        goes_on = asyncio.Event()
        rest = answers(chunk(LAST), STREAM_END)
        async with proxy_and_engines(2) as (proxy, engines), client_of(proxy) as client:
            for engine in engines:
                engine.otherwise = waits_for(goes_on, rest, STREAM_HEAD, chunk(FIRST))
            client.send(post(chat_body(stream=True)))
            await client.head()
            assert await client.chunk() == FIRST
            await loop.pass_time(seconds)
            goes_on.set()
            await then(client, proxy)
            await proxy.settles()
            return sorted(len(engine.received) for engine in engines)

    with asyncio.Runner(loop_factory=FastLoop) as runner:
        return runner.run(story())


def test_a_stream_that_is_silent_for_45_s_goes_on_and_is_not_repeated() -> None:
    async def goes_on(client: Client, proxy: Proxy) -> None:
        assert await client.chunk() == LAST
        assert await client.chunk() == b""
        assert [is_failed(proxy, name) for name in "ab"] == [False, False]

    assert with_a_stream_silent_for(45, goes_on) == [0, 1]


def test_one_that_is_silent_for_longer_than_the_idle_timeout_is_cut_and_not_repeated() -> None:
    """So time does pass for the timers of the proxy."""

    async def is_cut(client: Client, proxy: Proxy) -> None:
        assert b"it sent nothing for 120 s" in await client.chunk()
        assert await client.is_closed()
        assert sorted(is_failed(proxy, name) for name in "ab") == [False, True]

    assert with_a_stream_silent_for(121, is_cut) == [0, 1]
