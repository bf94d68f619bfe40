"""Token ids in the forms callers have them, as the one form the index works on.

The form is ``bytes``: unsigned 32-bit little-endian, four bytes a token.  Comparing two
stretches of tokens is then a memcmp, and so is finding one inside another.
"""

from __future__ import annotations

import operator
import sys
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from prefix_cache.errors import InvalidTokens, InvalidTokenType

TOKEN_BYTES = 4
MAX_TOKEN_ID = 2**32 - 1

_WIRE = np.dtype("<u4")

Tokens = bytes | Sequence[int] | npt.NDArray[np.integer[Any]]


def as_token_bytes(tokens: Tokens) -> bytes:
    """Return ``tokens`` as uint32 little-endian bytes; ``bytes`` are taken to be that already.

    Raises ``InvalidTokens`` for an id outside 0..2^32-1 or a length that is no multiple of four
    bytes, ``InvalidTokenType`` for anything that is no flat sequence of integers.
    """
    if isinstance(tokens, bytes):
        if len(tokens) % TOKEN_BYTES:
            raise InvalidTokens(
                f"tokens as bytes have length {len(tokens)}, expected a multiple of {TOKEN_BYTES} "
                "(uint32 little-endian)",
                length=len(tokens),
            )
        return tokens
    if isinstance(tokens, np.ndarray):
        return _from_numpy(tokens)
    if isinstance(tokens, list | tuple):
        return _from_sequence(tokens)
    raise InvalidTokenType(
        f"tokens are a {type(tokens).__name__}, expected a list, tuple, numpy array or bytes",
        type=type(tokens).__name__,
    )


def _from_numpy(tokens: npt.NDArray[Any]) -> bytes:
    if tokens.dtype == _WIRE and tokens.ndim == 1:
        return tokens.tobytes()
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise InvalidTokenType(
            f"tokens are a numpy array of {tokens.dtype} with shape {tokens.shape}, "
            "expected one dimension of integers",
            dtype=tokens.dtype,
            shape=tokens.shape,
        )
    if tokens.size and (tokens.dtype.kind == "i" or tokens.dtype.itemsize > TOKEN_BYTES):
        for index in (int(tokens.argmin()), int(tokens.argmax())):
            if not 0 <= int(tokens[index]) <= MAX_TOKEN_ID:
                raise _out_of_range(int(tokens[index]), index)
    return tokens.astype(_WIRE).tobytes()


def _from_sequence(tokens: Sequence[Any]) -> bytes:
    try:
        packed = array("I", tokens)
    except (TypeError, OverflowError):
        raise _offender(tokens) from None
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _offender(tokens: Sequence[Any]) -> InvalidTokens | InvalidTokenType:
    """Name the first element that does not fit."""
    for index, token in enumerate(tokens):
        try:
            value = operator.index(token)
        except TypeError:
            return InvalidTokenType(
                f"token {index} is {token!r} ({type(token).__name__}), expected an integer",
                index=index,
                value=repr(token),
            )
        if not 0 <= value <= MAX_TOKEN_ID:
            return _out_of_range(value, index)
    raise AssertionError("every token fits")


def _out_of_range(token: int, index: int) -> InvalidTokens:
    return InvalidTokens(
        f"token {index} is {token}, expected 0 to {MAX_TOKEN_ID}", index=index, value=token
    )
