"""Reading conversations from files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from prefix_cache.errors import MalformedFile
from prefix_cache.replay.conversations import Message, read_conversations

HELLO = {"role": "user", "content": "Hello"}


def file_of(tmp_path: Path, *lines: Any) -> Path:
    """A file with one line each: text and bytes as they are, anything else as JSON."""
    path = tmp_path / "chats.jsonl"
    raw = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path


def messages_of(tmp_path: Path, *messages: Any) -> tuple[Message, ...]:
    (conversation,) = read_conversations(file_of(tmp_path, {"messages": messages}))
    return conversation.messages


def test_openai_style_messages_are_read(tmp_path: Path) -> None:
    assert messages_of(
        tmp_path,
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "tool", "content": "42", "tool_call_id": "call_1"},
    ) == (
        Message("system", "Be brief."),
        Message("user", "Hi"),
        Message("assistant", "Hello."),
        Message("tool", "42"),
    )


def test_sharegpt_style_conversations_are_read(tmp_path: Path) -> None:
    said = [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "Hi"},
        {"from": "gpt", "value": "Hello."},
        {"from": "user", "value": "Again"},
        {"from": "bing", "value": "Hello again."},
        {"from": "tool", "value": "42"},
    ]
    (conversation,) = read_conversations(file_of(tmp_path, {"id": "x", "conversations": said}))
    assert conversation.name == "x"
    assert [message.role for message in conversation.messages] == [
        *("system", "user", "assistant", "user", "assistant", "tool")
    ]
    assert conversation.messages[1].text == "Hi"


def test_content_may_be_null_missing_or_in_parts(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "Look at "}, {"type": "text", "text": "this."}]
    assert messages_of(
        tmp_path,
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None},
        {"role": "assistant"},
    ) == (Message("user", "Look at this."), Message("assistant", ""), Message("assistant", ""))


def test_different_images_make_different_messages(tmp_path: Path) -> None:
    """F020: if a picture left no trace in the text, its KV would be taken for another's."""
    one, other = messages_of(
        tmp_path,
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "b.png"}}]},
    )
    assert one != other


def test_tool_calls_are_part_of_what_the_assistant_says(tmp_path: Path) -> None:
    call = {"function": {"name": "add", "arguments": '{"a": 1}'}}
    said, silent = messages_of(
        tmp_path,
        {"role": "assistant", "content": "Let me add.", "tool_calls": [call]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    )
    calls = '[{"function": {"name": "add", "arguments": "{\\"a\\": 1}"}}]'
    assert said.text == "Let me add.\n" + calls
    assert silent.text == calls


def test_the_function_calls_of_older_logs_are_rendered_like_tool_calls(tmp_path: Path) -> None:
    call = {"name": "add", "arguments": "{}"}
    line = {
        "functions": [{"name": "add"}],
        "messages": [HELLO, {"role": "assistant", "content": None, "function_call": call}],
    }
    (conversation,) = read_conversations(file_of(tmp_path, line))
    assert conversation.tools == '[{"name": "add"}]'
    assert conversation.messages[1].text == '{"name": "add", "arguments": "{}"}'


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_comes_before_the_answer_as_the_engine_generated_it(
    tmp_path: Path, field: str
) -> None:
    said, silent, other = messages_of(
        tmp_path,
        {"role": "assistant", field: "Two and two.", "content": "Four."},
        {"role": "assistant", field: "Two and two.", "content": None},
        {"role": "assistant", field: {"tokens": 7}, "content": "Four."},
    )
    assert said.text == "Two and two.\nFour."
    assert silent.text == "Two and two."
    assert other.text == "Four."


def test_conversations_are_named_by_id_or_by_line(tmp_path: Path) -> None:
    """Two with one id stay two: the router would take them for one conversation."""
    messages = {"messages": [HELLO]}
    path = file_of(
        tmp_path, {"id": "a"} | messages, messages, {"id": 7} | messages, {"id": "a"} | messages
    )
    names = [conversation.name for conversation in read_conversations(path)]
    assert names == ["a", "line 2", "7", "a (line 4)"]


def test_an_id_longer_than_a_router_takes_is_replaced_by_the_line(tmp_path: Path) -> None:
    messages = {"messages": [HELLO]}
    longest, too_long = "x" * 1024, "x" * 1025
    path = file_of(tmp_path, *({"id": name} | messages for name in (longest, too_long, longest)))
    assert [c.name for c in read_conversations(path)] == [longest, "line 2", "line 3"]


def test_gzip_blank_lines_a_byte_order_mark_and_a_missing_line_end_are_fine(
    tmp_path: Path,
) -> None:
    path = tmp_path / "chats.jsonl.gz"
    line = json.dumps({"messages": [HELLO]}).encode()
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + line + b"\r\n\n  \n" + line))
    assert [c.name for c in read_conversations(path)] == ["line 1", "line 4"]


