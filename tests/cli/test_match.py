"""``match``: ask a node what it has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from prefix_cache import Identity
from prefix_cache.client import NodeClient
from tests.cli.commands import first_line, run, running

PROMPT = "x" * 40


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A node that has cached PROMPT, as bytes, for the model "m" with the salt "s"."""
    with running("node", "--listen", "127.0.0.1:0", "--num-blocks", "64") as node:
        address = first_line(node).removeprefix("listening on ")
        with NodeClient(address) as client:
            sequence = client.acquire(Identity(model="m", salt="s"), list(PROMPT.encode()))
            client.commit(sequence.id, 40)
            client.release(sequence.id)
        yield address


def test_the_cached_share_of_a_text_is_shown(address: str) -> None:
    done = run("match", "--node", address, "--model", "m", "--salt", "s", PROMPT)
    assert done.stderr == ""
    first, second, third = done.stdout.splitlines()
    assert first == "32 of 40 tokens cached (80.0%)"
    assert second == "tokens: UTF-8 bytes"
    assert third.startswith("blocks: ")
    assert len(third.split()) == 3


def test_what_is_on_the_host_is_said() -> None:
    with (
        running(
            *("node", "--listen", "127.0.0.1:0", "--num-blocks", "3", "--host-blocks", "8")
        ) as node,
        NodeClient(first_line(node).removeprefix("listening on ")) as client,
    ):
        sequence = client.acquire(Identity(model="m"), list(PROMPT.encode()))
        client.commit(sequence.id, 40)
        client.release(sequence.id)
        client.acknowledge(client.acquire(Identity(model="m"), [1] * 32).copies.copy_id)
        who = ["match", "--node", client.address, "--model", "m", PROMPT]
        told, answer = run(*who), run(*who, "--json")
    assert told.stdout.splitlines()[:2] == [
        "32 of 40 tokens cached (80.0%)",
        "on the host: 16 of them",
    ]
    found = json.loads(answer.stdout)
    assert (found["cached_tokens"], found["host_tokens"], len(found["block_ids"])) == (32, 16, 1)


def test_the_prompt_may_come_from_an_argument_a_file_stdin_or_as_ids(
    address: str, tmp_path: Path
) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(PROMPT)
    who = ["match", "--node", address, "--json", "--model", "m", "--salt", "s"]
    answers = [
        run(*who, PROMPT),
        run(*who, "--file", str(file)),
        run(*who, "--tokens", ",".join(["120"] * 40)),
        run(*who, stdin=PROMPT.encode()),
        run(*who, "--file", "-", stdin=PROMPT.encode()),
    ]
    found = [json.loads(answer.stdout) for answer in answers]
    assert {(f["prompt_tokens"], f["cached_tokens"], len(f["block_ids"])) for f in found} == {
        (40, 32, 2)
    }
    assert found[0]["tokens_are"] == "UTF-8 bytes"
    assert found[2]["tokens_are"] == "ids"


def test_another_identity_finds_nothing(address: str) -> None:
    done = run("match", "--node", address, "--model", "m", PROMPT)
    assert done.stdout == "0 of 40 tokens cached (0.0%)\ntokens: UTF-8 bytes\nblocks: none\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--tokens", "1,two"], "'1,two' is no list of integers such as 1,2,3"),
        (["--tokens", "1,-2"], "error: token 1 is -2, expected 0 to 4294967295"),
        (["--tokens", "1", "hello"], "give one of TEXT, --file, --tokens and --messages"),
        (["--tokens", "1", "--tokenizer", __file__], "--tokenizer goes with text"),
        (["--file", "-"], "the prompt is no UTF-8 (byte 1)"),
        ([""], "error: "),
    ],
)
def test_bad_prompts_exit_with_2(address: str, arguments: list[str], complaint: str) -> None:
    done = run("match", "--node", address, *arguments, stdin=b"a\xff")
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


def test_the_address_of_a_router_is_said_to_be_one() -> None:
    listen = ("--listen", "127.0.0.1:0", "--json")
    with running("router", "--node", "a=127.0.0.1:1", *listen) as router:
        [address] = json.loads(first_line(router))["addresses"]
        for command in ("match", "explain"):
            done = run(command, "--node", address, "hello")
            assert done.returncode == 1
            assert done.stderr.startswith(f"error: {address}: this call is not offered there, ")
            assert "the address of a router" in done.stderr


def test_an_address_that_is_none_is_bad_input() -> None:
    done = run("match", "--node", "", "hello")
    assert done.returncode == 2
    assert done.stderr == (
        "error: the address is '', expected host:port, [ipv6]:port or unix:///path\n"
    )


def test_a_node_that_is_not_there_is_one_line_and_exit_code_1() -> None:
    done = run("match", "--node", "127.0.0.1:1", "hello")
    assert done.returncode == 1
    assert done.stderr.startswith("error: 127.0.0.1:1: ")
    assert len(done.stderr.splitlines()) == 1
