"""``node`` and ``router`` as processes."""

from __future__ import annotations

import json
import signal
import tempfile
from urllib.request import urlopen

from prefix_cache import Identity
from prefix_cache.client import NodeClient, RouterClient
from tests.cli.commands import first_line, run, running


def test_a_node_says_where_it_listens_and_at_the_end_what_it_did() -> None:
    with running("node", "--listen", "127.0.0.1:0", "--num-blocks", "64") as node:
        address = first_line(node).removeprefix("listening on ")
        with NodeClient(address) as client:
            for _ in range(2):
                sequence = client.acquire(Identity(model="m"), [1] * 33)
                client.commit(sequence.id, 33)
                client.release(sequence.id)
        node.send_signal(signal.SIGTERM)
        out, err = node.communicate(timeout=30)
    assert out == (
        "stopped: 32 of 66 prompt tokens were cached, 2 of 64 blocks are, 0 were evicted\n"
    )
    assert (node.returncode, err) == (0, "")


def test_a_node_with_json_prints_one_object_a_line() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        running(
            *("node", "--json", "--num-blocks", "64", "--listen", "127.0.0.1:0"),
            *("--listen", f"unix://{directory}/node.sock"),
        ) as node,
    ):
        listening = json.loads(first_line(node))
        for address in listening["addresses"]:
            with NodeClient(address) as client:
                assert client.info().num_blocks == 64
        node.send_signal(signal.SIGINT)
        out, _ = node.communicate(timeout=30)
    assert listening["event"] == "listening"
    assert listening["addresses"][1] == f"unix://{directory}/node.sock"
    stopped = json.loads(out)
    assert stopped["event"] == "stopped"
    assert stopped["stats"]["free"] == 64
    assert node.returncode == 0


def test_a_node_is_what_its_options_say() -> None:
    with (
        running(
            *("node", "--listen", "127.0.0.1:0", "--num-blocks", "9", "--block-size", "4"),
            *("--name", "left", "--model", "llama", "--kv-dtype", "fp8"),
            *("--max-message-bytes", "5000"),
        ) as node,
        NodeClient(first_line(node).removeprefix("listening on ")) as client,
    ):
        info = client.info()
    assert (info.name, info.num_blocks, info.block_size) == ("left", 9, 4)
    assert (info.model, info.kv_dtype, info.max_message_bytes) == ("llama", "fp8", 5000)


def test_a_node_serves_metrics_where_it_says() -> None:
    with running("node", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--json") as node:
        _, url = json.loads(first_line(node))["addresses"]
        with urlopen(url) as answer:
            assert "prefix_cache_queries_total 0.0" in answer.read().decode().splitlines()
        node.send_signal(signal.SIGTERM)
        assert node.wait(30) == 0


def test_a_standard_input_that_has_ended_already_ends_a_node_in_order() -> None:
    """As under a supervisor that gives none: the error is told, the drain is said."""
    done = run("node", "--listen", "127.0.0.1:0", "--num-blocks", "64", "--until-eof")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1] == (
        "stopped: 0 of 0 prompt tokens were cached, 0 of 64 blocks are, 0 were evicted"
    )
    done = run("node", "--listen", "nowhere", "--until-eof")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_a_node_may_live_until_its_standard_input_ends() -> None:
    """As its supervisor's end of a pipe does, however that one ends."""
    options = ("--listen", "127.0.0.1:0", "--until-eof", "--json")
    with running("node", *options) as node:
        (address,) = json.loads(first_line(node))["addresses"]
        with NodeClient(address) as client:
            assert client.info().num_blocks == 4096
        assert node.stdin is not None
        node.stdin.close()
        assert node.stdout is not None
        assert json.loads(node.stdout.read())["event"] == "stopped"
        assert node.wait(30) == 0


def test_a_port_in_use_is_one_line_and_exit_code_1() -> None:
    with running("node", "--listen", "127.0.0.1:0") as node:
        address = first_line(node).removeprefix("listening on ")
        for command in (["node"], ["router", "--node", f"a={address}"]):
            done = run(*command, "--listen", address)
            assert done.returncode == 1
            assert done.stderr.splitlines()[-1].startswith(f"error: cannot listen on '{address}': ")
            assert "grpc" not in done.stderr
            assert "Traceback" not in done.stderr


def test_a_router_routes_to_the_nodes_it_was_given() -> None:
    with running("node", "--listen", "127.0.0.1:0") as node:
        address = first_line(node).removeprefix("listening on ")
        with running(
            *("router", "--listen", "127.0.0.1:0", "--policy", "hash", "--json"),
            *("--node", f"left={address}"),
        ) as router:
            (listening,) = json.loads(first_line(router))["addresses"]
            with RouterClient(listening) as client:
                route = client.route("a conversation", 100)
                policy, nodes = client.list_nodes()
            router.send_signal(signal.SIGTERM)
            assert router.wait(30) == 0
    assert (route.node, route.address) == ("left", address)
    assert (policy, [status.name for status in nodes]) == ("hash", ["left"])
