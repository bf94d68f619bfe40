"""Measures how long the unary calls of NodeService take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

import grpc
from grpc import aio
from prometheus_client import Histogram

from prefix_cache.v1 import node_pb2

_PATH = f"/{node_pb2.DESCRIPTOR.services_by_name['NodeService'].full_name}/"


class RequestTimer(aio.ServerInterceptor):
    """Observes each call in ``seconds`` under its method: the handler's time, not the network's."""

    def __init__(self, seconds: Histogram) -> None:
        self._seconds = seconds

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the handler, timed where it answers a unary call of ours."""
        handler = await continuation(handler_call_details)
        path = handler_call_details.method
        if handler is None or handler.unary_unary is None or not path.startswith(_PATH):
            return handler
        answer, seconds = handler.unary_unary, self._seconds.labels(path.removeprefix(_PATH))

        async def timed(request: Any, context: Any) -> Any:
            start = perf_counter()
            try:
                return await answer(request, context)
            finally:
                seconds.observe(perf_counter() - start)

        return grpc.unary_unary_rpc_method_handler(
            timed, handler.request_deserializer, handler.response_serializer
        )
