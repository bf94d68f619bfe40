"""Stories of turns: routed, accepted, served or not, and what is recorded of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prefix_cache.client import NodeState, RouteReason
from prefix_cache.errors import InvalidArgument, NoNodeAvailable
from router.config import PoolConfig, RouterConfig
from router.conversations import Pin
from router.dispatcher import Dispatcher
from router.nodes import Home
from router.open_routes import OpenRoute
from router.status.explanations import explain
from router.turn import ConversationKey, Prompt, Turn
from tests.router.clock import Clock
from tests.router.dispatching import (
    CHAT,
    RememberedTexts,
    answer_all,
    dispatcher_over,
    key,
    remember_texts,
    serve,
    specs,
    turn,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def dispatcher(clock: Clock) -> Dispatcher:
    return dispatcher_over("abc", clock)


def test_a_conversation_stays_home(dispatcher: Dispatcher) -> None:
    first = serve(dispatcher)

    later = [serve(dispatcher, CHAT, 100 * number) for number in range(2, 11)]

    assert first.decision.reason is RouteReason.NEW
    assert [route.node for route in later] == [first.node] * 9
    assert {route.decision.reason for route in later} == {RouteReason.PINNED}


def test_nothing_is_recorded_until_the_node_accepts_the_turn(dispatcher: Dispatcher) -> None:
    """Neither asking twice nor a turn that was not served makes a home or a claim."""
    claims = remember_texts(dispatcher)
    for _ in range(2):
        asked = turn(text=b"hello")
        first, second = (explain(dispatcher.decide(asked)) for _ in range(2))
        assert first == second
        route = dispatcher.route(asked)
        assert route.decision.reason is RouteReason.NEW
        dispatcher.not_served(route)

    assert len(dispatcher.conversations) == 0
    assert len(dispatcher.ledger.accounts) == 0
    assert [len(each.texts) for each in claims.values()] == [0, 0, 0]


def test_the_pin_is_written_when_the_node_accepts_the_turn(dispatcher: Dispatcher) -> None:
    """Not at its end: a stream may take minutes."""
    route = dispatcher.route(turn(tokens=500))
    dispatcher.accepted(route)

    assert dispatcher.conversations.get(CHAT) == Pin(Home(route.node.name, 1), 500, 1000.0, 1000.0)
    dispatcher.not_served(route)  # the client went away
    assert serve(dispatcher).decision.reason is RouteReason.PINNED


def test_whoever_shares_pins_is_told_of_each_that_is_written_here() -> None:
    told: list[tuple[ConversationKey, Pin]] = []
    dispatcher = dispatcher_over("a")
    dispatcher.on_pin = lambda conversation, pin: told.append((conversation, pin))
    serve(dispatcher, CHAT, 300)
    serve(dispatcher, None, 300)
    dispatcher.learn_pin(key("other"), Pin(Home("a", 1), 7, 0.0, 0.0))

    assert told == [(CHAT, Pin(Home("a", 1), 300, 1000.0, 1000.0))]


def test_a_pin_learnt_from_another_router_is_followed(dispatcher: Dispatcher) -> None:
    """F056: two routers, one conversation; then one of them is gone."""
    other = dispatcher_over("abc")
    other.on_pin = dispatcher.learn_pin
    for number in range(30):
        home = serve(other, key(number)).node.name
        routes = [serve(each, key(number)) for each in (dispatcher, other, dispatcher)]
        assert [route.node.name for route in routes] == [home] * 3
        assert {route.decision.reason for route in routes} == {RouteReason.PINNED}


def test_what_another_router_sent_home_counts_against_what_is_claimed_elsewhere(
    dispatcher: Dispatcher,
) -> None:
    """Of the conversation this router has seen nothing, and b was sent half of its prompt."""
    for node in dispatcher.nodes():
        node.claims = RememberedTexts()
    half, whole = b"x" * 400, b"x" * 800
    dispatcher.node("b").claims.accepted(Prompt(400, half))
    dispatcher.learn_pin(CHAT, Pin(Home("a", 1), 700, 0.0, 0.0))
    route = dispatcher.route(Turn(CHAT, Prompt(800, whole)))

    assert (route.node.name, route.decision.reason) == ("a", RouteReason.PINNED)
    assert (route.decision.promised_tokens, route.decision.available_tokens) == (700, 700)


def test_of_two_pins_the_one_written_later_counts(dispatcher: Dispatcher, clock: Clock) -> None:
    """Whichever comes first: a directory may bring back old ones."""
    route = serve(dispatcher)  # at 1000.0
    other = next(name for name in "abc" if name != route.node.name)
    dispatcher.learn_pin(CHAT, Pin(Home(other, 1), 50, clock.now, 999.0))
    assert serve(dispatcher).node is route.node

    dispatcher.learn_pin(CHAT, Pin(Home(other, 1), 50, clock.now, 1001.0))
    assert serve(dispatcher).node.name == other


def test_another_routers_pin_convicts_no_engine() -> None:
    """What was promised on its word counts as not delivered, and says nothing of the rest."""
    dispatcher = dispatcher_over("a")
    (claims,) = remember_texts(dispatcher).values()
    claims.accepted(turn(tokens=10, text=b"others").prompt)
    dispatcher.learn_pin(CHAT, Pin(Home("a", 1), 700, 0.0, 0.0))
    route = dispatcher.route(turn(tokens=800, text=b"long"))
    dispatcher.served(route, cached_tokens=0)

    assert route.decision.promised_tokens == 700
    assert dispatcher.ledger.sums.not_delivered == 700
    assert [prompt.text for prompt in claims.texts] == [b"others"]


def test_what_was_promised_before_a_loss_was_noticed_notices_no_second_one() -> None:
    """Ten turns are under way when the engine loses its cache: the first to end tells it all."""
    dispatcher = dispatcher_over("a")
    (claims,) = remember_texts(dispatcher).values()
    texts = [b"%d" % number for number in range(10)]
    for text in texts:
        claims.accepted(turn(tokens=100, text=text).prompt)
    routes = [dispatcher.route(turn(key(text), 110, text=text)) for text in texts]
    for route in routes:
        dispatcher.accepted(route)
        dispatcher.served(route, cached_tokens=0)

    assert [prompt.text for prompt in claims.texts] == texts


def test_a_prompt_is_at_its_node_though_the_client_left_before_the_end(
    dispatcher: Dispatcher,
) -> None:
    claims = remember_texts(dispatcher)
    route = dispatcher.route(turn(text=b"hello"))
    dispatcher.accepted(route)
    dispatcher.not_served(route)

    assert [prompt.text for prompt in claims[route.node.name].texts] == [b"hello"]
    assert dispatcher.decide(turn(text=b"hello and more")).promised_tokens == 100


def test_a_pin_read_back_is_no_news_of_what_is_at_home(dispatcher: Dispatcher) -> None:
    """Its engine lost it all since, and this router knows that."""
    dispatcher.node("a").claims = RememberedTexts()
    for node in "bc":
        dispatcher.node_failed(dispatcher.node(node), "the test wants one")
    text = Prompt(400, b"x" * 400)
    route = dispatcher.route(Turn(CHAT, text))
    dispatcher.accepted(route)
    dispatcher.served(route, cached_tokens=0)
    route.node.claims.clear()
    pin = dispatcher.conversations.get(CHAT)
    assert pin is not None
    dispatcher.learn_pin(CHAT, pin)

    assert dispatcher.route(Turn(CHAT, text)).decision.promised_tokens == 0


def test_a_second_first_turn_follows_the_first_and_waits_for_nothing(
    dispatcher: Dispatcher,
) -> None:
    """F059: its load would send it elsewhere, and it is decided at once all the same."""
    first = dispatcher.route(turn(tokens=10_000))
    second = dispatcher.route(turn(tokens=10_000))

    assert (second.node, second.decision.reason) == (first.node, RouteReason.PINNED)
    dispatcher.not_served(second)  # cancelled: gone from the counts, never accepted
    assert first.node.in_flight == 1
    assert len(dispatcher.conversations) == 0
    assert dispatcher.route(turn(tokens=10_000)).node is first.node


def test_cancelling_the_first_of_two_leaves_the_second_to_be_followed(
    dispatcher: Dispatcher,
) -> None:
    first, second = dispatcher.route(turn()), dispatcher.route(turn())
    dispatcher.not_served(first)

    assert dispatcher.route(turn()).node is second.node


def test_a_first_turn_that_fails_is_not_followed(dispatcher: Dispatcher) -> None:
    first = dispatcher.route(turn())
    dispatcher.failed(first, "connection refused")

    second = dispatcher.route(turn())

    assert second.node is not first.node
    assert second.decision.reason is RouteReason.NEW


def test_a_turn_not_served_leaves_the_node_and_the_pin_alone(dispatcher: Dispatcher) -> None:
    """F100: 20 bad requests are no failure of the node; the valid one after them is served."""
    home = serve(dispatcher).node
    for _ in range(20):
        dispatcher.not_served(dispatcher.route(turn()))

    assert (home.state, home.failures, home.turns) == (NodeState.READY, 0, 1)
    assert serve(dispatcher).node is home


def test_served_turns_add_up(dispatcher: Dispatcher) -> None:
    first = dispatcher.route(turn(tokens=1200))
    dispatcher.accepted(first, committed_tokens=1700)
    dispatcher.served(first, cached_tokens=0)
    second = dispatcher.route(turn(tokens=1900))
    dispatcher.accepted(second, committed_tokens=2400)
    dispatcher.served(second, cached_tokens=1696)

    node = first.node
    assert (node.turns, node.prompt_tokens, node.cached_tokens) == (2, 3100, 1696)
    assert dispatcher.conversations.holdings(node.home).committed_tokens == 2400


def test_the_engines_own_count_of_the_prompt_is_believed(dispatcher: Dispatcher) -> None:
    """The router's may be an estimate; load is freed by what was counted in."""
    route = dispatcher.route(turn(tokens=100))
    dispatcher.served(route, cached_tokens=96, prompt_tokens=130)

    assert (route.node.prompt_tokens, route.node.cached_tokens) == (130, 96)
    assert (route.node.in_flight_tokens, route.node.queued_prefill) == (0, 0)


