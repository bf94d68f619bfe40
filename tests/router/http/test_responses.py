"""A response that goes on from one before it is sent to the engine that has that one."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from router.config import NodeSpec, PoolConfig
from router.turn import ConversationKey
from tests.router.http.engines import STREAM_END, STREAM_HEAD, Behaviour, answers, chunk, whole
from tests.router.http.proxies import Client, Got, client_of, post, proxy_and_engines
from tests.router.prompts.readers import CHAT, RESPONSES, read, reader, user

CREATED = b'event: response.created\ndata: {"type":"response.created","response":{"id":"%b"}}\n\n'


def response(response_id: bytes) -> Behaviour:
    return answers(whole(b'{"id": "%b", "object": "response", "usage": null}' % response_id))


def streamed_response(response_id: bytes) -> Behaviour:
    return answers(STREAM_HEAD, chunk(CREATED % response_id), STREAM_END)


async def respond(client: Client, text: str, fields: bytes = b"", **more: str) -> Got:
    body = json.dumps({"model": "m", "input": text, **more}).encode()
    return await client.ask(post(body, RESPONSES, fields))


@pytest.mark.parametrize("answer", [response, streamed_response])
async def test_it_goes_where_the_one_before_it_was_made(
    answer: Callable[[bytes], Behaviour],
) -> None:
    async with proxy_and_engines(3) as (proxy, engines), client_of(proxy) as client:
        for number in range(8):
            for engine in engines:
                engine.otherwise = answer(b"resp_%d-a" % number)
            home = (await respond(client, f"hello {number}")).headers["x-prefix-cache-node"]
            for engine in engines:
                engine.otherwise = answer(b"resp_%d-b" % number)
            for before in ("a", "b"):
                previous = f"resp_{number}-{before}"
                got = await respond(client, "and on", previous_response_id=previous)
                assert got.headers["x-prefix-cache-node"] == home
                assert got.headers["x-prefix-cache-reason"] == "pinned"
        assert proxy.dispatcher.unhashable == 16
        await proxy.settles()


async def test_the_id_of_another_tenant_s_response_leads_nowhere() -> None:
    async with proxy_and_engines(2) as (proxy, engines), client_of(proxy) as client:
        for engine in engines:
            engine.otherwise = response(b"resp_1")
        await respond(client, "hello", b"Authorization: Bearer one\r\n")
        for token, reason in ((b"other", "new"), (b"one", "pinned")):
            fields = b"Authorization: Bearer %b\r\n" % token
            got = await respond(client, "and on", fields, previous_response_id="resp_1")
            assert got.headers["x-prefix-cache-reason"] == reason


async def test_an_id_in_an_error_names_nothing() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [answers(whole(b'{"id": "resp_1"}', "400 x"))]
        await respond(client, "hello")
        assert len(proxy.dispatcher.conversations) == 0


def test_what_goes_on_from_a_response_is_unhashable_and_named_by_it() -> None:
    turn = read({"input": "on", "previous_response_id": "resp_1"}, RESPONSES)
    assert turn.conversation == ConversationKey("", "response:resp_1")
    assert not turn.prompt.is_hashable
    session = {b"x-session-id": b"s"}
    turn = read({"input": "on", "previous_response_id": "resp_1"}, RESPONSES, session)
    assert turn.conversation == ConversationKey("", "s")


@pytest.mark.parametrize("previous", [None, "", 7])
def test_without_an_id_a_response_stands_for_itself(previous: object) -> None:
    turn = read({"input": "hi", "previous_response_id": previous}, RESPONSES)
    assert turn.conversation == read({"input": "hi"}, RESPONSES).conversation


def test_the_key_of_the_next_turn_is_the_one_that_it_will_have() -> None:
    pools = [
        PoolConfig(name=name, models=(name,), nodes=(NodeSpec(name, url=f"http://{name}:1"),))
        for name in ("one", "two")
    ]
    for by in (reader(), reader(*pools)):
        headers = {b"authorization": b"Bearer k"}
        turn = read({"model": "two", "input": "hi"}, RESPONSES, headers, by)
        body = {"model": "two", "input": "on", "previous_response_id": "resp_1-2"}
        next_turn = read(body, RESPONSES, headers, by)
        assert by.next_key(turn, b'{"id":"resp_1-2","object"') == next_turn.conversation
        assert by.next_key(turn, b'{"id":"chatcmpl-1"') is None
        assert by.next_key(turn, b" " * 1024 + b'{"id":"resp_1-2"') is None


def test_the_field_means_nothing_to_a_chat() -> None:
    body = {"messages": [user("hi")]}
    with_it, without = read({**body, "previous_response_id": "resp_1"}, CHAT), read(body, CHAT)
    assert with_it.conversation == without.conversation
    assert with_it.prompt.text == without.prompt.text
