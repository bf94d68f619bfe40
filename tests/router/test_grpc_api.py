"""RouterService over real gRPC; the nodes are names whose probes the test plays itself."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import grpc
import pytest
from prometheus_client import CollectorRegistry

from prefix_cache.client import (
    AsyncRouterClient,
    NodeEvent,
    NodeState,
    NodeStatus,
    Outcome,
    RouteLeaving,
    RoutePrompt,
    RouteReason,
)
from prefix_cache.client.routes import route_to_wire
from prefix_cache.errors import InvalidArgument, NoNodeAvailable, UnknownRoute
from prefix_cache.index import BlockCache, ExtraKey, Identity
from prefix_cache.serving import Service, serving
from prefix_cache.v1 import node_pb2, router_pb2, router_pb2_grpc
from router.app import router_service
from router.claims.node_claims import NodeClaims
from router.claims.sent_text import SentText
from router.claims.text_tree import TextTree
from router.config import PoolConfig, RouterConfig
from router.conversations import Pin
from router.decisions import Decisions
from router.directory import Directory, DirectoryCounts
from router.dispatcher import Dispatcher
from router.status import Status
from router.token_prompt import prompt_from_wire
from router.turn import ConversationKey, Prompt
from tests.node.nodes import status_of
from tests.router.dispatching import (
    CHAT,
    answer_all,
    dispatcher_over,
    remember_texts,
    serve,
    specs,
    turn,
)

Stub: TypeAlias = "router_pb2_grpc.RouterServiceAsyncStub"

WHO = Identity("m")


@pytest.fixture
def dispatcher() -> Dispatcher:
    return dispatcher_over("abcdefgh")


@pytest.fixture
def decisions() -> Decisions:
    return Decisions(max_decisions=10)


@pytest.fixture
async def address(dispatcher: Dispatcher, decisions: Decisions) -> AsyncIterator[str]:
    async with serving(service_of(dispatcher, decisions), ["127.0.0.1:0"]) as (address,):
        yield address


@pytest.fixture
async def router(address: str) -> AsyncIterator[AsyncRouterClient]:
    async with AsyncRouterClient(address) as client:
        yield client


def service_of(
    dispatcher: Dispatcher, decisions: Decisions, directory: Directory | None = None
) -> Service:
    status = Status(dispatcher, decisions, CollectorRegistry())
    return router_service(dispatcher, decisions, status, directory)


async def in_flight(router: AsyncRouterClient) -> Counter[str]:
    """Turns in flight at each node that has some."""
    _, nodes = await router.list_nodes()
    return +Counter({node.name: node.in_flight for node in nodes})


async def test_a_conversation_from_its_first_turn_to_its_loss(
    router: AsyncRouterClient, dispatcher: Dispatcher
) -> None:
    first = await router.route("chat", 1200, tenant="acme")
    assert (first.reason, first.moved_from, first.lost_tokens) == (RouteReason.NEW, "", 0)
    assert first.address == f"127.0.0.1:{ord(first.node)}"
    assert await in_flight(router) == {first.node: 1}
    await router.report(first.route_id, Outcome.OK, cached_tokens=0, committed_tokens=1700)

    second = await router.route("chat", 1900, tenant="acme")
    assert (second.node, second.reason) == (first.node, RouteReason.PINNED)
    await router.report(second.route_id, Outcome.OK, cached_tokens=1696, committed_tokens=2400)

    third = await router.route("chat", 2600, tenant="acme")
    await router.report(third.route_id, Outcome.NODE_FAILED)
    retried = await router.route("chat", 2600, tenant="acme", exclude=[third.node])
    assert retried.node != first.node
    assert (retried.reason, retried.moved_from, retried.lost_tokens) == (
        RouteReason.MOVED,
        first.node,
        2400,
    )

    policy, nodes = await router.list_nodes()
    assert policy == "sticky"
    assert [node.name for node in nodes] == list("abcdefgh")
    assert next(node for node in nodes if node.name == first.node) == NodeStatus(
        name=first.node,
        address=first.address,
        state=NodeState.FAILED,
        in_flight=0,
        in_flight_tokens=0,
        conversations=1,
        turns=2,
        prompt_tokens=3100,
        cached_tokens=1696,
        failures=1,
        lost_tokens=2400,
        pool="default",
    )
    assert next(node for node in nodes if node.name == retried.node).in_flight_tokens == 2600


async def test_tenants_have_conversations_of_their_own(router: AsyncRouterClient) -> None:
    turn = await router.route("1", 100, tenant="A")
    await router.report(turn.route_id, Outcome.OK, committed_tokens=96)

    assert (await router.route("1", 100, tenant="B")).reason is RouteReason.NEW
    assert (await router.route("1", 100)).reason is RouteReason.NEW
    assert (await router.route("1", 100, tenant="A")).reason is RouteReason.PINNED


async def test_turns_without_a_conversation_are_no_conversation(router: AsyncRouterClient) -> None:
    for _ in range(3):
        turn = await router.route("", 100, tenant="acme")
        assert turn.reason is RouteReason.NEW
        await router.report(turn.route_id, Outcome.OK, committed_tokens=96)

    _, nodes = await router.list_nodes()
    assert [node.conversations for node in nodes] == [0] * 8


@pytest.mark.parametrize("conversation", ["", "chat-{}"], ids=["single turns", "conversations"])
@pytest.mark.parametrize("prompt_tokens", [0, 1000])
async def test_a_hundred_turns_at_once_do_not_herd_and_leave_no_load(
    router: AsyncRouterClient, conversation: str, prompt_tokens: int
) -> None:
    routes = await asyncio.gather(
        *(router.route(conversation.format(n), prompt_tokens) for n in range(100))
    )

    assert max(Counter(route.node for route in routes).values()) <= 25
    assert sum((await in_flight(router)).values()) == 100
    outcomes = [*Outcome] * 34
    await asyncio.gather(
        *(
            router.report(route.route_id, outcome)
            for route, outcome in zip(routes, outcomes, strict=False)
        )
    )
    assert await in_flight(router) == {}


async def test_a_route_is_reported_once(router: AsyncRouterClient) -> None:
    turn = await router.route("chat", 100)
    await router.report(turn.route_id, Outcome.NOT_SERVED)

    for unknown in (turn.route_id, 4711, 2**64 - 1):
        with pytest.raises(UnknownRoute) as caught:
            await router.report(unknown, Outcome.OK)
        assert caught.value.details == {"route_id": str(unknown)}


async def test_with_no_node_left_the_caller_learns_the_state_of_each(
    router: AsyncRouterClient, dispatcher: Dispatcher
) -> None:
    for node in list(dispatcher.nodes())[:6]:
        dispatcher.node_failed(node, "gone")
    dispatcher.node_draining(dispatcher.node("g"))

    with pytest.raises(NoNodeAvailable) as caught:
        await router.route("chat", 100, exclude=["h", "no such node"])

    assert str(caught.value) == (
        "no node can take the turn: a is FAILED, b is FAILED, c is FAILED, d is FAILED, "
        "e is FAILED, f is FAILED, g is DRAINING, h is excluded"
    )


async def test_a_key_too_long_to_remember_is_refused(router: AsyncRouterClient) -> None:
    assert (await router.route("c" * 1000, 1, tenant="t" * 24)).reason is RouteReason.NEW

    with pytest.raises(InvalidArgument, match="1025 characters: expected at most 1024"):
        await router.route("c" * 1000, 1, tenant="t" * 25)


async def test_a_report_of_more_cached_tokens_than_the_prompt_has_changes_nothing(
    router: AsyncRouterClient,
) -> None:
    turn = await router.route("chat", 10)

    with pytest.raises(InvalidArgument, match="1000000 cached tokens were reported of a") as caught:
        await router.report(turn.route_id, Outcome.OK, cached_tokens=1_000_000)

    assert caught.value.details == {"cached_tokens": "1000000", "prompt_tokens": "10"}
    assert await in_flight(router) == {turn.node: 1}
    await router.report(turn.route_id, Outcome.OK, cached_tokens=10)
    _, nodes = await router.list_nodes()
    assert sum(node.cached_tokens for node in nodes) == 10


async def test_a_report_that_does_not_say_what_was_cached_accuses_nobody(
    router: AsyncRouterClient, dispatcher: Dispatcher
) -> None:
    """It is not a word of 0, which would say that the node has lost what it is claimed to hold."""
    claims = remember_texts(dispatcher)
    for cached_tokens in (0, None):
        route = await router.route("chat", prompt=RoutePrompt(WHO, [1] * 100))
        await router.report(route.route_id, Outcome.OK, cached_tokens=cached_tokens)

    sums = dispatcher.ledger.sums
    assert (sums.turns, sums.turns_without_word) == (2, 1)
    assert (sums.promised, sums.not_delivered, sums.told_tokens) == (100, 0, 100)
    assert len(claims[route.node].texts) == 2


async def test_of_a_prompt_whose_length_nobody_said_no_part_is_counted(
    router: AsyncRouterClient, dispatcher: Dispatcher
) -> None:
    turn = await router.route("chat")

    await router.report(turn.route_id, Outcome.OK, cached_tokens=96, committed_tokens=200)

    sums = dispatcher.ledger.sums
    assert (sums.turns, sums.turns_without_word, sums.prompt_tokens) == (1, 1, 0)
    assert (await router.route("chat")).reason is RouteReason.PINNED


async def test_a_prompt_given_by_its_tokens_goes_where_they_are_held(
    router: AsyncRouterClient, dispatcher: Dispatcher
) -> None:
    """Its chain hashes are those that a cache node announces."""
    tokens = list(range(100))
    stored: list[Any] = []
    cache = BlockCache(num_blocks=16, on_event=stored.append)
    cache.commit(cache.acquire(WHO, tokens), 100)
    for node in dispatcher.nodes():
        if node.name == "f":
            node.claims = HeldHashes(stored[0].block_hashes)

    route = await router.route("chat", prompt=RoutePrompt(WHO, [*tokens, 7, 7]))
    elsewhere = await router.explain("new", prompt=RoutePrompt(Identity("other"), tokens))

    assert route.node == "f"
    explained = await router.explain("chat", prompt=RoutePrompt(WHO, tokens))
    assert explained.prompt_tokens == 100
    assert {each.node: each.cached_tokens for each in explained.candidates}["f"] == 96
    assert {each.cached_tokens for each in elsewhere.candidates} == {0}
    assert dispatcher.unhashable == 0


async def test_it_is_told_at_which_token_a_prompt_leaves_what_was_sent(
    router: AsyncRouterClient, dispatcher: Dispatcher
) -> None:
    texts = TextTree()
    for node in dispatcher.nodes():
        node.claims = NodeClaims(SentText(node.name, 1_000, texts))
    sent = list(range(64))
    route = await router.route("chat", prompt=RoutePrompt(WHO, sent))
    await router.report(route.route_id, Outcome.OK)

    async def leaves(tokens: list[int]) -> RouteLeaving | None:
        return (await router.explain("new", prompt=RoutePrompt(WHO, tokens))).leaves

    assert await leaves([*sent[:37], 256, *sent[38:]]) == RouteLeaving(route.node, 37, differs=True)
    assert await leaves([*sent, 7]) == RouteLeaving(route.node, 64, differs=False)
    assert await leaves(sent) is None
    assert await leaves([7, *sent]) is None
    assert (await router.explain("new", 100)).leaves is None
    assert (await router.explain_request(str(route.route_id))).leaves is None


async def test_of_a_node_that_tells_its_blocks_a_prompt_leaves_the_first_that_it_has_not(
    router: AsyncRouterClient, dispatcher: Dispatcher
) -> None:
    tokens = list(range(64))
    stored: list[Any] = []
    cache = BlockCache(num_blocks=16, on_event=stored.append)
    cache.commit(cache.acquire(WHO, tokens), 64)
    claims = NodeClaims(SentText("f", 1_000, TextTree()))
    claims.held.apply(NodeEvent(1, 1, stored[0]))
    dispatcher.node("f").claims = claims

    explained = await router.explain("new", prompt=RoutePrompt(WHO, [*tokens[:37], 7, 7]))

    assert explained.leaves == RouteLeaving("f", 32, differs=None)


def test_keys_over_tokens_change_their_hashes() -> None:
    """As at a node: a picture's key goes into the blocks it touches, and unknown ones end reuse."""
    tokens = list(range(64))

    def hashes(*extra_keys: ExtraKey) -> Sequence[bytes]:
        request = RoutePrompt(WHO, tokens, extra_keys)
        return prompt_from_wire(route_to_wire("", 0, "", (), "", "", request).prompt).block_hashes

    plain, keyed, unknown = hashes(), hashes((20, 30, b"cat")), hashes((20, 30, None))
    assert len(plain) == len(keyed) == 4
    assert [one == other for one, other in zip(plain, keyed, strict=True)] == [True, *[False] * 3]
    assert unknown == plain[:1]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (node_pb2.Prompt(tokens=bytes(64)), "block_size is 0: expected that of the nodes"),
        (node_pb2.Prompt(block_size=16), "the prompt is empty"),
        (node_pb2.Prompt(block_size=16, tokens=b"123"), "tokens as bytes have length 3"),
        (
            node_pb2.Prompt(block_size=16, tokens=bytes(64), parent_num_tokens=16),
            "in delta form: the router needs it in full",
        ),
    ],
    ids=["no block size", "empty", "no tokens", "delta"],
)
async def test_prompts_that_no_claim_can_be_asked_about_are_refused(
    stub: Stub, prompt: node_pb2.Prompt, message: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=message) as caught:
        await stub.Route(router_pb2.RouteRequest(prompt=prompt))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_two_counts_of_one_prompt_that_differ_are_refused(router: AsyncRouterClient) -> None:
    with pytest.raises(InvalidArgument, match="prompt_tokens is 5: the prompt has 16"):
        await router.route("chat", 5, prompt=RoutePrompt(WHO, [1] * 16))


