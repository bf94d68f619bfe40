"""A place in the prefix tree: how far a prompt goes there, and over what."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from prefix_cache.index.run import Run


class Place(NamedTuple):
    """After the first ``into`` blocks of ``run``, ``depth`` blocks from the root."""

    run: Run
    into: int
    depth: int

    @property
    def block_hash(self) -> bytes:
        """Hash of the block before the place; the root's where there is none."""
        return self.run.hash_at(self.into - 1) if self.into else self.run.last_hash

    def blocks(self) -> array[int]:
        """Physical blocks from the root to a place on the GPU."""
        run, into, _ = self
        parts = [run.blocks if into == len(run.blocks) else run.blocks[:into]]
        while (above := run.parent) is not None:
            parts.append(above.blocks)
            run = above
        # An array that grows has room to grow on, for the blocks that the caller adds.
        blocks = array("i")
        for part in reversed(parts):
            blocks += part
        return blocks

    def unused_blocks(self) -> int:
        """How many of the blocks up to a place on the GPU nobody uses: a pin takes them away."""
        count = 0
        run: Run | None = self.run
        length = self.into
        while run is not None and not run.uses:
            count += length
            run = run.parent
            length = len(run.blocks) if run is not None else 0
        return count

    def gpu_end(self) -> Place:
        """Where the part of the way ends that is on the GPU."""
        if not self.run.on_host:
            return self
        part = self.host_part()
        run = part[0][0].parent
        assert run is not None, "a root is on the GPU"
        return Place(run, len(run.blocks), self.depth - sum(into for _, into in part))

    def host_part(self) -> list[tuple[Run, int]]:
        """Runs on the host on the way, with how many of their blocks."""
        part = []
        run, into, _ = self
        while run.on_host:
            part.append((run, into))
            assert run.parent is not None, "a root is on the GPU"
            run = run.parent
            into = len(run.blocks)
        return part[::-1]
