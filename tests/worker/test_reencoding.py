"""Answers that come back as text: which of their tokens are computed again."""

from __future__ import annotations

from pathlib import Path

from prefix_cache.worker.reencoding import ReencodingLoss, reencoding_loss
from tests.worker.served import CHAT, TEXT, cached, served

PROMPT, ANSWER = list(range(100)), list(range(100, 150))


def test_nothing_is_lost_where_the_next_prompt_goes_on_from_the_tokens() -> None:
    loss = reencoding_loss(PROMPT, ANSWER, [*PROMPT, *ANSWER, 7, 8], block_size=16)
    assert loss == ReencodingLoss(known_tokens=149, common_tokens=149, lost_tokens=0, diverged=None)


def test_full_blocks_from_the_first_other_token_on_are_lost() -> None:
    again = [*PROMPT, *ANSWER[:20], 9, *ANSWER[20:], 7]
    loss = reencoding_loss(PROMPT, ANSWER, again, block_size=16)
    assert loss == ReencodingLoss(
        known_tokens=149, common_tokens=120, lost_tokens=32, diverged=(120, 9, 120)
    )


def test_another_token_in_the_last_partial_block_loses_nothing() -> None:
    loss = reencoding_loss(PROMPT, ANSWER, [*PROMPT, *ANSWER[:45], 9], block_size=16)
    assert (loss.common_tokens, loss.lost_tokens) == (145, 0)


def test_a_prompt_that_stops_short_has_one_token_to_compute() -> None:
    loss = reencoding_loss(PROMPT, ANSWER, [*PROMPT, *ANSWER][:64], block_size=16)
    assert loss == ReencodingLoss(known_tokens=149, common_tokens=64, lost_tokens=96, diverged=None)


async def test_what_a_sampled_answer_loses_as_text_is_what_the_worker_computes_again(
    shared_data: Path,
) -> None:
    """Sampled tokens spell words in ways in which the tokenizer would not.

    Handed on as ids the same history is found.
    """
    question = {"role": "user", "content": "Tell me of the big tree."}
    async with served(shared_data) as client:
        _, first = await client.post(
            CHAT,
            messages=[question],
            temperature=2,
            seed=3,
            max_tokens=120,
            ignore_eos=True,
            return_token_ids=True,
        )
        choice = first["choices"][0]
        as_text = [question, choice["message"], {"role": "user", "content": "Go on."}]
        _, second = await client.post(CHAT, messages=as_text, max_tokens=1, return_token_ids=True)
        as_ids = [*first["prompt_token_ids"], *choice["token_ids"], *[403, 407]]
        _, handed_on = await client.post(TEXT, prompt=as_ids, max_tokens=1)
    loss = reencoding_loss(
        first["prompt_token_ids"], choice["token_ids"], second["prompt_token_ids"], block_size=16
    )
    assert loss.diverged is not None
    assert loss.lost_tokens > 0
    assert cached(second) == cached(handed_on) - loss.lost_tokens
