"""Sessions with a cache node, for one life of a worker's KV memory."""

from __future__ import annotations

import secrets

from prefix_cache.client import NodeClient
from prefix_cache.index import Identity
from prefix_cache.worker.cache_link import SessionFactory


def node_sessions(client: NodeClient, identity: Identity, block_size: int) -> SessionFactory:
    """Return what opens sessions that all name the same worker epoch, drawn here at random.

    Another epoch than before tells the node that the KV it knows of is gone.  The node must be
    one for this model, KV dtype and block size.
    """
    epoch = 1 + secrets.randbelow(2**64 - 1)
    return lambda: client.session(
        block_size=block_size,
        model=identity.model,
        kv_dtype=identity.kv_dtype,
        worker_epoch=epoch,
    )
