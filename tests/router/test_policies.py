"""What each policy promises beyond the contract they share."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from prefix_cache.client import RouteReason
from router.config import PoolConfig
from router.dispatcher import Dispatcher
from router.nodes import Node
from router.policies import (
    POLICIES,
    Candidate,
    LeastLoad,
    LongestPrefix,
    Policy,
    RandomChoice,
    RendezvousHash,
    RoundRobin,
    Sticky,
    rendezvous_score,
)
from router.turn import ConversationKey, Prompt, Turn
from tests.router.dispatching import RememberedTexts, dispatcher_over, key, remember_texts, turn

NOW = 1000.0
HASHABLE = b"some text"


def nodes(names: str) -> list[Node]:
    return [Node(name, "") for name in names]


def choose(
    policy: Policy,
    fleet: list[Node],
    asked: Turn,
    home: str = "",
    cached: dict[str, int] | None = None,
) -> str:
    """Name of the node that costs least; ties as the picker breaks them."""
    candidates = [
        Candidate(node, (cached or {}).get(node.name, 0), node.name == home) for node in fleet
    ]
    costs = policy.costs(asked, candidates, NOW)
    digest = asked.spread_digest()
    best = min(
        zip(costs, fleet, strict=True),
        key=lambda priced: (sum(priced[0]), -rendezvous_score(digest, priced[1])),
    )
    return best[1].name


def numbered(number: int) -> Turn:
    """A turn without a conversation, that is routed after so many others."""
    return Turn(None, Prompt(100), number=number)


def placements(policy: Policy, fleet: list[Node], conversations: int) -> dict[str, str]:
    names = [f"chat-{number}" for number in range(conversations)]
    return {name: choose(policy, fleet, turn(key(name))) for name in names}


def queue(node: Node, tokens: int) -> None:
    """Let so many tokens wait for prefill at a node of which no speed is known."""
    node.queued_prefill += tokens
    node.prefill_progress.waits(object(), tokens, NOW)


# --- hash, round robin, random --------------------------------------------------------------


def test_hash_moves_a_fifth_when_a_fifth_node_joins() -> None:
    before = placements(RendezvousHash(), nodes("abcd"), 1000)
    after = placements(RendezvousHash(), nodes("abcde"), 1000)

    moved = {name for name in before if before[name] != after[name]}
    assert {after[name] for name in moved} == {"e"}
    assert 150 <= len(moved) <= 250


def test_hash_moves_only_the_conversations_of_a_node_that_leaves() -> None:
    before = placements(RendezvousHash(), nodes("abcd"), 1000)
    after = placements(RendezvousHash(), nodes("bcd"), 1000)

    stayed = {name: home for name, home in before.items() if home != "a"}
    assert {name: after[name] for name in stayed} == stayed
    assert min(Counter(after.values()).values()) >= 250


def test_hash_depends_neither_on_the_order_of_nodes_nor_on_the_process() -> None:
    """The literals hold in every process: a restarted router finds the same homes."""
    assert placements(RendezvousHash(), nodes("abcd"), 6) == placements(
        RendezvousHash(), nodes("dcba"), 6
    )
    assert list(placements(RendezvousHash(), nodes("abcd"), 6).values()) == list("aaaddb")


@pytest.mark.parametrize("policy", [RendezvousHash(), Sticky()], ids=["hash", "ties of sticky"])
def test_tenants_are_told_apart(policy: Policy) -> None:
    homes = {
        choose(policy, nodes("abcdefgh"), turn(ConversationKey(f"t{number}", "1")))
        for number in range(100)
    }
    assert homes == set("abcdefgh")


def test_round_robin_goes_around() -> None:
    chosen = [choose(RoundRobin(), nodes("abc"), numbered(number)) for number in range(7)]
    assert chosen == [*"abcabca"]


def test_random_draws_the_same_from_the_same_seed() -> None:
    def draws(seed: int) -> list[str]:
        policy = RandomChoice(Random(seed))
        return [choose(policy, nodes("abcd"), turn()) for _ in range(50)]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)


# --- prefix, least load ---------------------------------------------------------------------


def test_prefix_goes_where_most_is_held_whatever_the_load_and_to_the_idler_of_equals() -> None:
    a, b, c = fleet = nodes("abc")
    a.in_flight, b.in_flight, c.in_flight = 1, 100, 99
    asked = turn(tokens=1000, text=HASHABLE)

    assert choose(LongestPrefix(), fleet, asked, cached={"a": 15, "b": 16}) == "b"
    assert choose(LongestPrefix(), fleet, asked, cached={"b": 16, "c": 16}) == "c"
    assert choose(LongestPrefix(), fleet, asked, cached={"b": 16}, home="a") == "b"


def test_least_load_counts_tokens_then_turns_and_ignores_what_is_held() -> None:
    a, b, c = fleet = nodes("abc")
    a.in_flight_tokens, b.in_flight_tokens, c.in_flight_tokens = 9_000, 8_000, 8_000
    a.in_flight, b.in_flight, c.in_flight = 1, 40, 39

    assert choose(LeastLoad(), fleet, turn(text=HASHABLE), "a", {"a": 100}) == "c"
    c.reported_running = 41
    assert choose(LeastLoad(), fleet, turn(text=HASHABLE), "a", {"a": 100}) == "b"


# --- sticky ---------------------------------------------------------------------------------


def test_sticky_names_each_part_of_a_cost() -> None:
    """8,192 tokens of which half are held, 30,000 queued, 3 turns in flight."""
    a, b = nodes("ab")
    queue(a, 30_000)
    a.in_flight, a.in_flight_tokens = 3, 40_000
    a.recent_prefill.add(65_536, NOW)
    asked = turn(tokens=8_192, text=HASHABLE)

    def costs(home: Node | None) -> list[dict[str, float]]:
        candidates = [Candidate(a, 4_096, a is home), Candidate(b, 0, b is home)]
        policy = Sticky(max_load_factor=1.5)
        return [
            dict(zip(policy.terms, cost, strict=True))
            for cost in policy.costs(asked, candidates, NOW)
        ]

    assert costs(home=None)[0] == {
        "uncached": 4_096,
        "queued": 30_000,
        "recent": 32_768,  # 65,536 are twice the mean, which halves what each counts
        "running": 3 * 256,
        "away": 0,
        "overload": 1e12,  # 48,192 of 48,192 tokens would be in flight there
    }
    at_home, elsewhere = costs(home=a)
    assert at_home == {
        "uncached": 4_096,
        "queued": 1_800,  # each at 30,000 / 500,000
        "recent": 0,
        "running": 3 * 2,
        "away": 0,
        "overload": 1e12,
    }
    assert elsewhere == {
        "uncached": 8_192,
        "queued": 0,
        "recent": 0,
        "running": 0,
        "away": 64,
        "overload": 0,
    }


def test_sticky_leaves_a_home_only_when_the_wait_outweighs_what_is_computed_again() -> None:
    fleet = nodes("ab")
    a = fleet[0]
    asked = turn(tokens=20_000, text=HASHABLE)
    held = {"a": 19_000}

    queue(a, 95_000)  # each at 95,000 / 500,000: 18,050
    assert choose(Sticky(), fleet, asked, "a", held) == "a"
    queue(a, 5_000)  # 20,000
    assert choose(Sticky(), fleet, asked, "a", held) == "b"


def test_sticky_sends_a_new_conversation_where_the_first_token_comes_first() -> None:
    a, b, c = fleet = nodes("abc")
    queue(a, 3_000)
    queue(b, 2_000)
    queue(c, 2_500)
    asked = turn(tokens=4_000, text=HASHABLE)

    assert choose(Sticky(), fleet, asked) == "b"
    assert choose(Sticky(), fleet, asked, cached={"a": 1_100}) == "a"


def test_sticky_reckons_with_prefill_that_must_be_done_by_now() -> None:
    """Both have 8,000 tokens queued; a, which does 1,000 a second, has had 2 seconds for them."""
    a, b = fleet = nodes("ab")
    a.prefill_progress.waits("earlier", 3_000, NOW - 5)
    a.prefill_progress.begins("earlier", NOW - 2)
    a.prefill_progress.waits("turn", 8_000, NOW - 2)
    a.queued_prefill = 8_000
    queue(b, 8_000)

    asked = turn(tokens=4_000, text=HASHABLE)
    assert choose(Sticky(), fleet, asked, cached={"b": 1_999}) == "a"
    assert choose(Sticky(), fleet, asked, cached={"b": 2_001}) == "b"


def test_sticky_stays_at_home_with_a_prompt_of_which_nothing_can_be_said() -> None:
    fleet = nodes("ab")
    queue(fleet[0], 30_000)

    assert choose(Sticky(), fleet, turn(tokens=3_000), "a") == "a"
    assert choose(Sticky(), fleet, turn(tokens=1_000), "a") == "b"


def test_hard_stickiness_leaves_home_for_no_load() -> None:
    a, b = fleet = nodes("ab")
    queue(a, 10_000_000)
    a.in_flight, a.in_flight_tokens = 1_000, 50_000_000
    asked = turn(text=HASHABLE)

    policy = POLICIES["sticky"](PoolConfig(hard=True, max_load_factor=1.25))
    assert choose(policy, fleet, asked, "a", {"b": 100}) == "a"
    assert choose(policy, [b], asked, "a") == "b"


def test_a_shared_system_prompt_does_not_herd_conversations_of_an_idle_fleet() -> None:
    """One after the other, never two at once: only the memory of what went where spreads them."""
    dispatcher = dispatcher_over("abcd")
    remember_texts(dispatcher)
    system = Prompt(2_000, b"You are")

    homes = Counter(first_turn(dispatcher, f"chat-{n}", system, b"%03d" % n) for n in range(400))

    assert set(homes) == set("abcd")
    assert max(homes.values()) <= 110


def first_turn(dispatcher: Dispatcher, name: str, system: Prompt, question: bytes) -> str:
    """Play the first turn of a chat whose system prompt other chats may have brought."""
    route = dispatcher.route(
        Turn(key(name), Prompt(system.num_tokens + 500, system.text + question))
    )
    dispatcher.accepted(route)
    dispatcher.served(route, cached_tokens=None)
    claims = route.node.claims
    assert isinstance(claims, RememberedTexts)
    claims.texts.append(system)
    return route.node.name


def test_sticky_breaks_ties_as_hash_does() -> None:
    assert placements(Sticky(), nodes("abcd"), 100) == placements(
        RendezvousHash(), nodes("abcd"), 100
    )


def test_turns_without_a_conversation_spread_over_idle_nodes() -> None:
    for policy in (Sticky(), RendezvousHash()):
        chosen = Counter(choose(policy, nodes("abcd"), numbered(number)) for number in range(400))
        assert min(chosen.values()) >= 75


# --- field cases ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sticky", "hash"])
def test_a_node_more_or_less_moves_no_more_conversations_than_it_must(name: str) -> None:
    """1,000 sessions on 4 nodes; a fifth joins, then the first leaves."""
    dispatcher = dispatcher_over("abcde", policy=name)
    (pool,) = dispatcher.pools.values()
    late = pool.nodes.pop("e")
    chats = [key(number) for number in range(1_000)]

    def play() -> dict[ConversationKey, str]:
        homes = {}
        for chat in chats:
            route = dispatcher.route(turn(chat))
            dispatcher.accepted(route)
            dispatcher.served(route, cached_tokens=None)
            homes[chat] = route.node.name
        return homes

    four = play()
    pool.nodes["e"] = late
    five = play()
    dispatcher.remove_node(dispatcher.node("a"))
    without_a = play()

    moved = [chat for chat in chats if five[chat] != four[chat]]
    assert {five[chat] for chat in moved} <= {"e"}
    assert len(moved) <= 250
    assert {five[chat] for chat in chats if without_a[chat] != five[chat]} == {"a"}


def test_only_the_hot_nodes_conversations_spill_and_to_the_longest_prefix() -> None:
    """5 nodes, a overloaded.  The others' sessions stay; those of a go where most is held."""
    fleet = nodes("abcde")
    policy = Sticky(max_load_factor=1.25)
    for node, tokens in zip(fleet, (100_000, 20_000, 20_000, 20_000, 20_000), strict=True):
        node.in_flight_tokens = tokens

    asked = turn(tokens=4_000, text=HASHABLE)
    for home in "bcde":
        assert choose(policy, fleet, asked, home, {home: 3_000, "a": 4_000}) == home
    assert choose(policy, fleet, asked, "a", {"a": 3_900, "d": 2_048}) == "d"


