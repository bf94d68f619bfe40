"""Where a node listens, and what else answers there."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from prefix_cache.client import AsyncNodeClient, NodeClient
from prefix_cache.errors import CannotListen
from prefix_cache.node import Node, NodeConfig, node_service
from prefix_cache.serving import serving
from tests.node.nodes import RunningNode, node_process


async def listen(*addresses: str) -> list[str]:
    """Start a node there and stop it; return the addresses it said."""
    async with serving(node_service(Node(NodeConfig())), addresses) as bound:
        for address in bound:
            async with AsyncNodeClient(address) as client:
                assert (await client.info()).name == "node"
        return bound


async def test_a_node_listens_on_several_addresses(tmp_path: Path) -> None:
    socket = f"unix://{tmp_path}/node.sock"
    tcp, unix, ipv6 = await listen("127.0.0.1:0", socket, "[::1]:0")
    assert tcp.startswith("127.0.0.1:")
    assert not tcp.endswith(":0")
    assert unix == socket
    assert ipv6.startswith("[::1]:")


async def test_a_port_in_use_is_an_error_that_names_it(
    running: RunningNode, capfd: pytest.CaptureFixture[str]
) -> None:
    reason = os.strerror(errno.EADDRINUSE)
    with pytest.raises(CannotListen, match=f"cannot listen on '{running.address}': {reason}") as e:
        await listen(running.address)
    assert e.value.details == {"address": running.address}
    assert capfd.readouterr().err == ""


async def test_a_port_whose_last_connections_linger_is_free() -> None:
    (address,) = await listen("127.0.0.1:0")
    assert await listen(address) == [address]


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("192.0.2.1:0", os.strerror(errno.EADDRNOTAVAIL)),  # set aside for documents
        ("no-such-host.invalid:80", "not known|No address"),
        ("a..b:80", "label"),
    ],
)
async def test_a_host_that_is_not_this_machine_is_refused(
    address: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CannotListen, match=reason):
        await listen(address)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "address",
    ["", "localhost", "127.0.0.1", "127.0.0.1:port", "127.0.0.1:65536", ":80", "::1:80"],
)
async def test_an_address_without_host_and_port_is_refused(address: str) -> None:
    with pytest.raises(CannotListen, match=r"expected .* or unix:///path$"):
        await listen(address)


async def test_a_socket_that_somebody_listens_on_is_not_stolen(tmp_path: Path) -> None:
    socket = f"unix://{tmp_path}/node.sock"
    async with serving(node_service(Node(NodeConfig(name="first"))), [socket]):
        with pytest.raises(CannotListen, match="another server listens there"):
            await listen(socket)
        async with AsyncNodeClient(socket) as client:
            assert (await client.info()).name == "first"


def test_the_socket_of_a_killed_node_is_taken_over(tmp_path: Path) -> None:
    socket = f"unix://{tmp_path}/node.sock"
    with node_process(listen=[socket]) as node:
        node.signal(signal.SIGKILL)
        node.wait()
    assert (tmp_path / "node.sock").exists()
    with node_process(listen=[socket]), NodeClient(socket) as client:
        assert client.info().num_blocks == 64


async def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(CannotListen, match="a file that is no socket"):
        await listen(f"unix://{tmp_path}/notes")
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("run/node.sock", "expected an absolute path"),
        ("/nowhere/at/all/node.sock", "there is no folder '/nowhere/at/all'"),
        ("/dev/null/node.sock", "there is no folder '/dev/null'"),
        ("/" + "x" * 300, os.strerror(errno.ENAMETOOLONG)),
        ("/" + "x" * 150, "path too long"),
    ],
    ids=["relative", "no folder", "in a file", "name too long", "path too long"],
)
async def test_a_path_that_cannot_be_a_socket_is_refused(
    path: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(CannotListen, match=reason):
        await listen(f"unix://{path}")
    assert capfd.readouterr().err == ""


async def test_health_is_the_standard_service(running: RunningNode) -> None:
    async with aio.insecure_channel(running.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "prefix_cache.v1.NodeService"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_reflection_lists_the_services(running: RunningNode) -> None:
    async with aio.insecure_channel(running.address) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        answer = await call.read()
        await call.done_writing()
        assert [service.name for service in answer.list_services_response.service] == [
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
            "prefix_cache.v1.NodeService",
        ]
        call.cancel()
