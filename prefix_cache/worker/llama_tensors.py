"""The weights that a Llama has, named as Hugging Face names them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from prefix_cache.errors import InvalidArgument, MissingTensors, UnsupportedModel
from prefix_cache.worker.model_config import ModelConfig

EMBEDDINGS = "model.embed_tokens.weight"
NORM = "model.norm.weight"
HEAD = "lm_head.weight"

_NAMED = 5


def layer_name(layer: int) -> str:
    """Return what the names of the weights of a layer begin with."""
    return f"model.layers.{layer}."


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor, by name.  A tied head is none."""
    shapes: dict[str, tuple[int, ...]] = {EMBEDDINGS: (config.vocab_size, config.hidden_size)}
    for layer in range(config.num_layers):
        for name, shape in _layer_shapes(config).items():
            shapes[layer_name(layer) + name] = shape
    shapes[NORM] = (config.hidden_size,)
    if not config.tie_word_embeddings:
        shapes[HEAD] = shapes[EMBEDDINGS]
    return shapes


def check_tensors(config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
    """Raise if these are not the tensors of a Llama of this config.

    MissingTensors; InvalidArgument for one of another shape; UnsupportedModel for tensors that a
    Llama does not have, such as biases: it would compute something else without them.
    """
    shapes = tensor_shapes(config)
    if missing := [name for name in shapes if name not in tensors]:
        raise MissingTensors(
            f"{config.name} lacks {_listed(missing)}; expected {len(shapes)} tensors in all",
            missing=missing,
        )
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            raise InvalidArgument(
                f"{config.name}: {name} is {list(tensors[name].shape)}, expected {list(shape)}",
                tensor=name,
            )
        if not tensors[name].is_floating_point():
            raise UnsupportedModel(
                f"{config.name}: {name} is of {tensors[name].dtype}, expected floating point",
                tensor=name,
            )
    if unknown := [name for name in tensors if name not in shapes]:
        raise UnsupportedModel(
            f"{config.name} has {_listed(unknown)}, which a Llama has not", unknown=unknown
        )


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    heads = config.num_heads * config.head_dim
    kv_heads = config.num_kv_heads * config.head_dim
    return {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (heads, hidden),
        "self_attn.k_proj.weight": (kv_heads, hidden),
        "self_attn.v_proj.weight": (kv_heads, hidden),
        "self_attn.o_proj.weight": (hidden, heads),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
