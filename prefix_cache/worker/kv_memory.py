"""The KV memory of a worker: how many blocks, stored how."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from prefix_cache.errors import InvalidArgument, MalformedFile
from prefix_cache.kv.batch import PagedBatch, SequenceSlice
from prefix_cache.kv.layout import FP8, KVLayout
from prefix_cache.kv.pool import KVPool
from prefix_cache.kv.scales import Scales
from prefix_cache.kv.storages import Storage
from prefix_cache.worker.config import WorkerConfig
from prefix_cache.worker.loading import LoadedModel

_CALIBRATION_TOKENS = 2048


def kv_dtype_name(config: WorkerConfig) -> str:
    """Return how KV is stored, with the scheme of its scales: what identities say."""
    dtype = config.kv_dtype or config.dtype
    return f"{dtype}/{config.kv_scales}" if dtype in FP8 else dtype


def kv_memory(
    config: WorkerConfig,
    loaded: LoadedModel,
    block_size: int,
    num_blocks: int | None,
    host_blocks: int,
) -> KVPool:
    """Return the memory; without ``num_blocks`` it has what the config has memory for.

    Raises InvalidArgument for an unknown dtype, memory for no block or more than there is, FP8
    that is to be calibrated on no text, and scales for what is not FP8.
    """
    layout = loaded.model.kv_layout(block_size, config.kv_dtype or config.dtype)
    scales = _scales(config, loaded, layout)

    def pool(num_blocks: int, host_blocks: int) -> KVPool:
        try:
            return KVPool(
                layout,
                num_blocks,
                host_blocks=host_blocks,
                device=config.device,
                scales=scales,
                compute_dtype=loaded.model.dtype,
            )
        except RuntimeError as error:  # torch raises nothing narrower on the CPU
            raise InvalidArgument(
                f"there is no memory for {num_blocks} blocks on {config.device} and "
                f"{host_blocks} on the host: {error}",
                num_blocks=num_blocks,
                host_blocks=host_blocks,
            ) from error

    if num_blocks is None:
        block_bytes = pool(1, 0).num_bytes
        num_blocks = config.kv_memory // block_bytes
        if not num_blocks:
            raise InvalidArgument(
                f"kv_memory is {config.kv_memory} bytes, expected at least the {block_bytes} of a "
                "block",
                kv_memory=config.kv_memory,
            )
    return pool(num_blocks, host_blocks)


def _scales(config: WorkerConfig, loaded: LoadedModel, layout: KVLayout) -> Scales | None:
    if layout.dtype not in FP8:
        if config.kv_scales != "block" or config.calibration is not None:
            raise InvalidArgument(
                f"KV is stored in {layout.dtype}, only FP8 has scales to choose or calibrate",
                kv_dtype=layout.dtype,
            )
        return None
    storage = Storage(layout.dtype, config.kv_scales)
    if config.kv_scales == "block":
        return storage.scales_for(layout, ())
    if config.calibration is None:
        raise InvalidArgument(
            f"kv_scales is {config.kv_scales!r}, which needs a text to calibrate on",
            kv_scales=config.kv_scales,
        )
    return storage.scales_for(layout, _observed(loaded, config.dtype, config.calibration))


def _observed(loaded: LoadedModel, dtype: str, file: Path) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The model's keys and values of the first tokens of a text, layer by layer."""
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedFile(f"{file} is no text in UTF-8: {error}", file=str(file)) from None
    if not text.strip():
        raise MalformedFile(f"{file} holds no text", file=str(file))
    model = loaded.model
    longest = min(_CALIBRATION_TOKENS, model.config.max_position)
    ids = loaded.tokenizer.encode(text, bos=True)[:longest]
    layout = model.kv_layout(dtype=dtype)
    num_blocks = -(-len(ids) // layout.block_size)
    pool = KVPool(layout, num_blocks, device=model.device, compute_dtype=model.dtype)
    whole = SequenceSlice(range(num_blocks), 0, len(ids))
    batch = PagedBatch.of([whole], layout.block_size, model.device)
    model.forward(torch.tensor(ids, device=model.device), batch, pool)
    for layer in range(layout.num_layers):
        yield layer, *pool.gather(layer, range(num_blocks), len(ids))
