"""What cached tokens are worth: computation, time and memory traffic that a model is spared."""

from __future__ import annotations

from typing import Any

from prefix_cache.sizing import Gpu, ModelShape

UTILISATION = 0.5
"""Share of a card's operations a second that a prefill reaches, as is assumed here."""


class Value:
    """Adds up what prefill costs ``model``, in all and where nothing was cached.

    Seconds are those of one ``gpu`` at half of what its maker says; without one they are None.
    """

    def __init__(self, model: ModelShape, gpu: Gpu | None = None) -> None:
        self.flops = 0
        self.flops_without_cache = 0
        self._cached_tokens = 0
        self._model = model
        self._gpu = gpu

    def add(self, prompt_tokens: int, cached_tokens: int) -> None:
        """Count one prompt."""
        self.flops += self._model.prefill_flops(prompt_tokens - cached_tokens, cached_tokens)
        self.flops_without_cache += self._model.prefill_flops(prompt_tokens)
        self._cached_tokens += cached_tokens

    @property
    def model_name(self) -> str:
        """Whose prefill it is."""
        return self._model.name

    @property
    def gpu_name(self) -> str | None:
        """Whose seconds they are."""
        return self._gpu.name if self._gpu else None

    @property
    def flops_share(self) -> float | None:
        """Operations that were not needed, of all there would have been."""
        return self.flops_saved / self.flops_without_cache if self.flops_without_cache else None

    @property
    def flops_saved(self) -> int:
        """Operations that were not needed."""
        return self.flops_without_cache - self.flops

    @property
    def seconds_saved(self) -> float | None:
        """Time of one card that was not needed; None without a card."""
        return self.flops_saved / (UTILISATION * self._gpu.flops) if self._gpu else None

    @property
    def kv_bytes(self) -> int:
        """KV that was read from the cache and not written again."""
        return self.kv_bytes_of(self._cached_tokens)

    def kv_bytes_of(self, tokens: int) -> int:
        """KV of so many tokens."""
        return tokens * self._model.kv_bytes_per_token(self._model.kv_dtype)

    def as_json(self) -> dict[str, Any]:
        """All of it, and what was assumed."""
        return {
            "model": self.model_name,
            "gpu": self.gpu_name,
            "utilization": UTILISATION if self._gpu else None,
            "kv_dtype": self._model.kv_dtype,
            "flops": self.flops_saved,
            "flops_share": self.flops_share,
            "seconds": self.seconds_saved,
            "kv_bytes": self.kv_bytes,
        }
