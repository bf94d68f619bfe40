"""Values and errors keep their meaning across the wire."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode, aio
from grpc_status import rpc_status

from prefix_cache import Identity, errors
from prefix_cache.errors import PrefixCacheError
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import (
    block_ids_from_wire,
    block_ids_to_wire,
    error_from_operation,
    error_from_rpc,
    error_to_operation,
    error_to_status,
    extra_keys_from_wire,
    extra_keys_to_wire,
    identity_from_wire,
    identity_to_wire,
    reportable,
)

CODES = {
    "INVALID_ARGUMENT": StatusCode.INVALID_ARGUMENT,
    "INVALID_MESSAGE": StatusCode.INVALID_ARGUMENT,
    "INVALID_REQUEST": StatusCode.INVALID_ARGUMENT,
    "UNKNOWN_MODEL": StatusCode.INVALID_ARGUMENT,
    "INVALID_TOKENS": StatusCode.INVALID_ARGUMENT,
    "INVALID_TOKEN_TYPE": StatusCode.INVALID_ARGUMENT,
    "INVALID_EXTRA_KEYS": StatusCode.INVALID_ARGUMENT,
    "INVALID_IDENTITY": StatusCode.INVALID_ARGUMENT,
    "IDENTITY_MISMATCH": StatusCode.FAILED_PRECONDITION,
    "COMMIT_BEYOND_TOKENS": StatusCode.OUT_OF_RANGE,
    "MALFORMED_FILE": StatusCode.INVALID_ARGUMENT,
    "POOL_EXHAUSTED": StatusCode.RESOURCE_EXHAUSTED,
    "PROMPT_TOO_LARGE": StatusCode.INVALID_ARGUMENT,
    "UNKNOWN_SEQUENCE": StatusCode.NOT_FOUND,
    "RELEASED_SEQUENCE": StatusCode.NOT_FOUND,
    "LEASE_EXPIRED": StatusCode.NOT_FOUND,
    "FOREIGN_SEQUENCE": StatusCode.NOT_FOUND,
    "UNKNOWN_PREFIX": StatusCode.FAILED_PRECONDITION,
    "UNKNOWN_COPY": StatusCode.NOT_FOUND,
    "COPY_PENDING": StatusCode.FAILED_PRECONDITION,
    "CLIENT_LIMIT": StatusCode.RESOURCE_EXHAUSTED,
    "WORKER_RESTARTED": StatusCode.FAILED_PRECONDITION,
    "SEQUENCE_EXISTS": StatusCode.ALREADY_EXISTS,
    "SEQUENCES_LIVE": StatusCode.FAILED_PRECONDITION,
    "UNKNOWN_ROUTE": StatusCode.NOT_FOUND,
    "AUDIT": StatusCode.INTERNAL,
    "UNSUPPORTED": StatusCode.UNIMPLEMENTED,
    "UNAVAILABLE": StatusCode.UNAVAILABLE,
    "DRAINING": StatusCode.UNAVAILABLE,
    "NO_NODE_AVAILABLE": StatusCode.UNAVAILABLE,
    "DEADLINE_EXCEEDED": StatusCode.DEADLINE_EXCEEDED,
    "PERMISSION_DENIED": StatusCode.PERMISSION_DENIED,
    "MESSAGE_TOO_LARGE": StatusCode.RESOURCE_EXHAUSTED,
}


def received(status: grpc.Status) -> aio.AioRpcError:
    """The error a client sees for a status."""
    return aio.AioRpcError(
        status.code,
        trailing_metadata=aio.Metadata(*status.trailing_metadata),
        details=status.details,
    )


def over_the_wire(error: PrefixCacheError) -> PrefixCacheError:
    return error_from_rpc(received(error_to_status(error)), "node:1")


@pytest.mark.parametrize("reason", CODES)
def test_every_error_arrives_as_itself(reason: str) -> None:
    error = PrefixCacheError.by_reason[reason]("what went wrong", value=7, name="n")
    assert error_to_status(error).code is CODES[reason]
    for arrived in (over_the_wire(error), error_from_operation(error_to_operation(error))):
        assert type(arrived) is type(error)
        assert str(arrived) == "what went wrong"
        assert arrived.details == {"value": "7", "name": "n"}
    assert error_to_operation(error).code == CODES[reason].value[0]


def test_every_error_has_a_code_or_never_travels() -> None:
    never_travel = {
        "CANNOT_LISTEN",
        "CORRUPT_BLOCK",
        "CUT_SHORT",
        "ENGINE_ENDED",
        "EVENT_GAP",
        "MISSING_EXTRA",
        "MISSING_SCALES",
        "MISSING_TENSORS",
        "UNSUPPORTED_MODEL",
        "VALUE_OUT_OF_RANGE",
        "WORKER_REPLACED",
    }
    assert set(PrefixCacheError.by_reason) == set(CODES) | never_travel


def test_huge_values_are_clipped_to_what_headers_hold() -> None:
    error = errors.InvalidIdentity("\N{SNOWMAN}" * 100_000, value="x" * 100_000)
    arrived = over_the_wire(error)
    assert str(arrived) == "\N{SNOWMAN}" * 333 + "..."
    assert arrived.details == {"value": "x" * 200 + "..."}


@pytest.mark.parametrize(
    ("code", "details", "expected"),
    [
        (StatusCode.UNAVAILABLE, "connection refused", errors.Unavailable),
        (StatusCode.CANCELLED, "", errors.Unavailable),
        (StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", errors.DeadlineExceeded),
        (StatusCode.INVALID_ARGUMENT, "no", errors.InvalidArgument),
        (
            StatusCode.RESOURCE_EXHAUSTED,
            "SERVER: Received message larger than max (2 vs. 1)",
            errors.MessageTooLarge,
        ),
        (StatusCode.RESOURCE_EXHAUSTED, "too many requests", PrefixCacheError),
        (StatusCode.UNKNOWN, "?", PrefixCacheError),
    ],
)
def test_a_status_without_our_details_becomes_the_nearest_error(
    code: StatusCode, details: str, expected: type[PrefixCacheError]
) -> None:
    error = error_from_rpc(aio.AioRpcError(code, details=details), "node:1")
    assert type(error) is expected
    assert str(error) == f"node:1: {details or code.name}"
    assert error.details == {"address": "node:1", "code": code.name}


def test_a_call_that_the_peer_does_not_have_is_told_with_the_likely_reason() -> None:
    error = error_from_rpc(
        aio.AioRpcError(StatusCode.UNIMPLEMENTED, details="Method not found!"), "node:1"
    )
    assert type(error) is errors.Unsupported
    assert str(error) == (
        "node:1: this call is not offered there, which may be the address of a router where that "
        "of a cache node is expected, or the reverse"
    )
    assert error.details == {"address": "node:1", "code": "UNIMPLEMENTED"}


@pytest.mark.parametrize(
    ("domain", "reason"), [("prefix-cache", "NEVER_HEARD_OF"), ("elsewhere", "DRAINING")]
)
def test_details_of_a_newer_node_or_of_somebody_else_leave_the_code(
    domain: str, reason: str
) -> None:
    info = any_pb2.Any()
    info.Pack(error_details_pb2.ErrorInfo(domain=domain, reason=reason))
    code: int = StatusCode.UNAVAILABLE.value[0]
    status = rpc_status.to_status(status_pb2.Status(code=code, message="no", details=[info]))
    assert type(error_from_rpc(received(status), "node:1")) is errors.Unavailable


def test_a_fault_of_ours_is_logged_and_not_told(caplog: pytest.LogCaptureFixture) -> None:
    error = reportable(KeyError("secret"))
    assert str(error) == "internal error (KeyError), see the server's log"
    assert error_to_status(error).code is StatusCode.INTERNAL
    assert "KeyError: 'secret'" in caplog.text
    caplog.clear()
    expected = errors.InvalidTokens("no tokens")
    assert reportable(expected) is expected
    assert caplog.text == ""


def test_identities_travel_whole() -> None:
    who = Identity("m", "r", "a", "ar", "fp8", "s")
    assert identity_from_wire(identity_to_wire(who)) == who
    assert identity_from_wire(node_pb2.Identity(model="m")) == Identity("m", kv_dtype="bfloat16")


def test_an_identity_that_utf8_cannot_encode_is_refused() -> None:
    with pytest.raises(errors.InvalidIdentity, match="UTF-8"):
        identity_to_wire(Identity("\ud800"))


def test_extra_keys_travel_whole() -> None:
    keys = [(0, 5, b"k"), (7, None, b""), (9, 20, None), (9, None, None)]
    assert extra_keys_from_wire(extra_keys_to_wire(keys)) == keys


@pytest.mark.parametrize(
    "entry", [(-1, 5, b"k"), (0, 2**32, b"k"), ("0", 5, b"k"), (0, 5, 6), (0, 5), 5]
)
def test_an_extra_key_that_no_message_holds_is_refused(entry: object) -> None:
    with pytest.raises(errors.InvalidExtraKeys, match="expected"):
        extra_keys_to_wire([entry])  # type: ignore[list-item]


def test_block_ids_are_int32_little_endian_and_read_only() -> None:
    assert block_ids_to_wire((1, 258)) == b"\x01\0\0\0\x02\x01\0\0"
    assert block_ids_to_wire(np.array([1, 258], dtype=np.int32)) == b"\x01\0\0\0\x02\x01\0\0"
    arrived = block_ids_from_wire(b"\x01\0\0\0\x02\x01\0\0")
    assert arrived.tolist() == [1, 258]
    assert arrived.dtype == np.int32
    assert not arrived.flags.writeable
