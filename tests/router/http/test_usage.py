"""What an engine says of its cache is read from its answer as it passes."""

from __future__ import annotations

import json

import pytest

from router.http.usage import TAIL_BYTES, Usage, read_usage
from tests.router.http.engines import STREAM_END, STREAM_HEAD, answers, chat_answer, chunk
from tests.router.http.proxies import client_of, get, post, proxy_and_engines

CHAT_USAGE = {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 32}}
RESPONSES_USAGE = {"input_tokens": 40, "input_tokens_details": {"cached_tokens": 32}}


def usage_of(answer: bytes) -> Usage:
    return read_usage(answer[-TAIL_BYTES:])


@pytest.mark.parametrize("usage", [CHAT_USAGE, RESPONSES_USAGE])
@pytest.mark.parametrize("indent", [None, 2])
def test_it_is_read_from_json(usage: dict[str, object], indent: int | None) -> None:
    answer = {"choices": [{"text": "x" * 50_000}], "usage": usage, "service_tier": None}
    assert usage_of(json.dumps(answer, indent=indent).encode()) == Usage(40, 32)


def test_it_is_read_from_the_last_event_that_has_it() -> None:
    events = [
        b'data: {"choices": [{"delta": {}}], "usage": {"prompt_tokens": 1}}\n\n',
        b'data: {"choices": [], "usage": %b}\n\n' % json.dumps(CHAT_USAGE).encode(),
        b'data: {"choices": [], "usage": null}\n\n',
        b"data: [DONE]\n\n",
    ]
    assert usage_of(b"".join(events)) == Usage(40, 32)


def test_of_two_stages_of_one_prompt_the_one_that_reused_more_counts() -> None:
    """F041: the sum would count the overlap twice, the last one is only the wrong stage."""
    first = {"prompt_tokens": 300, "prompt_tokens_details": {"cached_tokens": 256}}
    second = {"prompt_tokens": 300, "prompt_tokens_details": {"cached_tokens": 192}}
    for stages in ((first, second), (second, first)):
        events = [b'data: {"usage": %b}\n\n' % json.dumps(stage).encode() for stage in stages]
        assert usage_of(b"".join(events)) == Usage(300, 256)
    both = {**first, "input_tokens": 300, "input_tokens_details": {"cached_tokens": 192}}
    assert usage_of(json.dumps({"usage": both}).encode()) == Usage(300, 256)


def test_what_an_earlier_stage_reused_of_a_longer_prompt_is_not_of_this_one() -> None:
    event = b'data: {"usage": %b}\n\n'
    longer = {"prompt_tokens": 300, "prompt_tokens_details": {"cached_tokens": 256}}
    stages = (longer, {"prompt_tokens": 40}, CHAT_USAGE)
    events = [event % json.dumps(stage).encode() for stage in stages]
    assert usage_of(b"".join(events)) == Usage(40, 32)


def test_it_is_read_from_the_event_that_holds_a_whole_response() -> None:
    response = {"instructions": "x" * 50_000, "usage": RESPONSES_USAGE, "metadata": {}}
    event = {"type": "response.completed", "response": response}
    assert usage_of(b"event: x\ndata: %b\n\n" % json.dumps(event).encode()) == Usage(40, 32)


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        (None, Usage()),
        ({}, Usage()),
        ([], Usage()),
        ({"prompt_tokens": 40}, Usage(40)),
        ({"prompt_tokens": 40, "prompt_tokens_details": None}, Usage(40)),
        ({"x": {}, "input_tokens_details": {"y": {"z": 1}, "cached_tokens": 4}}, Usage()),
        ({"input_tokens": 40, "input_tokens_details": {"y": {}, "cached_tokens": 4}}, Usage(40, 4)),
        ({"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": None}}, Usage(40)),
        ({"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 0}}, Usage(40, 0)),
        ({"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 41}}, Usage(40)),
        ({"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": -1}}, Usage(40)),
        ({"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": True}}, Usage(40)),
        ({"prompt_tokens": "40"}, Usage()),
        ({"prompt_tokens": 2**31 - 1}, Usage(2**31 - 1)),
        ({"prompt_tokens": 2**31}, Usage()),
        ({"prompt_tokens": 10**400}, Usage()),
        ({"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 10**400}}, Usage(40)),
        ({"prompt_tokens": 4.5}, Usage()),
    ],
)
def test_what_is_not_said_is_not_known(usage: object, read: Usage) -> None:
    assert usage_of(json.dumps({"usage": usage}).encode()) == read


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'{"usage"',
        b'{"usage": {"prompt_tokens": 4',
        b'{"usage": {' + b"[" * 9000,
        b"\xff" * 99,
    ],
)
def test_what_cannot_be_read_is_not_known(text: bytes) -> None:
    assert usage_of(text) == Usage()


def test_the_words_of_a_model_are_not_taken_for_it() -> None:
    said = '"usage": {"prompt_tokens": 7}'
    choices = [{"message": {"content": said, "usage": said}}]
    assert usage_of(json.dumps({"choices": choices}).encode()) == Usage()


@pytest.mark.parametrize("stream", [False, True])
async def test_the_dispatcher_learns_it(stream: bool) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        whole = chat_answer(prompt_tokens=40, cached_tokens=32)
        events = chunk(b"data: {}\n\n") + chunk(
            b'data: {"usage": %b}\n\n' % json.dumps(CHAT_USAGE).encode()
        )
        engine.next_ones = [answers(STREAM_HEAD + events + STREAM_END if stream else whole)]
        await client.ask(post())
        node = proxy.node("a")
        assert (node.turns, node.prompt_tokens, node.cached_tokens) == (1, 40, 32)


async def test_counts_beyond_belief_spoil_neither_the_metrics_nor_the_estimates() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        tokens = (await client.ask(post(path="/explain"))).json["prompt_tokens"]
        for count in (2**31, 2**64, 10**400):
            engine.next_ones = [answers(chat_answer(prompt_tokens=count))]
            assert (await client.ask(post())).status == 200
        assert (await client.ask(get("/metrics"))).status == 200
        assert (await client.ask(post(path="/explain"))).json["prompt_tokens"] == tokens
        await proxy.settles()


async def test_the_end_of_a_long_stream_in_small_pieces_is_enough() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        usage = b'data: {"usage": %b}\n\n' % json.dumps(CHAT_USAGE).encode()
        pieces = [chunk(b"x" * 1000)] * 100 + [chunk(usage[i : i + 1]) for i in range(len(usage))]
        engine.next_ones = [answers(STREAM_HEAD, *pieces, STREAM_END)]
        assert (await client.ask(post())).is_whole
        assert proxy.node("a").cached_tokens == 32
