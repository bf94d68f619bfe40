"""A node told to end: work ends first, new work goes elsewhere."""

from __future__ import annotations

import signal

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from prefix_cache import Identity
from prefix_cache.client import (
    Acquire,
    AcquiredSequence,
    Append,
    Appended,
    Commit,
    Committed,
    Fork,
    NodeClient,
    Release,
    Released,
)
from prefix_cache.errors import Draining, Unavailable
from tests.node.nodes import NodeProcess, node_process, wait_until

WHO = Identity("m")


def tell_to_end(node: NodeProcess, client: NodeClient, number: signal.Signals) -> None:
    """Send the signal and wait until the node has taken note."""
    node.signal(number)
    wait_until(lambda: client.info().draining)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_live_sequences_end_before_the_node_does(number: signal.Signals) -> None:
    with (
        node_process() as node,
        NodeClient(node.address) as client,
        client.session() as session,
    ):
        (opened,) = session.step([Acquire(1, WHO, list(range(40)))])
        assert isinstance(opened, AcquiredSequence)
        tell_to_end(node, client, number)

        refused = session.step([Acquire(2, WHO, [1]), Fork(3, 1)])
        assert [type(result) for result in refused] == [Draining, Draining]
        with pytest.raises(Draining, match="'node' is draining"):
            client.acquire(WHO, [1])
        with pytest.raises(Draining), client.session():
            pass

        appended, committed = session.step([Append(1, [1]), Commit(1, 41)])
        assert appended == Appended((), (), 41)
        assert isinstance(committed, Committed)
        assert committed.num_committed_tokens == 41
        assert session.step([Release(1)]) == [Released()]
        assert node.wait() == 0
        with pytest.raises(Unavailable):
            session.step([Commit(1, 41)])


def test_health_says_so_while_the_node_drains() -> None:
    with node_process() as node, NodeClient(node.address) as client:
        sequence = client.acquire(WHO, [1])
        health = health_pb2_grpc.HealthStub(client.channel)

        def statuses() -> list[int]:
            names = ("", "prefix_cache.v1.NodeService")
            return [
                health.Check(health_pb2.HealthCheckRequest(service=name)).status for name in names
            ]

        serving, not_serving = (
            health_pb2.HealthCheckResponse.SERVING,
            health_pb2.HealthCheckResponse.NOT_SERVING,
        )
        assert statuses() == [serving, serving]
        tell_to_end(node, client, signal.SIGTERM)
        assert statuses() == [not_serving, not_serving]
        client.release(sequence.id)
        assert node.wait() == 0


def test_a_node_without_sequences_ends_at_once() -> None:
    with node_process() as node, NodeClient(node.address) as client, client.session() as session:
        session.step([Acquire(1, WHO, [1]), Release(1)])
        node.signal(signal.SIGTERM)
        assert node.wait() == 0


def test_watchers_see_the_last_sequences_end_and_are_let_go_with_the_node() -> None:
    with node_process() as node, NodeClient(node.address) as client, client.session() as session:
        session.step([Acquire(1, WHO, [1] * 16)])
        events = client.watch()
        assert [next(events).number for _ in range(2)] == [0, 0]
        tell_to_end(node, client, signal.SIGTERM)
        session.step([Commit(1, 16)])
        assert next(events).number == 1
        session.step([Release(1)])
        with pytest.raises(Draining):
            next(events)
        assert node.wait() == 0


def test_sequences_that_do_not_end_are_cut_off_after_the_grace() -> None:
    with node_process(drain_grace_s=0.2) as node, NodeClient(node.address) as client:
        client.acquire(WHO, [1])
        with client.session() as session:
            session.step([Acquire(1, WHO, [1])])
            node.signal(signal.SIGTERM)
            assert node.wait() == 0
            with pytest.raises(Unavailable):
                session.step([Commit(1, 1)])


@pytest.mark.parametrize(
    ("number", "exit_code"), [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGINT, 130)]
)
def test_a_second_signal_ends_the_node_whatever_is_left(
    number: signal.Signals, exit_code: int
) -> None:
    with node_process() as node, NodeClient(node.address) as client:
        client.acquire(WHO, [1])
        tell_to_end(node, client, number)
        node.signal(number)
        assert node.wait() == exit_code


def test_a_client_of_a_node_that_is_gone_gets_unavailable() -> None:
    with node_process() as node, NodeClient(node.address) as client:
        node.signal(signal.SIGKILL)
        node.wait()
        with pytest.raises(Unavailable, match=node.address) as caught:
            client.stats()
        assert caught.value.details == {"address": node.address, "code": "UNAVAILABLE"}
        assert isinstance(caught.value.__cause__, grpc.RpcError)
