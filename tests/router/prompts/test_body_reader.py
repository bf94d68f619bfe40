from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_cache.errors import InvalidRequest, UnknownModel
from router.config import NodeSpec, PoolConfig
from router.prompts import BodyReader
from router.turn import Turn
from tests.router.dispatching import specs
from tests.router.prompts.readers import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    RESPONSES,
    assistant,
    dispatcher,
    read,
    reader,
    system,
    text,
    user,
)

TOOLS = [{"type": "function", "function": {"name": "look_up", "parameters": {}}}]
contents = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.builds(lambda said: {"type": "text", "text": said}, st.text("xy")), max_size=2),
)
conversations = st.lists(
    st.one_of(*(st.builds(message, contents) for message in (system, user, assistant))),
    min_size=1,
    max_size=6,
)


def test_a_chat_says_its_model_which_says_the_pool() -> None:
    turn = read({"messages": [user("hi")], "stream": True})
    assert (turn.model, turn.pool, turn.needs_url) == ("m", "default", True)


# --- text -----------------------------------------------------------------------------------


def test_the_text_of_a_chat_is_tools_and_messages_without_the_last_bracket() -> None:
    body = {"messages": [user("hi")], "temperature": 0.5, "tools": TOOLS}
    assert text(body)[16:] == (
        b'[{"type": "function", "function": {"name": "look_up", "parameters": {}}}]'
        b'[{"role": "user", "content": "hi"}'
    )


@given(conversations, conversations)
def test_the_text_of_a_later_turn_goes_on_where_that_of_the_earlier_ended(
    earlier: list[object], more: list[object]
) -> None:
    assert text({"messages": earlier + more}).startswith(text({"messages": earlier}))


@given(conversations, conversations)
def test_different_chats_have_different_texts(one: list[object], other: list[object]) -> None:
    assert (text({"messages": one}) == text({"messages": other})) == (one == other)


def test_indentation_between_messages_does_not_break_the_text() -> None:
    first = json.dumps({"model": "m", "messages": [user("a")]}, indent=2).encode()
    second = json.dumps({"model": "m", "messages": [user("a"), user("b")]}, indent=2).encode()
    assert text(second).startswith(text(first))


def test_no_tools_empty_tools_and_null_are_the_same() -> None:
    plain = text({"messages": [user("hi")]})
    assert text({"messages": [user("hi")], "tools": []}) == plain
    assert text({"messages": [user("hi")], "tools": None}) == plain
    assert text({"messages": [user("hi")], "tools": TOOLS}) != plain


@pytest.mark.parametrize(
    "other",
    [
        {"cache_salt": "s"},
        {"model": "n"},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"chat_template_kwargs": {"x": "x" * 5000}},
        {"chat_template": "{{ messages }}"},
        {"reasoning_effort": "high"},
        {"documents": [{"text": "d"}]},
        {"add_generation_prompt": False},
        {"continue_final_message": True},
        {"truncate_prompt_tokens": 10},
        {"tool_choice": "none"},
        {"mm_processor_kwargs": {"fps": 1}},
        {"response_format": {"type": "json_object"}},
    ],
)
def test_what_changes_the_engines_kv_changes_the_text_from_its_first_piece(
    other: dict[str, object],
) -> None:
    body = {"messages": [user("hi" * 100)]}
    assert text(body)[:16] != text({**body, **other})[:16]
    assert text(body)[16:] == text({**body, **other})[16:]


@pytest.mark.parametrize(
    "usual",
    [
        {"tool_choice": "auto", "add_generation_prompt": True, "continue_final_message": False},
        {"reasoning_effort": None, "documents": [], "chat_template": None},
        {"chat_template_kwargs": {}, "mm_processor_kwargs": None},
    ],
)
def test_to_say_what_is_so_anyway_changes_nothing(usual: dict[str, object]) -> None:
    body = {"messages": [user("hi")]}
    assert text({**body, **usual}) == text(body)


