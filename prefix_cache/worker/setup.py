"""Puts a worker together: model, KV memory, cache and engine."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch

from prefix_cache.client import LocalSession, NodeClient
from prefix_cache.index import BlockCache, Identity
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker.cache_link import SessionFactory
from prefix_cache.worker.config import WorkerConfig
from prefix_cache.worker.engine import Engine
from prefix_cache.worker.kv_memory import kv_dtype_name, kv_memory
from prefix_cache.worker.loading import LoadedModel, load_model
from prefix_cache.worker.node_sessions import node_sessions

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Worker:
    """An engine over a model that is served as ``name``."""

    name: str
    model: LoadedModel
    pool: KVPool
    engine: Engine


@contextmanager
def worker(config: WorkerConfig) -> Iterator[Worker]:
    """Set a worker up; it may reach its node while the context is open.

    Raises what loading the model raises, InvalidArgument for settings that do not fit together,
    and Unavailable where the node is away.
    """
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    loaded = load_model(config.model, config.dtype, config.device)
    name = config.name or loaded.model.config.name
    identity = Identity(model=name, kv_dtype=kv_dtype_name(config))
    if config.node:
        with NodeClient(config.node) as client:
            info = client.info()
            pool = kv_memory(config, loaded, info.block_size, info.num_blocks, info.host_blocks)
            open_session = node_sessions(client, identity, info.block_size)
            engine = _engine(config, loaded, open_session, pool, identity)
            yield Worker(name, loaded, pool, engine)
    else:
        block_size, host_blocks = config.block_size, config.host_blocks
        pool = kv_memory(config, loaded, block_size, config.num_blocks, host_blocks)
        cache = BlockCache(pool.num_blocks, block_size, host_blocks=host_blocks)
        engine = _engine(config, loaded, lambda: nullcontext(LocalSession(cache)), pool, identity)
        yield Worker(name, loaded, pool, engine)


def _engine(
    config: WorkerConfig,
    loaded: LoadedModel,
    open_session: SessionFactory,
    pool: KVPool,
    identity: Identity,
) -> Engine:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        engine = Engine(loaded.model, loaded.tokenizer, open_session, pool, identity, config.engine)
    for warning in caught:
        _LOG.warning("%s", warning.message)
    return engine
