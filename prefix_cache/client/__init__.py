"""Clients of node and router, synchronous and asynchronous, with the same methods.

Every call raises the typed errors of ``prefix_cache.errors``.  ``Session`` is the stream for
engines: many operations in one message per engine step.
"""

from prefix_cache.client.async_node import AsyncNodeClient
from prefix_cache.client.conversation import AsyncConversation, Conversation
from prefix_cache.client.holdings import NodeHoldings
from prefix_cache.client.local_session import CacheSession, LocalSession
from prefix_cache.client.node import NodeClient
from prefix_cache.client.operations import (
    Acknowledge,
    Acknowledged,
    Acquire,
    Append,
    Commit,
    Fork,
    Forked,
    Operation,
    Release,
    Released,
    Result,
)
from prefix_cache.client.results import AcquiredSequence, Appended, Committed, NodeInfo
from prefix_cache.client.router import AsyncRouterClient, RouterClient
from prefix_cache.client.routes import (
    NodeState,
    NodeStatus,
    Outcome,
    Route,
    RouteCandidate,
    RouteExplanation,
    RouteLeaving,
    RoutePrompt,
    RouteReason,
)
from prefix_cache.client.session import AsyncSession, Session
from prefix_cache.wire import NodeEvent, SnapshotEnded, SnapshotStarted

__all__ = [
    "Acknowledge",
    "Acknowledged",
    "Acquire",
    "AcquiredSequence",
    "Append",
    "Appended",
    "AsyncConversation",
    "AsyncNodeClient",
    "AsyncRouterClient",
    "AsyncSession",
    "CacheSession",
    "Commit",
    "Committed",
    "Conversation",
    "Fork",
    "Forked",
    "LocalSession",
    "NodeClient",
    "NodeEvent",
    "NodeHoldings",
    "NodeInfo",
    "NodeState",
    "NodeStatus",
    "Operation",
    "Outcome",
    "Release",
    "Released",
    "Result",
    "Route",
    "RouteCandidate",
    "RouteExplanation",
    "RouteLeaving",
    "RoutePrompt",
    "RouteReason",
    "RouterClient",
    "Session",
    "SnapshotEnded",
    "SnapshotStarted",
]