async def test_turns_without_tokens_are_routed_by_load_and_counted(
    router: AsyncRouterClient, dispatcher: Dispatcher
) -> None:
    """F032."""
    for number in range(5):
        await router.route(f"chat-{number}", 100)

    assert dispatcher.unhashable == 5
    assert sum((await in_flight(router)).values()) == 5


async def test_a_node_told_to_drain_is_left_by_its_conversations(
    router: AsyncRouterClient, dispatcher: Dispatcher
) -> None:
    home = serve(dispatcher).node

    assert await router.drain(home.name) == 1

    assert home.state is NodeState.DRAINING
    moved = await router.route("chat", 100)
    assert (moved.reason, moved.moved_from) == (RouteReason.MOVED, home.name)
    assert await router.drain(home.name, undo=True) == 1
    assert dispatcher.node(home.name).state is NodeState.JOINING
    with pytest.raises(InvalidArgument, match="unknown node 'z'"):
        await router.drain("z")


async def test_one_conversation_in_two_pools_has_a_home_in_each() -> None:
    """F122: neither moves the other."""
    pools = (PoolConfig(name="chat", nodes=specs("ab")), PoolConfig(name="code", nodes=specs("cd")))
    dispatcher = Dispatcher(RouterConfig(pools=pools))
    answer_all(dispatcher)
    service = service_of(dispatcher, Decisions(max_decisions=1))
    reasons = []
    async with (
        serving(service, ["127.0.0.1:0"]) as (address,),
        AsyncRouterClient(address) as router,
    ):
        for pool, nodes in (("chat", "ab"), ("code", "cd"), ("", "ab"), ("code", "cd")):
            route = await router.route("1", 100, pool=pool)
            await router.report(route.route_id, Outcome.OK)
            assert route.node in nodes
            reasons.append(route.reason)

    new, pinned = RouteReason.NEW, RouteReason.PINNED
    assert reasons == [new, new, pinned, pinned]


