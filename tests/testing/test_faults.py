"""Faults on demand, as a client meets them."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from prefix_cache.testing import EngineConfig, Faults, running_engine
from tests.testing.engines import Client, chat_body, engine_client, until


async def events(client: Client) -> list[bytes]:
    """The events of a streamed chat, up to where it broke off."""
    read = []
    async with client.http.post("/v1/chat/completions", json=chat_body("Hi", stream=True)) as got:
        while not got.content.at_eof():
            try:
                read.append(await got.content.readuntil(b"\n\n"))
            except aiohttp.ClientPayloadError:
                return [*read, b"cut"]
    return read


async def test_a_stream_is_cut_after_so_many_events() -> None:
    async with engine_client() as client:
        assert len(await events(client)) == 19  # the role, 16 characters, the end, [DONE]
        await client.post("/faults", {"cut_after_items": 3})
        read = await events(client)
        assert (len(read), read[-1]) == (4, b"cut")
        await client.post("/faults", {"cut_after_items": 0})
        assert await events(client) == [b"cut"]


async def test_an_answer_that_is_no_stream_is_cut_in_the_middle() -> None:
    async with engine_client(faults=Faults(cut_after_items=1)) as client:
        async with client.http.post("/v1/chat/completions", json=chat_body("Hi")) as answer:
            assert answer.status == 200
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()
        assert client.engine.counts.failed == 1


async def test_a_refusing_engine_closes_every_connection_but_those_that_control_it() -> None:
    async with engine_client() as client:
        await client.post("/faults", {"refuse": True})
        for path in ("/health", "/v1/models"):
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await client.get(path)
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await client.chat("Hi")
        assert (await client.get("/faults"))["refuse"] is True
        assert (await client.get("/requests"))["served"] == 0
        await client.post("/faults", {})
        await client.chat("Hi")


async def test_a_status_is_answered_for_so_many_requests() -> None:
    async with engine_client() as client:
        await client.post("/faults", {"status": 503, "requests": 2})
        found = [await client.post("/v1/chat/completions", chat_body("Hi")) for _ in range(3)]
        assert (await client.get("/faults"))["status"] is None
    assert [status for status, _ in found] == [503, 503, 200]
    assert found[0][1]["error"]["type"] == "server_error"


async def test_a_request_hangs_until_the_faults_are_lifted() -> None:
    async with engine_client() as client:
        await client.post("/faults", {"hang": True, "requests": 1})
        hanging = asyncio.create_task(client.chat("Hi"))
        await until(lambda: client.engine.counts.in_flight == 1)
        await client.chat("Hi")  # the next one does not
        assert not hanging.done()
        client.engine.faults.set(Faults())
        await hanging


async def test_a_client_that_gives_up_on_a_hanging_engine_is_counted() -> None:
    async with engine_client(faults=Faults(hang=True)) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.http.post(
                    "/v1/chat/completions", json=chat_body("Hi"), headers={"X-Session-ID": "s1"}
                )
        await until(lambda: client.engine.counts.cancelled == 1)
        counts = await client.get("/requests")
    assert (counts["in_flight"], counts["served"], counts["failed"]) == (0, 0, 0)
    assert counts["last_headers"]["X-Session-ID"] == "s1"
    assert counts["last_path"] == "/v1/chat/completions"


async def test_an_engine_that_ends_answers_those_that_hang() -> None:
    async with aiohttp.ClientSession() as http:
        async with running_engine(EngineConfig(faults=Faults(hang=True))) as engine:
            url = f"{engine.url}/v1/chat/completions"
            asking = asyncio.create_task(http.post(url, json=chat_body("Hi")))
            await until(lambda: engine.counts.in_flight == 1)
        assert (await asking).status == 200


async def test_a_request_that_is_about_to_hang_hears_that_the_faults_are_over() -> None:
    late = Faults(hang=True, first_byte_delay_s=0.1)
    async with aiohttp.ClientSession() as http, running_engine(EngineConfig(faults=late)) as engine:
        url = f"{engine.url}/v1/chat/completions"
        asking = asyncio.create_task(http.post(url, json=chat_body("Hi")))
        await until(lambda: engine.counts.in_flight == 1)
        engine.faults.set(Faults())  # within the delay
        assert (await asyncio.wait_for(asking, 10)).status == 200


async def test_a_late_first_byte_comes() -> None:
    order = []
    async with engine_client() as client:
        await client.post("/faults", {"first_byte_delay_s": 0.2, "requests": 1})
        slow = asyncio.create_task(client.chat("Hi"))
        slow.add_done_callback(lambda _: order.append("slow"))
        await until(lambda: client.engine.counts.in_flight == 1)
        await client.chat("Hi")
        order.append("fast")
        await slow
    assert order == ["fast", "slow"]


@pytest.mark.parametrize(
    ("faults", "named"),
    [
        ({"stauts": 503}, "stauts"),
        ({"status": 200}, "status"),
        ({"cut_after_items": -1}, "cut_after_items"),
        ({"requests": "two"}, "requests"),
    ],
)
async def test_faults_that_cannot_be_are_refused_and_change_nothing(
    faults: dict[str, object], named: str
) -> None:
    async with engine_client(faults=Faults(status=503)) as client:
        status, answer = await client.post("/faults", faults)
        assert status == 400
        assert named in answer["error"]["message"]
        assert (await client.get("/faults"))["status"] == 503
