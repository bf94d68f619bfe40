"""``size``: how large KV is, and how many conversations fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import run

ON_24_GIB = ("size", "llama-3.1-8b", "--gpu", "24GiB")


def as_json(*arguments: str) -> dict[str, Any]:
    done = run("size", *arguments, "--json")
    assert done.stderr == ""
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_the_answer_as_json_is_a_range_with_its_assumptions() -> None:
    answer = as_json("llama-3.1-8b", "--gpu", "24GiB", "--context", "8192")
    assumptions = answer.pop("assumptions")
    assert answer == {
        "model": "llama-3.1-8b",
        "context": 8_192,
        "gpus": 1,
        "bytes_per_token": 131_072,
        "block_bytes": 2_097_152,
        "fixed_bytes_per_sequence": 0,
        "sequence_bytes": 1_073_741_824,
        "kv_bytes": {"low": 4_984_817_254, "high": 6_058_559_078},
        "tokens": {"low": 38_016, "high": 46_208},
        "conversations": {"low": 4, "high": 5},
        "max_context_that_fits": 38_016,
        "weights_bytes": 16_060_522_496,
    }
    assert assumptions == [
        "KV in bfloat16, weights in bfloat16",
        "activations, graphs and libraries take 1 GiB to 2 GiB of each GPU: that cannot be known "
        "beforehand, so the answer is a range",
    ]


def test_fp8_doubles_what_fits_and_says_that_it_needs_scales() -> None:
    answer = as_json("llama-3.1-8b", "--gpu", "24GiB", "--context", "8192", "--kv-dtype", "fp8")
    assert answer["bytes_per_token"] == 65_536
    assert answer["tokens"] == {"low": 76_048, "high": 92_432}
    assert answer["conversations"] == {"low": 9, "high": 11}
    assert any(
        told.startswith("FP8 KV halves memory and needs scales, here one per layer")
        for told in answer["assumptions"]
    )


def test_without_a_gpu_only_kv_is_sized() -> None:
    answer = as_json("opt-13b")
    assert answer["bytes_per_token"] == 819_200
    assert answer["sequence_bytes"] == 1_677_721_600
    unknown = ("kv_bytes", "tokens", "conversations", "max_context_that_fits")
    assert [answer[name] for name in unknown] == [None] * 4


def test_people_get_a_table_by_context_and_what_fits_in_sentences() -> None:
    done = run(*ON_24_GIB, "--context", "8192")
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0] == (
        "llama-3.1-8b: 128 KiB of KV per token in bfloat16, 2 MiB per block of 16 tokens"
    )
    rows = [line.split() for line in lines if line.endswith((" 22", " 5", " 1", " 0"))]
    assert rows == [
        ["2,048", "0.25", "GiB", "18", "to", "22"],
        ["8,192", "1", "GiB", "4", "to", "5"],
        ["32,768", "4", "GiB", "1"],
        ["131,072", "16", "GiB", "0"],
    ]
    assert "KV memory: 4.64 to 5.64 GiB, 38,016 to 46,208 tokens." in lines
    assert "Conversations of 8,192 tokens: 4 to 5 (4.6 to 5.6 by division)." in lines
    assert (
        "No request of 131,072 tokens fits; the largest context that does is 38,016 "
        "(at best 46,208)." in lines
    )


def test_explain_shows_every_line_of_the_calculation() -> None:
    done = run(*ON_24_GIB, "--context", "8192", "--explain")
    shown = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in (
        "KV per token 32 layers x 8 KV heads x 256 elements x 2 bytes 128 KiB",
        "block 16 tokens x 128 KiB 2 MiB",
        "one request of 8,192 512 blocks x 2 MiB 1 GiB",
        "budget 0.9 x 24 GiB of one GPU 21.6 GiB",
        "weights 8.03 B parameters in bfloat16 14.96 GiB",
        "KV memory budget - weights - overhead of 2 GiB or 1 GiB 4.642 GiB to 5.642 GiB",
        "blocks KV memory / 2 MiB 2,376 to 2,888",
        "tokens blocks x 16 38,016 to 46,208",
        "conversations of 8,192 KV memory / 1 GiB 4 to 5 (4.6 to 5.6 by division)",
    ):
        assert line in shown


def test_several_gpus_are_explained_with_what_each_keeps() -> None:
    done = run(
        *("size", "llama-3.1-70b", "--gpu", "h100", "--gpus", "12", "--pp", "3", "--dp", "2"),
        *("--context", "8192", "--shared-prefix", "1024", "--explain"),
    )
    shown = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert shown[0].endswith(
        "54 KiB of KV per token in bfloat16, 864 KiB per block of 16 tokens, on each GPU"
    )
    for line in (
        "stage that decides 27, 27, 26 layers: the one with the least room for conversations "
        "layers 0 to 26",
        "KV per token 27 layers x 4 KV heads of 8 x 256 elements x 2 bytes 54 KiB",
        "- a conversation lives on one data-parallel replica",
        "- whole blocks of the shared prefix are kept once, but in windows and states",
    ):
        assert line in shown


def test_the_context_is_the_models_longest_unless_told() -> None:
    done = run(*ON_24_GIB)
    assert (
        "No request of 131,072 tokens fits; the largest context that does is 38,016" in done.stdout
    )


def test_a_context_that_fits_at_best_is_no_promise() -> None:
    done = run(*ON_24_GIB, "--context", "40000")
    assert "A request of 40,000 tokens fits at best; 38,016 surely do." in done.stdout


def test_overhead_may_be_one_size_and_then_the_answer_is_one_number() -> None:
    answer = as_json("llama-3.1-8b", "--gpu", "24GiB", "--overhead", "1.5GiB", "--context", "8192")
    assert answer["tokens"] == {"low": 42_112, "high": 42_112}


def test_overhead_that_is_one_size_is_no_range() -> None:
    done = run(*ON_24_GIB, "--overhead", "1GiB", "--context", "8192", "--explain")
    shown = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in (
        "- activations, graphs and libraries take 1 GiB of each GPU, as told",
        "KV memory budget - weights - overhead of 1 GiB 5.642 GiB",
        "tokens blocks x 16 46,208",
    ):
        assert line in shown


def test_what_a_conversation_takes_at_once_is_explained() -> None:
    done = run("size", "gemma-3-27b", "--gpu", "h100", "--context", "131072", "--explain")
    shown = [" ".join(line.split()) for line in done.stdout.splitlines()]
    for line in (
        "full windows 52 layers x 65 blocks x 128 KiB 422.5 MiB",
        "one request of 131,072 8,192 blocks x 1.25 MiB + 422.5 MiB 10.41 GiB",
        # 1.96 is not rounded up to two conversations, of which only one fits.
        "Conversations of 131,072 tokens: 1 (1.8 to 1.9 by division).",
    ):
        assert line in shown


def test_a_context_beyond_the_models_longest_is_sized_and_told() -> None:
    done = run("size", "llama-3.2-1b", "--gpu", "80GiB", "--context", "200000")
    assert "Conversations of 200,000 tokens: 11 (11.0 to 11.2 by division)." in done.stdout
    assert "- the context is above the 131,072 tokens of the model's config" in done.stdout


def test_a_page_is_written_that_shows_the_same(tmp_path: Path) -> None:
    page = tmp_path / "size.html"
    done = run(*ON_24_GIB, "--context", "8192", "--html", str(page))
    assert done.stderr == ""
    html = page.read_text("utf-8")
    for text in (
        "<h1>KV memory of llama-3.1-8b</h1>",
        "<dt>Tokens that fit</dt><dd>38,016 to 46,208</dd>",
        "Conversations of 8,192 tokens: 4 to 5 (4.6 to 5.6 by division).",
        "<td>512 blocks x 2 MiB</td>",
        "KV in bfloat16, weights in bfloat16.",
    ):
        assert text in html
    assert html.count("<svg") == 4


def test_a_page_without_memory_shows_none(tmp_path: Path) -> None:
    page = tmp_path / "size.html"
    run("size", "llama-3.1-8b", "--html", str(page))
    html = page.read_text("utf-8")
    assert "<h3>KV of one request</h3>" in html
    assert "memory there is" not in html
    assert "conversations</th>" not in html


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["llama-3.1-8x"], "unknown model 'llama-3.1-8x'"),
        (["missing.json"], "missing.json: cannot be read"),
        (["llama-3.1-8b", "--gpu", "24G"], "'24G' is no size"),
        (["llama-3.1-8b", "--gpu", "0GiB"], "a GPU of 0GiB has no memory"),
        (["llama-3.1-8b", "--gpu=-24GiB"], "'-24GiB' is no size"),
        (["llama-3.1-70b", "--gpu", "24GiB"], "the weights do not fit: 131.4 GiB"),
        (["llama-3.1-8b", "--gpus", "3", "--tp", "2"], "tp 2 x pp 1 x dp 1 are 2 GPUs, not 3"),
        (["llama-3.1-8b", "--kv-dtype", "16"], "unknown dtype '16' of KV"),
        (["llama-3.1-8b", "--utilization", "90"], "utilization is 90.0; expected above 0"),
        (["llama-3.1-8b", "--overhead", "2GiB..1GiB"], "expected the lower end first"),
        (["llama-3.1-8b", "--overhead", "1GiB.."], "'' is no size"),
        (["llama-3.1-8b", "--html", "/no/such/page.html"], "--html: there is no folder /no/such"),
    ],
)
def test_bad_input_is_told_in_one_line(arguments: list[str], problem: str) -> None:
    done = run("size", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert problem in done.stderr
    assert "Traceback" not in done.stderr


def test_a_config_without_a_longest_context_needs_one_told(tmp_path: Path) -> None:
    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "vocab_size": 100,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert "give --context" in run("size", str(path)).stderr
    assert as_json(str(path), "--context", "100")["bytes_per_token"] == 2 * 4 * 32 * 2
