"""``top``: blocks, hits and evictions of nodes."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest

from prefix_cache import Identity
from prefix_cache.cli.top.rates import Rates, Reading, rates
from prefix_cache.client import NodeClient
from prefix_cache.index import Stats
from tests.cli.commands import first_line, run, running
from tests.node.nodes import node_process

WHO = Identity("m")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A node of 64 blocks: 16 private, 8 cached and in use, 24 evictable, 16 free."""
    with node_process() as node, NodeClient(node.address) as client:
        for token, blocks in ((1, 8), (2, 24)):
            sequence = client.acquire(WHO, [token] * blocks * 16)
            client.commit(sequence.id, blocks * 16)
            if token == 2:
                client.release(sequence.id)
        client.acquire(WHO, [3] * 16 * 16)
        yield node.address


def test_one_look_is_a_plain_table(address: str) -> None:
    done = run("top", "--once", "--node", address)
    header, row = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert header.split() == [
        *("node", "blocks", "cached", "private", "on", "host", "live", "hits", "now", "tokens/s"),
        "evicted/s",
    ]
    assert row.split() == [address, "####==------....", "32", "16", "-", "2", "0.0%", *"---"]


def test_a_node_with_a_host_tier_says_how_many_blocks_are_there() -> None:
    with (
        node_process(num_blocks=2, host_blocks=4) as node,
        NodeClient(node.address) as client,
    ):
        for token in (1, 2):
            sequence = client.acquire(WHO, [token] * 32)
            client.commit(sequence.id, 32)
            client.release(sequence.id)
        done = run("top", "--once", "--node", node.address)
    assert done.stdout.splitlines()[1].split()[2:6] == ["2", "0", "2", "0"]


def test_a_node_that_does_not_answer_is_named_and_the_others_are_shown(address: str) -> None:
    done = run("top", "--once", "--node", "127.0.0.1:1", "--node", address)
    assert done.returncode == 1
    assert "127.0.0.1:1 no answer" in " ".join(done.stdout.split())
    assert "####==------...." in done.stdout

    done = run("top", "--once", "--json", "--node", "127.0.0.1:1", "--node", address)
    away, there = json.loads(done.stdout)["nodes"]
    assert done.returncode == 1
    assert away["node"] == "127.0.0.1:1"
    assert away["error"].startswith("127.0.0.1:1: ")
    assert (there["cached"], there["evictable"], there["hit_rate_now"]) == (32, 24, None)


def test_it_looks_again_until_ctrl_c(address: str) -> None:
    with running("top", "--json", "--interval", "0.1", "--node", address) as top:
        first, second = (json.loads(first_line(top))["nodes"][0] for _ in range(2))
        top.send_signal(signal.SIGINT)
        assert top.wait(30) == 130
    assert first["evictions_per_s"] is None
    assert second["evictions_per_s"] == 0


def stats(query_tokens: int, hit_tokens: int, evicted_blocks: int) -> Stats:
    return Stats(64, 64, 0, 0, 0, 0, query_tokens, hit_tokens, evicted_blocks, *[0] * 8)


def test_rates_are_those_since_the_last_look() -> None:
    before = Reading("a", 10.0, stats(1000, 100, 5))
    now = Reading("a", 12.0, stats(1400, 400, 25))
    assert rates(now, before) == Rates(400 / 1400, 0.75, 200.0, 10.0)


def test_there_is_no_rate_where_there_is_nothing_to_divide() -> None:
    idle = Reading("a", 10.0, stats(0, 0, 0))
    assert rates(idle, None) == Rates(None, None, None, None)
    assert rates(Reading("a", 11.0, stats(0, 0, 0)), idle) == Rates(None, None, 0.0, 0.0)


@pytest.mark.parametrize("counts", [(800, 400, 25), (2000, 99, 25), (2000, 400, 4)])
def test_a_node_with_a_counter_that_went_back_was_restarted(counts: tuple[int, int, int]) -> None:
    before = Reading("a", 10.0, stats(1000, 100, 5))
    now = Reading("a", 11.0, stats(*counts))
    assert rates(now, before) == Rates(counts[1] / counts[0], None, None, None)


def test_a_node_that_was_away_begins_anew() -> None:
    now = Reading("a", 10.0, stats(1000, 100, 5))
    assert rates(now, Reading("a", 9.0, error="away")) == Rates(0.1, None, None, None)


@pytest.mark.parametrize(
    ("interval", "complaint"),
    [
        ("0.09", "0.09 is not in the range 0.1<=x<=3600"),
        ("3600.1", "3600.1 is not in the range 0.1<=x<=3600"),
        ("inf", "inf is not in the range 0.1<=x<=3600"),
        ("nan", "nan is no number of seconds"),
    ],
)
def test_an_interval_is_a_tenth_of_a_second_to_an_hour(interval: str, complaint: str) -> None:
    done = run("top", "--node", "127.0.0.1:1", "--interval", interval)
    assert done.returncode == 2
    assert complaint in done.stderr
