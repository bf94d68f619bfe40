"""A router as a process, with engines behind it: watched by ``top``, emptied by ``drain``."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

import pytest

from prefix_cache.cli.top.router import hit_rate_now, losses_in_words, silent_workers
from tests.cli.commands import first_line, run, running

DEADLINE_S = 20.0

CHAT = {
    "model": "test",
    "messages": [
        {"role": "system", "content": "You answer in as few words as you can. " * 10},
        {"role": "user", "content": "Hello"},
    ],
}


class Fleet(NamedTuple):
    grpc: str
    url: str


@pytest.fixture(scope="module")
def router() -> Iterator[Fleet]:
    """A router over two engines, that was asked the same thing four times."""
    with ExitStack() as stack:
        engines = [
            stack.enter_context(running("engine", "--listen", "127.0.0.1:0", "--json"))
            for _ in "ab"
        ]
        urls = [json.loads(first_line(engine))["addresses"][0] for engine in engines]
        process = stack.enter_context(
            running(
                *("router", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json"),
                *("--node", f"a={urls[0]}", "--node", f"b={urls[1]}"),
            )
        )
        fleet = Fleet(*json.loads(first_line(process))["addresses"])
        for _ in range(4):
            ask(fleet)
        yield fleet


def ask(router: Fleet) -> str:
    """Send one turn; return the name of the node that served it."""
    request = Request(
        f"{router.url}/v1/chat/completions",
        json.dumps(CHAT).encode(),
        {"Content-Type": "application/json", "X-Session-ID": "chat"},
    )
    with urlopen(request) as answer:
        answer.read()
        return str(answer.headers["x-prefix-cache-node"])


def look(router: Fleet) -> dict[str, Any]:
    done = run("top", "--once", "--json", "--router", router.url)
    assert done.returncode == 0
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_top_shows_the_nodes_of_a_router_and_what_was_lost(router: Fleet) -> None:
    nodes = {node["name"]: node for node in look(router)["nodes"]}
    home, other = sorted(nodes.values(), key=lambda node: -node["turns"])
    assert (home["turns"], home["conversations"], other["turns"]) == (4, 1, 0)
    assert home["hit_rate"] > 0.5
    assert home["hit_rate_now"] is None

    done = run("top", "--once", "--router", router.url)

    header, *rows = done.stdout.splitlines()
    assert header.split() == [
        *("node", "state", "in", "flight", "queued", "conversations", "turns"),
        *("hits", "now", "failures"),
    ]
    row = next(row for row in rows if row.startswith(home["name"])).split()
    assert row == [
        *(home["name"], "ready", "0", "0", "1", "4"),
        *(f"{home['hit_rate']:.1%}", "-", "0"),
    ]
    assert "not cached: unhashable 0.0%, held by nobody" in done.stdout


def test_a_router_that_does_not_answer_is_named(router: Fleet) -> None:
    done = run("top", "--once", "--router", "127.0.0.1:1")
    assert (done.returncode, done.stderr) == (1, "")
    assert "http://127.0.0.1:1" in done.stdout
    assert "no answer: " in done.stdout


def test_what_is_no_proxy_of_a_router_is_told_as_such(router: Fleet) -> None:
    for address, said in (
        (router.grpc, "no HTTP"),
        (f"{router.url}/v1", "status 404"),
        (f"{router.url}/conversations?", "another document"),
        (f"{router.url}/metrics?", "another document"),
    ):
        done = run("top", "--once", "--router", address)
        assert (done.returncode, done.stderr) == (1, "")
        expected = f"no answer: {said}, expected the address of a router's proxy (router --http)"
        assert expected in " ".join(done.stdout.split())


@pytest.mark.parametrize("address", ["ftp://x", "unix:///x", "127.0.0.1:99999", "http://"])
def test_a_malformed_address_of_a_router_is_told(address: str) -> None:
    done = run("top", "--once", "--json", "--router", address)
    assert (done.returncode, done.stderr) == (1, "")
    expected = "malformed address, expected HOST:PORT or http://HOST:PORT"
    assert json.loads(done.stdout)["error"] == expected


@pytest.mark.parametrize(
    "document",
    [b"{}", b'{"nodes": 1, "sums": 1, "workers": 1}', b"[" * 200_000, b'{"a": "\xff"}', b"<html>"],
    ids=["empty", "other types", "deep", "no UTF-8", "no JSON"],
)
def test_what_no_router_says_is_told_as_such(tmp_path: Path, document: bytes) -> None:
    (tmp_path / "nodes").write_bytes(document)
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = run("top", "--once", "--json", "--router", f"127.0.0.1:{server.server_port}")
        server.shutdown()
    assert (done.returncode, done.stderr) == (1, "")
    expected = "another document, expected the address of a router's proxy (router --http)"
    assert json.loads(done.stdout)["error"] == expected


def test_workers_whose_counts_are_missing_are_told() -> None:
    assert silent_workers({"count": 4, "answered": 4}) == ""
    assert silent_workers({"count": 4, "answered": 3}) == "counts are those of 3 of 4 workers"


def test_a_drained_node_is_left_and_comes_back(router: Fleet) -> None:
    home = ask(router)
    done = run("drain", home, "--router", router.grpc)
    assert done.stdout == f"{home} is draining, 1 conversations are pinned there\n"

    other = ask(router)

    assert other != home
    assert {node["name"]: node["state"] for node in look(router)["nodes"]} == {
        home: "DRAINING",
        other: "READY",
    }
    assert ask(router) == other
    undone = run("drain", home, "--undo", "--json", "--router", router.grpc)
    assert json.loads(undone.stdout) == {"node": home, "draining": False, "conversations": 0}
    deadline = time.monotonic() + DEADLINE_S
    while "DRAINING" in (states := str(look(router))) or "JOINING" in states:
        assert time.monotonic() < deadline
    assert ask(router) == other


def test_what_cannot_be_drained_is_one_line(router: Fleet) -> None:
    done = run("drain", "z", "--router", router.grpc)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown node 'z': expected one of a, b\n"
    assert run("drain", "a", "--router", "127.0.0.1:1").returncode == 1


def test_errors_of_a_config_name_file_line_and_setting(tmp_path: Path) -> None:
    path = tmp_path / "router.toml"
    path.write_text('http = "127.0.0.1:0"\n\n[pools.chat]\npolicy = "best"\n')
    done = run("router", "--config", str(path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {path}, line 4: pools.chat.policy is 'best', expected")


def test_a_router_that_still_starts_outlives_a_sighup() -> None:
    starting = """
