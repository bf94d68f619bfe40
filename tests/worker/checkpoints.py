"""Writes the files of tiny models, in each format that is loaded."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt
from safetensors.torch import save_file
from torch import Tensor

from prefix_cache.worker.model_config import ModelConfig
from tests.worker.libraries import byte_level

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 272,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 1,
}
"""That of ``tiny_config``."""


def write_huggingface(
    folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any] = CONFIG, shards: int = 1
) -> Path:
    """Write a directory, with the byte-level tokenizer."""
    (folder / "config.json").write_text(json.dumps(config))
    byte_level().save(str(folder / "tokenizer.json"))
    if shards == 1:
        save_file(dict(tensors), folder / "model.safetensors")
        return folder
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        names = list(tensors)[shard::shards]
        save_file({name: tensors[name] for name in names}, folder / file)
        weight_map |= dict.fromkeys(names, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def neighbouring(weight: Tensor, num_heads: int) -> npt.NDArray[np.float32]:
    """Rows in the order in which rotated pairs are neighbours."""
    rows, columns = weight.shape
    pairs = weight.numpy().reshape(num_heads, 2, rows // num_heads // 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def write_llama2c(path: Path, config: ModelConfig, tensors: Mapping[str, Tensor]) -> Path:
    """Write a checkpoint of llama2.c, and a tokenizer of single characters."""
    vocab_size = config.vocab_size if config.tie_word_embeddings else -config.vocab_size
    sizes = (config.hidden_size, config.intermediate_size, config.num_layers, config.num_heads)
    data = struct.pack("<7i", *sizes, config.num_kv_heads, vocab_size, config.max_position)

    def add(name: str) -> None:
        nonlocal data
        tensor = tensors[name]
        values = tensor.numpy()
        if "q_proj" in name:
            values = neighbouring(tensor, config.num_heads)
        elif "k_proj" in name:
            values = neighbouring(tensor, config.num_kv_heads)
        data += values.astype("<f4").tobytes()

    add("model.embed_tokens.weight")
    for part in (
        *("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        *("self_attn.o_proj", "post_attention_layernorm"),
        *("mlp.gate_proj", "mlp.down_proj", "mlp.up_proj"),
    ):
        for layer in range(config.num_layers):
            add(f"model.layers.{layer}.{part}.weight")
    add("model.norm.weight")
    data += bytes(4 * config.max_position * config.head_dim)
    if not config.tie_word_embeddings:
        add("lm_head.weight")
    path.write_bytes(data)
    pieces = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += [chr(0x20 + place) for place in range(config.vocab_size - len(pieces))]
    write_llama2c_tokenizer(path.with_name(f"tok{config.vocab_size}.bin"), pieces)
    return path


def write_llama2c_tokenizer(path: Path, pieces: Sequence[str]) -> Path:
    """Write pieces with scores of 0."""
    tokens = (struct.pack("<fi", 0.0, len(p.encode())) + p.encode() for p in pieces)
    path.write_bytes(struct.pack("<i", max(map(len, pieces))) + b"".join(tokens))
    return path


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers.": "blk.",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


Q8_0 = gguf.GGMLQuantizationType.Q8_0


def is_quantised(tensor: Tensor) -> bool:
    """Whether a tensor is quantised in a file of Q8_0: matrices whose rows are blocks of 32."""
    return tensor.dim() > 1 and tensor.shape[-1] % 32 == 0


def write_gguf(
    path: Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    *,
    architecture: str = "llama",
    tokenizer: str = "gpt2",
    pre: str = "gpt-2",
    chat_template: str | None = None,
    quantised: bool = False,
    more_tensors: Mapping[str, npt.NDArray[Any]] | None = None,
    more: Mapping[str, str | float] | None = None,
) -> Path:
    """Write a GGUF file, with the byte-level tokenizer."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_layers)
    writer.add_context_length(config.max_position)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_heads)
    writer.add_head_count_kv(config.num_kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    for key, value in (more or {}).items():
        if isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_float32(key, value)
    library = json.loads(byte_level().to_str())
    vocabulary = byte_level().get_vocab()
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    tokens += [f"[PAD{token}]" for token in range(len(tokens), config.vocab_size)]
    kinds = {"<s>": 3, "</s>": 3, "<tool>": 4}
    writer.add_tokenizer_model(tokenizer)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(token, 1) for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in library["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_add_bos_token(True)
    if chat_template:
        writer.add_chat_template(chat_template)
    for name, tensor in tensors.items():
        values = tensor.numpy()
        if "q_proj" in name:
            values = neighbouring(tensor, config.num_heads)
        elif "k_proj" in name:
            values = neighbouring(tensor, config.num_kv_heads)
        for ours, theirs in _GGUF_NAMES.items():
            name = name.replace(ours, theirs)
        if quantised and is_quantised(tensor):
            writer.add_tensor(name, gguf.quantize(values, Q8_0), raw_dtype=Q8_0)
        else:
            writer.add_tensor(name, np.ascontiguousarray(values))
    for name, values in (more_tensors or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
