"""Both clients of a router, against one that answers with what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from prefix_cache import errors
from prefix_cache.client import (
    AsyncRouterClient,
    NodeState,
    NodeStatus,
    Outcome,
    Route,
    RouteCandidate,
    RouteExplanation,
    RoutePrompt,
    RouterClient,
    RouteReason,
)
from prefix_cache.index import Identity
from prefix_cache.serving import Service, serving
from prefix_cache.v1 import node_pb2, router_pb2, router_pb2_grpc
from prefix_cache.wire import unary
from tests.client.threads import InThread


class Router(router_pb2_grpc.RouterServiceServicer):
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    @unary
    def Route(self, request: router_pb2.RouteRequest) -> router_pb2.RouteResponse:  # noqa: N802
        self.requests.append(request)
        if "b" in request.exclude:
            raise errors.NoNodeAvailable("no node is left", excluded="b")
        return router_pb2.RouteResponse(
            route_id=2**63,
            node="b",
            address="127.0.0.1:1",
            reason=router_pb2.ROUTE_REASON_MOVED,
            moved_from="a",
            lost_tokens=320,
        )

    @unary
    def Report(self, request: router_pb2.ReportRequest) -> router_pb2.ReportResponse:  # noqa: N802
        self.requests.append(request)
        if request.route_id == 1:
            raise errors.UnknownRoute("no turn 1 waits for its report", route_id=1)
        return router_pb2.ReportResponse()

    @unary
    def ListNodes(  # noqa: N802
        self, request: router_pb2.ListNodesRequest
    ) -> router_pb2.ListNodesResponse:
        return router_pb2.ListNodesResponse(
            policy="sticky",
            nodes=[
                router_pb2.Node(
                    name="a",
                    address="127.0.0.1:1",
                    state=router_pb2.NODE_STATE_DRAINING,
                    in_flight=1,
                    in_flight_tokens=2,
                    conversations=3,
                    turns=4,
                    prompt_tokens=5,
                    cached_tokens=6,
                    failures=7,
                    lost_tokens=8,
                    url="http://127.0.0.1:2",
                    pool="chat",
                    queued_prefill=9,
                    models=["m", "n"],
                )
            ],
        )

    @unary
    def Drain(self, request: router_pb2.DrainRequest) -> router_pb2.DrainResponse:  # noqa: N802
        self.requests.append(request)
        return router_pb2.DrainResponse(conversations=3)

    @unary
    def ExplainRoute(  # noqa: N802
        self, request: router_pb2.ExplainRouteRequest
    ) -> router_pb2.ExplainRouteResponse:
        self.requests.append(request)
        return router_pb2.ExplainRouteResponse(
            node="b",
            reason=router_pb2.ROUTE_REASON_MOVED,
            runner_up="c",
            prompt_tokens=500,
            terms=["uncached", "queued"],
            candidates=[
                router_pb2.RouteCandidate(node="b", cached_tokens=480, cost=[20, 0.5]),
                router_pb2.RouteCandidate(node="c", is_home=True, cost=[500, 0]),
            ],
            left_out=[router_pb2.LeftOutNode(node="a", why="is FAILED")],
            moved_from="a",
        )


@pytest.fixture
def router() -> Router:
    return Router()


@pytest_asyncio.fixture(params=["synchronous", "asynchronous"])
async def client(request: Any, router: Router) -> AsyncIterator[Any]:
    service = Service(
        lambda server: router_pb2_grpc.add_RouterServiceServicer_to_server(router, server), []
    )
    async with serving(service, ["127.0.0.1:0"]) as (address,):
        synchronous = request.param == "synchronous"
        client: Any = InThread(RouterClient(address)) if synchronous else AsyncRouterClient(address)
        async with client:
            yield client


async def test_a_turn_is_a_route_and_a_report(client: Any, router: Router) -> None:
    route = await client.route("chat", 500, tenant="t", exclude=["a"])
    assert route == Route(2**63, "b", "127.0.0.1:1", RouteReason.MOVED, "a", 320)
    await client.report(route.route_id, Outcome.OK, cached_tokens=480, committed_tokens=700)
    assert router.requests == [
        router_pb2.RouteRequest(tenant="t", conversation="chat", prompt_tokens=500, exclude=["a"]),
        router_pb2.ReportRequest(
            route_id=2**63,
            outcome=router_pb2.OUTCOME_OK,
            cached_tokens=480,
            committed_tokens=700,
        ),
    ]


async def test_what_is_not_known_to_be_cached_is_not_reported_as_zero(
    client: Any, router: Router
) -> None:
    await client.report(2, Outcome.OK)
    await client.report(2, Outcome.OK, cached_tokens=0)

    assert [request.HasField("cached_tokens") for request in router.requests] == [False, True]


async def test_nodes_are_listed_with_state_and_counts(client: Any) -> None:
    policy, nodes = await client.list_nodes()
    assert policy == "sticky"
    assert nodes == [
        NodeStatus(
            name="a",
            address="127.0.0.1:1",
            state=NodeState.DRAINING,
            in_flight=1,
            in_flight_tokens=2,
            conversations=3,
            turns=4,
            prompt_tokens=5,
            cached_tokens=6,
            failures=7,
            lost_tokens=8,
            url="http://127.0.0.1:2",
            pool="chat",
            queued_prefill=9,
            models=("m", "n"),
        )
    ]


async def test_a_prompt_pool_and_model_go_along(client: Any, router: Router) -> None:
    prompt = RoutePrompt(Identity("m"), [1, 2], block_size=32)
    await client.route("chat", pool="p", model="m", prompt=prompt)
    assert router.requests == [
        router_pb2.RouteRequest(
            conversation="chat",
            pool="p",
            model="m",
            prompt=node_pb2.Prompt(
                identity=node_pb2.Identity(model="m", kv_dtype="bfloat16"),
                tokens=bytes([1, 0, 0, 0, 2, 0, 0, 0]),
                block_size=32,
            ),
        )
    ]


async def test_a_node_is_drained_and_let_in_again(client: Any, router: Router) -> None:
    assert await client.drain("a") == 3
    assert await client.drain("a", undo=True) == 3
    assert router.requests == [
        router_pb2.DrainRequest(node="a"),
        router_pb2.DrainRequest(node="a", undo=True),
    ]


async def test_decisions_are_explained_with_every_part_of_their_costs(
    client: Any, router: Router
) -> None:
    explained = await client.explain_request("id")
    assert explained == await client.explain("chat", 500, exclude=["x"])
    assert explained == RouteExplanation(
        node="b",
        reason=RouteReason.MOVED,
        runner_up="c",
        prompt_tokens=500,
        terms=("uncached", "queued"),
        candidates=(
            RouteCandidate("b", 480, False, (20.0, 0.5)),
            RouteCandidate("c", 0, True, (500.0, 0.0)),
        ),
        left_out={"a": "is FAILED"},
        moved_from="a",
    )
    assert router.requests == [
        router_pb2.ExplainRouteRequest(request_id="id"),
        router_pb2.ExplainRouteRequest(
            turn=router_pb2.RouteRequest(conversation="chat", prompt_tokens=500, exclude=["x"])
        ),
    ]


async def test_errors_of_the_router_are_typed(client: Any) -> None:
    with pytest.raises(errors.NoNodeAvailable, match="no node is left") as nobody:
        await client.route("chat", 500, exclude=["b"])
    assert nobody.value.details == {"excluded": "b"}
    with pytest.raises(errors.UnknownRoute):
        await client.report(1, Outcome.NODE_FAILED)
    with pytest.raises(errors.InvalidArgument, match="prompt_tokens is -1"):
        await client.route("chat", -1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("conversation", "x\ud800"),
        ("tenant", "\ud800"),
        ("tenant", 7),
        ("exclude", ["\ud800"]),
        ("pool", 1),
        ("model", None),
    ],
)
async def test_text_that_no_message_holds_is_refused(
    client: Any, router: Router, name: str, value: Any
) -> None:
    with pytest.raises(errors.InvalidArgument, match="expected text that UTF-8 can") as caught:
        await client.route(**{"conversation": "chat", "prompt_tokens": 1, name: value})
    assert caught.value.details["name"] == name
    assert router.requests == []