def test_what_was_promised_of_an_estimate_is_measured_in_the_engines_tokens() -> None:
    """Half was promised, and half delivered: of 400 tokens, not of the 100 that were estimated."""
    dispatcher = dispatcher_over("a")
    (claims,) = remember_texts(dispatcher).values()
    claims.texts.append(turn(tokens=50, text=b"half").prompt)
    route = dispatcher.route(turn(tokens=100, text=b"half of it"))
    dispatcher.served(route, cached_tokens=190, prompt_tokens=400)

    sums = dispatcher.ledger.sums
    assert (sums.promised, sums.available, sums.delivered) == (200, 200, 190)
    assert (sums.held_by_nobody, sums.not_delivered) == (200, 10)


def test_an_engine_that_says_more_was_cached_than_there_was_is_believed_up_to_the_prompt(
    dispatcher: Dispatcher,
) -> None:
    route = dispatcher.route(turn(tokens=100))
    dispatcher.served(route, cached_tokens=1_000_000)

    assert (route.node.prompt_tokens, route.node.cached_tokens) == (100, 100)
    assert dispatcher.ledger.sums.prefilled == 0


@pytest.mark.parametrize(
    "end",
    [
        lambda dispatcher, route: dispatcher.served(route, cached_tokens=5),
        lambda dispatcher, route: dispatcher.not_served(route),
        lambda dispatcher, route: dispatcher.failed(route, "old news"),
    ],
    ids=["served", "not served", "failed"],
)
def test_a_turn_ends_once(
    dispatcher: Dispatcher, end: Callable[[Dispatcher, OpenRoute], None]
) -> None:
    route = dispatcher.route(turn())
    dispatcher.not_served(route)

    end(dispatcher, route)

    assert (route.node.in_flight, route.node.turns, route.node.failures) == (0, 0, 0)
    assert route.node.state is NodeState.READY