def test_options_do_not_stand_for_each_other() -> None:
    body = {"messages": [user("hi")]}
    one = text({**body, "chat_template": "x"})
    other = text({**body, "reasoning_effort": "x"})
    assert one[:16] != other[:16]


def test_model_and_salt_do_not_stand_for_each_other() -> None:
    messages = [user("hi")]
    one = text({"model": "ab", "cache_salt": "c", "messages": messages})
    other = text({"model": "a", "cache_salt": "bc", "messages": messages})
    assert one[:16] != other[:16]


def test_an_image_counts_as_its_text() -> None:
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 4000}}
    prompt = read({"messages": [user([part])]}).prompt
    assert b"A" * 4000 in prompt.text
    assert 1000 < prompt.num_tokens < 1050


def test_a_prompt_goes_on_where_the_shorter_one_ended() -> None:
    assert text({"prompt": "abc"}, COMPLETIONS)[16:] == b'"abc'
    assert text({"prompt": ["abc"]}, COMPLETIONS)[16:] == b'"abc'
    assert text({"prompt": ["abc", "d"]}, COMPLETIONS)[16:] == b'["abc", "d"'


def test_token_ids_are_their_own_text_and_counted_exactly() -> None:
    for prompt in ([1234, 5], [[1234, 5]]):
        read_prompt = read({"prompt": prompt}, COMPLETIONS).prompt
        assert read_prompt.text[16:] == bytes([0xD2, 4, 0, 0, 5, 0, 0, 0])
        assert read_prompt.num_tokens == 2


def test_numbers_that_begin_alike_are_different_tokens() -> None:
    one = text({"prompt": [1234, 5]}, COMPLETIONS)[16:]
    other = text({"prompt": [12345]}, COMPLETIONS)[16:]
    assert one[:2] != other[:2]


def test_token_ids_and_a_text_of_the_same_bytes_have_nothing_in_common() -> None:
    as_text = text({"prompt": "abc"}, COMPLETIONS)
    as_ids = text({"prompt": [int.from_bytes(b'"abc', "little")]}, COMPLETIONS)
    assert as_text[16:] == as_ids[16:]
    assert as_text[:16] != as_ids[:16]


def test_responses_have_tools_instructions_and_input() -> None:
    body = {"input": [user("hi")], "instructions": "be brief", "tools": TOOLS}
    assert text(body, RESPONSES)[16:].endswith(b'}]"be brief"[{"role": "user", "content": "hi"}')
    longer = {**body, "input": [user("hi"), assistant("ho"), user("on")]}
    assert text(longer, RESPONSES).startswith(text(body, RESPONSES))


def test_an_input_that_is_a_string_is_a_message_of_the_user() -> None:
    assert text({"input": "hi"}, RESPONSES)[16:] == b'[{"role":"user","content":"hi"}'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"conversation_items": [user("hi")]}),
        (CHAT, {"messages": []}),
        (CHAT, {"messages": None}),
        (COMPLETIONS, {"text": "hi"}),
        (COMPLETIONS, {"prompt": ""}),
        (COMPLETIONS, {"prompt": []}),
        (COMPLETIONS, {"prompt": None}),
        (RESPONSES, {"messages": [user("hi")]}),
        (EMBEDDINGS, {"input": "hi"}),
    ],
)
def test_a_prompt_that_is_not_found_is_unhashable_and_no_error(
    path: str, body: dict[str, object]
) -> None:
    prompt = read(body, path).prompt
    assert not prompt.is_hashable
    assert prompt.num_tokens > 0


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        (CHAT, "messages", "{}"),
        (CHAT, "tools", "{}"),
        (RESPONSES, "input", "{}"),
        (COMPLETIONS, "prompt", "[]"),
    ],
)
def test_a_large_body_of_tiny_values_is_unhashable(path: str, field: str, value: str) -> None:
    """To read each would hold up all that the router does."""
    many = ",".join([value] * 400_000)
    turn = read(f'{{"model": "m", "{field}": [{many}]}}'.encode(), path)
    assert (turn.model, turn.conversation) == ("m", None)
    assert not turn.prompt.is_hashable