class SharedPins:
    """A directory that answers once it is let."""

    def __init__(self, pins: dict[ConversationKey, Pin]) -> None:
        self.counts = DirectoryCounts()
        self.is_available = True
        self.pins = pins
        self.was_asked, self.may_answer = asyncio.Event(), asyncio.Event()
        self.was_given_up = asyncio.Event()

    async def find_pin(self, key: ConversationKey) -> Pin | None:
        self.was_asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.was_given_up.set()
            raise
        return self.pins.get(key)

    def put_pin(self, key: ConversationKey, pin: Pin) -> None:
        self.pins[key] = pin


async def test_pins_of_other_routers_are_followed_and_one_who_gives_up_is_not_routed(
    dispatcher: Dispatcher, decisions: Decisions
) -> None:
    """F056, F059: who cancels while the directory is asked leaves nothing behind."""
    shared = SharedPins({CHAT: Pin(dispatcher.node("f").home, 300, 0.0, 0.0)})
    async with (
        serving(service_of(dispatcher, decisions, shared), ["127.0.0.1:0"]) as (address,),
        AsyncRouterClient(address) as router,
    ):
        given_up = asyncio.create_task(router.route("chat", 100))
        await shared.was_asked.wait()
        given_up.cancel()
        await shared.was_given_up.wait()
        shared.may_answer.set()

        route = await router.route("chat", 100)
        new = await router.route("other", 100)

    assert (route.node, route.reason) == ("f", RouteReason.PINNED)
    assert new.reason is RouteReason.NEW
    assert dispatcher.turns_routed == 2


