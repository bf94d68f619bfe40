"""From a synchronous method to a gRPC handler with typed errors."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, TypeVar

from grpc import aio

from prefix_cache.wire.errors import error_to_status, reportable

Servicer = TypeVar("Servicer")
Request = TypeVar("Request")
Response = TypeVar("Response")
Context = aio.ServicerContext[Any, Any]


def unary(
    method: Callable[[Servicer, Request], Response],
) -> Callable[[Servicer, Request, Context], Coroutine[Any, Any, Response]]:
    """Let ``method(self, request)`` answer a unary call; what it raises becomes a status."""

    @wraps(method)
    async def handler(self: Servicer, request: Request, context: Context) -> Response:
        try:
            return method(self, request)
        except Exception as error:
            return await context.abort_with_status(error_to_status(reportable(error)))

    return handler
