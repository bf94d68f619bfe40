"""What caching saves on prompts made for it, and why it does not save the rest."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from prefix_cache.errors import PromptTooLarge, Unavailable
from prefix_cache.replay.encoding import UTF8_BYTES
from prefix_cache.replay.formats import Grain, ReadOptions, Request, Source, Usage
from prefix_cache.replay.measure.loss import Loss
from prefix_cache.replay.measure.replay import Replay
from prefix_cache.replay.measure.targets import LocalCache, Served, UnlimitedCache
from tests.replay.formats.files import PAIRS, written
from tests.replay.measure.words import UNLIMITED, counting, ids, random_requests, request


def replayed(
    requests: Iterable[Request], num_blocks: int = UNLIMITED, block_words: int = 16
) -> Replay:
    replay = Replay(LocalCache(num_blocks, block_words))
    for each in requests:
        replay.play(each)
    return replay


def test_the_next_turn_finds_the_generated_tokens_too() -> None:
    """F054: prompt 100, answer 50, then a prompt of 200 that extends both: 9 blocks, not 6."""
    words = counting(0, 200)

    replay = replayed([request(words[:400], words[400:600]), request(words, turn=2)])

    assert replay.by_turn[2].cached_tokens == 144
    assert replay.loss == Loss(first_seen=100 + 50, block_rounding=6)


def test_history_that_the_template_rewrites_is_a_divergence_at_its_place() -> None:
    """F050: the second turn leaves the reasoning out; reuse ends where it began."""
    question, reasoning, answer = counting(0, 64), counting(1000, 40), counting(2000, 80)

    replay = replayed(
        [
            request(question, reasoning + answer),
            request(question + answer + counting(3000, 20), turn=2),
        ]
    )

    assert replay.by_turn[2].cached_tokens == 64
    ((kind, role),) = replay.divergences
    assert (kind, role) == ("text left out", "")
    example = replay.divergences[kind, role].example
    assert (example.position, example.turn, example.repeated_tokens) == (64, 2, 80)
    assert replay.loss == Loss(first_seen=64 + 20, divergence=80)


def test_a_few_tokens_more_at_the_head_change_everything() -> None:
    """F051: seven extra tokens at position 2: no block, and the report says where."""
    words = counting(0, 500)

    replay = replayed([request(words), request(words[:8] + counting(9000, 7) + words[8:])])

    assert replay.all.cached_tokens == 0
    assert replay.divergences["text added", ""].example.position == 2
    assert replay.loss == Loss(first_seen=500 + 7, divergence=498, block_rounding=2)


def test_one_volatile_token_costs_the_stable_ones_behind_it() -> None:
    """F052: one changing token at position 5, 2,000 stable tokens after it."""
    prompts = [counting(0, 5) + ids(90_000 + call) + counting(100, 2000) for call in range(3)]

    replay = replayed(request(prompt, conversation=str(prompt[20])) for prompt in prompts)

    assert replay.all.cached_tokens == 0
    (group,) = replay.divergences.values()
    assert (group.requests, group.repeated_tokens, group.example.position) == (2, 4000, 5)
    assert replay.loss == Loss(first_seen=2006 + 2, divergence=4000, block_rounding=10)


def test_the_message_and_the_kind_of_a_divergence_are_told(tmp_path: Path) -> None:
    def chat(number: str) -> dict[str, object]:
        text = f"Ticket {number}: " + "the train was late again and again. " * 3
        return {
            "messages": [
                {"role": "system", "content": "You help."},
                {"role": "user", "content": text},
            ]
        }

    uuids = "123e4567-e89b-12d3-a456-426614174000", "923e4567-e89b-12d3-a456-426614174000"
    source = Source(written(tmp_path / "chats", *map(chat, uuids)), ReadOptions())
    replay = Replay(LocalCache(UNLIMITED, 16), text_of=UTF8_BYTES.decode)
    for each in source:
        replay.play(each)

    ((kind, role),) = replay.divergences
    assert (kind, role) == ("uuid", "user")
    example = replay.divergences[kind, role].example
    assert example.message == 1
    assert example.position == len("<|system|>\nYou help.<|end|>\n<|user|>\nTicket ")


def test_unlike_prompts_are_new_and_not_diverged() -> None:
    replay = replayed([request(counting(0, 100)), request(counting(0, 50) + counting(5000, 50))])

    assert replay.loss == Loss(first_seen=100 + 50, block_rounding=2)
    assert replay.divergences == {}


def test_what_was_encoded_anew_is_counted_by_itself() -> None:
    """F038: of 120 tokens of history, encoded anew, the first 100 are the ids they were."""
    first = request(counting(0, 90), counting(90, 30))
    anew = Request(
        "chat",
        2,
        counting(0, 100) + counting(7000, 20) + counting(500, 10),
        b"",
        prompt_tokens=130,
        answer_tokens=0,
        reencoded_tokens=120,
    )

    replay = replayed([first, anew])

    assert replay.loss == Loss(first_seen=90 + 10, reencoding=20, block_rounding=4)


def test_a_chat_replayed_from_ids_and_from_text_differs_by_the_reencoding(tmp_path: Path) -> None:
    """The answer has an odd number of bytes: from its text, all behind it has other ids."""
    said = ["Is there a train to Ulm?", "Yes, at nine o'clock.", "Thank you!"]
    roles = ["user", "assistant", "user"]
    messages = [{"role": role, "content": text} for role, text in zip(roles, said, strict=True)]
    path = written(tmp_path / "chats", {"messages": messages})

    def loss(*, reencode: bool) -> Loss:
        options = ReadOptions(encoding=PAIRS, reencode=reencode)
        return replayed(Source(path, options), block_words=4).loss

    ids_kept, from_text = loss(reencode=False), loss(reencode=True)
    assert ids_kept.reencoding == 0
    assert from_text.reencoding == 15
    assert from_text.tokens > ids_kept.tokens


def test_a_small_cache_evicts_and_that_is_counted() -> None:
    """Four prompts of four blocks in turns, twice, on a cache of ten blocks."""
    prompts = [counting(1000 * number, 65) for number in range(4)]

    replay = replayed([request(prompt) for prompt in prompts * 2], num_blocks=10)

    assert replay.all.cached_tokens == 0
    assert replay.loss == Loss(first_seen=4 * 65, block_rounding=4, eviction=4 * 64)


def test_losses_add_up_on_any_traffic_and_cache() -> None:
    for seed in range(100):
        requests = random_requests(seed)
        replay = replayed(requests, num_blocks=40, block_words=1 + seed % 4)
        assert replay.loss.tokens == replay.all.totals.prefilled_tokens
        assert replay.all.requests + replay.not_served.requests == len(requests)


def test_a_cache_that_never_evicts_is_told_from_what_was_seen() -> None:
    """Nothing is kept twice, and it is the same as a block cache that is large enough."""
    for seed in range(100):
        requests, unlimited = random_requests(seed), Replay(UnlimitedCache(4))
        cached = [unlimited.play(each) for each in requests]

        kept = Replay(LocalCache(UNLIMITED, 4))
        assert cached == [kept.play(each) for each in requests]
        assert (unlimited.loss, unlimited.all) == (kept.loss, kept.all)


@pytest.mark.parametrize("memory", [None, 96])
def test_block_sizes_of_other_caches_are_told_from_the_same_pass(memory: int | None) -> None:
    requests = [each for seed in range(20) for each in random_requests(seed)]
    replay = replayed(requests, num_blocks=UNLIMITED if memory is None else memory // 16)
    assert replay.not_served.requests == 0

    told = replay.block_sizes.hit_tokens(memory)

    assert list(told) == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    for size in (1, 2, 4, 8, 16):
        num_blocks = UNLIMITED if memory is None else memory // size
        other = replayed(requests, num_blocks=num_blocks, block_words=size)
        assert told[size] == other.all.cached_tokens


def test_a_block_size_that_leaves_too_few_blocks_has_no_hit_rate() -> None:
    """Forty tokens are 40 blocks of 1, or 2 of 32; memory for 40 tokens is 1 of these."""
    told = replayed([request(counting(0, 40))]).block_sizes.hit_tokens(40)

    assert (told[1], told[8], told[32]) == (0, 0, None)


def test_hashes_count_the_tokens_that_they_stand_for() -> None:
    """Two blocks of 512 tokens and 100 more; the second time all of it was seen."""
    prompt = ids(4, 0, 5, 0, 6)
    each = Request("chat", 1, prompt, b"", prompt_tokens=1124, answer_tokens=9)
    replay = Replay(LocalCache(UNLIMITED, 2), Grain(512, 2), compares=False)

    assert [replay.play(each), replay.play(each)] == [0, 1024]

    assert replay.block_size == 512
    assert replay.loss == Loss(first_seen=1124, block_rounding=100)
    assert (replay.blocks.seen, replay.blocks.blocks) == (3, 6)


def test_what_an_engine_reported_is_added_up() -> None:
    reported = Request("", 1, ids(1), b"", 1, 0, reported=Usage(30, 16))

    replay = replayed([reported, reported, request(ids(1))])

    totals = replay.reported
    assert (totals.requests, totals.prompt_tokens, totals.cached_tokens) == (2, 60, 32)


def test_requests_that_are_refused_are_in_no_figure() -> None:
    replay = replayed([request(counting(0, 64)), request(counting(0, 16))], num_blocks=3)

    assert (replay.all.requests, replay.all.prompt_tokens) == (1, 16)
    assert replay.not_served.requests == 1
    assert replay.not_served.error == "the sequence needs 4 blocks, the pool has 3"


class Scripted:
    """A target of two nodes that says what it is told to."""

    block_words = 16

    def __init__(self, *served: Served | Exception) -> None:
        self._served = list(served)

    def serve(self, request: Request) -> Served:
        served = self._served.pop(0)
        if isinstance(served, Exception):
            raise served
        return served


def test_hits_that_this_run_did_not_put_there_are_carried_over() -> None:
    """F036: an earlier run has left the prompt at the node."""
    replay = Replay(Scripted(Served(32), Served(48)))

    replay.play(request(counting(0, 64)))
    replay.play(request(counting(0, 64)))

    assert replay.carried_over_tokens == 32
    assert replay.loss == Loss(first_seen=32, last_token=16)
    assert replay.loss.tokens == replay.all.totals.prefilled_tokens


def test_what_another_node_had_is_lost_by_routing_and_the_rest_by_eviction() -> None:
    """Node b never saw the prompt; node a saw it and holds 16 tokens of 48 any more."""
    prompt = request(counting(0, 50))
    replay = Replay(Scripted(Served(0, "a"), Served(0, "b"), Served(16, "a")))

    for _ in range(3):
        replay.play(prompt)

    assert replay.loss == Loss(first_seen=50, block_rounding=2 + 2, routing=48, eviction=32)


def test_a_target_that_is_gone_ends_the_replay() -> None:
    replay = Replay(Scripted(PromptTooLarge("too large"), Unavailable("gone")))

    assert replay.play(request(ids(1))) is None
    with pytest.raises(Unavailable, match="gone"):
        replay.play(request(ids(1)))


def test_the_ceiling_of_the_mooncake_hour_by_both_ways_of_counting(shared_data: Path) -> None:
    source = Source(shared_data / "traces/mooncake_conversation_trace.jsonl.gz", ReadOptions())
    replay = Replay(LocalCache(UNLIMITED, 2), source.grain, compares=False)
    for each in source:
        replay.play(each)

    assert replay.all.prompt_tokens == 144_793_823
    assert replay.blocks.seen / replay.blocks.blocks == pytest.approx(0.3664, abs=5e-5)
    assert replay.all.totals.hit_rate == pytest.approx(0.3734, abs=5e-5)
    assert replay.loss.tokens == replay.all.totals.prefilled_tokens


@pytest.mark.parametrize(
    "name",
    [
        "bfcl_v4_multi_turn_800",
        "mt_bench_questions",
        "oasst_en_100_tree_paths",
        "sweagent_mit_trajs",
    ],
)
def test_every_conversation_file_replays_and_adds_up(shared_data: Path, name: str) -> None:
    source = Source(shared_data / "conversations" / f"{name}.jsonl.gz", ReadOptions())
    replay = Replay(LocalCache(20_000, 16), text_of=source.text_of)
    for each in source:
        replay.play(each)

    assert replay.not_served.requests == 0
    assert replay.loss.tokens == replay.all.totals.prefilled_tokens
    hits = int(replay.distances.hit_blocks(20_000))
    assert 16 * hits == replay.all.cached_tokens > 0
