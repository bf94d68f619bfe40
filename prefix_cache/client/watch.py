"""Following a node's events: one stream, or one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

import grpc
from grpc import aio

from prefix_cache.client.connection import AsyncConnection, Connection
from prefix_cache.client.stream_position import StreamPosition
from prefix_cache.errors import EventGap, MessageTooLarge, Unavailable
from prefix_cache.v1 import node_pb2, node_pb2_grpc
from prefix_cache.wire import NodeEvent, error_from_rpc, event_from_wire

# A node that comes back is found again within two seconds.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0

_log = logging.getLogger(__name__)


def watch(
    connection: Connection, position: StreamPosition, include_tokens: bool
) -> Iterator[NodeEvent]:
    """Yield the events of one stream, which ends with an error."""
    stub = node_pb2_grpc.NodeServiceStub(connection.channel)
    call = stub.Watch(_request(position, include_tokens))
    try:
        for message in call:
            yield event_from_wire(message)
    except grpc.RpcError as error:
        raise error_from_rpc(error, connection.address) from error
    finally:
        call.cancel()
    raise _ended(connection.address)


async def watch_async(
    connection: AsyncConnection, position: StreamPosition, include_tokens: bool
) -> AsyncGenerator[NodeEvent]:
    """Yield the events of one stream, which ends with an error."""
    stub = node_pb2_grpc.NodeServiceStub(connection.channel)
    call = stub.Watch(_request(position, include_tokens))
    try:
        async for message in call:
            yield event_from_wire(message)
    except aio.AioRpcError as error:
        raise error_from_rpc(error, connection.address) from error
    finally:
        call.cancel()
    raise _ended(connection.address)


async def follow(
    connection: AsyncConnection, position: StreamPosition, include_tokens: bool
) -> AsyncGenerator[NodeEvent]:
    """Yield events without an end: a stream that broke is opened again where it broke off.

    After an event that is larger than a message it goes on from a snapshot.  Raises
    ``MessageTooLarge`` when the snapshot does not fit either.
    """
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            async with aclosing(watch_async(connection, position, include_tokens)) as events:
                async for event in events:
                    pause_s = _FIRST_PAUSE_S
                    if position.advance(event):
                        yield event
        except MessageTooLarge as error:
            if not position.incarnation:
                raise
            _log.warning("an event is too large and the watch begins again: %s", error)
            position = StreamPosition()
        except (Unavailable, EventGap) as error:
            if pause_s == _FIRST_PAUSE_S:
                _log.warning("the watch broke off and is tried again: %s", error)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _request(position: StreamPosition, include_tokens: bool) -> node_pb2.WatchRequest:
    return node_pb2.WatchRequest(
        incarnation=position.incarnation, after=position.number, include_tokens=include_tokens
    )


def _ended(address: str) -> Unavailable:
    return Unavailable(f"{address}: the node ended the watch", address=address)