def test_a_hot_node_is_left_one_conversation_at_a_time() -> None:
    """Each that leaves, or ends, counts at once: the rest stay as soon as the bound holds."""
    dispatcher = dispatcher_over("abcde")
    (pool,) = dispatcher.pools.values()
    pool.policy = Sticky(max_load_factor=1.25)
    hot, *others = pool.nodes.values()
    chats = [key(number) for number in range(8)]
    for chat in chats:
        dispatcher.conversations.pin(chat, hot.home, 1_000, written_at=0.0)
    for node in others:
        node.in_flight_tokens = 3_000

    routes = [dispatcher.route(turn(chat, 1_000)) for chat in chats]

    assert [route.decision.reason for route in routes] == [
        *[RouteReason.PINNED] * 4,
        *[RouteReason.MOVED] * 3,
        RouteReason.PINNED,
    ]


def test_on_a_miss_load_decides_not_the_size_of_a_cache() -> None:
    """A has served little and has 100 turns in flight, b has served much and is idle."""
    a, b = fleet = nodes("ab")
    a.in_flight, a.in_flight_tokens, a.decoding = 100, 100_000, 100
    a.turns, a.prompt_tokens = 100, 100_000
    a.recent_prefill.add(100_000, NOW)
    b.turns, b.prompt_tokens, b.cached_tokens = 10_000, 50_000_000, 40_000_000

    for policy in (Sticky(), LeastLoad(), LongestPrefix()):
        assert {choose(policy, fleet, turn(key(n), text=HASHABLE)) for n in range(20)} == {"b"}
