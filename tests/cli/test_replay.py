"""``prefix-cache replay``: what was cached on one cache, printed, as JSON and as a page."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from prefix_cache.client import NodeClient
from tests.cli.commands import first_line, run, running
from tests.cli.test_interrupts import INTERRUPT
from tests.node.nodes import wait_until


def told(*texts: str) -> list[dict[str, str]]:
    roles = ("system", "user", "assistant")
    return [
        {"role": roles[place and 1 + (place - 1) % 2], "content": text}
        for place, text in enumerate(texts)
    ]


def chats(path: Path, *conversations: list[dict[str, str]]) -> str:
    lines = [json.dumps({"messages": messages}) for messages in conversations]
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def found(*arguments: str) -> dict[str, Any]:
    done = run("replay", *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


CHAT = told("You help with trains.", "Is there one to Ulm?", "Yes, at nine.", "Thank you!")
CLOCK = [
    told(f"It is 12:{minute}:07.  " + "You are a careful assistant who answers. " * 10, "Hello")
    for minute in (10, 23, 37)
]


def test_a_chat_of_two_turns_turn_by_turn(tmp_path: Path) -> None:
    """The tokens are bytes: the second prompt goes on from the first one and its answer."""
    answer = found(chats(tmp_path / "chat.jsonl", CHAT))

    first = len("<|system|>\nYou help with trains.<|end|>\n<|user|>\nIs there one to Ulm?<|end|>\n")
    first += len("<|assistant|>\n")
    second = first + len("Yes, at nine.<|end|>\n<|user|>\nThank you!<|end|>\n<|assistant|>\n")
    assert (answer["requests"], answer["prompt_tokens"]) == (2, first + second)
    (one, two) = answer["by_turn"]
    assert (one["turn"], one["prompt_tokens"], one["cached_tokens"]) == (1, first, 0)
    known = first + len("Yes, at nine.<|end|>\n")
    assert (two["turn"], two["cached_tokens"]) == (2, known // 16 * 16)
    assert two["prefilled_tokens"] == second - known // 16 * 16
    assert answer["loss"] == {
        "first_seen": first + second - known,
        "divergence": 0,
        "reencoding": 0,
        "block_rounding": known % 16,
        "last_token": 0,
        "eviction": 0,
        "routing": 0,
    }
    assert answer["savings"] == {"tokens": answer["cached_tokens"]}
    assert answer["policies"] == []


def test_every_key_that_others_read_is_there(tmp_path: Path) -> None:
    answer = found(chats(tmp_path / "chat.jsonl", CHAT))

    assert {"requests", "prompt_tokens", "cached_tokens", "prefilled_tokens", "hit_rate"} < set(
        answer
    )
    assert [set(point) for point in answer["curve"]] == [{"blocks", "hit_rate"}] * len(
        answer["curve"]
    )
    assert answer["curve"][-1]["hit_rate"] == answer["hit_rate"] == answer["ceiling"]["hit_rate"]


def test_a_clock_in_the_system_prompt_is_pointed_at_and_can_be_taken_out(tmp_path: Path) -> None:
    """F052: what stands behind the clock is the same text, and new to a cache."""
    file = chats(tmp_path / "clock.jsonl", *CLOCK)

    answer = found(file)

    (clock,) = answer["divergences"]
    assert (clock["kind"], clock["role"], clock["requests"]) == ("date or time", "system", 2)
    assert (clock["example"]["position"], clock["example"]["message"]) == (20, 0)
    assert clock["tokens"] == answer["loss"]["divergence"] > 800
    assert answer["cached_tokens"] == 2 * 16
    assert found(file, "--normalise")["loss"]["divergence"] == 0


def test_savings_are_told_for_a_model_and_a_card(tmp_path: Path) -> None:
    file = chats(tmp_path / "chat.jsonl", CHAT)

    savings = found(file, "--model", "llama-3.1-8b", "--gpu", "h100")["savings"]

    assert savings["kv_bytes"] == savings["tokens"] * 128 * 1024
    assert savings["flops"] == pytest.approx(savings["tokens"] * 2 * 7e9, rel=0.02)
    assert savings["seconds"] == savings["flops"] / (0.5 * 989e12)


def test_the_table_says_what_was_cached_why_not_and_what_would_change_it(tmp_path: Path) -> None:
    done = run("replay", chats(tmp_path / "clock.jsonl", *CLOCK))

    assert (done.returncode, done.stderr) == (0, "")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[1].startswith("3 requests of")
    assert "date or time system 2 920 token 20 in message 0 (line 2, turn 1)" in lines
    assert any(line.startswith("repeated, but behind a difference 920") for line in lines)
    assert any(line.startswith("block size hit rate") for line in lines)


def test_the_page_is_one_file_with_plots(tmp_path: Path) -> None:
    page = tmp_path / "report.html"

    run("replay", chats(tmp_path / "clock.jsonl", *CLOCK), "--html", str(page))

    html = page.read_text()
    assert html.startswith("<!doctype html>")
    assert "Hit rate against cache size" in html
    assert "date or time" in html


def test_lengths_alone_need_an_assumption(tmp_path: Path) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00.5,100,20\n"
        "2024-01-01 00:00:01,50,5\n2024-01-01 00:00:02,170,1\n"
    )

    refused = run("replay", str(file))
    assert refused.returncode == 2
    assert "--assume-turns" in refused.stderr
    assert found(str(file), "--assume-turns", "1")["cached_tokens"] == 0
    assert found(str(file), "--assume-turns", "2")["cached_tokens"] == 112


def test_bad_records_are_named_or_left_out_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps({"messages": CHAT}) + "\n{\n" + json.dumps({"messages": CHAT}))

    refused = run("replay", str(file))
    assert refused.returncode == 2
    assert "chats.jsonl, line 2: expected JSON" in refused.stderr
    done = run("replay", str(file), "--skip-bad", "--json")
    assert done.returncode == 0
    assert "warning: 1 bad records were left out; the first: " in done.stderr
    assert "chats.jsonl, line 2: expected JSON" in done.stderr
    answer = json.loads(done.stdout)
    assert (answer["requests"], answer["skipped_records"]) == (4, 1)


def test_a_cut_file_is_refused_with_its_line_or_read_up_to_there(tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl.gz"
    line = json.dumps({"messages": CHAT}).encode() + b"\n"
    file.write_bytes(gzip.compress(line * 50)[:-9])

    done = run("replay", str(file))

    assert done.returncode == 2
    assert "line 51: no whole gzip stream" in done.stderr
    done = run("replay", str(file), "--skip-bad", "--json")
    assert done.returncode == 0
    assert "1 bad records were left out; the first: " in done.stderr
    assert "line 51: no whole gzip stream" in done.stderr
    assert json.loads(done.stdout)["requests"] == 100


def test_prompts_that_exceed_the_cache_are_not_served_and_said_so(tmp_path: Path) -> None:
    file = chats(tmp_path / "chats.jsonl", told("Short.", "Hello"), CHAT)

    done = run("replay", file, "--blocks", "4", "--json")

    assert json.loads(done.stdout)["requests"] == 1
    assert "2 requests were not served and are in no figure; the first: the seq" in done.stderr


def test_a_sample_gives_sizes_with_their_error(tmp_path: Path) -> None:
    answer = found(chats(tmp_path / "clock.jsonl", *CLOCK * 5), "--sample", "1")

    last = answer["curve"][-1]
    exact = found(chats(tmp_path / "clock.jsonl", *CLOCK * 5))
    assert last["hit_rate"] == pytest.approx(exact["hit_rate"])
    assert last["error"] >= 0
    assert answer["requests"] == 15


def test_a_sample_of_few_blocks_is_warned_of(tmp_path: Path) -> None:
    done = run("replay", chats(tmp_path / "chat.jsonl", CHAT), "--sample", "0.0001")

    assert done.returncode == 0
    assert "warning: the sample has 0 blocks only; rates and errors can be relied on" in done.stderr


def test_ctrl_c_prints_what_was_done_so_far_and_says_it_is_a_part(tmp_path: Path) -> None:
    """It comes before the first request, which is played to its end."""
    file = chats(tmp_path / "chats.jsonl", CHAT, CHAT)
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT.format(module="rich.progress"))

    with running("replay", file, "--json", PYTHONPATH=str(tmp_path)) as replay:
        out, err = replay.communicate(timeout=60)

    assert replay.returncode == 130
    answer = json.loads(out)
    assert (answer["partial"], answer["requests"]) == (True, 1)
    assert sum(answer["loss"].values()) == answer["prefilled_tokens"] > 0
    assert "figures are of a part of the file, the replay was ended: by Ctrl-C" in err


def test_a_running_node_is_replayed_against_and_what_is_carried_over_is_named(
    tmp_path: Path,
) -> None:
    """F036: by itself every run has a salt of its own."""
    file = chats(tmp_path / "clock.jsonl", *CLOCK)
    here = found(file)
    with running("node", "--num-blocks", "500", "--listen", "127.0.0.1:0") as node:
        address = first_line(node).split()[-1]
        first, second = (found(file, "--node", address) for _ in range(2))
        found(file, "--node", address, "--salt", "mine")
        again = run("replay", file, "--node", address, "--salt", "mine", "--json")

    assert first == second
    assert (first["loss"], first["by_turn"]) == (here["loss"], here["by_turn"])
    carried_over = json.loads(again.stdout)["carried_over_tokens"]
    assert carried_over == json.loads(again.stdout)["cached_tokens"] - here["cached_tokens"] > 0
    assert f"warning: {carried_over:,} of the cached tokens were carried over" in again.stderr


def test_what_was_done_is_told_when_the_node_goes_away(tmp_path: Path) -> None:
    """The second request is an hour later than the first; at this speed, some seconds."""
    file = tmp_path / "tokens.jsonl"
    record = {"prompt_token_ids": list(range(40))}
    lines = [json.dumps({**record, "timestamp": at}) for at in (1000, 1000, 4600)]
    file.write_text("\n".join(lines))
    with running("node", "--num-blocks", "500", "--listen", "127.0.0.1:0") as node:
        address = first_line(node).split()[-1]
        with running("replay", str(file), "--node", address, "--speed", "1200", "--json") as replay:
            with NodeClient(address) as client:
                wait_until(lambda: client.stats().query_tokens == 80)
            node.kill()
            out, err = replay.communicate(timeout=60)

    assert replay.returncode == 1
    assert (json.loads(out)["requests"], json.loads(out)["cached_tokens"]) == (2, 32)
    assert "figures are of a part of the file, the replay was ended: " in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "give either a FILE or --load"),
        ([__file__, "--load", "light"], "give either a FILE or --load"),
        ([__file__], "test_replay.py, line 1: expected JSON, but Extra data at column 3"),
        ([__file__, "--format", "best"], "unknown format 'best'; expected one of openai, sharegpt"),
        ([__file__, "--policy", "best"], "unknown policy 'best'; expected all, sticky, prefix,"),
        ([__file__, "--gpu", "h100"], "--gpu goes with --model"),
        ([__file__, "--node", "a:1", "--router", "b:2"], "give one of --node and --router"),
        ([__file__, "--salt", "x"], "--salt goes with --node or --router"),
        ([__file__, "--sample", "0.1", "--policy", "all"], "--sample measures cache sizes only"),
        ([__file__, "--sample", "0"], "0.0 is not in the range"),
        ([__file__, "--html", "/no/such/page.html"], "--html: there is no folder /no/such"),
        ([__file__, "--nodes", "0"], "0 is not in the range"),
        ([__file__, "--blocks", "0"], "0 is not in the range"),
        ([__file__, "--speed", "0"], "0.0 is not in the range"),
        ([__file__, "--event-lag", "-1"], "-1.0 is not in the range"),
        ([__file__, "--speed", "nan"], "nan is no number"),
        (["no-such-file"], "'no-such-file' does not exist"),
    ],
)
def test_bad_usage_exits_with_2_and_says_what_is_wrong(
    arguments: list[str], complaint: str
) -> None:
    done = run("replay", *arguments)

    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
