"""Clients of node and router, synchronous and asynchronous, with the same methods.

Every call raises the typed errors of ``prefix_cache.errors``.  ``Session`` is the stream for
engines: many operations in one message per engine step.
"""

from prefix_cache.client.node import AsyncNodeClient, NodeClient
from prefix_cache.client.operations import (
    Acquire,
    Append,
    Commit,
    Committed,
    Fork,
    Forked,
    Operation,
    Release,
    Released,
    Result,
)
from prefix_cache.client.results import AcquiredSequence, Appended, NodeInfo
from prefix_cache.client.router import AsyncRouterClient, RouterClient
from prefix_cache.client.routes import NodeState, NodeStatus, Outcome, Route, RouteReason
from prefix_cache.client.session import AsyncSession, Session

__all__ = [
    "Acquire",
    "AcquiredSequence",
    "Append",
    "Appended",
    "AsyncNodeClient",
    "AsyncRouterClient",
    "AsyncSession",
    "Commit",
    "Committed",
    "Fork",
    "Forked",
    "NodeClient",
    "NodeInfo",
    "NodeState",
    "NodeStatus",
    "Operation",
    "Outcome",
    "Release",
    "Released",
    "Result",
    "Route",
    "RouteReason",
    "RouterClient",
    "Session",
]