def test_tenants_keep_their_conversations_apart(dispatcher: Dispatcher) -> None:
    """F062: equal ids of two tenants, and ids that begin alike."""
    homes = {}
    keys = [key(id_, tenant) for tenant in "AB" for id_ in ("chat-1", "chat-10")]
    for each in keys:
        route = serve(dispatcher, each)
        assert route.decision.reason is RouteReason.NEW
        homes[each] = route.node

    assert len(dispatcher.conversations) == 4
    assert {each: serve(dispatcher, each).node for each in keys} == homes


def test_turns_without_a_conversation_leave_no_pin(dispatcher: Dispatcher) -> None:
    assert [serve(dispatcher, None).decision.reason for _ in range(3)] == [RouteReason.NEW] * 3
    assert len(dispatcher.conversations) == 0


def test_a_turn_without_tokens_is_routed_by_load_and_counted(dispatcher: Dispatcher) -> None:
    """F023, F025, F032: unhashable is neither an error nor 'hashed, no match'."""
    claims = remember_texts(dispatcher)
    for number in range(30):
        serve(dispatcher, key(number), 10)
    serve(dispatcher, key("hashed"), 10)
    hashed = dispatcher.route(turn(key("hashed"), 10, text=b"hello"))
    dispatcher.accepted(hashed)
    dispatcher.served(hashed, cached_tokens=0)

    assert dispatcher.unhashable == 31
    assert dispatcher.ledger.sums.unhashable == 310
    assert dispatcher.ledger.sums.held_by_nobody == 10
    assert sum(len(each.texts) for each in claims.values()) == 1


