"""Requests as a simulated fleet sees them."""

from __future__ import annotations

from prefix_cache.replay.formats import TOKENS, Grain, Request
from prefix_cache.replay.policies.trace import trace_of


def words(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def test_blocks_of_tokens_are_named_by_all_that_stands_before_them() -> None:
    """The second block of the two has the same tokens, after other ones."""
    one = Request.of_tokens("chat", 1, words(1, 2, 3, 4, 5), words(6), at=2.5)
    other = Request.of_tokens("chat", 2, words(1, 9, 3, 4), b"", at=3.0)

    first, second = trace_of([one, other], TOKENS, block_size=2)

    assert (first.at, first.input_tokens, first.output_tokens) == (2.5, 5, 1)
    assert (first.conversation, first.block_size) == ("chat", 2)
    assert len(first.block_hashes) == 3
    assert len({*first.block_hashes, *second.block_hashes}) == 5


def test_what_is_the_same_up_to_a_block_has_the_same_name_for_it() -> None:
    prompts = words(1, 2, 3, 4), words(1, 2, 3, 5)

    one, other = trace_of(
        [Request.of_tokens("", 1, prompt, b"") for prompt in prompts], TOKENS, block_size=2
    )

    assert one.block_hashes[0] == other.block_hashes[0]
    assert one.block_hashes[1] != other.block_hashes[1]


def test_hashes_of_a_trace_stay_as_they_are_and_the_last_of_a_block_names_it() -> None:
    """Five hashes of 16 tokens and a partial one, in blocks of 32 tokens."""
    prompt = words(1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6)
    request = Request("chat", 1, prompt, b"", prompt_tokens=83, answer_tokens=7)

    (seen,) = trace_of([request], Grain(tokens=16, words=2), block_size=32)

    assert seen.block_hashes == (words(2, 0), words(4, 0), words(0, 6))


def test_requests_without_a_time_come_one_a_second() -> None:
    requests = [Request.of_tokens("", 1, words(1), b"")] * 3

    assert [request.at for request in trace_of(requests, TOKENS, 16)] == [0.0, 1.0, 2.0]