async def test_a_decision_is_explained_before_it_is_taken_and_afterwards(
    router: AsyncRouterClient, dispatcher: Dispatcher, decisions: Decisions
) -> None:
    dispatcher.node_failed(dispatcher.node("b"), "gone")
    before = await router.explain("chat", 100, exclude=["a"])
    route = dispatcher.route(turn(exclude="a"))
    decisions.keep("request-1", route.decision)

    after = await router.explain_request("request-1")

    assert after == before
    assert (after.node, after.reason) == (route.node.name, RouteReason.NEW)
    assert after.left_out == {"a": "is excluded", "b": "is FAILED"}
    assert [candidate.node for candidate in after.candidates] == list("cdefgh")
    costs = {each.node: sum(each.cost) for each in after.candidates}
    assert costs[after.node] == min(costs.values())
    assert {len(each.cost) for each in after.candidates} == {len(after.terms)}
    assert after.runner_up in set("cdefgh") - {after.node}
    assert dispatcher.turns_routed == 1
    with pytest.raises(UnknownRoute, match="no decision of request 'request-2' is known"):
        await router.explain_request("request-2")


async def test_a_turn_of_route_is_explained_afterwards_by_its_id(
    router: AsyncRouterClient,
) -> None:
    route = await router.route("chat", 100, exclude=["a"])

    explained = await router.explain_request(str(route.route_id))

    assert (explained.node, explained.reason) == (route.node, RouteReason.NEW)
    assert explained.left_out == {"a": "is excluded"}


