"""The KV of numbered blocks in one memory, and copies of whole blocks between memories."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from prefix_cache.errors import InvalidArgument
from prefix_cache.kv.layout import KVLayout

Pairs = Sequence[tuple[int, int]]


class BlockStore:
    """``data``: [layers, 2 (keys, values), blocks, block_size, kv_heads, head_dim].

    ``scales``, where every block has its own: float32 [layers, 2, blocks, kv_heads].
    """

    def __init__(
        self, layout: KVLayout, num_blocks: int, device: torch.device, *, block_scales: bool
    ) -> None:
        if num_blocks < 0:
            raise InvalidArgument(f"{num_blocks} blocks; expected 0 or more", blocks=num_blocks)
        self.layout = layout
        self.num_blocks = num_blocks
        planes = (layout.num_layers, 2, num_blocks)
        # Zeros, for attention multiplies what it masks by 0: garbage could be NaN.
        self.data = torch.zeros(
            *planes,
            layout.block_size,
            layout.num_kv_heads,
            layout.head_dim,
            dtype=layout.torch_dtype,
            device=device,
        )
        self.scales = (
            torch.zeros(*planes, layout.num_kv_heads, device=device) if block_scales else None
        )

    @property
    def num_bytes(self) -> int:
        """Bytes of memory taken, scales included."""
        return sum(tensor.nbytes for tensor in self.tensors())

    def put(self, layer: int, slots: Tensor, stored: Tensor) -> None:
        """Write tokens: ``slots`` [T], ``stored`` [2, T, kv_heads, head_dim] in our dtype."""
        _movable(self.data[layer]).flatten(1, 2)[:, slots] = _movable(stored)

    def put_blocks(self, layer: int, blocks: Tensor, stored: Tensor) -> None:
        """Write blocks: ``blocks`` [n], ``stored`` as ``take`` returns it."""
        _movable(self.data[layer])[:, blocks] = _movable(stored)

    def take(self, layer: int, blocks: Tensor) -> Tensor:
        """Return what ``blocks`` [n] hold: [2, n, block_size, kv_heads, head_dim] in our dtype."""
        planes = torch.arange(2 * layer, 2 * layer + 2, device=blocks.device)
        rows = (planes[:, None] * self.num_blocks + blocks).flatten()
        # Keys and values in one go: along the first dimension, whole blocks are moved at once.
        taken = _movable(self.data).flatten(0, 2).index_select(0, rows)
        return taken.view(2, len(blocks), *taken.shape[1:]).view(self.data.dtype)

    def copy_to(self, target: BlockStore, pairs: Pairs) -> None:
        """Copy blocks (from ours, to the target's) one after another, in all layers.

        Raises InvalidArgument for a block out of range, before anything is copied.
        """
        for source, destination in pairs:
            self.check_block(source)
            target.check_block(destination)
        for ours, theirs in zip(self.tensors(), target.tensors(), strict=True):
            for source, destination in pairs:
                theirs[:, :, destination] = ours[:, :, source]

    def check_block(self, block: int) -> None:
        """Raise InvalidArgument unless we have this block."""
        if not 0 <= block < self.num_blocks:
            raise InvalidArgument(
                f"block {block} is out of range; expected 0..{self.num_blocks - 1}", block=block
            )

    def tensors(self) -> list[Tensor]:
        """``data``, and ``scales`` where there are some."""
        return [self.data] if self.scales is None else [self.data, self.scales]


def _movable(tensor: Tensor) -> Tensor:
    """FP8 as bytes: not all of torch's operations that move values know its dtypes."""
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 else tensor
