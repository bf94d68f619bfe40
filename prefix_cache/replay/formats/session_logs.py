"""Requests of logs of chat sessions, with what the engine said of their usage.

A record is either a request with all of its ``messages`` (and the response), or one ``message``
of a session.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from prefix_cache.replay.conversations import Conversation, Message, conversation_of, message_of
from prefix_cache.replay.formats.chats import chat_turns
from prefix_cache.replay.formats.fields import as_object, name_of, time_of
from prefix_cache.replay.formats.options import ReadOptions
from prefix_cache.replay.formats.records import Records
from prefix_cache.replay.formats.request import Request
from prefix_cache.replay.formats.token_traces import flat
from prefix_cache.replay.formats.usage import usage_of
from prefix_cache.replay.json_lines import Unexpected

_MAX_SESSIONS = 1024
"""Sessions of single messages that may still go on; the longest silent are given up first."""


def read_sessions(records: Records, options: ReadOptions) -> Iterator[Request]:
    """Read the requests of sessions, in the order of the file."""
    remembered = lru_cache(1024)(options.encoding.encode)
    options = replace(options, encoding=replace(options.encoding, encode=remembered))
    sessions: OrderedDict[str, tuple[Message, ...]] = OrderedDict()

    def request(value: Any, number: int) -> Request | None:
        record = flat(as_object(value))
        if isinstance(record.get("messages"), list):
            conversation = conversation_of(record, "")
            messages = conversation.messages + _response(record)
        elif isinstance(record.get("message"), dict):
            session = name_of(record)
            messages = (*sessions.pop(session, ()), message_of(record["message"], "message"))
            sessions[session] = messages
            if len(sessions) > _MAX_SESSIONS:
                sessions.popitem(last=False)
            if messages[-1].role != "assistant":
                return None
            conversation = Conversation("", "", messages)
            record = {**record["message"], **record}
        else:
            raise Unexpected('expected "messages" with a list, or "message" with an object')
        name = name_of(record) or f"line {number}"
        made = _last_turn(replace(conversation, name=name, messages=messages), options)
        return replace(made, at=time_of(record), reported=usage_of(record))

    return (made for made in records.read(request) if made is not None)


def _last_turn(conversation: Conversation, options: ReadOptions) -> Request:
    """Return the request that the last message answers, or waits in."""
    if all(message.role == "system" for message in conversation.messages):
        raise Unexpected("messages: expected one of a user or an assistant")
    answered = conversation.messages[-1].role == "assistant"
    if not answered:  # nobody knows what the answer was
        unknown = Message("assistant", "")
        conversation = replace(conversation, messages=(*conversation.messages, unknown))
    (last,) = deque(chat_turns(conversation, options), maxlen=1)
    return last if answered else replace(last, answer=b"", answer_tokens=0)


def _response(record: dict[str, Any]) -> tuple[Message, ...]:
    """Return the message that answers a request, if the record has it."""
    match record.get("choices"):
        case [{"message": dict(message)}, *_]:
            return (message_of({"role": "assistant", **message}, "choices[0].message"),)
        case [{"text": str(text)}, *_]:
            return (Message("assistant", text),)
        case _:
            response = record.get("response")
            return (Message("assistant", response),) if isinstance(response, str) else ()
