"""The tokens of several sequences that are computed in one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prefix_cache.errors import InvalidArgument

# Decodes of one group have at least this share of the longest's blocks: what is shorter is
# padded, and padding is read like KV.
_LEAST_SHARE = 0.5


@dataclass
class SequenceSlice:
    """Tokens ``first .. first + count`` of a sequence are computed now.

    The KV of those before ``first`` is in the blocks of ``block_table``, which has room for all
    of them.
    """

    block_table: Sequence[int] | npt.NDArray[np.int32]
    first: int
    count: int

    @property
    def end(self) -> int:
        """Tokens of the sequence once these are computed."""
        return self.first + self.count


@dataclass(frozen=True, eq=False)
class Group:
    """Slices of the same count that attend together: one prefill, or several decodes.

    rows:      [B * count], where their tokens are in the batch
    table:     [B, blocks], padded with block 0
    num_keys:  keys of the longest, at most blocks * block_size
    mask:      bool [B, 1, count, num_keys], whether a token sees a key; None: plainly causal
    """

    rows: Tensor
    table: Tensor
    num_keys: int
    mask: Tensor | None


@dataclass(frozen=True, eq=False)
class PagedBatch:
    """T tokens of B slices, one slice after the other.

    positions:     int64 [T], place of each token in its sequence
    slot_mapping:  int64 [T], where its KV goes: block * block_size + offset
    last_rows:     int64 [B], row of each slice's last token
    """

    slices: Sequence[SequenceSlice]
    block_size: int
    positions: Tensor
    slot_mapping: Tensor
    last_rows: Tensor
    groups: tuple[Group, ...]
    tables: tuple[npt.NDArray[np.int64], ...]
    largest_block: int

    @classmethod
    def of(
        cls,
        slices: Sequence[SequenceSlice],
        block_size: int,
        device: torch.device | str = "cpu",
    ) -> PagedBatch:
        """Lay out a batch.

        Raises InvalidArgument for no slices, an empty one, a negative block number, or a block
        table that is too short.
        """
        if not slices:
            raise InvalidArgument("a batch of no slices; expected at least one", slices=0)
        tables = tuple(_table(a_slice, block_size) for a_slice in slices)
        positions = [np.arange(a_slice.first, a_slice.end) for a_slice in slices]
        slots = [
            table[place // block_size] * block_size + place % block_size
            for table, place in zip(tables, positions, strict=True)
        ]
        ends = np.cumsum([a_slice.count for a_slice in slices])
        return cls(
            slices=slices,
            block_size=block_size,
            positions=torch.from_numpy(np.concatenate(positions)).to(device),
            slot_mapping=torch.from_numpy(np.concatenate(slots)).to(device),
            last_rows=torch.from_numpy(ends - 1).to(device),
            groups=tuple(
                _group(
                    [slices[i] for i in members],
                    [tables[i] for i in members],
                    [int(ends[i]) for i in members],
                    torch.device(device),
                )
                for members in _grouped(slices, tables)
            ),
            tables=tables,
            largest_block=max(int(table.max()) for table in tables),
        )


def _table(a_slice: SequenceSlice, block_size: int) -> npt.NDArray[np.int64]:
    """The blocks that the slice reads or writes, checked."""
    if a_slice.first < 0 or a_slice.count < 1:
        raise InvalidArgument(
            f"a slice of {a_slice.count} tokens from {a_slice.first} on; "
            "expected at least one, from 0 or more on",
            first=a_slice.first,
            count=a_slice.count,
        )
    needed = -(-a_slice.end // block_size)
    table = np.asarray(a_slice.block_table, dtype=np.int64)[:needed]
    if len(table) < needed:
        raise InvalidArgument(
            f"a block table of {len(table)} blocks; {a_slice.end} tokens need {needed}",
            blocks=len(table),
            tokens=a_slice.end,
        )
    if table.min() < 0:
        raise InvalidArgument(
            f"block {table.min()} in a block table; expected 0 or more", block=int(table.min())
        )
    return table


def _grouped(
    slices: Sequence[SequenceSlice], tables: Sequence[npt.NDArray[np.int64]]
) -> list[list[int]]:
    """Which slices attend together: decodes of similar length; every prefill by itself."""
    groups = [[i] for i, a_slice in enumerate(slices) if a_slice.count > 1]
    decodes = [i for i, a_slice in enumerate(slices) if a_slice.count == 1]
    decodes.sort(key=lambda i: len(tables[i]), reverse=True)
    longest = 0
    for i in decodes:
        if len(tables[i]) < longest * _LEAST_SHARE or longest == 0:
            groups.append([])
            longest = len(tables[i])
        groups[-1].append(i)
    return groups


def _group(
    slices: list[SequenceSlice],
    tables: list[npt.NDArray[np.int64]],
    ends: list[int],
    device: torch.device,
) -> Group:
    count = slices[0].count
    rows = np.concatenate([np.arange(end - count, end) for end in ends])
    table = np.zeros((len(tables), len(tables[0])), np.int64)
    for row, blocks in zip(table, tables, strict=True):
        row[: len(blocks)] = blocks
    firsts = torch.tensor([a_slice.first for a_slice in slices], device=device)
    num_keys = max(a_slice.end for a_slice in slices)
    mask = None
    if len(slices) > 1 or slices[0].first > 0:
        positions = firsts[:, None] + torch.arange(count, device=device)
        mask = torch.arange(num_keys, device=device) <= positions[:, None, :, None]
    return Group(
        rows=torch.from_numpy(rows).to(device),
        table=torch.from_numpy(table).to(device),
        num_keys=num_keys,
        mask=mask,
    )
