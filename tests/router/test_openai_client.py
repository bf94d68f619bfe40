"""The ``openai`` client, as users have it: against an engine, and through a router."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from prefix_cache.testing import Engine, EngineConfig, running_engine
from router.app import running
from router.config import PoolConfig, RouterConfig, parse_nodes
from tests.testing.engines import until

MODEL = "test"
CHAT: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "You know kettles."},
    {"role": "user", "content": "Why does it sing before the water boils?"},
]
ANSWER = "every in one blo"
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city", "days"],
        },
    },
}


class Weather(BaseModel):
    """What the arguments of the tool are, exactly."""

    city: str
    days: int


@pytest_asyncio.fixture
async def engines() -> AsyncIterator[tuple[Engine, Engine]]:
    config = EngineConfig(model=MODEL)
    async with running_engine(config) as left, running_engine(config) as right:
        yield left, right


@asynccontextmanager
async def routed(engines: tuple[Engine, Engine]) -> AsyncIterator[str]:
    """The URL of a router before both engines."""
    nodes = parse_nodes([f"left={engines[0].url}", f"right={engines[1].url}"])
    config = RouterConfig(pools=(PoolConfig(nodes=nodes),), listen=(), http="127.0.0.1:0")
    async with running(config) as (url,):
        yield f"{url}/v1"


@pytest_asyncio.fixture(params=["engine", "router"])
async def url(request: pytest.FixtureRequest, engines: tuple[Engine, Engine]) -> AsyncIterator[str]:
    if request.param == "engine":
        yield f"{engines[0].url}/v1"
    else:
        async with routed(engines) as url:
            yield url


@pytest_asyncio.fixture
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=0) as opened:
        yield opened


async def test_a_chat_is_answered_and_its_next_turn_is_cached(client: openai.AsyncOpenAI) -> None:
    first = await client.chat.completions.create(model=MODEL, messages=CHAT)
    assert first.choices[0].message.content == ANSWER
    assert first.choices[0].finish_reason == "stop"
    assert first.usage is not None
    assert (first.usage.prompt_tokens, first.usage.completion_tokens) == (93, 16)
    second = await client.chat.completions.create(
        model=MODEL,
        messages=[
            *CHAT,
            {"role": "assistant", "content": ANSWER},
            {"role": "user", "content": "And then?"},
        ],
        max_completion_tokens=5,
    )
    assert second.choices[0].finish_reason == "length"
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert second.usage.prompt_tokens_details.cached_tokens == 96


async def test_a_chat_is_streamed(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=CHAT, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    *said, usage = chunks
    assert "".join(chunk.choices[0].delta.content or "" for chunk in said) == ANSWER
    assert said[0].choices[0].delta.role == "assistant"
    assert said[-1].choices[0].finish_reason == "stop"
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.total_tokens == 109


async def test_a_stream_holds_no_usage_unless_asked_for(client: openai.AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model=MODEL, messages=CHAT, stream=True)
    assert [chunk.usage async for chunk in stream if chunk.usage or not chunk.choices] == []


async def test_a_tool_is_called_and_its_result_goes_back(client: openai.AsyncOpenAI) -> None:
    called = await client.chat.completions.create(
        model=MODEL, messages=CHAT, tools=[WEATHER], tool_choice="required"
    )
    message = called.choices[0].message
    assert called.choices[0].finish_reason == "tool_calls"
    assert message.content is None
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    assert call.type == "function"
    assert call.function.name == "weather"
    Weather.model_validate_json(call.function.arguments, strict=True)

    said: Any = message.model_dump(exclude_none=True)
    answered = await client.chat.completions.create(
        model=MODEL,
        messages=[*CHAT, said, {"role": "tool", "tool_call_id": call.id, "content": "Rain."}],
        tools=[WEATHER],
    )
    assert answered.choices[0].message.content
    assert called.usage is not None
    assert answered.usage is not None
    assert answered.usage.prompt_tokens_details is not None
    # Everything up to the result, in full blocks, the call included.
    known = called.usage.total_tokens
    assert answered.usage.prompt_tokens_details.cached_tokens == known // 16 * 16


async def test_a_streamed_call_of_a_tool_is_put_together(client: openai.AsyncOpenAI) -> None:
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    async with client.chat.completions.stream(
        model=MODEL, messages=CHAT, tools=[{**WEATHER}], tool_choice=choice
    ) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].finish_reason == "tool_calls"
    assert final.choices[0].message.tool_calls is not None
    arguments = final.choices[0].message.tool_calls[0].function.arguments
    Weather.model_validate_json(arguments, strict=True)


@pytest.mark.parametrize("tool_choice", ["auto", "none"])
async def test_a_tool_that_may_be_called_is_not(
    client: openai.AsyncOpenAI, tool_choice: Any
) -> None:
    answer = await client.chat.completions.create(
        model=MODEL, messages=CHAT, tools=[WEATHER], tool_choice=tool_choice
    )
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].message.content


async def test_a_text_is_completed(client: openai.AsyncOpenAI) -> None:
    whole = await client.completions.create(model=MODEL, prompt="A kettle sings", max_tokens=9)
    stream = await client.completions.create(
        model=MODEL, prompt="A kettle sings", max_tokens=9, stream=True
    )
    pieces = [chunk.choices[0].text async for chunk in stream]
    assert "".join(pieces) == whole.choices[0].text
    assert len(whole.choices[0].text) == 9
    assert whole.choices[0].finish_reason == "length"


async def test_token_ids_are_completed(client: openai.AsyncOpenAI) -> None:
    """A router sends them to one engine because they name one conversation."""
    prompt, session = list(range(100_000, 100_040)), {"X-Session-ID": "s"}
    answers = [
        await client.completions.create(model=MODEL, prompt=prompt, extra_headers=session)
        for _ in range(2)
    ]
    cached = [
        answer.usage.prompt_tokens_details.cached_tokens
        for answer in answers
        if answer.usage and answer.usage.prompt_tokens_details
    ]
    assert cached == [0, 32]


async def test_a_response_is_given_and_streamed(client: openai.AsyncOpenAI) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "instructions": "You know kettles.",
        "input": [{"role": "user", "content": "Why does it sing before the water boils?"}],
    }
    whole = await client.responses.create(**asked)
    assert whole.output_text == ANSWER  # the prompt is that of the chat
    assert whole.usage is not None
    assert whole.usage.input_tokens_details.cached_tokens == 0
    async with client.responses.stream(**asked) as stream:
        text = "".join(
            [event.delta async for event in stream if event.type == "response.output_text.delta"]
        )
        final = await stream.get_final_response()
    assert text == final.output_text == ANSWER
    assert final.usage is not None
    assert final.usage.input_tokens_details.cached_tokens == 80


async def test_the_next_turn_of_a_response_is_cached(client: openai.AsyncOpenAI) -> None:
    first = await client.responses.create(model=MODEL, input="Why does it sing?")
    given: Any = [
        {"role": "user", "content": "Why does it sing?"},
        *(item.model_dump(exclude_none=True) for item in first.output),
        {"role": "user", "content": "And then?"},
    ]
    second = await client.responses.create(model=MODEL, input=given)
    assert first.usage is not None
    assert second.usage is not None
    cached = second.usage.input_tokens_details.cached_tokens
    assert cached == first.usage.total_tokens // 16 * 16


async def test_texts_are_embedded(client: openai.AsyncOpenAI) -> None:
    both = await client.embeddings.create(model=MODEL, input=["one", "two"])
    one = await client.embeddings.create(
        model=MODEL, input="one", encoding_format="float", dimensions=32
    )
    assert both.data[0].embedding == pytest.approx(one.data[0].embedding)
    assert both.data[0].embedding != both.data[1].embedding
    assert sum(value**2 for value in one.data[0].embedding) == pytest.approx(1)
    assert both.usage.prompt_tokens == 6


async def test_models_are_listed(client: openai.AsyncOpenAI) -> None:
    assert [model.id async for model in client.models.list()] == [MODEL]


async def test_an_unknown_model_is_not_found(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await client.chat.completions.create(model="gpt-9", messages=CHAT)
    assert caught.value.code == "model_not_found"


async def test_a_body_that_cannot_be_used_is_a_bad_request(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model=MODEL, messages=CHAT, n=3)
    assert caught.value.type == "invalid_request_error"
    assert "n" in caught.value.message


def _in_a_thread(url: str) -> tuple[str | None, str]:
    with openai.OpenAI(base_url=url, api_key="key", max_retries=0) as client:
        whole = client.chat.completions.create(model=MODEL, messages=CHAT)
        stream = client.chat.completions.create(model=MODEL, messages=CHAT, stream=True)
        pieces = [chunk.choices[0].delta.content or "" for chunk in stream]
    return whole.choices[0].message.content, "".join(pieces)


async def test_the_synchronous_client_is_answered_too(url: str) -> None:
    assert await asyncio.to_thread(_in_a_thread, url) == (ANSWER, ANSWER)


async def test_a_client_that_leaves_a_stream_cancels_it(
    engines: tuple[Engine, Engine], client: openai.AsyncOpenAI
) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=CHAT, stream=True, max_tokens=1_000_000
    )
    async for _ in stream:
        break
    await stream.close()
    await until(lambda: sum(engine.counts.cancelled for engine in engines) == 1)
    assert sum(engine.counts.in_flight for engine in engines) == 0


async def test_a_router_says_where_each_turn_of_a_chat_went_and_why(
    engines: tuple[Engine, Engine],
) -> None:
    async with (
        routed(engines) as url,
        openai.AsyncOpenAI(base_url=url, api_key="key", max_retries=0) as client,
    ):
        first = await client.chat.completions.with_raw_response.create(model=MODEL, messages=CHAT)
        said: ChatCompletionMessageParam = {"role": "assistant", "content": ANSWER}
        second = await client.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=[*CHAT, said, {"role": "user", "content": "And then?"}],
            extra_headers={"X-Request-Id": "turn-2"},
        )
        listed = await client.models.with_raw_response.list()
    assert first.headers["x-prefix-cache-reason"] == "new"
    assert second.headers["x-prefix-cache-reason"] == "pinned"
    assert first.headers["x-prefix-cache-node"] == second.headers["x-prefix-cache-node"]
    assert first.headers["x-request-id"]
    assert second.headers["x-request-id"] == "turn-2"
    assert listed.headers["x-prefix-cache-reason"] == "not_routed"
    assert first.parse().choices[0].message.content == ANSWER
    assert sorted(engine.counts.served for engine in engines) == [0, 2]