def test_a_lone_surrogate_does_not_stop_the_reading(tmp_path: Path) -> None:
    """Chat logs cut in the middle of an emoji contain them."""
    line = b'{"messages": [{"role": "user", "content": "ok \\ud83d"}]}'
    (conversation,) = read_conversations(file_of(tmp_path, line))
    assert conversation.messages == (Message("user", "ok ?"),)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"messages": oops}', "expected JSON, but Expecting value at column 14"),
        (b"\xff\xfe{}", "expected UTF-8, got byte 0xff"),
        (b"[" * 100_000, "expected usable JSON, but maximum recursion depth exceeded"),
        ([], "expected a JSON object, got a list"),
        (7, "expected a JSON object, got a number"),
        ({}, 'expected "messages" or "conversations" with a list, got neither'),
        ({"messages": "x"}, 'expected "messages" or "conversations" with a list, got text'),
        ({"messages": [HELLO, None]}, "messages[1]: expected an object, got null"),
        ({"messages": [{"content": "x"}]}, "messages[0]: role is None; expected one of system"),
        ({"conversations": [{"from": "alien"}]}, "conversations[0]: role is 'alien'; expected"),
        (
            {"messages": [{"role": "r" * 5000}]},
            "messages[0]: role is 'rrrrrrrrrrrr...rrrrrrrrrrrrr'; expected one of system, ",
        ),
        ({"messages": [{"role": ["user"]}]}, "messages[0]: role is ['user']; expected one of"),
        (
            {"messages": [{"role": "user", "content": 5}]},
            "messages[0]: expected content of text, parts or null, got a number",
        ),
    ],
)
def test_a_malformed_line_is_named_with_what_was_expected(
    tmp_path: Path, line: Any, complaint: str
) -> None:
    path = file_of(tmp_path, {"messages": [HELLO]}, b"", line)
    conversations = read_conversations(path)
    next(conversations)
    with pytest.raises(MalformedFile) as caught:
        next(conversations)
    assert str(caught.value).startswith(f"{path}, line 3: {complaint}")
    assert caught.value.details == {"file": str(path), "line": 3}


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_a_file_without_a_conversation_is_malformed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "empty.jsonl"
    path.write_bytes(content)
    with pytest.raises(MalformedFile, match="no conversation in it"):
        list(read_conversations(path))


def test_a_file_is_unpacked_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    line = json.dumps({"messages": [HELLO]}).encode()
    plain, packed = tmp_path / "plain.jsonl.gz", tmp_path / "packed.jsonl"
    plain.write_bytes(line)
    packed.write_bytes(gzip.compress(line))
    assert list(read_conversations(plain)) == list(read_conversations(packed))


def test_a_cut_gzip_file_is_malformed_at_the_line_where_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl.gz"
    line = json.dumps({"messages": [HELLO]}).encode() + b"\n"
    path.write_bytes(gzip.compress(line * 3)[:-8])
    with pytest.raises(MalformedFile, match="line 4: no whole gzip stream"):
        list(read_conversations(path))


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match=r"cannot be read \(Is a directory\)"):
        list(read_conversations(tmp_path))
