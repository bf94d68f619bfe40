"""The cache node: a ``BlockCache`` behind gRPC."""

from prefix_cache.node.config import NodeConfig
from prefix_cache.node.node import Node
from prefix_cache.node.server import node_service, run_node

__all__ = ["Node", "NodeConfig", "node_service", "run_node"]
