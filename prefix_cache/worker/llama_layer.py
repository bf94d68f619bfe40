"""One layer of a Llama."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.nn.functional import linear, rms_norm, silu

from prefix_cache.kv.attention import paged_attention
from prefix_cache.kv.batch import PagedBatch
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker.model_config import ModelConfig
from prefix_cache.worker.rope import rotate


class LlamaLayer:
    """Attention, then the feed-forward network; each adds to what came in.

    ``tensors`` are those of the layer, by their names within it.
    """

    def __init__(self, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
        self._eps = config.rms_norm_eps
        self._head_dim = config.head_dim
        self._attention_norm = tensors["input_layernorm.weight"]
        self._queries = tensors["self_attn.q_proj.weight"]
        self._keys = tensors["self_attn.k_proj.weight"]
        self._values = tensors["self_attn.v_proj.weight"]
        self._output = tensors["self_attn.o_proj.weight"]
        self._feed_forward_norm = tensors["post_attention_layernorm.weight"]
        self._gate = tensors["mlp.gate_proj.weight"]
        self._up = tensors["mlp.up_proj.weight"]
        self._down = tensors["mlp.down_proj.weight"]

    def forward(
        self,
        hidden: Tensor,
        rotation: tuple[Tensor, Tensor],
        index: int,
        batch: PagedBatch,
        pool: KVPool,
    ) -> Tensor:
        """Return what this layer, number ``index``, makes of ``hidden`` [T, hidden_size].

        ``rotation`` are the cosines and sines of the tokens' positions.
        """
        normed = self._normed(hidden, self._attention_norm)
        queries = rotate(self._heads(normed, self._queries), *rotation)
        keys = rotate(self._heads(normed, self._keys), *rotation)
        pool.write(index, batch.slot_mapping, keys, self._heads(normed, self._values))
        attended = paged_attention(queries, pool, index, batch)
        hidden = hidden + linear(attended.flatten(1), self._output)
        normed = self._normed(hidden, self._feed_forward_norm)
        gated = silu(linear(normed, self._gate)) * linear(normed, self._up)
        return hidden + linear(gated, self._down)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(hidden, weight.shape, weight, self._eps)

    def _heads(self, normed: Tensor, projection: Tensor) -> Tensor:
        """Project to [T, heads, head_dim]."""
        return linear(normed, projection).view(len(normed), -1, self._head_dim)
