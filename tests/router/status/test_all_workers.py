"""What operators read is of all workers, whichever of them they ask."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from prefix_cache.client import AsyncRouterClient
from prefix_cache.errors import UnknownRoute
from prefix_cache.serving import serving
from router.app import router_service
from router.decisions import Decisions
from router.dispatcher import Dispatcher
from router.http.measurements import Measurements
from router.ledger import Ledger
from router.metrics import router_registry
from router.status import Status
from router.workers.asking import answering
from router.workers.mailbox import Seat
from tests.prometheus import described, documented, values
from tests.router.clock import Clock
from tests.router.dispatching import CHAT, dispatcher_over, key, serve, turn


class Worker:
    """One of several, without the sockets over which they share pins and load."""

    def __init__(self, seat: Seat, clock: Clock) -> None:
        self.seat = seat
        self.dispatcher = dispatcher_over("ab")
        self.dispatcher.ledger = Ledger(max_accounts=100, clock=clock)
        self.decisions = Decisions(max_decisions=10)
        self.measurements = Measurements(lambda: 2)
        registry = router_registry(self.dispatcher)
        registry.register(self.measurements)
        self.status = Status(self.dispatcher, self.decisions, registry, seat)

    async def scrape(self) -> dict[str, float]:
        """Values by name without the common prefix."""
        found = values((await self.status.metrics()).decode())
        return {name.removeprefix("prefix_cache_router_"): value for name, value in found.items()}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def workers(tmp_path: Path, clock: Clock) -> list[Worker]:
    return [Worker(Seat(index, 3, tmp_path), clock) for index in range(3)]


@pytest.fixture
async def opened(workers: list[Worker]) -> AsyncIterator[list[Worker]]:
    """All but the last one, which is away, answer what they are asked."""
    async with AsyncExitStack() as stack:
        for each in workers[:-1]:
            await stack.enter_async_context(answering(each.seat, each.status.answer))
        yield workers


@pytest.fixture
async def all_opened(opened: list[Worker]) -> AsyncIterator[list[Worker]]:
    last = opened[-1]
    async with answering(last.seat, last.status.answer):
        yield opened


def lose(dispatcher: Dispatcher, name: str) -> None:
    dispatcher.node_failed(dispatcher.node(name), "gone")


async def test_what_a_node_served_is_the_sum_over_workers(all_opened: list[Worker]) -> None:
    for number, worker in enumerate(all_opened, start=1):
        for _ in range(number):
            serve(worker.dispatcher, None, 100, cached_tokens=50 * (number == 3))

    for worker in all_opened:
        document = await worker.status.nodes()
        assert sum(node["turns"] for node in document["nodes"]) == 6
        assert sum(node["prompt_tokens"] for node in document["nodes"]) == 600
        assert sum(node["cached_tokens"] for node in document["nodes"]) == 150
        assert (document["sums"]["turns"], document["sums"]["hit_rate"]) == (6, 0.25)
        assert document["workers"] == {"count": 3, "answered": 3}


async def test_a_failure_that_all_saw_is_one(all_opened: list[Worker]) -> None:
    for worker in all_opened:
        serve(worker.dispatcher, CHAT, 400)
        lose(worker.dispatcher, worker.dispatcher.conversations.pins()[0][1].home.node)

    nodes = (await all_opened[0].status.nodes())["nodes"]

    assert sum(node["failures"] for node in nodes) == 1
    assert sum(node["lost_tokens"] for node in nodes) == 400


async def test_load_and_pins_which_workers_share_are_told_once(all_opened: list[Worker]) -> None:
    for worker in all_opened:
        for name in "ab":
            worker.dispatcher.node(name).in_flight = 3
        worker.dispatcher.conversations.pin(
            CHAT, worker.dispatcher.node("a").home, 10, written_at=0.0
        )

    document, scrape = await all_opened[0].status.nodes(), await all_opened[0].scrape()

    assert [node["in_flight"] for node in document["nodes"]] == [3, 3]
    assert [node["conversations"] for node in document["nodes"]] == [1, 0]
    assert scrape["in_flight{node=a,pool=default}"] == 3
    assert scrape["nodes{pool=default,state=ready}"] == 2
    assert scrape["pins"] == 1


async def test_turns_of_a_conversation_at_several_workers_are_one_account(
    all_opened: list[Worker], clock: Clock
) -> None:
    first, second, third = all_opened
    for tokens, worker in ((100, first), (200, second), (300, third), (400, first)):
        clock.advance(1)
        serve(worker.dispatcher, CHAT, tokens, cached_tokens=tokens // 2)
    for number in range(5):
        clock.advance(1)
        serve(second.dispatcher, key(number))

    for worker in all_opened:
        shown = await worker.status.conversations(6)
        assert [each["conversation"] for each in shown["conversations"]] == [
            *("4", "3", "2", "1", "0"),
            "chat",
        ]
        chat = shown["conversations"][-1]
        assert (chat["sums"]["turns"], chat["sums"]["prompt_tokens"]) == (4, 1_000)
        assert chat["sums"]["hit_rate"] == 0.5
        assert [each.prompt_tokens for each in chat["last_turns"]] == [100, 200, 300, 400]
        assert [each.at for each in chat["last_turns"]] == [1001, 1002, 1003, 1004]
        assert (shown["remembered"], shown["limit"]) == (6, 6)


async def test_turns_are_counted_though_their_worker_served_many_others_since(
    all_opened: list[Worker], clock: Clock
) -> None:
    first, second, _ = all_opened
    serve(first.dispatcher, CHAT, 100)
    for number in range(3):
        clock.advance(1)
        serve(first.dispatcher, key(number))
    clock.advance(1)
    serve(second.dispatcher, CHAT, 200)

    [chat] = (await all_opened[2].status.conversations(1))["conversations"]

    assert (chat["conversation"], chat["sums"]["prompt_tokens"]) == ("chat", 300)


async def test_the_last_32_turns_are_kept_of_all_workers_together(
    all_opened: list[Worker], clock: Clock
) -> None:
    for number in range(60):
        clock.advance(1)
        serve(all_opened[number % 2].dispatcher, CHAT, number + 1)

    [chat] = (await all_opened[2].status.conversations(1))["conversations"]

    assert [each.prompt_tokens for each in chat["last_turns"]] == list(range(29, 61))


async def test_long_keys_that_begin_alike_stay_apart(
    all_opened: list[Worker], clock: Clock
) -> None:
    for worker, last in zip(all_opened, "xyz", strict=True):
        serve(worker.dispatcher, key("c" * 300 + last))

    shown = (await all_opened[0].status.conversations(10))["conversations"]

    assert [each["conversation"] for each in shown] == ["c" * 256] * 3
    assert [each["sums"]["turns"] for each in shown] == [1, 1, 1]


async def test_a_decision_is_explained_wherever_it_was_made(all_opened: list[Worker]) -> None:
    made = all_opened[1]
    made.decisions.keep("r1", made.dispatcher.decide(turn(tokens=70)))

    explained = [await worker.status.explanation("r1") for worker in all_opened]

    assert explained[0] == explained[1] == explained[2]
    assert explained[0].prompt_tokens == 70
    with pytest.raises(UnknownRoute, match="no decision of request 'r2' is known"):
        await all_opened[0].status.explanation("r2")


async def test_a_scrape_shows_each_workers_counts_beside_those_of_the_others(
    all_opened: list[Worker],
) -> None:
    for index, worker in enumerate(all_opened):
        for _ in range(index):
            serve(worker.dispatcher, None, 100)
        worker.measurements.cut = 10 + index
        worker.measurements.first_byte(0.004)

    scrapes = [await worker.scrape() for worker in all_opened]

    assert scrapes[0] == scrapes[1] == scrapes[2]
    now = scrapes[0]
    for index in range(3):
        assert now[f"tokens_total{{kind=prompt,worker={index}}}"] == 100 * index
        assert now[f"http_cut_total{{worker={index}}}"] == 10 + index
        assert now[f"http_connections{{worker={index}}}"] == 2
        assert now[f"http_first_byte_seconds_bucket{{le=0.005,worker={index}}}"] == 1
        assert now[f"http_first_byte_seconds_count{{worker={index}}}"] == 1
    assert (now["workers"], now["workers_answering"]) == (3, 3)


async def test_the_label_worker_is_all_that_a_scrape_of_several_adds(
    all_opened: list[Worker],
) -> None:
    one = Worker(Seat(0, 1, Path()), Clock())
    alone = Status(one.dispatcher, one.decisions, one.status.registry)
    for worker in [one, *all_opened]:
        worker.measurements.answers[200] = 1

    text = (await all_opened[0].status.metrics()).decode()

    fleet = {"in_flight", "in_flight_tokens", "queued_prefill_tokens", "exact_claims", "nodes"}
    fleet |= {"tokenization_mismatch", "pins"}
    assert described(text) - documented("Metrics of several workers") == {
        (
            name,
            kind,
            labels if name.removeprefix("prefix_cache_router_") in fleet else labels | {"worker"},
        )
        for name, kind, labels in described((await alone.metrics()).decode())
    }
    assert described(text) >= documented("Metrics of several workers")


async def test_a_worker_that_does_not_answer_is_missing_and_that_is_said(
    opened: list[Worker],
) -> None:
    for worker in opened:
        serve(worker.dispatcher, CHAT, 100)

    first = opened[0]
    now = await first.scrape()
    assert (now["workers"], now["workers_answering"]) == (3, 2)
    assert now["tokens_total{kind=prompt,worker=1}"] == 100
    assert "tokens_total{kind=prompt,worker=2}" not in now
    document = await first.status.nodes()
    assert document["workers"] == {"count": 3, "answered": 2}
    assert document["sums"]["turns"] == 2
    shown = await first.status.conversations(10)
    assert shown["workers"] == {"count": 3, "answered": 2}
    assert [each["sums"]["turns"] for each in shown["conversations"]] == [2]


async def test_over_grpc_it_is_of_all_workers_too(all_opened: list[Worker]) -> None:
    first, second, _ = all_opened
    for worker in all_opened:
        serve(worker.dispatcher, None, 100, cached_tokens=25)
    decision = second.dispatcher.decide(turn(tokens=70, exclude="a"))
    second.decisions.keep("r1", decision)
    service = router_service(first.dispatcher, first.decisions, first.status)
    async with (
        serving(service, ["127.0.0.1:0"]) as (address,),
        AsyncRouterClient(address) as client,
    ):
        _, nodes = await client.list_nodes()
        explained = await client.explain_request("r1")

    assert sum(node.turns for node in nodes) == 3
    assert sum(node.cached_tokens for node in nodes) == 75
    assert (explained.node, explained.prompt_tokens) == ("b", 70)
    assert explained.left_out == {"a": "is excluded"}
    assert explained.candidates[0].cost == tuple(decision.costs[0])
