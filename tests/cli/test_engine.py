"""``engine`` as a process."""

from __future__ import annotations

import json
import signal
from typing import Any
from urllib.request import Request, urlopen

from tests.cli.commands import first_line, run, running


def post(url: str, body: Any) -> Any:
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_an_engine_answers_where_it_says_and_tells_at_the_end_what_it_did() -> None:
    with running("engine", "--listen", "127.0.0.1:0", "--model", "m") as engine:
        url = first_line(engine).removeprefix("listening on ")
        for _ in range(2):
            answer = post(f"{url}/v1/completions", {"model": "m", "prompt": "x" * 33})
        assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 32}
        engine.send_signal(signal.SIGTERM)
        out, err = engine.communicate(timeout=30)
    assert out == "stopped: 2 requests served, 32 of 66 prompt tokens were cached\n"
    assert (engine.returncode, err) == (0, "")


def test_an_engine_with_json_ends_with_its_standard_input() -> None:
    with running("engine", "--listen", "127.0.0.1:0", "--json", "--until-eof") as engine:
        listening = json.loads(first_line(engine))
        (url,) = listening["addresses"]
        assert listening["event"] == "listening"
        with urlopen(f"{url}/health", timeout=30) as answer:
            assert answer.status == 200
        assert engine.stdin is not None
        engine.stdin.close()
        assert engine.stdout is not None
        assert json.loads(engine.stdout.read()) == {
            "event": "stopped",
            "served": 0,
            "cancelled": 0,
            "failed": 0,
        }
        assert engine.wait(30) == 0


def test_an_answer_on_its_way_is_not_cut_when_the_engine_is_told_to_end() -> None:
    with running(*("engine", "--listen", "127.0.0.1:0", "--decode-s-per-token", "0.01")) as engine:
        url = first_line(engine).removeprefix("listening on ")
        body = {"model": "test", "prompt": "Hi", "max_tokens": 40, "stream": True}
        request = Request(f"{url}/v1/completions", json.dumps(body).encode())
        with urlopen(request, timeout=30) as answer:
            answer.readline()
            engine.send_signal(signal.SIGTERM)
            assert answer.read().endswith(b"data: [DONE]\n\n")
        assert engine.wait(30) == 0


def test_an_engine_is_what_its_options_say() -> None:
    with running(
        *("engine", "--listen", "127.0.0.1:0", "--num-blocks", "8", "--block-size", "4")
    ) as engine:
        url = first_line(engine).removeprefix("listening on ")
        with urlopen(f"{url}/v1/models", timeout=30) as answer:
            (model,) = json.load(answer)["data"]
    assert (model["id"], model["max_model_len"]) == ("test", 32)


def test_help_shows_an_example_and_bad_options_are_told() -> None:
    done = run("engine", "--help")
    assert done.returncode == 0
    assert "\n    prefix-cache engine" in done.stdout
    assert run("engine", "--decode-s-per-token", "nan").returncode == 2
    done = run("engine", "--listen", "nowhere")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("error: cannot listen on 'nowhere': ")
