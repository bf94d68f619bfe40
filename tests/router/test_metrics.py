"""Metrics of a router: what is served is what docs/metrics.md says, and counts what happened."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from prefix_cache.client import NodeEvent
from prefix_cache.index import Cleared
from router.claims.node_claims import NodeClaims
from router.claims.sent_text import SentText
from router.claims.text_tree import TextTree
from router.conversations import Pin
from router.directory import DirectoryCounts
from router.dispatcher import Dispatcher
from router.metrics import FleetMetrics, router_registry
from router.prompts import BodyReader
from router.turn import ConversationKey
from tests.prometheus import described, documented, values
from tests.router.dispatching import dispatcher_over, key, remember_texts, serve, turn


class SilentDirectory:
    """One that was never there."""

    def __init__(self) -> None:
        self.counts = DirectoryCounts(timeouts=3, errors=2, dropped_puts=1)
        self.is_available = False

    async def find_pin(self, key: ConversationKey) -> Pin | None:
        return None

    def put_pin(self, key: ConversationKey, pin: Pin) -> None: ...


def served(dispatcher: Dispatcher, counted: CollectorRegistry) -> str:
    """What all workers know alike, and what this one counted."""
    return (generate_latest(FleetMetrics(dispatcher)) + generate_latest(counted)).decode()


def scrape(dispatcher: Dispatcher) -> dict[str, float]:
    """Values by name without the common prefix."""
    found = values(served(dispatcher, router_registry(dispatcher)))
    return {name.removeprefix("prefix_cache_router_"): value for name, value in found.items()}


def test_what_is_served_is_what_the_document_says() -> None:
    dispatcher = dispatcher_over("ab")
    registry = router_registry(dispatcher, BodyReader(dispatcher.pools), SilentDirectory())

    assert described(served(dispatcher, registry)) == documented("Metrics of a router")


def test_without_redis_nothing_is_said_of_it() -> None:
    dispatcher = dispatcher_over("ab")

    assert "redis_available" not in scrape(dispatcher)


def test_a_redis_that_is_away_is_told() -> None:
    registry = router_registry(dispatcher_over("ab"), directory=SilentDirectory())
    now = values(generate_latest(registry).decode())

    assert now["prefix_cache_router_redis_available"] == 0
    assert now["prefix_cache_router_redis_failures_total{kind=timeout}"] == 3
    assert now["prefix_cache_router_redis_failures_total{kind=error}"] == 2
    assert now["prefix_cache_router_redis_failures_total{kind=dropped_put}"] == 1


def test_the_counts_are_those_of_what_happened() -> None:
    dispatcher = dispatcher_over("ab", hard=True)
    claims = remember_texts(dispatcher)
    a, b = dispatcher.nodes()
    dispatcher.node_draining(b)
    claims["b"].texts.append(turn(tokens=900, text=b"text").prompt)
    serve(dispatcher, tokens=100)  # without tokens that could be hashed
    dispatcher.node_answered(b, 1)
    claims["a"].texts.append(turn(tokens=800, text=b"text").prompt)
    second = dispatcher.route(turn(tokens=1_000, text=b"text"))
    assert second.node is a
    dispatcher.accepted(second)
    dispatcher.served(second, cached_tokens=700)
    silent = dispatcher.route(turn(None, tokens=50, exclude="b", text=b"other"))
    dispatcher.served(silent, cached_tokens=None)
    dispatcher.failed(dispatcher.route(turn(exclude="b")), "refused")
    dispatcher.route(turn(key("open"), tokens=10, exclude="a", text=b"more"))

    now = scrape(dispatcher)

    assert now["nodes{pool=default,state=ready}"] == 1
    assert now["nodes{pool=default,state=failed}"] == 1
    assert now["in_flight{node=b,pool=default}"] == 1
    assert now["in_flight_tokens{node=b,pool=default}"] == 10
    assert now["queued_prefill_tokens{node=b,pool=default}"] == 10
    assert now["in_flight{node=a,pool=default}"] == 0
    assert now["turns_total{node=a,pool=default}"] == 3
    assert now["failures_total{node=a,pool=default}"] == 1
    assert now["decisions_total{reason=new}"] == 3
    assert now["decisions_total{reason=pinned}"] == 2
    assert now["decisions_total{reason=moved}"] == 0
    assert now["retries_total"] == 3
    assert now["no_tokens_total"] == 2
    assert now["tokens_total{kind=prompt}"] == 1_150
    assert now["tokens_total{kind=told}"] == 1_100
    assert now["tokens_total{kind=available}"] == 900
    assert now["tokens_total{kind=promised}"] == 800
    assert now["tokens_total{kind=delivered}"] == 700
    assert now["tokens_total{kind=prefilled}"] == 450
    assert now["lost_tokens_total{loss=unhashable}"] == 100
    assert now["lost_tokens_total{loss=held_by_nobody}"] == 150
    assert now["lost_tokens_total{loss=routed_elsewhere}"] == 100
    assert now["lost_tokens_total{loss=not_delivered}"] == 100
    assert now["turns_without_word_total"] == 1
    assert now["pins"] == 1


def test_what_claims_are_worth_is_told_of_each_node() -> None:
    dispatcher = dispatcher_over("ab")
    a, b = (NodeClaims(SentText(name, 100, TextTree())) for name in "ab")
    dispatcher.node("a").claims, dispatcher.node("b").claims = a, b
    a.held.apply(NodeEvent(1, 1, Cleared()))
    b.tokens_differ = True
    for _ in range(2):
        b.sent.served(turn(text=bytes(640)).prompt, promised=2_000, delivered=0)

    now = scrape(dispatcher)

    for name, of_a, of_b in (
        ("exact_claims", 1, 0),
        ("tokenization_mismatch", 0, 1),
        ("claims_forgotten_total", 0, 1),
    ):
        assert now[f"{name}{{node=a,pool=default}}"] == of_a
        assert now[f"{name}{{node=b,pool=default}}"] == of_b


def test_a_node_that_is_gone_is_no_series_any_more() -> None:
    dispatcher = dispatcher_over("ab")
    dispatcher.remove_node(dispatcher.node("a"))

    assert "in_flight{node=a,pool=default}" not in scrape(dispatcher)
    assert scrape(dispatcher)["nodes{pool=default,state=gone}"] == 0