import signal
import router.app
from prefix_cache.cli import main
router.app.run_router = lambda *given: signal.raise_signal(signal.SIGHUP)
main()
"""
    arguments = ["router", "--node", "a=127.0.0.1:1"]
    assert subprocess.run([sys.executable, "-c", starting, *arguments], check=False).returncode == 0


def test_options_win_over_the_config(tmp_path: Path) -> None:
    path = tmp_path / "router.toml"
    path.write_text(
        'listen = ["127.0.0.1:1"]\n[pools.chat]\npolicy = "hash"\nnodes = {a = "127.0.0.1:1"}\n'
    )
    with running(
        *("router", "--config", str(path), "--json"),
        *("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"),
    ) as process:
        fleet = Fleet(*json.loads(first_line(process))["addresses"])
        document = look(fleet)
    assert document["policies"] == {"chat": "hash"}
    assert [(node["name"], node["pool"], node["state"]) for node in document["nodes"]] == [
        ("a", "chat", "FAILED")
    ]


def test_hits_since_the_last_look_need_two_looks_at_one_life() -> None:
    before = {"told_tokens": 100, "cached_tokens": 50}
    assert hit_rate_now({"told_tokens": 300, "cached_tokens": 200}, before) == 0.75
    assert hit_rate_now(before, before) is None
    assert hit_rate_now({"told_tokens": 10, "cached_tokens": 0}, before) is None
    assert hit_rate_now(before, None) is None


def test_losses_are_shares_of_all_prompt_tokens() -> None:
    sums = {
        "prompt_tokens": 1_000,
        "told_tokens": 800,
        "hit_rate": 0.5,
        "unhashable": 10,
        "held_by_nobody": 200,
        "routed_elsewhere": 0,
        "not_delivered": 290,
    }
    assert losses_in_words(sums) == (
        "1,000 prompt tokens; of 800 the engines said what was cached: 50.0%\n"
        "not cached: unhashable 1.0%, held by nobody 20.0%, routed elsewhere 0.0%, "
        "not delivered 29.0%"
    )
    assert losses_in_words(sums | {"prompt_tokens": 0}) == "no prompt was served yet"
