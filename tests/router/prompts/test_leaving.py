"""F050 to F052: it is told where a prompt leaves what the node that holds most of it holds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prefix_cache.client import NodeEvent
from prefix_cache.index import BlocksStored, Identity
from router.claims.node_claims import NodeClaims
from router.claims.sent_text import SentText
from router.config import NodeSpec, PoolConfig
from router.prompts import BodyReader
from router.prompts.bodies import Place
from router.prompts.pool_prompts import Leaving
from tests.router.prompts.readers import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    RESPONSES,
    assistant,
    dispatcher,
    read,
    system,
    user,
)

STABLE = "You are a helpful assistant. " * 100
TOOL = {"type": "function", "function": {"name": "look"}}


class Fleet:
    """Two nodes, a and b, of one pool; prompts are known by text, or by tokens that are bytes."""

    def __init__(self, *, has_tokenizer: bool = False) -> None:
        specs = tuple(NodeSpec(name, f"127.0.0.1:{ord(name)}", f"http://{name}:1") for name in "ab")
        form = {"tokenizer": "bytes", "chat_template": "plain"} if has_tokenizer else {}
        self._dispatcher = dispatcher(PoolConfig(nodes=specs, **form))  # type: ignore[arg-type]
        [pool] = self._dispatcher.pools.values()
        self._claims = {name: NodeClaims(SentText(name, 1000, pool.sent_texts)) for name in "ab"}
        for name, claims in self._claims.items():
            claims.block_size = 16
            node = self._dispatcher.node(name)
            node.claims = claims
            self._dispatcher.node_answered(node, 1)
        self._by = BodyReader(self._dispatcher.pools)

    def sent(self, body: dict[str, Any], path: str = CHAT, to: str = "a") -> None:
        self._claims[to].accepted(read(body, path, by=self._by).prompt)

    def stored(self, body: dict[str, Any], at: str = "a") -> None:
        """Let the node tell that it holds all blocks of the prompt."""
        hashes = tuple(read(body, by=self._by).prompt.block_hashes)
        event = BlocksStored(hashes, None, b"", 16, (), Identity("m"))
        self._claims[at].held.apply(NodeEvent(1, 1, event))

    def leaving(self, body: dict[str, Any], path: str = CHAT) -> Leaving | None:
        turn = read(body, path, by=self._by)
        decision = self._dispatcher.decide(turn)
        encoded = json.dumps({"model": "m", **body}).encode()
        return self._by.leaving(path, encoded, turn, decision)


def chat(*messages: dict[str, object]) -> dict[str, Any]:
    return {"messages": list(messages)}


def test_a_time_of_day_in_the_system_prompt_is_pointed_at() -> None:
    fleet = Fleet()
    fleet.sent(chat(system("At 12:00:01. " + STABLE), user("hi")))
    body = chat(system("At 12:00:02. " + STABLE), user("hi"))
    opening = '[{"role": "system", "content": "At 12:00:0'
    place = Place(0, "system")
    assert fleet.leaving(body) == Leaving("a", "byte", len(opening), True, place)


def test_reasoning_taken_out_of_an_earlier_answer_is_pointed_at() -> None:
    fleet = Fleet()
    answer = "<think>" + "well " * 100 + "</think>yes"
    fleet.sent(chat(system(STABLE), user("hi"), assistant(answer), user("more")))
    left = fleet.leaving(chat(system(STABLE), user("hi"), assistant("yes"), user("more")))
    assert left is not None
    assert (left.unit, left.differs, left.place) == ("byte", True, Place(2, "assistant"))


def test_a_chat_that_goes_on_does_not_differ() -> None:
    fleet = Fleet()
    fleet.sent(chat(system(STABLE), user("hi " * 100)))
    left = fleet.leaving(chat(system(STABLE), user("hi " * 100), assistant("yes"), user("so?")))
    assert left is not None
    assert (left.differs, left.place) == (False, Place(1, "user"))


def test_other_tools_are_pointed_at() -> None:
    fleet = Fleet()
    fleet.sent({**chat(system(STABLE), user("hi")), "tools": [TOOL]})
    left = fleet.leaving({**chat(system(STABLE), user("hi")), "tools": [TOOL, TOOL]})
    assert left == Leaving("a", "byte", len(json.dumps([TOOL])) - 1, True, Place(None, "tools"))


def test_the_instructions_of_a_response_are_its_first_message() -> None:
    fleet = Fleet()
    fleet.sent({"instructions": STABLE, "input": [user("hi")]}, RESPONSES)
    left = fleet.leaving({"instructions": STABLE.upper(), "input": "hi"}, RESPONSES)
    assert left == Leaving("a", "byte", 2, True, Place(0, "system"))
    left = fleet.leaving({"instructions": STABLE, "input": [user("ho")]}, RESPONSES)
    assert left is not None
    assert left.place == Place(1, "user")


def test_a_bare_prompt_has_a_position_only() -> None:
    fleet = Fleet()
    fleet.sent({"prompt": "one two " * 20}, COMPLETIONS)
    left = fleet.leaving({"prompt": "one two three " * 20}, COMPLETIONS)
    assert left == Leaving("a", "byte", len('"one two '), True, None)


def test_token_ids_are_counted_as_tokens() -> None:
    fleet = Fleet()
    fleet.sent({"prompt": [7] * 100}, COMPLETIONS)
    left = fleet.leaving({"prompt": [7] * 30 + [8] * 70}, COMPLETIONS)
    assert left == Leaving("a", "token", 30, True, None)


def test_the_node_that_holds_most_is_looked_at() -> None:
    fleet = Fleet()
    fleet.sent(chat(system("At 1. " + STABLE), user("hi " * 50)), to="a")
    fleet.sent(chat(system(STABLE), user("hi " * 50)), to="b")
    left = fleet.leaving(chat(system(STABLE), user("ho " * 50)))
    assert left is not None
    assert (left.node, left.place) == ("b", Place(1, "user"))


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({**chat(system(STABLE)), "cache_salt": "s"}, CHAT),
        ({**chat(system(STABLE)), "model": "other"}, CHAT),
        (chat(), CHAT),
        ({"input": "unhashable"}, EMBEDDINGS),
    ],
)
def test_of_what_begins_like_nothing_that_is_held_nothing_is_said(
    body: dict[str, Any], path: str
) -> None:
    fleet = Fleet()
    assert fleet.leaving(body, path) is None
    fleet.sent(chat(system(STABLE), user("hi")))
    assert fleet.leaving(body, path) is None


# --- where nodes tell their blocks ----------------------------------------------------------


def test_a_template_that_drops_reasoning_leaves_within_the_answer() -> None:
    """Turn 1 was generated with it, so its blocks are held with it."""
    fleet = Fleet(has_tokenizer=True)
    fleet.stored(chat(user("hi " * 20), assistant("Yes. <think>well</think> " * 20)))
    left = fleet.leaving(chat(user("hi " * 20), assistant("Yes. No. " * 20), user("more")))
    assert len("<|user|>\n" + "hi " * 20 + "\n<|assistant|>\nYes. ") == 89
    assert left == Leaving("a", "token", 80, None, Place(1, "assistant"))


def test_where_no_block_is_held_the_text_tells_where_in_the_first_ones() -> None:
    fleet = Fleet(has_tokenizer=True)
    first = chat(system("12:01 " + STABLE), user("hi"))
    fleet.stored(first)
    fleet.sent(first)
    left = fleet.leaving(chat(system("12:02 " + STABLE), user("hi")))
    opening = '[{"role": "system", "content": "12:0'
    assert left == Leaving("a", "byte", len(opening), True, Place(0, "system"))
