"""The forward pass of a Llama in plain numpy, float64: dense, one token list, no blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Pairing = Callable[[Array], tuple[Array, Array]]


def halves(heads: Array) -> tuple[Array, Array]:
    """Dimension i turns with i + head_dim / 2."""
    middle = heads.shape[-1] // 2
    return heads[..., :middle], heads[..., middle:]


def neighbours(heads: Array) -> tuple[Array, Array]:
    """Dimension 2i turns with 2i + 1."""
    return heads[..., 0::2], heads[..., 1::2]


def reference_logits(
    tokens: list[int],
    weights: Mapping[str, Any],
    *,
    num_layers: int,
    head_dim: int,
    eps: float = 1e-5,
    frequencies: Any = None,
    paired: Pairing = halves,
) -> Array:
    """Return the logits after each token; the head is the embeddings where there is none."""
    tensors = {name: np.asarray(tensor, np.float64) for name, tensor in weights.items()}
    if frequencies is None:
        frequencies = 10_000.0 ** (-np.arange(0, head_dim, 2) / head_dim)
    angles = np.arange(len(tokens))[:, None, None] * np.asarray(frequencies, np.float64)

    def normed(x: Array, name: str) -> Array:
        root = np.sqrt((x * x).mean(-1, keepdims=True) + eps)
        return np.asarray(x / root * tensors[name])

    def turned(x: Array) -> Array:
        first, second = paired(x)
        result = np.empty_like(x)
        new_first, new_second = paired(result)
        new_first[:] = first * np.cos(angles) - second * np.sin(angles)
        new_second[:] = first * np.sin(angles) + second * np.cos(angles)
        return result

    x = tensors["model.embed_tokens.weight"][tokens]
    future = np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
    for layer in range(num_layers):
        at = f"model.layers.{layer}."

        def project(x: Array, name: str, at: str = at) -> Array:
            return np.asarray(x @ tensors[at + name + ".weight"].T)

        def heads(x: Array, name: str) -> Array:
            return project(x, name).reshape(len(tokens), -1, head_dim)

        h = normed(x, at + "input_layernorm.weight")
        queries, keys = turned(heads(h, "self_attn.q_proj")), turned(heads(h, "self_attn.k_proj"))
        values = heads(h, "self_attn.v_proj")
        shared = queries.shape[1] // keys.shape[1]
        attended = []
        for each in range(queries.shape[1]):
            scores = queries[:, each] @ keys[:, each // shared].T / np.sqrt(head_dim) + future
            shares = np.exp(scores - scores.max(-1, keepdims=True))
            attended.append(shares / shares.sum(-1, keepdims=True) @ values[:, each // shared])
        x = x + project(np.concatenate(attended, -1), "self_attn.o_proj")
        h = normed(x, at + "post_attention_layernorm.weight")
        gate = project(h, "mlp.gate_proj")
        x = x + project(gate / (1 + np.exp(-gate)) * project(h, "mlp.up_proj"), "mlp.down_proj")
    head = tensors.get("lm_head.weight", tensors["model.embed_tokens.weight"])
    return np.asarray(normed(x, "model.norm.weight") @ head.T)
