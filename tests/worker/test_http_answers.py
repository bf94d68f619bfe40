"""Answers over HTTP, as the ``openai`` client and others see them, by a real model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openai.types.chat import ChatCompletionMessageParam

from tests.worker.served import CHAT, MODEL, cached, served

HEAD = "Once upon a time"
LILY = ", there was a little girl named Lily."
ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Once upon a time" * 8}]


async def test_a_prompt_is_gone_on_from_and_its_tokens_are_told(shared_data: Path) -> None:
    async with served(shared_data) as client:
        answer = await client.complete(HEAD, max_tokens=11)
    assert answer["choices"] == [
        {
            "index": 0,
            "text": LILY,
            "prompt_token_ids": [1, 403, 407, 261, 378],
            "token_ids": [432, 383, 286, 261, 376, 298, 315, 421, 395, 317, 426],
            "logprobs": None,
            "finish_reason": "length",
        }
    ]
    assert answer["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 11,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert (answer["object"], answer["model"]) == ("text_completion", MODEL)


async def test_tokens_are_not_told_to_who_did_not_ask(shared_data: Path) -> None:
    async with served(shared_data) as client:
        answer = await client.complete(HEAD, max_tokens=1, return_token_ids=False)
    assert "token_ids" not in answer["choices"][0]
    assert "prompt_token_ids" not in answer["choices"][0]


async def test_a_prompt_of_token_ids_is_answered_as_its_text_is(shared_data: Path) -> None:
    async with served(shared_data) as client:
        of_ids = await client.complete([1, 403, 407, 261, 378], max_tokens=11)
        of_text = await client.complete(HEAD, max_tokens=11)
    assert of_ids["choices"] == of_text["choices"]


async def test_several_prompts_are_answered_at_once_in_their_order(shared_data: Path) -> None:
    prompts = [HEAD, "The little girl", HEAD * 8]
    async with served(shared_data) as client:
        alone = [await client.complete(prompt, n=2, seed=3, max_tokens=9) for prompt in prompts]
        together = await client.complete(prompts, n=2, seed=3, max_tokens=9)
        [ids] = {tuple(one["choices"][0]["prompt_token_ids"]) for one in alone[:1]}
        of_ids = await client.complete([list(ids), list(ids)], max_tokens=9)
    choices = [choice for one in alone for choice in one["choices"]]
    assert [choice["index"] for choice in together["choices"]] == [0, 1, 2, 3, 4, 5]
    assert [{**choice, "index": 0} for choice in together["choices"]] == [
        {**choice, "index": 0} for choice in choices
    ]
    assert [choice["text"] for choice in of_ids["choices"]] == [
        ", there was a little girl named"
    ] * 2
    assert together["usage"]["completion_tokens"] == 54
    assert together["usage"]["prompt_tokens"] == sum(one["usage"]["prompt_tokens"] for one in alone)
    assert cached(together) == 32


async def test_several_prompts_are_streamed_each_under_its_index(shared_data: Path) -> None:
    prompts = [HEAD, "The little girl"]
    async with served(shared_data) as client:
        completions = client.openai.completions
        settings: Any = {
            "model": MODEL,
            "prompt": prompts,
            "max_tokens": 9,
            "temperature": 0,
            "stream_options": {"include_usage": True},
        }
        whole = await completions.create(**{**settings, "stream_options": None})
        texts, usage = ["", ""], None
        async for chunk in await completions.create(**settings, stream=True):
            usage = chunk.usage
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]
    assert texts[0] != texts[1]
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (11, 18)


async def test_an_answer_handed_on_as_ids_is_cached_but_for_its_last_token(
    shared_data: Path,
) -> None:
    async with served(shared_data) as client:
        first = (await client.complete(HEAD, max_tokens=60))["choices"][0]
        history = first["prompt_token_ids"] + first["token_ids"]
        second = await client.complete([*history, 403, 407], max_tokens=1)
    assert len(history) == 65
    assert cached(second) == 64


async def test_a_chat_is_streamed_to_the_openai_client_as_it_is_answered_whole(
    shared_data: Path,
) -> None:
    async with served(shared_data) as client:
        chat = client.openai.chat.completions
        whole = await chat.create(model=MODEL, messages=ASKED, max_tokens=20, temperature=0)
        stream = await chat.create(
            model=MODEL,
            messages=ASKED,
            max_completion_tokens=20,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    *pieces, last = chunks
    assert pieces[0].choices[0].delta.role == "assistant"
    text = "".join(piece.choices[0].delta.content or "" for piece in pieces)
    assert text == whole.choices[0].message.content
    assert len(text) > 20
    assert [piece.choices[0].finish_reason for piece in pieces[-2:]] == [None, "length"]
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.completion_tokens == whole.usage.completion_tokens == 20
    prompt_tokens = whole.usage.prompt_tokens
    assert last.usage.prompt_tokens == prompt_tokens
    assert last.usage.prompt_tokens_details is not None
    assert last.usage.prompt_tokens_details.cached_tokens == (prompt_tokens - 1) // 16 * 16 > 0


async def test_a_stream_tells_the_same_tokens_as_a_whole_answer(shared_data: Path) -> None:
    async with served(shared_data) as client:
        chat = client.openai.chat.completions
        wanted = {"return_token_ids": True}
        whole = await chat.create(
            model=MODEL, messages=ASKED, max_tokens=9, temperature=0, extra_body=wanted
        )
        stream = await chat.create(
            model=MODEL, messages=ASKED, max_tokens=9, temperature=0, extra_body=wanted, stream=True
        )
        prompt_ids: list[int] = []
        token_ids: list[int] = []
        async for chunk in stream:
            prompt_ids += (chunk.model_extra or {}).get("prompt_token_ids", [])
            token_ids += (chunk.choices[0].model_extra or {}).get("token_ids", [])
    assert whole.model_extra == {"prompt_token_ids": prompt_ids}
    assert whole.choices[0].model_extra == {"token_ids": token_ids}
    assert len(token_ids) == 9


async def test_the_next_turn_of_a_chat_computes_what_is_new(shared_data: Path) -> None:
    async with served(shared_data) as client:
        body = {"max_tokens": 8, "temperature": 0, "return_token_ids": True}
        _, first = await client.post(CHAT, messages=ASKED, **body)
        said = first["choices"][0]["message"]
        more = {"role": "user", "content": "And then?"}
        _, second = await client.post(CHAT, messages=[*ASKED, said, more], **body)
    known = len(first["prompt_token_ids"]) + 8 - 1
    assert cached(first) == 0
    assert cached(second) == known // 16 * 16


async def test_several_answers_are_different_and_follow_from_the_seed(shared_data: Path) -> None:
    async with served(shared_data) as client:
        first, again = [
            await client.complete(HEAD, n=3, temperature=1.5, seed=7, max_tokens=12)
            for _ in range(2)
        ]
        other = await client.complete(HEAD, n=3, temperature=1.5, seed=8, max_tokens=12)
    assert [choice["index"] for choice in first["choices"]] == [0, 1, 2]
    assert first["choices"] == again["choices"]
    assert first["choices"] != other["choices"]
    assert len({choice["text"] for choice in first["choices"]}) == 3
    assert first["usage"]["completion_tokens"] == 36
    assert first["usage"]["total_tokens"] == 41


async def test_requests_without_a_seed_follow_from_that_of_the_worker(shared_data: Path) -> None:
    found = []
    for seed in (1, 1, 2):
        async with served(shared_data, seed=seed) as client:
            found.append(
                [
                    (await client.complete(HEAD, temperature=1.5, max_tokens=12))["choices"]
                    for _ in range(2)
                ]
            )
    assert found[0] == found[1]
    assert found[0] != found[2]
    assert found[0][0] != found[0][1]


async def test_beams_come_the_likeliest_first(shared_data: Path) -> None:
    async with served(shared_data) as client:
        beams = await client.complete(HEAD, n=3, use_beam_search=True, max_tokens=8)
        stream = await client.openai.completions.create(
            model=MODEL,
            prompt=HEAD,
            n=3,
            max_tokens=8,
            stream=True,
            extra_body={"use_beam_search": True, "ignore_eos": True},
        )
        streamed = {chunk.choices[0].index: chunk.choices[0].text async for chunk in stream}
    texts = [choice["text"] for choice in beams["choices"]]
    assert texts == [
        ", there was a little girl",
        ", there was a little boy",
        ", there was a boy named",
    ]
    assert streamed == dict(enumerate(texts))


async def test_an_answer_ends_before_a_stop_string(shared_data: Path) -> None:
    async with served(shared_data) as client:
        one = await client.complete(HEAD, max_tokens=30, stop=" girl")
        several = await client.complete(HEAD, max_tokens=30, stop=["Tom", "little"])
    assert one["choices"][0]["text"] == ", there was a little"
    assert one["choices"][0]["finish_reason"] == "stop"
    assert several["choices"][0]["text"] == ", there was a "


async def test_kv_is_not_shared_between_salts(shared_data: Path) -> None:
    async with served(shared_data) as client:
        found = [
            cached(await client.complete(HEAD * 10, max_tokens=1, cache_salt=salt))
            for salt in ("", "a", "b", "a", "")
        ]
    assert found == [0, 0, 0, 48, 48]


async def test_a_completion_has_16_tokens_and_a_chat_all_that_fit_where_nothing_is_said(
    shared_data: Path,
) -> None:
    async with served(shared_data) as client:
        completion = await client.complete(HEAD)
        near_the_end = await client.complete([1] * 505)
        _, chat = await client.post(CHAT, messages=ASKED, ignore_eos=True, temperature=0)
    assert completion["usage"]["completion_tokens"] == 16
    assert near_the_end["usage"]["total_tokens"] == 512
    assert chat["usage"]["total_tokens"] == 512


async def test_fp8_kv_with_calibrated_scales_is_answered_from(
    shared_data: Path, tmp_path: Path
) -> None:
    text = tmp_path / "calibration.txt"
    text.write_text(HEAD + LILY + " She loved to play outside.")
    async with served(
        shared_data, kv_dtype="fp8_e4m3", kv_scales="layer", calibration=text
    ) as client:
        answer = await client.complete(HEAD, max_tokens=11)
    assert answer["choices"][0]["text"] == LILY
