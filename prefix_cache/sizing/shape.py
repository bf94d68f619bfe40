"""The shape of a model: what each of its layers keeps, weighs and computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prefix_cache.sizing.dtypes import UNQUANTISED_BITS, kv_bytes, weight_bits


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer.

    ``kv_width`` is the elements that one KV head keeps of a token, K and V together.  The
    compressed layout of MLA is one KV head, the latent.  A layer of constant state (Mamba, linear
    attention) has no KV heads but ``state_bytes`` per sequence.  ``attention_width`` is the
    multiply-adds of one query token with one earlier token.  ``active_parameters`` are those that
    one token meets: of a mixture of experts, only the chosen ones.
    """

    kv_heads: int = 0
    kv_width: int = 0
    window: int | None = None
    state_bytes: int = 0
    attention_width: int = 0
    parameters: int = 0
    active_parameters: int = 0

    def kv_elements(self, tp: int = 1) -> int:
        """Return the elements kept of a token on each of ``tp`` GPUs.

        Heads are split as far as they go; where there are more GPUs than heads they are
        replicated, never divided.
        """
        return -(-self.kv_heads // tp) * self.kv_width


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A model's layers and what stands around them.

    ``dtype`` is that of the published weights, ``kv_dtype`` what engines keep its KV in unless
    told otherwise, ``max_context`` the tokens it was trained for (None where unknown),
    ``head_parameters`` 0 where embeddings are tied, ``notes`` what is assumed of such a model.
    """

    name: str
    layers: tuple[Layer, ...]
    hidden_size: int
    embedding_parameters: int
    head_parameters: int
    other_parameters: int
    dtype: str
    kv_dtype: str
    max_context: int | None
    notes: Sequence[str] = ()

    @property
    def num_parameters(self) -> int:
        """All parameters, tied ones once."""
        around = self.embedding_parameters + self.head_parameters + self.other_parameters
        return around + sum(layer.parameters for layer in self.layers)

    def kv_bytes_per_token(self, kv_dtype: str = "bfloat16") -> int:
        """Return the bytes of KV that one token writes, in all layers, on one GPU."""
        return sum(layer.kv_elements() for layer in self.layers) * kv_bytes(kv_dtype)

    def weights_bytes(self, dtype: str) -> int:
        """Return the bytes of all weights; see ``stored_bytes``."""
        in_layers = sum(layer.parameters for layer in self.layers)
        return stored_bytes(in_layers, self.num_parameters - in_layers, dtype)

    def prefill_flops(self, num_new_tokens: int, num_cached_tokens: int = 0) -> int:
        """Return the operations that prefill ``num_new_tokens`` after those already cached.

        Two per parameter and token in the layers, two per pair of tokens that attend, and the
        output head for one token.
        """
        first, last = num_cached_tokens + 1, num_cached_tokens + num_new_tokens
        head = self.head_parameters or self.embedding_parameters
        total = head if num_new_tokens else 0
        for layer in self.layers:
            total += layer.active_parameters * num_new_tokens
            total += layer.attention_width * _pairs(first, last, layer.window)
        return 2 * total


def stored_bytes(in_layers: int, around: int, dtype: str) -> int:
    """Return the bytes of parameters in layers and of those around them.

    Formats below 16 bits are for the layers' weights; embeddings and output head stay at 16, as
    quantised checkpoints have them.
    """
    bits = weight_bits(dtype)
    return int((in_layers * bits + around * max(bits, UNQUANTISED_BITS)) / 8)


def _pairs(first: int, last: int, window: int | None) -> int:
    """Sum of min(position, window) over the positions ``first..last``, counted from 1."""
    if window is None or last <= window:
        return (first + last) * (last - first + 1) // 2
    growing = max(window - first + 1, 0)
    within = (first + window) * growing // 2
    return within + (last - first + 1 - growing) * window
