"""From a synchronous method to a gRPC handler with typed errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any, NoReturn, TypeVar

from grpc import aio

from prefix_cache.wire.errors import error_to_status, reportable

Servicer = TypeVar("Servicer")
Request = TypeVar("Request")
Response = TypeVar("Response")
Context = aio.ServicerContext[Any, Any]
Handler = Callable[[Servicer, Request, Context], Coroutine[Any, Any, Response]]


def unary(
    method: Callable[[Servicer, Request], Response],
) -> Handler[Servicer, Request, Response]:
    """Let ``method(self, request)`` answer a unary call; what it raises becomes a status."""

    @wraps(method)
    async def handler(self: Servicer, request: Request, context: Context) -> Response:
        return await _answered(context, lambda: method(self, request))

    return handler


def unary_from_peer(
    method: Callable[[Servicer, Request, str], Response],
) -> Handler[Servicer, Request, Response]:
    """Let ``method(self, request, peer)`` answer, as ``unary`` does, knowing who asks.

    ``peer`` is as gRPC has it, for example ``ipv4:127.0.0.1:40312``.
    """

    @wraps(method)
    async def handler(self: Servicer, request: Request, context: Context) -> Response:
        return await _answered(context, lambda: method(self, request, context.peer()))

    return handler


def unary_async(
    method: Callable[[Servicer, Request], Awaitable[Response]],
) -> Handler[Servicer, Request, Response]:
    """Let the coroutine ``method(self, request)`` answer, as ``unary`` does."""

    @wraps(method)
    async def handler(self: Servicer, request: Request, context: Context) -> Response:
        try:
            return await method(self, request)
        except Exception as error:
            await _failed(context, error)

    return handler


async def _answered(context: Context, answer: Callable[[], Response]) -> Response:
    try:
        return answer()
    except Exception as error:
        await _failed(context, error)


async def _failed(context: Context, error: Exception) -> NoReturn:
    await context.abort_with_status(error_to_status(reportable(error)))