def test_a_large_body_of_one_text_is_not() -> None:
    assert read({"messages": [user("x" * 2_000_000)]}).prompt.is_hashable


# --- how many tokens ------------------------------------------------------------------------


def test_tokens_are_guessed_as_a_quarter_of_the_bytes_until_an_engine_has_counted() -> None:
    by = reader()
    body = {"messages": [user("x" * 4000)]}
    assert read(body, by=by).prompt.num_tokens == 1008
    for _ in range(100):
        by.learn(read(body, by=by), 2016)
    assert 1990 < read(body, by=by).prompt.num_tokens <= 2016


def test_what_was_learnt_long_ago_fades() -> None:
    by = reader()
    body = {"messages": [user("x" * 40_000)]}
    turn = read(body, by=by)
    for _ in range(200):
        by.learn(turn, 40_000)
    for _ in range(200):
        by.learn(turn, 10_000)
    assert 10_000 <= read(body, by=by).prompt.num_tokens < 11_000


def test_a_count_that_would_outweigh_all_others_teaches_nothing() -> None:
    by = reader()
    body = {"messages": [user("x" * 4000)]}
    by.learn(read(body, by=by), 2**31 - 1)
    assert read(body, by=by).prompt.num_tokens == 1008


def test_unhashable_turns_teach_nothing() -> None:
    by = reader()
    by.learn(read({"input": "hi"}, EMBEDDINGS, by=by), 5000)
    assert read({"messages": [user("x" * 4000)]}, by=by).prompt.num_tokens == 1008


# --- pools ----------------------------------------------------------------------------------


def two_pools() -> tuple[PoolConfig, PoolConfig]:
    return (
        PoolConfig(name="small", nodes=(NodeSpec("s", url="http://127.0.0.1:1"),)),
        PoolConfig(name="big", nodes=(NodeSpec("b", url="http://127.0.0.1:2"),), models=("B",)),
    )


def served(by: BodyReader, model: str) -> Turn:
    return read({"model": model, "messages": [user("hi")]}, by=by)


def test_a_pool_that_lists_the_model_takes_it_before_one_that_only_serves_it() -> None:
    fleet = dispatcher(*two_pools())
    fleet.node("s").models = frozenset({"A", "B"})
    by = BodyReader(fleet.pools)
    assert served(by, "A").pool == "small"
    assert served(by, "B").pool == "big"


def test_a_model_that_nobody_serves_is_unknown() -> None:
    fleet = dispatcher(*two_pools())
    fleet.node("s").models = frozenset({"A"})
    with pytest.raises(UnknownModel, match="the model 'C' is not served here") as caught:
        served(BodyReader(fleet.pools), "C")
    assert caught.value.details == {"model": "C"}


def test_while_a_pools_engines_have_not_said_their_models_it_takes_any() -> None:
    assert served(reader(*two_pools()), "C").pool == "small"


def test_a_pool_whose_nodes_are_yet_to_come_takes_any_model() -> None:
    assert served(reader(PoolConfig(name="empty")), "C").pool == "empty"


def test_a_node_that_never_answered_does_not_make_every_model_possible() -> None:
    """Those that did answer say no."""
    nodes = tuple(NodeSpec(name, url=f"http://127.0.0.1:{ord(name)}") for name in "ab")
    fleet = dispatcher(PoolConfig(nodes=nodes))
    fleet.node("a").models = frozenset({"A"})
    by = BodyReader(fleet.pools)
    with pytest.raises(UnknownModel, match="the model 'C' is not served here"):
        served(by, "C")
    fleet.node_answered(fleet.node("b"), 0)  # and says no models
    assert served(by, "C").pool == "default"


