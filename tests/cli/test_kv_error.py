"""``kv-error``: what KV in fewer bits costs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from prefix_cache.cli.kv_error import kv_error

pytest.importorskip("torch")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(kv_error, list(arguments))


def test_errors_are_shown_by_context_and_storage() -> None:
    done = run("--context", "256")
    assert done.exit_code == 0
    head, _, *rows = done.stdout.strip().splitlines()
    assert head.split("  ")[0] == "context"
    contexts = [row.split()[0] for row in rows]
    assert contexts == ["128"] * 8 + ["256"] * 8
    assert rows[1].split()[1] == "float16"
    assert all(cell.endswith("%") for cell in rows[1].split()[2:])


def test_json_has_the_same_as_numbers() -> None:
    done = run("--context", "200", "--seed", "1", "--json")
    measured = json.loads(done.stdout)["measured"]
    assert [row["num_tokens"] for row in measured] == [128] * 8 + [200] * 8
    assert measured[2]["storage"] == "fp8_e4m3, scale per block"
    assert 0.02 < measured[2]["key_error"] < 0.04
    assert list(measured[2]) == [
        "num_tokens",
        "storage",
        "key_error",
        "value_error",
        "attention_error",
    ]


STORY = "Once upon a time, there was a little girl named Lily. She liked to play in the park. "


def test_a_models_logits_are_measured_as_far_as_the_text_and_its_positions_go(
    shared_data: Path, tmp_path: Path
) -> None:
    model, text = shared_data / "models" / "stories260K", tmp_path / "story.txt"
    text.write_text(STORY * 8)
    done = run("--model", str(model), "--text", str(text), "--context", "1000000", "--json")
    measured = json.loads(done.stdout)["measured"]
    assert {row["num_tokens"] for row in measured} == {128, 210}
    by_name = {row["storage"]: row for row in measured}
    assert by_name["float16"]["logits_error"] < 0.002
    assert by_name["float16"]["greedy_agreement"] > 0.95
    assert 0.01 < by_name["fp8_e4m3, scale per block"]["logits_error"] < 0.2

    text.write_text(STORY)
    done = run("--model", str(model), "--text", str(text))
    assert done.exit_code == 2
    assert "the text has 28 tokens; at least 128 are needed" in done.stderr


def test_help_has_examples() -> None:
    done = run("--help")
    assert "prefix-cache kv-error --context 32768 --json" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--context", "100"], "100 is not in the range 128<=x<=1048576"),
        (["--model", "."], "--model and --text go together"),
        (["--text", __file__], "--model and --text go together"),
        (["--model", "nowhere", "--text", __file__], "Path 'nowhere' does not exist"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"\xff\xfe")
    done = run("--model", str(tmp_path), "--text", str(text))
    assert done.exit_code == 2
    assert "is not UTF-8" in done.stderr
