"""What callers pass to the index, checked: the errors name the value and what was expected."""

from __future__ import annotations

import operator

from prefix_cache.errors import InvalidArgument, InvalidIdentity, InvalidTokens
from prefix_cache.index.identity import Identity
from prefix_cache.index.results import Prefix
from prefix_cache.index.tokens import Tokens, as_token_bytes

# Block numbers are int32, here and on the wire; token counts are uint32 there.
MAX_NUM_BLOCKS = 2**31 - 1
MAX_BLOCK_SIZE = 2**20
MAX_TOKENS = 2**32 - 1
MAX_COPY_ID = 2**64 - 1


def checked_integer(name: str, value: object, low: int, high: int) -> int:
    """Return any type of integer as an int from ``low`` to ``high``."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not low <= number <= high:
        raise InvalidArgument(
            f"{name} is {value!r}, expected an integer from {low} to {high}",
            name=name,
            value=repr(value),
        )
    return number


def prompt_bytes(tokens: Tokens) -> bytes:
    """Return the tokens of a prompt, at least one, as uint32 little-endian bytes."""
    prompt = as_token_bytes(tokens)
    if not prompt:
        raise InvalidTokens("the prompt is empty, expected at least one token")
    return prompt


def check_identity(identity: object) -> None:
    """Raise ``InvalidIdentity`` for anything but an ``Identity``."""
    if not isinstance(identity, Identity):
        raise InvalidIdentity(f"identity is {identity!r}, expected an Identity")


def check_prefix(after: object) -> None:
    """Raise ``InvalidArgument`` for anything but a ``Prefix``."""
    if not isinstance(after, Prefix):
        raise InvalidArgument(f"after is {after!r}, expected a Prefix", value=repr(after))