def test_equal_prompts_attract_other_conversations_where_their_prefix_is() -> None:
    """F060, second half: two conversations with one system prompt have two pins and one cache."""
    dispatcher = dispatcher_over("abc", policy="prefix")
    remember_texts(dispatcher)
    system = b"You are a helpful assistant. " * 100
    first = dispatcher.route(turn(key("one"), 5_000, text=system))
    dispatcher.accepted(first)
    dispatcher.served(first, cached_tokens=0)

    second = dispatcher.route(turn(key("two"), 5_010, text=system + b"Hello"))

    assert second.decision.reason is RouteReason.NEW
    assert second.node is first.node
    assert second.decision.promised_tokens == 5_000


def test_scoring_a_prompt_twice_gives_one_answer_and_records_nothing(
    dispatcher: Dispatcher,
) -> None:
    """F121."""
    claims = remember_texts(dispatcher)
    serve(dispatcher)
    before = {name: list(each.texts) for name, each in claims.items()}

    asked = turn(text=b"hello")
    first, second = (explain(dispatcher.decide(asked)) for _ in range(2))

    assert first == second
    assert {name: each.texts for name, each in claims.items()} == before
    assert dispatcher.turns_routed == 1


def test_a_silently_wiped_engine_is_noticed_at_the_next_turn() -> None:
    """F093: 100 conversations, the engine's cache is lost, one more turn of each.

    What was promised and not delivered is counted once; then the claims are right again.
    """
    dispatcher = dispatcher_over("a")
    (claims,) = remember_texts(dispatcher).values()

    def play(number: int, length: int, cached: int) -> int:
        text = f"conversation {number:03}".ljust(length, ".").encode()
        route = dispatcher.route(turn(key(number), length, text=text))
        dispatcher.accepted(route)
        dispatcher.served(route, cached_tokens=cached)
        return route.decision.promised_tokens

    for number in range(100):
        play(number, 1_000, cached=0)
    for number in range(100):
        assert play(number, 1_100, cached=1_000) == 1_000
    assert dispatcher.ledger.sums.not_delivered == 0

    promised = play(0, 1_200, cached=0)

    assert promised == 1_100
    assert dispatcher.ledger.sums.not_delivered == 1_100
    assert [play(number, 1_200, cached=0) for number in range(1, 100)] == [0] * 99
    assert dispatcher.ledger.sums.not_delivered == 1_100
    assert len(claims.texts) == 100


def test_what_a_past_life_served_makes_no_claim_in_the_next(dispatcher: Dispatcher) -> None:
    claims = remember_texts(dispatcher)
    route = dispatcher.route(turn(text=b"hello"))
    dispatcher.node_answered(route.node, 2)
    dispatcher.accepted(route)
    dispatcher.served(route, cached_tokens=0)

    assert claims[route.node.name].texts == []


