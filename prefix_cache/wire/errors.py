"""Typed errors to and from gRPC statuses, and to and from the errors of single operations.

A status carries a ``google.rpc.ErrorInfo`` with our domain, the error's ``reason`` and its
``details`` as text; that is what the client rebuilds the error from.
"""

from __future__ import annotations

import logging
from typing import cast

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from prefix_cache import errors
from prefix_cache.errors import PrefixCacheError
from prefix_cache.v1 import node_pb2

DOMAIN = "prefix-cache"

# Statuses travel in HTTP/2 headers, of which peers accept 8 KiB in all.
_MAX_MESSAGE_BYTES = 1000
_MAX_VALUE_BYTES = 200

# The code of a class holds for its subclasses unless they have their own.
_CODES = {
    errors.PrefixCacheError: grpc.StatusCode.INTERNAL,
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidTokenType: grpc.StatusCode.INVALID_ARGUMENT,
    errors.IdentityMismatch: grpc.StatusCode.FAILED_PRECONDITION,
    # Not INVALID_ARGUMENT: the same call succeeds once the tokens have been appended.
    errors.CommitBeyondTokens: grpc.StatusCode.OUT_OF_RANGE,
    errors.PoolExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    # Not RESOURCE_EXHAUSTED: no waiting helps.
    errors.PromptTooLarge: grpc.StatusCode.INVALID_ARGUMENT,
    errors.UnknownSequence: grpc.StatusCode.NOT_FOUND,
    errors.UnknownRoute: grpc.StatusCode.NOT_FOUND,
    errors.UnknownPrefix: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UnknownCopy: grpc.StatusCode.NOT_FOUND,
    errors.CopyPending: grpc.StatusCode.FAILED_PRECONDITION,
    errors.SequenceExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.SequencesLive: grpc.StatusCode.FAILED_PRECONDITION,
    errors.ClientLimit: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.WorkerRestarted: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Unsupported: grpc.StatusCode.UNIMPLEMENTED,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.PermissionDenied: grpc.StatusCode.PERMISSION_DENIED,
    errors.MessageTooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
}

# What a status without our details says: it comes from gRPC itself or from something between.
_CLASSES = {
    grpc.StatusCode.CANCELLED: errors.Unavailable,
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.UNIMPLEMENTED: errors.Unsupported,
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidArgument,
}

# gRPC says "Method not found!" there.
_NOT_OFFERED = (
    "this call is not offered there, which may be the address of a router where that of a cache "
    "node is expected, or the reverse"
)

_log = logging.getLogger(__name__)


def reportable(error: Exception) -> PrefixCacheError:
    """Return the error to tell the peer.

    A fault of ours is logged with its traceback; the peer learns only that there was one.
    """
    if isinstance(error, PrefixCacheError) and _code(error) is not grpc.StatusCode.INTERNAL:
        return error
    _log.error("internal error", exc_info=error)
    return PrefixCacheError(f"internal error ({type(error).__name__}), see the server's log")


def error_to_status(error: PrefixCacheError) -> grpc.Status:
    """Return the status that a call ends with."""
    info = any_pb2.Any()
    info.Pack(
        error_details_pb2.ErrorInfo(domain=DOMAIN, reason=error.reason, metadata=_metadata(error))
    )
    status: grpc.Status = rpc_status.to_status(
        status_pb2.Status(code=_number(error), message=_message(error), details=[info])
    )
    return status


def error_from_rpc(error: grpc.RpcError, address: str) -> PrefixCacheError:
    """Return the typed error that a call to ``address`` failed with; its details are text."""
    info = _error_info(error)
    if info is not None and info.reason in PrefixCacheError.by_reason:
        return _rebuild(info.reason, error.details() or "", dict(info.metadata))
    said = error.details() or error.code().name
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        said = _NOT_OFFERED
    text = f"{address}: {said}"
    return _class_without_info(error)(text, address=address, code=error.code().name)


def error_to_operation(error: PrefixCacheError) -> node_pb2.OperationError:
    """Return what a failed operation of a session says."""
    return node_pb2.OperationError(
        code=_number(error),
        message=_message(error),
        reason=error.reason,
        metadata=_metadata(error),
    )


def error_from_operation(message: node_pb2.OperationError) -> PrefixCacheError:
    """Return the typed error of a failed operation; its details are text."""
    return _rebuild(message.reason, message.message, dict(message.metadata))


def _code(error: PrefixCacheError) -> grpc.StatusCode:
    return next(_CODES[cls] for cls in type(error).__mro__ if cls in _CODES)


def _number(error: PrefixCacheError) -> int:
    # The value of a grpc.StatusCode is (number, name).
    number: int = _code(error).value[0]
    return number


def _message(error: PrefixCacheError) -> str:
    return _clipped(str(error), _MAX_MESSAGE_BYTES)


def _metadata(error: PrefixCacheError) -> dict[str, str]:
    return {name: _clipped(str(value), _MAX_VALUE_BYTES) for name, value in error.details.items()}


def _clipped(text: str, max_bytes: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data.decode()
    return data[:max_bytes].decode("utf-8", "ignore") + "..."


def _rebuild(reason: str, message: str, details: dict[str, object]) -> PrefixCacheError:
    error = PrefixCacheError.by_reason.get(reason, PrefixCacheError)(message)
    error.details = details
    return error


def _error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo | None:
    # Every RpcError that a call raises is that call too.
    status = rpc_status.from_call(cast("grpc.Call", error))
    info = error_details_pb2.ErrorInfo()
    for detail in status.details if status else ():
        if detail.Unpack(info) and info.domain == DOMAIN:
            return info
    return None


def _class_without_info(error: grpc.RpcError) -> type[PrefixCacheError]:
    # gRPC has no code of its own for "Received message larger than max".
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in (
        error.details() or ""
    ):
        return errors.MessageTooLarge
    # What grpc.aio says where the stream broke before it had a status.
    if error.code() is grpc.StatusCode.INTERNAL and error.details() == "Internal error from Core":
        return errors.Unavailable
    return _CLASSES.get(error.code(), PrefixCacheError)