async def test_a_turn_is_explained_by_the_pins_of_other_routers(
    dispatcher: Dispatcher, decisions: Decisions
) -> None:
    shared = SharedPins({CHAT: Pin(dispatcher.node("f").home, 300, 0.0, 0.0)})
    shared.may_answer.set()
    async with (
        serving(service_of(dispatcher, decisions, shared), ["127.0.0.1:0"]) as (address,),
        AsyncRouterClient(address) as router,
    ):
        explained = await router.explain("chat", 100)

    assert (explained.node, explained.reason) == ("f", RouteReason.PINNED)


@pytest.mark.parametrize("policy", ["sticky", "round_robin"])
async def test_a_turn_of_no_conversation_is_explained_as_the_next_one_is_routed(
    policy: str,
) -> None:
    dispatcher = dispatcher_over("abc", policy=policy)
    service = service_of(dispatcher, Decisions(max_decisions=1))
    explained, routed = [], []
    async with (
        serving(service, ["127.0.0.1:0"]) as (address,),
        AsyncRouterClient(address) as router,
    ):
        for _ in range(6):
            explained.append((await router.explain("")).node)
            route = await router.route("")
            await router.report(route.route_id, Outcome.NOT_SERVED)
            routed.append(route.node)

    assert explained == routed
    assert len(set(routed)) > 1


