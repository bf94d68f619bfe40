"""What an engine counts."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.worker.running_sequence import RunningSequence


@dataclass(slots=True)
class EngineStats:
    """Counted since the engine began, but for ``running`` and ``waiting`` requests.

    ``prompt_tokens`` are those of admitted requests; of these ``cached_tokens`` needed no prefill,
    and ``loaded_tokens`` of them came from the host.  ``prefilled_tokens`` were computed for the
    first time, ``recomputed_tokens`` again after a preemption.  ``preemptions`` count requests; of
    their sequences some were ``resumed_by_swap``, which is loading, the others
    ``resumed_by_recompute``.  ``step_seconds`` are those of
    all ``steps`` together, ``forward_seconds`` the model's part.
    """

    running: int = 0
    waiting: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    loaded_tokens: int = 0
    prefilled_tokens: int = 0
    recomputed_tokens: int = 0
    generated_tokens: int = 0
    preemptions: int = 0
    resumed_by_swap: int = 0
    resumed_by_recompute: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    forward_seconds: float = 0.0

    def count_computed(self, sequence: RunningSequence, count: int) -> None:
        """The next ``count`` tokens of a sequence were computed."""
        first = sequence.num_computed
        again = max(0, min(first + count, sequence.num_seen) - first)
        self.recomputed_tokens += again
        self.prefilled_tokens += max(0, min(first + count, sequence.num_prompt) - first - again)
