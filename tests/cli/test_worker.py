"""``worker`` as a process."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any
from urllib.request import Request, urlopen

import pytest

from tests.cli.commands import first_line, run, running
from tests.node.nodes import wait_until

PROMPT = "Once upon a time" * 10


@pytest.fixture
def model(shared_data: Path) -> str:
    return str(shared_data / "models" / "stories260K")


@contextmanager
def worker(model: str, *options: str) -> Iterator[tuple[Popen[str], str]]:
    """A worker and its URL."""
    command = ("worker", "--model", model, "--http", "127.0.0.1:0", "--threads", "1", "--json")
    with running(*command, *options) as process:
        line = first_line(process)
        assert line, process.communicate()
        yield process, json.loads(line)["addresses"][0]


def complete(url: str, **fields: Any) -> Any:
    body = {"model": "stories260K", "prompt": PROMPT, "temperature": 0, **fields}
    with urlopen(Request(f"{url}/v1/completions", json.dumps(body).encode())) as answer:
        return json.load(answer)


def listens(url: str) -> bool:
    host, _, port = url.removeprefix("http://").rpartition(":")
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return False
    return True


def test_a_worker_says_where_it_listens_and_at_the_end_what_it_did(model: str) -> None:
    with worker(model) as (process, url):
        for _ in range(2):
            complete(url, max_tokens=4, ignore_eos=True)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    stopped = json.loads(out)
    assert stopped["event"] == "stopped"
    counted = {name: stopped["stats"][name] for name in ("prompt_tokens", "cached_tokens")}
    assert counted == {"prompt_tokens": 118, "cached_tokens": 48}
    assert (process.returncode, err) == (0, "")


def test_an_answer_under_way_is_given_whole_when_the_worker_is_to_end(model: str) -> None:
    with worker(model) as (process, url):
        body = {"model": "stories260K", "prompt": "Once", "max_tokens": 300, "ignore_eos": True}
        request = Request(f"{url}/v1/completions", json.dumps({**body, "stream": True}).encode())
        with urlopen(request) as answer:
            answer.readline()
            process.send_signal(signal.SIGTERM)
            rest = answer.read().decode()
        assert process.wait(30) == 0
    assert rest.endswith("data: [DONE]\n\n")
    assert rest.count('"finish_reason":"length"') == 1


def test_a_second_ctrl_c_cuts_the_answers_under_way_without_a_traceback(model: str) -> None:
    with worker(model, "--max-model-len", "8192", "--num-blocks", "600") as (process, url):
        body = {"model": "stories260K", "prompt": "Once", "max_tokens": 8000, "ignore_eos": True}
        request = Request(f"{url}/v1/completions", json.dumps({**body, "stream": True}).encode())
        with urlopen(request) as answer:
            answer.readline()
            process.send_signal(signal.SIGINT)
            wait_until(lambda: not listens(url))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err.count("\n") == 1
    assert "WARNING max_model_len" in err


def test_a_node_beside_it_keeps_account_of_its_blocks(model: str, tmp_path: Path) -> None:
    socket = f"unix://{tmp_path}/node.sock"
    with running("node", "--listen", socket, "--num-blocks", "64", "--json") as node:
        first_line(node)
        with worker(model, "--node", socket) as (process, url):
            for _ in range(2):
                complete(url, max_tokens=4)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        node.send_signal(signal.SIGTERM)
        out, _ = node.communicate(timeout=30)
    stats = json.loads(out)["stats"]
    assert (stats["query_tokens"], stats["hit_tokens"], stats["live_sequences"]) == (118, 48, 0)


def test_a_worker_whose_node_is_gone_ends_in_order(model: str, tmp_path: Path) -> None:
    socket = f"unix://{tmp_path}/node.sock"
    with running("node", "--listen", socket, "--json") as node:
        first_line(node)
        with worker(model, "--node", socket) as (process, url):
            complete(url, max_tokens=4)
            node.kill()
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=30)
    assert json.loads(out)["stats"]["prompt_tokens"] == 59
    assert process.returncode == 0
    assert "Traceback" not in err


def test_a_node_for_other_kv_is_no_place_for_a_worker(model: str, tmp_path: Path) -> None:
    socket = f"unix://{tmp_path}/node.sock"
    with running("node", "--listen", socket, "--kv-dtype", "bfloat16", "--json") as node:
        first_line(node)
        done = run("worker", "--model", model, "--http", "127.0.0.1:0", "--node", socket)
    assert (done.returncode, done.stdout) == (2, "")
    assert "bfloat16" in done.stderr
    assert "float32" in done.stderr


def test_a_length_beyond_the_trained_one_is_warned_of(model: str) -> None:
    with worker(model, "--max-model-len", "1024") as (process, url):
        assert complete(url, max_tokens=600, ignore_eos=True)["usage"]["completion_tokens"] == 600
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert err.endswith("WARNING max_model_len is 1024, the model was trained on 512 positions\n")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--node", "unix:///run/pc.sock", "--num-blocks", "9"], 2, "the node says which blocks"),
        (["--num-blocks", "9", "--kv-memory", "1GiB"], 2, "--num-blocks and --kv-memory"),
        (["--kv-memory", "1G"], 2, "'1G' is no size"),
        (["--kv-memory", "1KiB"], 2, "expected at least the 20480 of a block"),
        (["--kv-dtype", "fp8_e4m3", "--kv-scales", "layer"], 2, "a text to calibrate on"),
        (["--max-n", "9", "--max-sequences", "8"], 2, "max_n is 9, expected at most max_sequences"),
        (["--device", "abacus"], 2, "device 'abacus' cannot be used"),
        (["--http", "unix:///run/w.sock"], 1, "expected host:port or [ipv6]:port\n"),
        (["--node", "127.0.0.1:1"], 1, "127.0.0.1:1"),
    ],
)
def test_options_that_cannot_be_are_told_in_a_line(
    model: str, options: list[str], code: int, message: str
) -> None:
    done = run("worker", "--model", model, "--http", "127.0.0.1:0", *options)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_no_model_is_told(tmp_path: Path) -> None:
    done = run("worker", "--model", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "expected a Hugging Face directory, a .gguf file or a llama2.c .bin file" in done.stderr
