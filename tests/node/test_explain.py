"""``Explain`` over the bare wire: what a node says of a prompt, and what it keeps to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest
from grpc import StatusCode, aio

from prefix_cache import errors
from prefix_cache.client import AsyncNodeClient
from prefix_cache.index import Identity, ReasonKind
from prefix_cache.v1 import node_pb2, node_pb2_grpc
from prefix_cache.wire import explanation_from_wire
from tests.node.nodes import RunningNode, packed, running_node, status_of

if TYPE_CHECKING:
    from prefix_cache.v1.node_pb2_grpc import NodeServiceAsyncStub  # exists in the stubs only


def prompt(*tokens: int, **fields: object) -> node_pb2.Prompt:
    who = node_pb2.Identity(model="m", salt=str(fields.pop("salt", "")))
    return node_pb2.Prompt(identity=who, tokens=packed(*tokens), **fields)  # type: ignore[arg-type]


async def serve(stub: NodeServiceAsyncStub, asked: node_pb2.Prompt) -> None:
    opened = await stub.Acquire(node_pb2.AcquireRequest(prompt=asked))
    handle = opened.sequence_id
    await stub.Commit(node_pb2.CommitRequest(sequence_id=handle, num_tokens=opened.num_tokens))
    await stub.Release(node_pb2.ReleaseRequest(sequence_id=handle))


async def test_every_range_of_a_prompt_has_its_reason(stub: NodeServiceAsyncStub) -> None:
    await serve(stub, prompt(*range(64)))
    asked = prompt(*range(20), 99, *range(21, 70))
    assert await stub.Explain(node_pb2.ExplainRequest(prompt=asked)) == node_pb2.ExplainResponse(
        num_cached_tokens=16,
        reasons=[
            node_pb2.Reason(kind=node_pb2.REASON_KIND_CACHED, start=0, end=16),
            node_pb2.Reason(
                kind=node_pb2.REASON_KIND_DIVERGED,
                start=16,
                end=64,
                position=20,
                prompt_token=99,
                cached_token=20,
                agrees_from=21,
            ),
            node_pb2.Reason(kind=node_pb2.REASON_KIND_PARTIAL_BLOCK, start=64, end=70),
        ],
    )


async def test_explaining_changes_nothing(running: RunningNode, stub: NodeServiceAsyncStub) -> None:
    await serve(stub, prompt(*range(64)))
    before = running.node.cache.stats(), running.node.log.last
    await stub.Explain(node_pb2.ExplainRequest(prompt=prompt(*range(100))))
    assert (running.node.cache.stats(), running.node.log.last) == before


async def test_across_salts_is_refused_unless_the_node_allows_it(
    stub: NodeServiceAsyncStub,
) -> None:
    await serve(stub, prompt(*range(32), salt="theirs"))
    request = node_pb2.ExplainRequest(prompt=prompt(*range(32)), across_salts=True)
    assert await status_of(stub.Explain(request)) == (
        StatusCode.PERMISSION_DENIED,
        "PERMISSION_DENIED",
        {"node": "node"},
    )
    request.across_salts = False
    (reason,) = (await stub.Explain(request)).reasons
    assert reason.kind == node_pb2.REASON_KIND_NEVER_SEEN


async def test_a_node_that_allows_it_tells_across_salts() -> None:
    async with (
        running_node(allow_explain_across_salts=True) as running,
        aio.insecure_channel(running.address) as channel,
    ):
        stub: NodeServiceAsyncStub = node_pb2_grpc.NodeServiceStub(channel)
        await serve(stub, prompt(*range(32), salt="theirs"))
        request = node_pb2.ExplainRequest(prompt=prompt(*range(32)), across_salts=True)
        (reason,) = (await stub.Explain(request)).reasons
        assert reason.kind == node_pb2.REASON_KIND_OTHER_IDENTITY
        assert list(reason.fields) == ["salt"]


async def test_a_delta_is_to_be_sent_in_full(stub: NodeServiceAsyncStub) -> None:
    asked = prompt(1, 2, 3, parent_block_hash=b"h" * 16, parent_num_tokens=16)
    assert await status_of(stub.Explain(node_pb2.ExplainRequest(prompt=asked))) == (
        StatusCode.INVALID_ARGUMENT,
        "INVALID_ARGUMENT",
        {"field": "parent_block_hash"},
    )


async def test_another_block_size_is_refused(stub: NodeServiceAsyncStub) -> None:
    request = node_pb2.ExplainRequest(prompt=prompt(1, block_size=32))
    code, reason, _ = await status_of(stub.Explain(request))
    assert (code, reason) == (StatusCode.FAILED_PRECONDITION, "IDENTITY_MISMATCH")


async def test_a_client_of_an_older_node_learns_that_it_cannot_explain() -> None:
    server = aio.server()
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("prefix_cache.v1.NodeService", {})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with AsyncNodeClient(f"127.0.0.1:{port}") as client:
        with pytest.raises(errors.Unsupported):
            await client.explain(Identity("m"), [1])
    await server.stop(None)


def test_a_reason_that_only_a_newer_node_knows_is_not_guessed_at() -> None:
    answer = node_pb2.ExplainResponse(reasons=[node_pb2.Reason(start=0, end=16)])
    answer.reasons[0].kind = 99  # type: ignore[assignment]
    with pytest.raises(errors.Unsupported, match="kind 99"):
        explanation_from_wire(answer)


def test_every_kind_of_reason_travels() -> None:
    on_the_wire = {name.removeprefix("REASON_KIND_") for name in node_pb2.ReasonKind.keys()}  # noqa: SIM118
    assert on_the_wire == {kind.name for kind in ReasonKind} | {"UNSPECIFIED"}
