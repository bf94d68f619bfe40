"""What each policy promises beyond the contract they share."""

from __future__ import annotations

from collections import Counter
from random import Random

from router.nodes import Node
from router.policies import Policy, RandomChoice, RendezvousHash, RoundRobin, Sticky
from router.turn import ConversationKey, Turn


def nodes(names: str) -> list[Node]:
    return [Node(name, f"127.0.0.1:{ord(name)}") for name in names]


def turn(conversation: str | None, number: int = 0, tenant: str = "") -> Turn:
    key = None if conversation is None else ConversationKey(tenant, conversation)
    return Turn(key, 100, frozenset(), number)


def placements(policy: Policy, fleet: list[Node], conversations: int) -> dict[str, str]:
    names = [f"chat-{number}" for number in range(conversations)]
    return {name: policy.choose(fleet, turn(name), None).name for name in names}


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


def test_hash_and_ties_tell_tenants_apart() -> None:
    fleet = nodes("abcdefgh")
    for policy in (RendezvousHash(), Sticky()):
        homes = {policy.choose(fleet, turn("1", tenant=f"t{n}"), None).name for n in range(100)}
        assert homes == set("abcdefgh")


def test_sticky_goes_home_whatever_the_load() -> None:
    a, b = nodes("ab")
    a.in_flight, a.in_flight_tokens = 100, 100_000

    assert Sticky().choose([a, b], turn("chat"), a) is a


def test_sticky_sends_a_new_conversation_to_the_fewest_tokens_in_flight() -> None:
    """Not to the smallest cache, nor to the fewest turns."""
    a, b, c = nodes("abc")
    a.in_flight, a.in_flight_tokens = 1, 9_000
    b.in_flight, b.in_flight_tokens = 40, 8_000
    c.in_flight, c.in_flight_tokens = 1, 8_001
    b.turns, b.prompt_tokens, b.cached_tokens = 1_000, 5_000_000, 4_000_000

    assert Sticky().choose([a, b, c], turn("chat"), None) is b


def test_sticky_counts_turns_where_tokens_are_equal() -> None:
    a, b = nodes("ab")
    a.in_flight, b.in_flight = 1, 2

    assert {Sticky().choose([a, b], turn(f"{n}"), None).name for n in range(20)} == {"a"}


def test_sticky_breaks_ties_as_hash_does() -> None:
    assert placements(Sticky(), nodes("abcd"), 100) == placements(
        RendezvousHash(), nodes("abcd"), 100
    )


def test_turns_without_a_conversation_spread_over_idle_nodes() -> None:
    fleet = nodes("abcd")
    for policy in (Sticky(), RendezvousHash()):
        chosen = Counter(policy.choose(fleet, turn(None, n), None).name for n in range(400))
        assert min(chosen.values()) >= 75


def test_round_robin_goes_around() -> None:
    fleet = nodes("abc")

    assert [RoundRobin().choose(fleet, turn("chat", n), None).name for n in range(7)] == [
        *"abcabca"
    ]


def test_random_draws_the_same_from_the_same_seed() -> None:
    def draws(seed: int) -> list[str]:
        policy = RandomChoice(Random(seed))
        return [policy.choose(nodes("abcd"), turn("chat", n), None).name for n in range(50)]

    assert draws(1) == draws(1)
    assert draws(1) != draws(2)
