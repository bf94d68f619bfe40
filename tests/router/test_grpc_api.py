"""RouterService over real gRPC; the nodes are names whose probes the test plays itself."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import pytest

from prefix_cache.client import (
    AsyncRouterClient,
    NodeState,
    NodeStatus,
    Outcome,
    RouteReason,
)
from prefix_cache.errors import InvalidArgument, NoNodeAvailable, UnknownRoute
from prefix_cache.serving import serving
from prefix_cache.v1 import router_pb2, router_pb2_grpc
from router.app import router_service
from router.config import RouterConfig
from router.dispatcher import Dispatcher
from tests.node.nodes import status_of


@pytest.fixture
def dispatcher() -> Dispatcher:
    dispatcher = Dispatcher(RouterConfig(nodes={name: f"{name}:1" for name in "abcdefgh"}))
    for node in dispatcher.list_nodes():
        dispatcher.node_answered(node, 1)
    return dispatcher


@pytest.fixture
async def address(dispatcher: Dispatcher) -> AsyncIterator[str]:
    async with serving(router_service(dispatcher), ["127.0.0.1:0"]) as (address,):
        yield address


@pytest.fixture
async def router(address: str) -> AsyncIterator[AsyncRouterClient]:
    async with AsyncRouterClient(address) as client:
        yield client


async def in_flight(router: AsyncRouterClient) -> Counter[str]:
    """Turns in flight at each node that has some."""
    _, nodes = await router.list_nodes()
    return +Counter({node.name: node.in_flight for node in nodes})


async def test_a_conversation_from_its_first_turn_to_its_loss(
    router: AsyncRouterClient, dispatcher: Dispatcher
) -> None:
    first = await router.route("chat", 1200, tenant="acme")
    assert (first.reason, first.moved_from, first.lost_tokens) == (RouteReason.NEW, "", 0)
    assert first.address == f"{first.node}:1"
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
async def test_a_hundred_turns_at_once_spread_evenly_and_leave_no_load(
    router: AsyncRouterClient, conversation: str, prompt_tokens: int
) -> None:
    routes = await asyncio.gather(
        *(router.route(conversation.format(n), prompt_tokens) for n in range(100))
    )

    assert sorted(Counter(route.node for route in routes).values()) == [12] * 4 + [13] * 4
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
    for node in dispatcher.list_nodes()[:6]:
        dispatcher.node_failed(node, "gone")
    dispatcher.node_draining(dispatcher.nodes["g"])

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


Stub: TypeAlias = "router_pb2_grpc.RouterServiceAsyncStub"


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
