"""``simulate``: serving on paper, with contiguous and with paged KV memory."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from prefix_cache.cli.commands import commands
from prefix_cache.simulate.experiment import Experiment
from prefix_cache.simulate.figures import Figure, figure
from prefix_cache.simulate.server import Server
from prefix_cache.simulate.workload import Load
from tests.cli.commands import run
from tests.html_report.browser import browser_tab

QUICK = ("--requests", "60")


def as_json(*arguments: str) -> dict[str, Any]:
    done = run("simulate", *arguments, "--json")
    assert (done.stderr, done.returncode) == ("", 0)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_waste_as_json_has_shares_that_add_up_to_one() -> None:
    answer = as_json("waste", "--requests", "200")
    allocators = {one["allocator"]: one for one in answer["allocators"]}
    assert list(allocators) == ["reserve_max", "pow2", "oracle", "paged"]
    for one in allocators.values():
        parts = ("tokens", "reserved", "internal", "external")
        assert sum(one[f"{part}_share"] for part in parts) == pytest.approx(1)
    assert allocators["paged"]["tokens_share"] >= 0.96
    assert allocators["reserve_max"]["tokens_share"] < 0.4
    assert allocators["reserve_max"]["paper_tokens_share"] == 0.204
    assert (answer["model"], answer["num_slots"], answer["rate"]) == ("opt-13b", 15_805, 2.0)


def test_equal_seeds_print_the_same() -> None:
    first, second, other = (
        run("simulate", "waste", *QUICK, "--seed", seed).stdout for seed in ("3", "3", "4")
    )
    assert first == second
    assert first != other


def test_people_get_a_table_with_the_papers_shares_beside() -> None:
    lines = run("simulate", "waste", *QUICK).stdout.splitlines()
    assert lines[0] == (
        "What KV memory in use holds: opt-13b on a100-40g (15,805 tokens of KV), sharegpt lengths, "
        "2 requests/s"
    )
    rows = {line.split()[0]: line.split() for line in lines if "%" in line}
    assert {name: row[5] for name, row in rows.items()} == {
        "reserve_max": "20.4%",
        "pow2": "26.8%",
        "oracle": "38.2%",
        "paged": "96.3%",
    }


def test_other_models_have_no_number_of_the_paper_beside() -> None:
    answer = as_json("waste", *QUICK, "--model", "llama-3.1-8b", "--gpu", "h100")
    assert {one["paper_tokens_share"] for one in answer["allocators"]} == {None}
    assert answer["num_slots"] > 300_000


def test_rates_say_how_much_more_paging_sustains() -> None:
    answer = as_json("rates", "--requests", "150", "--latency-bound", "0.036")
    by_name = {one["allocator"]: one for one in answer["allocators"]}
    assert by_name["paged"]["paged_by_it"] == 1
    assert by_name["reserve_max"]["paged_by_it"] > 1.5
    for one in answer["allocators"]:
        latencies = {point["rate"]: point["normalised_latency_s"] for point in one["curve"]}
        assert latencies[one["highest_rate"]] <= 0.036 < max(latencies.values())
        assert list(latencies) == sorted(latencies)


def test_lengths_may_come_from_a_file(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv.gz"
    rows = "".join(f"{second},{100 + second},20\n" for second in range(50))
    trace.write_bytes(gzip.compress(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}".encode()))
    answer = as_json("waste", "--lengths", str(trace), *QUICK)
    assert answer["lengths"] == str(trace)
    assert answer["allocators"][-1]["tokens_share"] > 0.9


def test_requests_of_a_file_that_cannot_be_served_are_left_out_and_counted(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("ContextTokens,GeneratedTokens\n100,20\n3000,20\n100,0\n50,30\n")
    done = run("simulate", "waste", "--lengths", str(trace), *QUICK)
    assert done.stderr == (
        "trace.csv: 2 of 4 requests left out: bad, without prompt or answer, or above 2,048 "
        "tokens\n"
    )
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (
            gzip.compress(b"ContextTokens,GeneratedTokens\n" + b"100,20\n" * 99, mtime=0)[:40],
            "no whole gzip stream",
        ),
        (b"ContextTokens,GeneratedTokens\n100,20\n100,many\n", "line 3: answer length"),
        (b"ContextTokens,GeneratedTokens\n3000,20\n", "none of its first 1 requests"),
    ],
)
def test_a_file_that_cannot_be_read_is_told_in_one_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_bytes(content)
    done = run("simulate", "waste", "--lengths", str(trace))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("waste", "--model", "opt-12b"), "unknown model 'opt-12b'"),
        (("waste", "--gpu", "rtx4090"), "the weights do not fit"),
        (("waste", "--lengths", "chatgpt"), "expected sharegpt, alpaca, or a file"),
        (("waste", "--max-length", "20000"), "room for 15805 tokens"),
        (("waste", "--rate", "0"), "--rate"),
        (("rates", "--latency-bound", "0.001", *QUICK), "cannot be had"),
        (("all", "--html", "no/such/folder.html"), "there is no folder"),
        (("figure", "24"), "figure 24 is the speed of an attention kernel"),
        (("figure", "4"), "no figure 4"),
    ],
)
def test_bad_input_is_told_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = run("simulate", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_figure_stands_beside_the_papers_numbers_with_the_reason_where_it_differs() -> None:
    done = run("simulate", "figure", "3")
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0].startswith("Figure 3: What KV memory in use holds")
    assert lines[1] == "(In the paper as published: Figure 2)"
    assert "simulated paper difference" in lines
    assert any(line.startswith("tokens, paged 98.") for line in lines)
    assert any("free memory counts only while a request waits" in line for line in lines)
    assert "This is no blind prediction. Chosen knowing the paper's results:" in " ".join(lines)


def test_a_figure_as_json_has_rows_and_comparisons() -> None:
    answer = as_json("figure", "13")
    assert answer["figure"] == 13
    assert [row["side"] for row in answer["rows"]] == ["prompt", "answer"]
    assert answer["comparisons"][0]["paper_low"] == 19.31


def test_ctrl_c_keeps_the_figures_that_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes in the third figure."""
    numbers: list[int] = []

    def interrupted(number: int, experiment: Experiment) -> Figure:
        numbers.append(number)
        if len(numbers) == 3:
            raise KeyboardInterrupt
        return figure(13, experiment)

    monkeypatch.setattr("prefix_cache.simulate.figures.figure", interrupted)
    page = tmp_path / "paper.html"
    done = CliRunner().invoke(commands, ["simulate", "all", "--json", "--html", str(page)])
    assert numbers == [2, 3, 12]
    assert (done.exit_code, done.stderr) == (
        130,
        "stopped: what was done until then is all there is\n",
    )
    answer = json.loads(done.stdout)
    assert answer["partial"] is True
    assert [made["figure"] for made in answer["figures"]] == [13, 13]
    assert page.read_text("utf-8").count("Figure 13: ") == 2


