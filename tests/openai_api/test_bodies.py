"""Bodies that cannot be used: the error names the field as clients of the API expect."""

from __future__ import annotations

import pytest

from prefix_cache.errors import InvalidRequest
from prefix_cache.openai_api.bodies import ChatBody, CompletionBody, GeneratingBody, read_body


@pytest.mark.parametrize(
    ("kind", "body", "param"),
    [
        (CompletionBody, b'{"model": "m"}', "prompt"),
        (CompletionBody, b'{"model": "m", "prompt": [1, -2]}', "prompt"),
        (CompletionBody, b'{"model": "m", "prompt": "a", "seed": 1.5}', "seed"),
        (ChatBody, b'{"model": "m", "messages": [1]}', "messages"),
        (ChatBody, b'{"model": "m", "messages": [{}], "stream_options": 1}', "stream_options"),
        (ChatBody, b'{"model": "m", "messages": [{}], "tool_choice": "some"}', "tool_choice"),
        (ChatBody, b"[]", None),
        (ChatBody, b"{", None),
        (ChatBody, b'{"model": "\xff"}', None),
    ],
)
def test_the_field_is_named(kind: type[GeneratingBody], body: bytes, param: str | None) -> None:
    with pytest.raises(InvalidRequest, match="the body cannot be used") as raised:
        read_body(kind, body)
    assert raised.value.details["param"] == param


def test_what_is_null_or_not_there_is_the_default() -> None:
    absent = read_body(CompletionBody, b'{"model": "m", "prompt": "a"}')
    null = read_body(
        CompletionBody,
        b'{"model": "m", "prompt": "a", "n": null, "stop": null, "stream_options": null}',
    )
    for body in (absent, null):
        assert (body.num_answers, body.stop, body.wants_usage) == (1, None, False)


def test_fields_that_nobody_reads_are_no_error() -> None:
    body = read_body(ChatBody, b'{"model": "m", "messages": [{}], "metadata": {"a": 1}}')
    assert body.model == "m"