def test_the_ledger_knows_promised_available_delivered_and_prefilled() -> None:
    dispatcher = dispatcher_over("ab", hard=True)
    claims = remember_texts(dispatcher)
    a, b = dispatcher.nodes()
    text = b"a long shared document"
    claims["b"].texts.append(turn(tokens=800, text=text).prompt)
    dispatcher.node_draining(b)
    serve(dispatcher)
    dispatcher.node_answered(b, 1)
    claims["a"].texts = [turn(tokens=300, text=text).prompt]

    route = dispatcher.route(turn(tokens=1_000, text=text))
    assert route.node is a
    dispatcher.served(route, cached_tokens=250)

    (first, second) = dispatcher.ledger.accounts[CHAT].last
    assert (first.promised, first.available, first.delivered, first.prefilled) == (0, 0, 0, 100)
    assert (second.promised, second.available, second.delivered) == (300, 800, 250)
    assert (second.prefilled, second.reason) == (750, "pinned")
    sums = dispatcher.ledger.sums
    assert (sums.unhashable, sums.held_by_nobody) == (100, 200)
    assert (sums.routed_elsewhere, sums.not_delivered) == (500, 50)


def test_pools_are_kept_apart() -> None:
    """F122: the same prompt in two pools of one router."""
    dispatcher = two_pools()
    claims = remember_texts(dispatcher)
    for pool, names in (("chat", "ab"), ("code", "cd")):
        route = dispatcher.route(turn(key(pool), 100, pool=pool, text=b"hello"))
        assert route.node.name in names
        assert route.decision.promised_tokens == 0
        assert route.decision.available_tokens == 0
        dispatcher.accepted(route)
        dispatcher.served(route, cached_tokens=0)

    assert sorted(len(each.texts) for each in claims.values()) == [0, 0, 1, 1]
    with pytest.raises(InvalidArgument, match="unknown pool 'math': expected one of chat, code"):
        dispatcher.route(turn(pool="math"))
    for node in list(dispatcher.pool("code").nodes.values()):
        dispatcher.node_failed(node, "gone")
    with pytest.raises(NoNodeAvailable, match="c is FAILED, d is FAILED"):
        dispatcher.route(turn(pool="code"))
    assert dispatcher.route(turn(pool="chat")).node.name in "ab"


def test_who_names_no_pool_gets_the_one_named_default_or_the_first() -> None:
    assert two_pools().default_pool.config.name == "chat"
    assert dispatcher_over("a").default_pool.config.name == "default"


def test_sticky_keeps_homes_where_round_robin_loses_them(clock: Clock) -> None:
    """The control arm must fail: else a turn at home would be luck."""

    def turns_at_home(policy: str) -> int:
        dispatcher = dispatcher_over("abcd", clock, policy)
        routes = [serve(dispatcher, key(number)) for _ in range(10) for number in range(25)]
        return sum(route.decision.reason is RouteReason.PINNED for route in routes)

    assert turns_at_home("sticky") == 225
    assert turns_at_home("hash") == 225
    assert turns_at_home("round_robin") == 0
    assert turns_at_home("random") < 150


def test_routed_turns_are_counted_by_reason_and_retries_by_themselves(
    dispatcher: Dispatcher,
) -> None:
    home = serve(dispatcher).node
    serve(dispatcher)
    failed = dispatcher.route(turn())
    dispatcher.failed(failed, "connection refused")
    dispatcher.route(turn(exclude=home.name))

    assert dispatcher.decisions_by_reason == {
        RouteReason.PINNED: 2,
        RouteReason.NEW: 1,
        RouteReason.MOVED: 1,
    }
    assert (dispatcher.turns_routed, dispatcher.retries) == (4, 1)


def two_pools() -> Dispatcher:
    pools = (PoolConfig(name="chat", nodes=specs("ab")), PoolConfig(name="code", nodes=specs("cd")))
    dispatcher = Dispatcher(RouterConfig(pools=pools), clock=Clock())
    answer_all(dispatcher)
    return dispatcher


def test_these_claims_hold_what_was_accepted() -> None:
    """The stand-in that stories above are told with."""
    claims = RememberedTexts()
    claims.accepted(turn(tokens=10, text=b"ab").prompt)
    assert claims.held_tokens(turn(tokens=20, text=b"abc").prompt) == 10
    assert claims.held_tokens(turn(tokens=20, text=b"a").prompt) == 0
