"""Bytes that are no message of the method called are the client's mistake, told with details.

gRPC alone logs a traceback for each and ends the call with UNKNOWN or INTERNAL.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from prefix_cache.errors import InvalidMessage
from prefix_cache.wire.errors import error_to_status

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class RefuseUndecodable(aio.ServerInterceptor):
    """Ends calls of the ``services`` with ``InvalidMessage`` where a request is none.

    Their handlers are coroutines; one that reads a stream gets the error from reading it.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._paths = tuple(f"/{service}/" for service in services)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Return the handler, given nothing but messages."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith(self._paths):
            return handler
        decode = _decoder(handler.request_deserializer, method)
        encode = handler.response_serializer
        if handler.unary_unary:
            return grpc.unary_unary_rpc_method_handler(_one(handler.unary_unary), decode, encode)
        if handler.unary_stream:
            return grpc.unary_stream_rpc_method_handler(_one(handler.unary_stream), decode, encode)
        return grpc.stream_stream_rpc_method_handler(_many(handler.stream_stream), decode, encode)


def _decoder(decode: Any, method: str) -> Callable[[bytes], object]:
    """Return what decodes a message, or returns the error: what a decoder raises is not ours."""

    def message_or_error(data: bytes) -> object:
        try:
            return decode(data)
        except DecodeError:
            return InvalidMessage(
                f"{len(data)} bytes were sent to {method} that are no message of it",
                method=method,
                length=len(data),
            )

    return message_or_error


def _one(answer: Any) -> Any:
    """Let ``answer`` see the request unless it is an error."""

    async def checked(request: object, context: aio.ServicerContext[Any, Any]) -> object:
        if isinstance(request, InvalidMessage):
            await context.abort_with_status(error_to_status(request))
        return await answer(request, context)

    return checked


def _many(answer: Any) -> Any:
    """Let ``answer`` read the requests up to one that is an error."""

    async def checked(
        requests: AsyncIterator[object], context: aio.ServicerContext[Any, Any]
    ) -> object:
        return await answer(_messages(requests), context)

    return checked


async def _messages(requests: AsyncIterator[object]) -> AsyncIterator[object]:
    async for request in requests:
        if isinstance(request, InvalidMessage):
            raise request
        yield request
