"""How a preempted sequence gets its KV back: computed again, or loaded from the host."""

from __future__ import annotations

from prefix_cache.worker.engine_config import PreemptionPolicy

# Weight of the newest measurement; the last twenty or so count.
_WEIGHT = 0.1


class ResumeCosts:
    """Measures both ways while they happen, and chooses the cheaper one for the next time."""

    def __init__(self, policy: PreemptionPolicy, block_size: int) -> None:
        self._policy = policy
        self._block_size = block_size
        self.seconds_per_prefilled_token: float | None = None
        self.seconds_per_loaded_block: float | None = None

    def prefilled(self, num_tokens: int, seconds: float) -> None:
        """A step that prefilled took this long for all its tokens."""
        self.seconds_per_prefilled_token = _average(
            self.seconds_per_prefilled_token, seconds / num_tokens
        )

    def loaded(self, num_blocks: int, seconds: float) -> None:
        """Loading blocks from the host took this long."""
        self.seconds_per_loaded_block = _average(
            self.seconds_per_loaded_block, seconds / num_blocks
        )

    def should_load(self) -> bool:
        """Whether to load; under "auto" also to find out what it costs."""
        if self._policy != "auto":
            return self._policy == "swap"
        if self.seconds_per_loaded_block is None or self.seconds_per_prefilled_token is None:
            return True
        compute = self.seconds_per_prefilled_token * self._block_size
        return self.seconds_per_loaded_block <= compute


def _average(average: float | None, value: float) -> float:
    return value if average is None else average + _WEIGHT * (value - average)
