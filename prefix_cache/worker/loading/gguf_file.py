"""GGUF files, as llama.cpp runs them; quantised weights are dequantised."""

from __future__ import annotations

from pathlib import Path

import gguf
import torch
from torch import Tensor

from prefix_cache.chat_template import JinjaTemplate
from prefix_cache.errors import MalformedFile, UnsupportedModel
from prefix_cache.worker.chat import ChatRenderer
from prefix_cache.worker.llama_tensors import EMBEDDINGS, HEAD, NORM, check_tensors, layer_name
from prefix_cache.worker.loading.checkpoint import Checkpoint
from prefix_cache.worker.loading.gguf_metadata import Metadata
from prefix_cache.worker.loading.gguf_reader import CheckedReader
from prefix_cache.worker.loading.gguf_tokenizer import read_tokenizer
from prefix_cache.worker.loading.hf_config import unsupported
from prefix_cache.worker.model_config import ModelConfig
from prefix_cache.worker.rope import FrequencyDivisors, LinearScaling, RopeScaling, half_split

_OUTER = {"token_embd.weight": EMBEDDINGS, "output_norm.weight": NORM, "output.weight": HEAD}
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_DIVISORS = "rope_freqs.weight"


def read_gguf(path: Path) -> Checkpoint:
    """Read a file.

    Raises MalformedFile for one that is truncated or no GGUF, and UnsupportedModel for another
    architecture than llama, or a tokenizer that is not byte-level BPE.
    """
    try:
        reader = CheckedReader(path)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise MalformedFile(f"{path} cannot be read: {error}", file=str(path)) from error
    metadata = Metadata(path, reader)
    architecture = metadata.get("general.architecture", str)
    if architecture != "llama":
        raise unsupported(path.stem, "architecture", architecture, "llama")
    tensors = {each.name: _dequantised(path, each) for each in reader.tensors}
    divisors = tensors.pop(_DIVISORS, None)
    config = _config(metadata, tensors, divisors)
    named = {_name(name): tensor for name, tensor in tensors.items()}
    check_tensors(config, named)  # to be reordered they need their shapes
    for name, tensor in named.items():
        if name.endswith("q_proj.weight"):
            named[name] = half_split(tensor, config.num_heads)
        elif name.endswith("k_proj.weight"):
            named[name] = half_split(tensor, config.num_kv_heads)
    tokenizer, special_tokens = read_tokenizer(metadata)
    source = metadata.find("tokenizer.chat_template", str)
    template = source and JinjaTemplate(source, special_tokens, f"chat_template of {path}")
    return Checkpoint(config, named, tokenizer, ChatRenderer(template or None))


def _dequantised(path: Path, tensor: gguf.ReaderTensor) -> Tensor:
    try:
        return torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
    except NotImplementedError as error:
        raise UnsupportedModel(
            f"{path}: {tensor.name}: {error}, expected float32, float16, bfloat16 or a kind of "
            "quantisation that can be undone",
            file=str(path),
            tensor=tensor.name,
        ) from error


def _config(metadata: Metadata, tensors: dict[str, Tensor], divisors: Tensor | None) -> ModelConfig:
    name = metadata.path.stem
    hidden = metadata.get("llama.embedding_length", int)
    heads = metadata.get("llama.attention.head_count", int)
    return ModelConfig(
        name=name,
        vocab_size=len(metadata.get("tokenizer.ggml.tokens", list[str])),
        hidden_size=hidden,
        intermediate_size=metadata.get("llama.feed_forward_length", int),
        num_layers=metadata.get("llama.block_count", int),
        num_heads=heads,
        num_kv_heads=metadata.find("llama.attention.head_count_kv", int) or heads,
        head_dim=metadata.find("llama.attention.key_length", int) or hidden // max(heads, 1),
        max_position=metadata.get("llama.context_length", int),
        rope_theta=metadata.find("llama.rope.freq_base", float) or 10_000.0,
        rope_scaling=_rope_scaling(name, metadata, divisors),
        rms_norm_eps=metadata.get("llama.attention.layer_norm_rms_epsilon", float),
        tie_word_embeddings="output.weight" not in tensors,
    )


def _rope_scaling(name: str, metadata: Metadata, divisors: Tensor | None) -> RopeScaling | None:
    kind = metadata.find("llama.rope.scaling.type", str) or "none"
    if kind not in ("none", "linear"):
        raise unsupported(name, "rope.scaling.type", kind, "none", "linear")
    if divisors is not None:
        return FrequencyDivisors(tuple(divisors.tolist()))
    if kind == "linear":
        return LinearScaling(metadata.get("llama.rope.scaling.factor", float))
    return None


def _name(name: str) -> str:
    """Hugging Face's name of a tensor; the same for one that is not known."""
    match name.split("."):
        case ["blk", layer, part, "weight"] if part in _PARTS and layer.isdecimal():
            return f"{layer_name(int(layer))}{_PARTS[part]}.weight"
        case _:
            return _OUTER.get(name, name)
