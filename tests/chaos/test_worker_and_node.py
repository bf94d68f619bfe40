"""A worker killed while its node lives, and the other way round: nobody is told what is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from prefix_cache.client import NodeClient
from tests.chaos.fleet import Server
from tests.prometheus import values

MODEL = "stories260K"
DEADLINE_S = 30.0
ASKED: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": "Once upon a time, " * 8 + "there was a tree."}
]
# Not answered within any test.
LONG = 8000


class Side:
    """A node and the worker beside it; both come back where they were."""

    def __init__(self, folder: Path, name: str, model: Path, patience_s: float) -> None:
        self.name = name
        self.node = Server(
            folder / f"node-{name}.log", "--listen", "node", "--num-blocks", "600", "--name", name
        )
        self.worker = Server(
            folder / f"worker-{name}.log",
            "--http",
            *("worker", "--model", str(model), "--threads", "1", "--max-model-len", "8192"),
            *("--node", self.node.url, "--patience", str(patience_s)),
        )

    def kill(self) -> None:
        self.worker.kill()
        self.node.kill()


@contextmanager
def sides(folder: Path, data: Path, *names: str, patience_s: float = 30.0) -> Iterator[list[Side]]:
    """Nodes with workers, all killed at the end."""
    started: list[Side] = []
    try:
        for name in names:
            started.append(Side(folder, name, data / "models" / MODEL, patience_s))
        yield started
    finally:
        for side in started:
            side.kill()


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=DEADLINE_S)


def ask(url: str, messages: list[ChatCompletionMessageParam], max_tokens: int = 16) -> Any:
    """The likeliest answer, with its headers."""
    with client(url) as asking:
        return asking.chat.completions.with_raw_response.create(
            model=MODEL,
            messages=messages,
            max_tokens=max_tokens,
            temperature=0,
            extra_body={"ignore_eos": True},
            extra_headers={"X-Session-ID": "one"},
        )


def cached(raw: Any) -> int:
    count: int = raw.parse().usage.prompt_tokens_details.cached_tokens
    return count


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_killed_workers_claims_go_with_its_next_life_and_its_chats_go_elsewhere(
    tmp_path: Path, shared_data: Path
) -> None:
    with sides(tmp_path, shared_data, "a", "b") as both:
        routes = [f"--node={side.name}={side.node.url},{side.worker.url}" for side in both]
        router = Server(
            tmp_path / "router.log", "--http", "router", "--listen", "127.0.0.1:0", *routes
        )
        try:
            first = ask(router.url, ASKED)
            home = next(side for side in both if side.name == first.headers["x-prefix-cache-node"])
            other = next(side for side in both if side is not home)
            answer = first.parse().choices[0].message.content
            longer: list[ChatCompletionMessageParam] = [
                *ASKED,
                {"role": "assistant", "content": answer},
                {"role": "user", "content": "And then?"},
            ]
            with NodeClient(home.node.url) as node:
                claimed, life = node.stats().cached, node.info().incarnation
                assert claimed > 0

                asking = Thread(target=_ask_in_vain, args=(home.worker.url,))
                asking.start()
                until(lambda: node.stats().live_sequences == 1)
                home.worker.kill()
                asking.join()
                # The stream is gone, and what it held with it.
                until(lambda: node.stats().live_sequences == 0)
                assert node.info().incarnation == life

                moved = ask(router.url, longer)
                assert moved.headers["x-prefix-cache-node"] == other.name
                assert cached(moved) == 0

                home.worker.start_again()
                # Its KV is gone: another epoch, so another incarnation without claims.
                assert node.info().incarnation != life
                assert node.stats().cached == 0
                again = ask(home.worker.url, longer)
                assert cached(again) == 0
                assert again.parse().choices == moved.parse().choices
        finally:
            router.kill()


def _ask_in_vain(url: str) -> None:
    with pytest.raises(openai.APIConnectionError):
        ask(url, ASKED, LONG)


def test_a_killed_nodes_worker_waits_for_the_next_one_and_answers_the_same(
    tmp_path: Path, shared_data: Path
) -> None:
    with sides(tmp_path, shared_data, "a") as (side,):
        expected = ask(side.worker.url, ASKED, 1000).parse()
        answers: list[Any] = []
        asking = Thread(target=lambda: answers.append(ask(side.worker.url, ASKED, 1000).parse()))
        asking.start()
        until(lambda: _live(side.worker.url, "running") == 1)
        side.node.kill()
        until(lambda: _live(side.worker.url, "waiting") == 1)
        side.node.start_again()
        asking.join()
        [answer] = answers
        assert answer.choices == expected.choices
        with NodeClient(side.node.url) as node:
            until(lambda: node.stats().live_sequences == 0)
            # It was told of the answer again, from the first token on.
            assert node.stats().cached == (expected.usage.total_tokens - 1) // 16


def test_without_a_node_requests_fail_and_say_so_when_patience_is_over(
    tmp_path: Path, shared_data: Path
) -> None:
    with sides(tmp_path, shared_data, "a", patience_s=0.2) as (side,):
        expected = ask(side.worker.url, ASKED).parse().choices
        side.node.kill()
        with pytest.raises(openai.InternalServerError, match="the cache is away for") as failed:
            ask(side.worker.url, ASKED)
        assert failed.value.status_code == 503
        side.node.start_again()
        # Its pause between attempts to reach a node is over by then.
        assert _patient(side.worker.url) == expected


def _live(url: str, state: str) -> float:
    with urlopen(f"{url}/metrics") as scrape:
        found = values(scrape.read().decode())
    return found[f"prefix_cache_worker_live_requests{{state={state}}}"]


def _patient(url: str) -> Any:
    """What is answered, once it is."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return ask(url, ASKED).parse().choices
        except openai.InternalServerError:
            assert time.monotonic() < deadline