class HeldHashes:
    """Claims of blocks by their hashes."""

    def __init__(self, block_hashes: Sequence[bytes]) -> None:
        self._held = set(block_hashes)

    def is_told(self, prompt: Prompt) -> bool:
        return True

    def held_tokens(self, prompt: Prompt) -> int:
        held = itertools.takewhile(self._held.__contains__, prompt.block_hashes)
        return prompt.block_size * len(list(held))

    def accepted(self, prompt: Prompt) -> None: ...

    def served(self, prompt: Prompt, promised: int, delivered: int | None) -> bool:
        return False

    def clear(self) -> None: ...


@pytest.fixture
async def channel(address: str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> Stub:
    return router_pb2_grpc.RouterServiceStub(channel)


@pytest.mark.parametrize(
    ("call", "code", "reason", "metadata"),
    [
        (
            lambda stub: stub.Report(
                router_pb2.ReportRequest(route_id=7, outcome=router_pb2.OUTCOME_OK)
            ),
            grpc.StatusCode.NOT_FOUND,
            "UNKNOWN_ROUTE",
            {"route_id": "7"},
        ),
        (
            lambda stub: stub.Report(router_pb2.ReportRequest(route_id=7)),
            grpc.StatusCode.INVALID_ARGUMENT,
            "INVALID_ARGUMENT",
            {"outcome": "0"},
        ),
        (
            lambda stub: stub.Route(router_pb2.RouteRequest(exclude="abcdefgh")),
            grpc.StatusCode.UNAVAILABLE,
            "NO_NODE_AVAILABLE",
            {"nodes": ", ".join(f"{name} is excluded" for name in "abcdefgh")},
        ),
    ],
    ids=["unknown route", "no outcome", "no node"],
)
async def test_errors_carry_a_status_and_its_details(
    stub: Stub,
    call: Callable[[Stub], Awaitable[object]],
    code: grpc.StatusCode,
    reason: str,
    metadata: dict[str, str],
) -> None:
    assert await status_of(call(stub)) == (code, reason, metadata)


@pytest.mark.parametrize("outcome", [router_pb2.OUTCOME_UNSPECIFIED, 99])
async def test_a_report_that_says_nothing_leaves_the_route_open(
    router: AsyncRouterClient, stub: Stub, outcome: int
) -> None:
    turn = await router.route("chat", 100)
    report = router_pb2.ReportRequest(
        route_id=turn.route_id, outcome=router_pb2.Outcome.ValueType(outcome)
    )

    with pytest.raises(grpc.aio.AioRpcError, match=f"unknown outcome {outcome}"):
        await stub.Report(report)

    assert await in_flight(router) == {turn.node: 1}
    await router.report(turn.route_id, Outcome.OK)
    assert await in_flight(router) == {}


async def test_bytes_that_are_no_request_are_the_clients_mistake(
    channel: Any, caplog: pytest.LogCaptureFixture
) -> None:
    method = "/prefix_cache.v1.RouterService/Route"
    assert await status_of(channel.unary_unary(method)(b"\xff\xff\xff")) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_MESSAGE",
        {"method": method, "length": "3"},
    )
    assert caplog.record_tuples == []
