"""Which conversation a request belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

import xxhash
from msgspec import Raw

from prefix_cache.errors import InvalidRequest
from router.prompts.bodies import Body
from router.turn import MAX_KEY_CHARACTERS, ConversationKey


def conversation_key(
    headers: Mapping[bytes, bytes], body: Body, tenant_header: bytes
) -> ConversationKey | None:
    """Return the key of the request's conversation, None where it belongs to none.

    The client names it by ``X-Session-ID``, by ``conversation``, or by the response that it goes
    on from, see `response_name`.  Else the turns of a
    conversation are known by what they all begin with: tools and messages up to the first of the
    user, together with ``prompt_cache_key`` and ``user`` where these are given.  What changes in
    there with every turn, such as a time of day in the system prompt, makes every turn a
    conversation of its own.  /v1/completions has no such head; there only ``prompt_cache_key``
    makes one.

    ``headers`` have lower-case names.  Raises InvalidRequest for a tenant and an id that are
    longer than ``MAX_KEY_CHARACTERS`` together.
    """
    conversation = _named(headers, body) or _derived(body)
    if not conversation:
        return None
    key = ConversationKey(_tenant(headers, tenant_header), conversation)
    length = len(key.tenant) + len(key.conversation)
    if length > MAX_KEY_CHARACTERS:
        raise InvalidRequest(
            f"tenant and conversation have {length} characters, expected at most "
            f"{MAX_KEY_CHARACTERS}",
            param="conversation",
        )
    return key


def _tenant(headers: Mapping[bytes, bytes], tenant_header: bytes) -> str:
    if tenant := headers.get(tenant_header):
        return tenant.decode("latin-1")
    if authorization := headers.get(b"authorization"):
        # It is a secret and the key is shown: nobody must get from the one to the other.
        return f"token:{blake2b(authorization, digest_size=16).hexdigest()}"
    return ""


def _named(headers: Mapping[bytes, bytes], body: Body) -> str:
    if session := headers.get(b"x-session-id"):
        return session.decode("latin-1")
    conversation = body.conversation
    if isinstance(conversation, dict):
        conversation = conversation.get("id")
    if isinstance(conversation, str) and conversation:
        return conversation
    previous = body.previous()
    return response_name(previous) if previous else ""


def response_name(response_id: str) -> str:
    """The name of a conversation for the turn that goes on from this response."""
    return f"response:{response_id}"


def _derived(body: Body) -> str:
    head = body.head()
    if not head and not body.prompt_cache_key:
        return ""
    return f"head:{_digest((_text(body.prompt_cache_key), _text(body.user), *head))}"


def _text(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else b""


def _digest(parts: Iterable[bytes | Raw]) -> str:
    # Lengths go in before the parts, so that no two lists of parts read the same.
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little"))
        hasher.update(part)
    return hasher.hexdigest()
