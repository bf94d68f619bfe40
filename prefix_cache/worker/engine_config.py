"""How an engine is set up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from prefix_cache.errors import InvalidArgument

PreemptionPolicy = Literal["auto", "recompute", "swap"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Limits of a step and of a request.  Raises InvalidArgument.

    A step computes up to ``max_batch_tokens`` tokens of up to ``max_sequences`` sequences.  A
    request has up to ``max_model_len`` tokens, prompt and answer together (None: as many as the
    model was trained on), and up to ``max_n`` answers or beams.  ``preemption`` says how preempted
    sequences get their KV back: by computing it again, by loading it from the host, or by what
    was the cheaper so far.  Requests fail when the cache is away for ``patience_s`` seconds.
    """

    max_batch_tokens: int = 512
    max_sequences: int = 64
    max_model_len: int | None = None
    max_n: int = 16
    preemption: PreemptionPolicy = "auto"
    patience_s: float = 30.0

    def __post_init__(self) -> None:
        limits = {
            "max_batch_tokens": self.max_batch_tokens,
            "max_sequences": self.max_sequences,
            "max_n": self.max_n,
        }
        if self.max_model_len is not None:
            limits["max_model_len"] = self.max_model_len
        for name, value in limits.items():
            if value < 1:
                raise InvalidArgument(f"{name} is {value}, expected at least 1", **{name: value})
        self._check_order("max_sequences", "max_batch_tokens")
        self._check_order("max_n", "max_sequences")
        if self.preemption not in get_args(PreemptionPolicy):
            raise InvalidArgument(
                f"preemption is {self.preemption!r}, "
                f"expected one of {', '.join(get_args(PreemptionPolicy))}",
                preemption=self.preemption,
            )

    def _check_order(self, smaller: str, larger: str) -> None:
        value, limit = getattr(self, smaller), getattr(self, larger)
        if value > limit:
            raise InvalidArgument(
                f"{smaller} is {value}, expected at most {larger}, which is {limit}",
                **{smaller: value, larger: limit},
            )
