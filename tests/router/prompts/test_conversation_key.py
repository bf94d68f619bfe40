from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_cache.errors import InvalidRequest
from router.config import NodeSpec, PoolConfig
from router.turn import ConversationKey
from tests.router.prompts.readers import (
    COMPLETIONS,
    EMBEDDINGS,
    RESPONSES,
    assistant,
    key,
    reader,
    system,
    user,
)

LONG = system("You are a helpful assistant. " * 200)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


# --- named by the client --------------------------------------------------------------------


def test_a_session_header_names_the_conversation() -> None:
    headers = {b"x-session-id": b"chat-1"}
    assert key({"messages": [user("hi")]}, headers=headers) == ConversationKey("", "chat-1")
    assert key({"input": "hi"}, EMBEDDINGS, headers) == ConversationKey("", "chat-1")


def test_the_session_header_comes_before_the_conversation_of_the_body() -> None:
    body = {"messages": [user("hi")], "conversation": "c"}
    assert key(body, headers={b"x-session-id": b"s"}) == ConversationKey("", "s")
    assert key(body) == ConversationKey("", "c")
    assert key(body, headers={b"x-session-id": b""}) == ConversationKey("", "c")


def test_a_conversation_may_be_an_object_with_an_id() -> None:
    body = {"input": "hi", "conversation": {"id": "conv_1"}}
    assert key(body, RESPONSES) == ConversationKey("", "conv_1")


@pytest.mark.parametrize("conversation", ["", None, 7, {}, {"id": 7}, ["c"]])
def test_what_names_no_conversation_is_passed_over(conversation: object) -> None:
    named = key({"messages": [user("hi")], "conversation": conversation})
    assert named == key({"messages": [user("hi")]})


def test_an_id_of_a_megabyte_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="1000000 characters, expected at most 1024"):
        key({"messages": []}, headers={b"x-session-id": b"x" * 1_000_000})
    with pytest.raises(InvalidRequest, match="1025 characters, expected at most 1024"):
        key({"messages": [], "conversation": "x" * 1025})
    assert key({"messages": [], "conversation": "x" * 1024}) is not None


def test_a_header_that_is_no_ascii_is_taken_byte_by_byte() -> None:
    named = key({"messages": []}, headers={b"x-session-id": b"\xff\xfe"})
    assert named == ConversationKey("", "ÿþ")


# --- tenants --------------------------------------------------------------------------------


def test_tenants_with_equal_session_ids_have_different_conversations() -> None:
    keys = {
        key({"messages": []}, headers={b"x-session-id": session, b"authorization": token})
        for session in (b"1", b"chat-1", b"chat-10")
        for token in (b"Bearer A", b"Bearer B")
    }
    assert len(keys) == 6


def test_the_token_cannot_be_read_from_the_key() -> None:
    named = key({"messages": [user("hi")]}, headers={b"authorization": b"Bearer secret"})
    assert named is not None
    assert named.tenant.startswith("token:")
    assert "secret" not in named.tenant


def test_a_configured_header_comes_before_the_token() -> None:
    by = reader(tenant_header="X-Tenant")
    headers = {b"x-tenant": b"acme", b"authorization": b"Bearer A", b"x-session-id": b"1"}
    assert key({"messages": []}, headers=headers, by=by) == ConversationKey("acme", "1")
    without = key({"messages": []}, headers={b"authorization": b"Bearer A"}, by=by)
    assert without is None or without.tenant.startswith("token:")


def test_a_huge_tenant_is_refused() -> None:
    by = reader(tenant_header="x-tenant")
    with pytest.raises(InvalidRequest, match="expected at most 1024"):
        key({"messages": [user("hi")]}, headers={b"x-tenant": b"x" * 2000}, by=by)


# --- derived from the head ------------------------------------------------------------------


def test_all_turns_of_a_conversation_have_one_key() -> None:
    turns = [LONG, user("first"), assistant("yes"), user("second"), assistant("no"), user("third")]
    keys = {key({"messages": turns[:end]}) for end in (2, 4, 6)}
    assert len(keys) == 1
    assert None not in keys


def test_two_conversations_with_one_long_system_prompt_have_two_keys() -> None:
    assert key({"messages": [LONG, user("one")]}) != key({"messages": [LONG, user("two")]})


def test_tools_tell_conversations_apart() -> None:
    body = {"messages": [user("hi")]}
    assert key(body) != key({**body, "tools": [{"type": "function"}]})


def test_who_uses_it_and_the_cache_key_are_part_of_a_derived_key() -> None:
    body = {"messages": [LONG, user("hi")]}
    keys = [
        key({**body, **more})
        for more in (
            {},
            {"user": "u"},
            {"user": "v"},
            {"prompt_cache_key": "u"},
            {"prompt_cache_key": "u", "user": "u"},
        )
    ]
    assert len(set(keys)) == len(keys)
    other = {"messages": [LONG, user("ho")], "user": "u"}
    assert key(other) != key({**body, "user": "u"})


@given(st.lists(st.tuples(names, names, names), min_size=2, max_size=2, unique=True))
def test_no_two_heads_share_a_key(heads: list[tuple[str, str, str]]) -> None:
    one, other = (
        key({"messages": [user(said)], "user": who, "prompt_cache_key": cache})
        for said, who, cache in heads
    )
    assert one != other


def test_a_role_may_come_last_in_its_message() -> None:
    messages = [{"content": "s", "role": "system"}, {"content": "hi", "role": "user"}]
    first = key({"messages": messages})
    assert first is not None
    assert key({"messages": [*messages, assistant("a"), user("b")]}) == first
    assert key({"messages": [messages[0], user("other")]}) != first
    assert key({"messages": [{"content": "s", "role": None}]}) is None


def test_without_a_message_of_the_user_there_is_no_conversation_yet() -> None:
    assert key({"messages": [LONG]}) is None
    assert key({"messages": []}) is None


def test_responses_keep_their_key_over_turns() -> None:
    first = {"input": [user("one")], "instructions": "be brief"}
    second = {**first, "input": [user("one"), assistant("1"), user("two")]}
    assert key(first, RESPONSES) == key(second, RESPONSES)
    assert key(first, RESPONSES) != key({**first, "instructions": "be long"}, RESPONSES)


def test_a_bare_prompt_is_no_conversation() -> None:
    assert key({"prompt": "Once upon a time"}, COMPLETIONS) is None
    assert key({"prompt": "Once upon a time", "user": "u"}, COMPLETIONS) is None
    assert key({"input": "text"}, EMBEDDINGS) is None


def test_a_cache_key_makes_prompts_a_conversation() -> None:
    one = key({"prompt": "one", "prompt_cache_key": "k"}, COMPLETIONS)
    assert one == key({"prompt": "two", "prompt_cache_key": "k"}, COMPLETIONS)
    assert one is not None


def test_a_session_that_asks_two_pools_has_a_conversation_in_each() -> None:
    pools = [
        PoolConfig(name=name, nodes=(NodeSpec(name, url=f"http://{name}:1"),), models=(name,))
        for name in ("big", "small")
    ]
    by = reader(*pools)
    headers = {b"x-session-id": b"1"}
    keys = [
        key({"model": name, "messages": [user("hi")]}, headers=headers, by=by)
        for name in ("big", "small")
    ]
    assert keys == [ConversationKey("", "big:1"), ConversationKey("", "small:1")]


def test_the_first_message_of_the_user_is_looked_for_at_the_beginning_only() -> None:
    def begins(others: int) -> object:
        return key({"messages": [system("s")] * others + [user("hi")]})

    assert begins(63) is not None
    assert begins(64) is None