def test_of_two_pools_that_serve_a_model_one_that_is_ready_takes_it() -> None:
    fleet = dispatcher(*two_pools())
    small, big = fleet.node("s"), fleet.node("b")
    small.models = big.models = frozenset({"B"})
    fleet.node_answered(small, 0)
    by = BodyReader(fleet.pools)
    assert served(by, "B").pool == "small"
    fleet.node_answered(big, 0)
    assert served(by, "B").pool == "big"
    for node in (small, big):
        fleet.node_failed(node, "the test wants it")
    assert served(by, "B").pool == "big"


def test_of_two_pools_whose_engines_say_no_models_one_that_is_ready_takes_it() -> None:
    fleet = dispatcher(PoolConfig(name="dead"), PoolConfig(name="live", nodes=specs("b")))
    by = BodyReader(fleet.pools)
    assert served(by, "C").pool == "dead"
    fleet.node_answered(fleet.node("b"), 0)
    assert served(by, "C").pool == "live"


def test_what_one_pool_learns_of_its_texts_says_nothing_of_anothers() -> None:
    by = reader(*two_pools())
    before = served(by, "B").prompt.num_tokens
    for _ in range(100):
        by.learn(served(by, "A"), 5000)
    assert served(by, "B").prompt.num_tokens == before
    assert served(by, "A").prompt.num_tokens > 10 * before


# --- bodies that cannot be read -------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "param", "message"),
    [
        (b"", "", "truncated"),
        (b'{"model": "m", ', "", "truncated"),
        (b"[1]", "", "Expected `object`, got `array`"),
        (b"null", "", "Expected `object`, got `null`"),
        (b"{}", "model", "model is None, expected a name"),
        (b'{"model": ""}', "model", "model is '', expected a name"),
        (b'{"model": 7}', "model", "model is 7, expected a name"),
        (b'{"model": NaN}', "", "malformed"),
        (b'{"model": "\xff"}', "", "Invalid UTF-8"),
        (b'{"model": "\\ud800"}', "", "half of a surrogate pair"),
        (b'{"model": "m", "user": "\\uDC00 and more"}', "", "half of a surrogate pair"),
        (b'{"model": "m", "x": "\\ud83d\\ude00\\ude00"}', "", "half of a surrogate pair"),
        (b'{"model": "m", "x": "\\ud83d\\ude00"', "", "truncated"),
        (b'{"model": "m", "messages": "hi"}', "messages", "Expected `array | null`, got `str`"),
        (b'{"model": "m", "messages": ["hi"]}', "", "Expected `object`, got `str`"),
        (b'{"model": "m"} {}', "", "trailing characters"),
        (b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "", "nested too deeply"),
        (b'{"model": "m", "n": 1e999, "user": 1e999}', "user", "out of range"),
    ],
)
def test_a_body_that_is_no_request_is_refused(body: bytes, param: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(body)
    assert message in str(caught.value)
    assert caught.value.details == {"param": param}


@pytest.mark.parametrize("prompt", [[-1], [2**32], [1.5], [1, "a"], [True]])
def test_token_ids_that_are_none_are_refused(prompt: object) -> None:
    with pytest.raises(InvalidRequest):
        read({"prompt": prompt}, COMPLETIONS)


def test_of_two_equal_keys_the_last_counts_as_it_does_for_engines() -> None:
    assert read(b'{"model": "a", "model": "b", "messages": []}').model == "b"


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_reader(junk: bytes) -> None:
    for path in (CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS):
        for body in (junk, b'{"model":"m","messages":[' + junk + b"]}", b'{"prompt":' + junk):
            with suppress(InvalidRequest):
                read(body, path)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    ),
    st.sampled_from(
        ["messages", "tools", "prompt", "input", "user", "conversation", "stream", "cache_salt"]
    ),
    st.sampled_from([CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS]),
)
def test_no_value_in_any_place_crashes_the_reader(value: object, field: str, path: str) -> None:
    with suppress(InvalidRequest):
        read({"messages": [system("s"), user("u")], field: value}, path)
