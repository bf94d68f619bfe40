"""A Llama whose keys and values live in blocks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm

from prefix_cache.errors import ValueOutOfRange
from prefix_cache.kv.batch import PagedBatch
from prefix_cache.kv.layout import KVLayout
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker.llama_layer import LlamaLayer
from prefix_cache.worker.llama_tensors import EMBEDDINGS, HEAD, NORM, check_tensors, layer_name
from prefix_cache.worker.model_config import ModelConfig
from prefix_cache.worker.rope import rope_frequencies, rotations


class Llama:
    """RMSNorm, rotary positions, grouped-query attention and SwiGLU, computed in ``dtype``.

    ``tensors`` are named as Hugging Face names them.  Raises what ``check_tensors`` does.
    """

    def __init__(
        self,
        config: ModelConfig,
        tensors: Mapping[str, Tensor],
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        check_tensors(config, tensors)
        self.config = config
        self.dtype = dtype
        self.device = torch.device(device)
        placed = {name: tensor.to(self.device, dtype) for name, tensor in tensors.items()}
        self._embeddings = placed[EMBEDDINGS]
        self._layers = [
            LlamaLayer(config, _within(layer_name(layer), placed))
            for layer in range(config.num_layers)
        ]
        self._norm = placed[NORM]
        self._head = self._embeddings if config.tie_word_embeddings else placed[HEAD]
        frequencies = rope_frequencies(config.head_dim, config.rope_theta, config.rope_scaling)
        self._frequencies = frequencies.to(self.device)

    def kv_layout(self, block_size: int = 16, dtype: str = "float32") -> KVLayout:
        """Return how this model's keys and values lie in blocks."""
        config = self.config
        return KVLayout(config.num_layers, config.num_kv_heads, config.head_dim, block_size, dtype)

    @torch.inference_mode()
    def forward(
        self, token_ids: Tensor, batch: PagedBatch, pool: KVPool, rows: Tensor | None = None
    ) -> Tensor:
        """Return the logits after some tokens of a batch, float32 of [len(rows), vocab_size].

        ``token_ids`` [T] are the tokens of all slices of ``batch``, one slice after another, and
        ``rows`` are those of them to return logits for: by default the last of each slice.
        Writes the keys and values of all T tokens into ``pool``.  Raises ValueOutOfRange for what
        ``dtype`` does not hold.
        """
        rotation = rotations(batch.positions, self._frequencies)
        hidden = embedding(token_ids, self._embeddings)
        for index, layer in enumerate(self._layers):
            hidden = layer.forward(hidden, rotation, index, batch, pool)
        last = hidden[batch.last_rows if rows is None else rows]
        last = rms_norm(last, self._norm.shape, self._norm, self.config.rms_norm_eps)
        logits = linear(last, self._head).float()
        if not bool(logits.isfinite().all()):
            raise ValueOutOfRange(f"logits of {self.config.name} are no finite numbers")
        return logits


def _within(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names begin so, by the rest of their names."""
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