def interrupt(monkeypatch: pytest.MonkeyPatch, allocator: str) -> None:
    """Let Ctrl-C come in the first run with this allocator."""
    real = Experiment.serve

    def interrupted(
        self: Experiment, on: Server, load: Load, rate: float, by: str, **more: Any
    ) -> Any:
        if by == allocator:
            raise KeyboardInterrupt
        return real(self, on, load, rate, by, **more)

    monkeypatch.setattr(Experiment, "serve", interrupted)


def test_ctrl_c_keeps_the_allocators_that_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch, "paged")
    done = CliRunner().invoke(commands, ["simulate", "waste", "--json", *QUICK])
    assert done.exit_code == 130
    assert [one["allocator"] for one in json.loads(done.stdout)["allocators"]] == [
        "reserve_max",
        "pow2",
        "oracle",
    ]


def test_ctrl_c_keeps_the_rates_that_were_found_on_a_page_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, "oracle")
    page = tmp_path / "rates.html"
    done = CliRunner().invoke(
        commands, ["simulate", "rates", "--json", "--html", str(page), *QUICK]
    )
    assert (done.exit_code, done.stderr) == (
        130,
        "stopped: what was done until then is all there is\n",
    )
    found = json.loads(done.stdout)["allocators"]
    assert [(one["allocator"], one["paged_by_it"]) for one in found] == [
        ("reserve_max", None),
        ("pow2", None),
    ]
    assert page.read_text("utf-8").endswith("</html>\n")
    assert "oracle" not in page.read_text("utf-8")


def test_ctrl_c_before_any_rate_is_found_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(monkeypatch, "reserve_max")
    page = tmp_path / "rates.html"
    done = CliRunner().invoke(
        commands, ["simulate", "rates", "--json", "--html", str(page), *QUICK]
    )
    assert (done.exit_code, done.output) == (130, "")
    assert list(tmp_path.iterdir()) == []


async def test_the_page_of_a_figure_reads_well_in_a_browser(tmp_path: Path) -> None:
    page = tmp_path / "figure.html"
    done = run("simulate", "figure", "3", "--html", str(page))
    assert done.stderr == ""
    async with browser_tab(tmp_path / "browser") as tab:
        for width in (1280, 390):
            for colours in ("light", "dark"):
                await tab.show(page, width, colours)
                assert await tab.value("document.documentElement.scrollWidth") <= width
                loaded = [url for url in tab.requests if not url.startswith("data:")]
                assert loaded == [page.as_uri()]
                assert tab.complaints == []
        assert "Figure 3" in await tab.value("document.body.innerText")
