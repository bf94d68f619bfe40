"""The library's reader of GGUF files, kept within the file."""

from __future__ import annotations

from typing import Any, Literal

import gguf
import numpy.typing as npt


class CheckedReader(gguf.GGUFReader):
    """Raises ValueError for a file that is shorter than its counts say.

    The library takes what lies beyond the end for empty, and counts on for as long as it is told.
    """

    def _get(
        self,
        offset: int,
        dtype: npt.DTypeLike,
        count: int = 1,
        override_order: Literal["I", "S", "<"] | None = None,
    ) -> npt.NDArray[Any]:
        found = super()._get(offset, dtype, count, override_order)
        if len(found) != count:
            raise ValueError(f"it ends within the {count} values at byte {offset}")
        return found
