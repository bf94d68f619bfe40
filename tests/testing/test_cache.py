"""What the test engine has cached, and what it says about it."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from prefix_cache.testing import Faults
from tests.testing.engines import cached, chat_body, engine_client, text_of, until

QUESTION = "Why does the kettle sing before the water boils?"
# <|user|>\n + 48 + \n<|assistant|>\n
PROMPT_TOKENS = 9 + 48 + 1 + 14


async def test_a_turn_finds_the_turn_before_it_with_its_answer() -> None:
    async with engine_client() as client:
        first = await client.chat(QUESTION)
        second = await client.chat(QUESTION, text_of(first), "And then?")
    assert first["usage"] == {
        "prompt_tokens": PROMPT_TOKENS,
        "completion_tokens": 16,
        "total_tokens": PROMPT_TOKENS + 16,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert PROMPT_TOKENS + 16 == 88
    assert cached(second) == 80  # the full blocks of the first turn's 88 tokens


async def test_a_stream_is_cached_as_a_whole_answer_is() -> None:
    async with engine_client() as client:
        async with client.http.post(
            "/v1/chat/completions", json=chat_body(QUESTION, stream=True)
        ) as answer:
            await answer.read()
        same = await client.chat(QUESTION)
        second = await client.chat(QUESTION, text_of(same), "And then?")
    assert (cached(same), cached(second)) == (64, 80)


async def test_a_prompt_is_always_answered_the_same() -> None:
    async with engine_client() as client, engine_client() as other:
        texts = {text_of(await one.chat(QUESTION)) for one in (client, client, other)}
        assert len(texts) == 1
        assert text_of(await client.chat(QUESTION + "?")) not in texts
        assert text_of(await client.chat(QUESTION, max_tokens=40)).startswith(texts.pop())


async def test_salts_are_kept_apart() -> None:
    async with engine_client() as client:
        found = [
            cached(await client.chat(QUESTION, **salt))
            for salt in ({}, {"cache_salt": "a"}, {"cache_salt": "a"}, {"cache_salt": "b"}, {})
        ]
    assert found == [0, 0, 64, 0, 64]


async def test_tools_are_part_of_the_prompt() -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    async with engine_client() as client:
        await client.chat(QUESTION)
        with_tools = await client.chat(QUESTION, tools=[tool])
        again = await client.chat(QUESTION, tools=[tool])
    assert cached(with_tools) == 0
    assert cached(again) == 160
    assert again["usage"]["prompt_tokens"] == PROMPT_TOKENS + 90


async def test_the_least_recently_used_chat_is_evicted_first() -> None:
    """12 blocks hold two chats of 6; the third takes the place of the one not asked again."""
    async with engine_client(num_blocks=12) as client:
        for question in ("a" * 48, "b" * 48, "a" * 48, "c" * 48):
            await client.chat(question)
        assert cached(await client.chat("a" * 48)) == 64
        assert cached(await client.chat("b" * 48)) == 0


async def test_a_wiped_engine_says_nothing_and_has_nothing_cached() -> None:
    async with engine_client() as client:
        await client.chat(QUESTION)
        assert await client.post("/faults", {"wipe": True}) == (200, await client.get("/faults"))
        assert cached(await client.chat(QUESTION)) == 0
        assert cached(await client.chat(QUESTION)) == 64
        client.engine.faults.set(Faults(wipe=True))
        assert cached(await client.chat(QUESTION)) == 0


async def test_requests_wait_for_blocks_that_are_in_use() -> None:
    """Two answers of 6 blocks do not fit into 10 at once."""
    async with engine_client(num_blocks=10, decode_s_per_token=0.002) as client:
        answers = await asyncio.gather(*(client.chat(letter * 48) for letter in "abc"))
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [16, 16, 16]


async def test_what_was_decoded_before_the_client_went_stays_cached() -> None:
    async with engine_client(decode_s_per_token=0.002) as client:
        expected = text_of(await client.chat(QUESTION, max_tokens=600))
        client.engine.faults.set(Faults(wipe=True))
        async with client.http.post(
            "/v1/chat/completions", json=chat_body(QUESTION, stream=True, max_tokens=600)
        ) as answer:
            for _ in range(41):  # the role, then 40 characters, each event with a blank line
                await answer.content.readuntil(b"\n\n")
        await until(lambda: client.engine.counts.cancelled == 1)
        again = await client.chat(QUESTION, expected, "Go on.")
    assert PROMPT_TOKENS + 40 - 16 < cached(again) < PROMPT_TOKENS + 600


async def test_a_prompt_whose_client_went_before_it_was_prefilled_is_not_cached() -> None:
    async with engine_client(prefill_tokens_per_s=1000) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await client.chat(QUESTION)
        await until(lambda: client.engine.counts.cancelled == 1)
        assert client.engine.counts.in_flight == 0
        assert cached(await client.chat(QUESTION)) == 0


async def test_prefill_takes_time_for_what_is_not_cached_alone() -> None:
    """A long prompt that is cached is answered before a shorter one that is not."""
    order: list[str] = []
    async with (
        engine_client(prefill_tokens_per_s=4000) as warm,
        engine_client(prefill_tokens_per_s=4000) as cold,
    ):
        long, short = "long " * 400, "short " * 200

        async def ask(question: str, session: aiohttp.ClientSession) -> None:
            async with session.post("/v1/chat/completions", json=chat_body(question)) as answer:
                await answer.read()
            order.append(question[:5])

        await ask(long, warm.http)
        order.clear()
        await asyncio.gather(ask(short, cold.http), ask(long, warm.http))
    assert order == ["long ", "short"]


async def test_prompts_are_prefilled_one_after_the_other_in_the_order_they_came() -> None:
    """The second finds what the first has prefilled meanwhile."""
    async with engine_client(prefill_tokens_per_s=2000) as client:
        first, second = await asyncio.gather(client.chat(QUESTION), client.chat(QUESTION))
    assert sorted([cached(first), cached(second)]) == [0, 64]
