"""Which life of the worker's KV memory a node speaks for."""

from __future__ import annotations

from collections import deque

from prefix_cache.errors import WorkerRestarted

# Earlier lives that are still known as such.
_MAX_ENDED = 1000


class WorkerEpochs:
    """Follows the epochs that sessions say when they open.

    0 says nothing: such a session neither begins a life nor is refused.
    """

    def __init__(self) -> None:
        self.current = 0
        self._ended: deque[int] = deque(maxlen=_MAX_ENDED)

    def begin(self, epoch: int) -> bool:
        """Take note of a session of ``epoch``; return whether it may begin another life.

        The first one said may: which life it was before, nobody knows.

        Raises ``WorkerRestarted`` for a life that has ended: a worker that was replaced must not
        claim the node back.
        """
        if epoch in (0, self.current):
            return False
        if epoch in self._ended:
            raise WorkerRestarted(
                f"worker epoch {epoch} has ended, the worker's epoch is {self.current} now",
                epoch=epoch,
                current=self.current,
            )
        self._ended.append(self.current)
        self.current = epoch
        return True
