"""The worker's KV memory: what is written by slot is read by block table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prefix_cache.errors import InvalidArgument
from prefix_cache.kv.encoding import check_range, encoding_of
from prefix_cache.kv.host_store import HostStore
from prefix_cache.kv.layout import KVLayout
from prefix_cache.kv.scales import Scales
from prefix_cache.kv.store import BlockStore, Pairs


class KVPool:
    """``num_blocks`` blocks on ``device``, and ``host_blocks`` slots in the host's memory.

    Values are stored as the layout's dtype says and read in ``compute_dtype``.  A slot of the
    mapping is ``block * block_size + offset``.  Everything is ordered as it is called: on CUDA on
    the current stream.  Only finite values are stored, so what no token was written to may be
    read and masked.  A call that raises has changed nothing.

    Raises MissingScales for FP8 without ``scales``.
    """

    def __init__(
        self,
        layout: KVLayout,
        num_blocks: int,
        *,
        host_blocks: int = 0,
        device: torch.device | str = "cpu",
        scales: Scales | None = None,
        compute_dtype: torch.dtype = torch.float32,
    ) -> None:
        self.layout = layout
        self.num_blocks = num_blocks
        self.host_blocks = host_blocks
        self.device = torch.device(device)
        self.compute_dtype = compute_dtype
        self._encoding = encoding_of(layout, scales, self.device)
        block_scales = self._encoding.block_scales
        self._store = BlockStore(layout, num_blocks, self.device, block_scales=block_scales)
        self._host = HostStore(layout, host_blocks, block_scales=block_scales)

    @property
    def num_bytes(self) -> int:
        """Bytes of the blocks on the device, with the scales of each block."""
        return self._store.num_bytes

    @property
    def host_bytes(self) -> int:
        """Bytes of the host's slots, with the scales of each."""
        return self._host.num_bytes

    def write(self, layer: int, slot_mapping: Tensor, keys: Tensor, values: Tensor) -> None:
        """Write the KV of T tokens: ``slot_mapping`` int64 [T], no slot twice; ``keys`` and
        ``values`` [T, kv_heads, head_dim].

        Raises ValueOutOfRange for values that the dtype does not hold, InvalidArgument for
        shapes, slots or a layer that are not the pool's.
        """
        self._check_layer(layer)
        expected = (len(slot_mapping), self.layout.num_kv_heads, self.layout.head_dim)
        for name, tensor in (("keys", keys), ("values", values)):
            if tensor.shape != expected:
                raise InvalidArgument(
                    f"{name} of shape {tuple(tensor.shape)}; expected {expected}",
                    shape=tuple(tensor.shape),
                )
        if not len(slot_mapping):
            return
        num_slots = self.num_blocks * self.layout.block_size
        first, last = (int(slot) for slot in slot_mapping.aminmax())
        if first < 0 or last >= num_slots:
            slot = first if first < 0 else last
            raise InvalidArgument(
                f"slot {slot} is out of range; expected 0..{num_slots - 1}", slot=slot
            )
        kv = torch.stack((keys, values))
        check_range(kv, layer, self._encoding.limits(layer))
        self._encoding.write(self._store, layer, slot_mapping, kv)

    def gather(
        self,
        layer: int,
        block_table: Sequence[int] | npt.NDArray[np.int32] | Tensor,
        num_tokens: int,
    ) -> tuple[Tensor, Tensor]:
        """Return keys and values of a sequence's first tokens, [num_tokens, kv_heads, head_dim].

        Raises InvalidArgument for blocks out of range, or too few for ``num_tokens``.
        """
        table = torch.as_tensor(np.asarray(block_table, dtype=np.int64))
        room = len(table) * self.layout.block_size
        if not 0 <= num_tokens <= room:
            raise InvalidArgument(
                f"{num_tokens} tokens; {len(table)} blocks hold 0..{room}", tokens=num_tokens
            )
        for block in table.tolist():
            self.check_block(block)
        keys, values = self.read(layer, table[None].to(self.device))[:, 0, :num_tokens]
        return keys, values

    def read(self, layer: int, tables: Tensor) -> Tensor:
        """Return [2 (keys, values), B, n * block_size, kv_heads, head_dim] of ``tables`` [B, n].

        Block numbers are not checked: use ``check_block`` before.
        """
        self._check_layer(layer)
        layout = self.layout
        taken = self._encoding.read(self._store, layer, tables.flatten(), self.compute_dtype)
        return taken.view(2, len(tables), -1, layout.num_kv_heads, layout.head_dim)

    def stored(self, layer: int) -> Tensor:
        """Return the blocks themselves, [2, blocks, block_size, kv_heads, head_dim], as stored."""
        self._check_layer(layer)
        return self._store.data[layer]

    def copy_blocks(self, pairs: Pairs) -> None:
        """Copy blocks, ``(src, dst)``, one after another: the copies of copy-on-write."""
        self._store.copy_to(self._store, pairs)

    def offload(self, pairs: Pairs) -> None:
        """Copy blocks to host slots, ``(block, slot)``, one after another."""
        self._store.copy_to(self._host, pairs)
        self._host.seal({slot for _, slot in pairs})

    def load(self, pairs: Pairs) -> None:
        """Copy host slots to blocks, ``(slot, block)``, one after another.

        Raises CorruptBlock for a slot that does not hold what was last offloaded to it.
        """
        self._host.verify({slot for slot, _ in pairs})
        self._host.copy_to(self._store, pairs)

    def check_block(self, block: int) -> None:
        """Raise InvalidArgument unless the pool has this block."""
        self._store.check_block(block)

    def _check_layer(self, layer: int) -> None:
        if not 0 <= layer < self.layout.num_layers:
            raise InvalidArgument(
                f"layer {layer}; expected 0..{self.layout.num_layers - 1}", layer=layer
            )
