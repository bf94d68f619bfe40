"""A session: the stream on which an engine sends one message per step.

Its sequences are numbered by the engine and end with it, however it ends.  A step that was not
answered in time breaks the session, because nobody knows then what it did at the node.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

import grpc
from grpc import aio

from prefix_cache.client.connection import AsyncConnection, Connection
from prefix_cache.client.operations import Operation, Result, results_from_wire, step_to_wire
from prefix_cache.errors import DeadlineExceeded, PrefixCacheError, Unavailable
from prefix_cache.v1 import node_pb2, node_pb2_grpc
from prefix_cache.wire import error_from_rpc


class Session:
    """A session for one thread, one step at a time; open it with ``with``.

    ``block_size``, ``num_blocks``, ``host_blocks`` and ``incarnation`` are the node's.
    """

    def __init__(self, connection: Connection, opening: node_pb2.SessionOpen) -> None:
        self._connection = connection
        self._opening = opening
        self._requests: queue.SimpleQueue[node_pb2.SessionRequest | None] = queue.SimpleQueue()
        self._responses: queue.SimpleQueue[node_pb2.SessionResponse | PrefixCacheError] = (
            queue.SimpleQueue()
        )
        self._step = 0
        self._broken: PrefixCacheError | None = None

    def __enter__(self) -> Self:
        stub = node_pb2_grpc.NodeServiceStub(self._connection.channel)
        self._call = stub.Session(iter(self._requests.get, None))
        # Only a thread of its own can wait for an answer with a deadline.
        self._reader = threading.Thread(target=self._read, name="session", daemon=True)
        self._reader.start()
        try:
            opened = self._exchange(node_pb2.SessionRequest(open=self._opening)).opened
        except BaseException:
            self._end()
            raise
        self.block_size = opened.block_size
        self.num_blocks = opened.num_blocks
        self.host_blocks = opened.host_blocks
        self.incarnation = opened.incarnation
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def step(self, operations: Sequence[Operation]) -> list[Result]:
        """Carry out the operations in order; return one result for each.

        An operation that failed has changed nothing and its result is the error.  Raises when
        the step as a whole failed, usually ``Unavailable``: the sequences of the session are
        gone then.
        """
        self._step += 1
        return results_from_wire(operations, self._exchange(step_to_wire(self._step, operations)))

    def _exchange(self, request: node_pb2.SessionRequest) -> node_pb2.SessionResponse:
        if self._broken is not None:
            raise self._broken
        self._requests.put(request)
        while True:
            try:
                response = self._responses.get(timeout=self._connection.timeout_s)
            except queue.Empty:
                self._call.cancel()
                response = _no_answer(self._connection.address, self._connection.timeout_s)
            if isinstance(response, PrefixCacheError):
                self._broken = response
                raise response
            # The answer to an earlier step is one that nobody waited for, after a Ctrl-C.
            if response.step == request.step:
                return response

    def _read(self) -> None:
        try:
            for response in self._call:
                self._responses.put(response)
            self._responses.put(_ended(self._connection.address))
        except grpc.RpcError as error:
            self._responses.put(error_from_rpc(error, self._connection.address))

    def _end(self) -> None:
        """Close our side, so that the node ends the sequences, and wait until it has."""
        self._requests.put(None)
        self._reader.join(self._connection.timeout_s)
        self._call.cancel()


class AsyncSession:
    """A session for one event loop; open it with ``async with``.

    Several steps may be under way at once; the node carries them out in the order in which
    ``step`` was called.  ``block_size``, ``num_blocks``, ``host_blocks`` and ``incarnation`` are
    the node's.
    """

    def __init__(self, connection: AsyncConnection, opening: node_pb2.SessionOpen) -> None:
        self._connection = connection
        self._opening = opening
        self._requests: asyncio.Queue[node_pb2.SessionRequest | None] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[node_pb2.SessionResponse]] = {}
        self._step = 0
        self._broken: PrefixCacheError | None = None

    async def __aenter__(self) -> Self:
        stub = node_pb2_grpc.NodeServiceStub(self._connection.channel)
        self._call = stub.Session(self._outgoing())
        self._reader = asyncio.create_task(self._read())
        try:
            response = await self._exchange(node_pb2.SessionRequest(open=self._opening))
        except BaseException:
            await self._end()
            raise
        self.block_size = response.opened.block_size
        self.num_blocks = response.opened.num_blocks
        self.host_blocks = response.opened.host_blocks
        self.incarnation = response.opened.incarnation
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._end()

    async def step(self, operations: Sequence[Operation]) -> list[Result]:
        """Carry out the operations in order; return one result for each.

        An operation that failed has changed nothing and its result is the error.  Raises when
        the step as a whole failed, usually ``Unavailable``: the sequences of the session are
        gone then.  A cancelled step is carried out all the same.
        """
        self._step += 1
        response = await self._exchange(step_to_wire(self._step, operations))
        return results_from_wire(operations, response)

    async def _exchange(self, request: node_pb2.SessionRequest) -> node_pb2.SessionResponse:
        if self._broken is not None:
            raise self._broken
        answer: asyncio.Future[node_pb2.SessionResponse] = asyncio.Future()
        self._waiting[request.step] = answer
        self._requests.put_nowait(request)
        try:
            async with asyncio.timeout(self._connection.timeout_s):
                return await answer
        except TimeoutError:
            error = _no_answer(self._connection.address, self._connection.timeout_s)
            self._break(error)
            raise error from None
        finally:
            self._waiting.pop(request.step, None)

    async def _outgoing(self) -> AsyncIterator[node_pb2.SessionRequest]:
        while (request := await self._requests.get()) is not None:
            yield request

    async def _read(self) -> None:
        try:
            async for response in self._call:
                answer = self._waiting.get(response.step)
                # A cancelled step waits no more.
                if answer is not None and not answer.done():
                    answer.set_result(response)
            self._break(_ended(self._connection.address))
        except aio.AioRpcError as error:
            self._break(error_from_rpc(error, self._connection.address))

    def _break(self, error: PrefixCacheError) -> None:
        """Fail the steps under way and all that follow."""
        self._broken = self._broken or error
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(error)
        self._call.cancel()

    async def _end(self) -> None:
        """Close our side, so that the node ends the sequences, and wait until it has."""
        self._requests.put_nowait(None)
        await asyncio.wait([self._reader], timeout=self._connection.timeout_s)
        self._call.cancel()


def _no_answer(address: str, timeout_s: float) -> PrefixCacheError:
    return DeadlineExceeded(
        f"{address}: no answer to a step within {timeout_s:g} s; the session is over",
        address=address,
        timeout_s=timeout_s,
    )


def _ended(address: str) -> PrefixCacheError:
    return Unavailable(f"{address}: the node ended the session", address=address)
