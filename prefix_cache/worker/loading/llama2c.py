"""Checkpoints of llama2.c: a header of seven integers, then the weights as float32."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from prefix_cache.errors import MalformedFile, UnsupportedModel
from prefix_cache.worker.chat import ChatRenderer
from prefix_cache.worker.llama2c_tokenizer import LEAST_TOKENS, Llama2cTokenizer
from prefix_cache.worker.llama_tensors import EMBEDDINGS, HEAD, NORM, layer_name, tensor_shapes
from prefix_cache.worker.loading.checkpoint import Checkpoint
from prefix_cache.worker.model_config import ModelConfig
from prefix_cache.worker.rope import half_split

_HEADER = struct.Struct("<7i")
_VERSIONED = 0x616B3432  # "ak42", the first word of later formats
_QUERIES = "self_attn.q_proj.weight"
_KEYS = "self_attn.k_proj.weight"
_PARTS = (  # of a layer, in the order of the file, which has each of them for all layers
    "input_layernorm.weight",
    _QUERIES,
    _KEYS,
    "self_attn.v_proj.weight",
    "self_attn.o_proj.weight",
    "post_attention_layernorm.weight",
    "mlp.gate_proj.weight",
    "mlp.down_proj.weight",
    "mlp.up_proj.weight",
)
_TOKEN = struct.Struct("<fi")


def read_llama2c(path: Path) -> Checkpoint:
    """Read a ``.bin`` file and its tokenizer: ``tok{vocab_size}.bin`` or ``tokenizer.bin`` beside.

    Raises MalformedFile for files that are no such thing, or of another length than their header
    calls for, and UnsupportedModel for the later formats of llama2.c.
    """
    config = _read_config(path)
    tokenizer = _read_tokenizer(_tokenizer_path(path, config.vocab_size), config.vocab_size)
    return Checkpoint(config, _read_tensors(path, config), tokenizer, ChatRenderer(None))


def _read_config(path: Path) -> ModelConfig:
    with path.open("rb") as file:
        data = file.read(_HEADER.size)
    header = _HEADER.unpack(data) if len(data) == _HEADER.size else (0,) * 7
    hidden, inner, layers, heads, kv_heads, vocab, positions = header
    if hidden == _VERSIONED:
        raise UnsupportedModel(
            f"{path} is a llama2.c checkpoint of version {inner}, "
            "expected one of the first format, which states no version",
            file=str(path),
        )
    sizes = (hidden, inner, layers, heads, kv_heads, abs(vocab), positions)
    if (
        min(sizes) < 1
        or max(sizes) > path.stat().st_size
        or hidden % heads
        or abs(vocab) < LEAST_TOKENS
    ):
        raise MalformedFile(
            f"{path} is no llama2.c checkpoint: it begins with the sizes {sizes}", file=str(path)
        )
    return ModelConfig(
        name=path.stem,
        vocab_size=abs(vocab),
        hidden_size=hidden,
        intermediate_size=inner,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=hidden // heads,
        max_position=positions,
        tie_word_embeddings=vocab > 0,
    )


def _read_tensors(path: Path, config: ModelConfig) -> dict[str, Tensor]:
    shapes = tensor_shapes(config)
    # Cosines and sines of all positions, which are as well computed.
    unused = config.max_position * config.head_dim
    num_values = sum(map(math.prod, shapes.values())) + unused
    expected, found = _HEADER.size + 4 * num_values, path.stat().st_size
    if found != expected:
        raise MalformedFile(
            f"{path} has {found} bytes, expected {expected} by its header", file=str(path)
        )
    values = torch.from_numpy(np.fromfile(path, "<f4", offset=_HEADER.size))
    layers = range(config.num_layers)
    names = [EMBEDDINGS, *(layer_name(layer) + part for part in _PARTS for layer in layers), NORM]
    tensors, start = {}, 0
    for name in names:
        end = start + math.prod(shapes[name])
        tensors[name] = values[start:end].view(shapes[name])
        start = end
    if not config.tie_word_embeddings:
        tensors[HEAD] = values[start + unused :].view(shapes[HEAD])
    for layer in layers:
        for part, heads in ((_QUERIES, config.num_heads), (_KEYS, config.num_kv_heads)):
            name = layer_name(layer) + part
            tensors[name] = half_split(tensors[name], heads)
    return tensors


def _tokenizer_path(path: Path, vocab_size: int) -> Path:
    names = (f"tok{vocab_size}.bin", "tokenizer.bin")
    for name in names:
        if path.with_name(name).is_file():
            return path.with_name(name)
    raise MalformedFile(f"{path} has no tokenizer beside it: {' or '.join(names)}", file=str(path))


def _read_tokenizer(path: Path, vocab_size: int) -> Llama2cTokenizer:
    data = path.read_bytes()
    pieces, scores = [], []
    start = 4  # after the length of the longest piece
    try:
        for _ in range(vocab_size):
            score, length = _TOKEN.unpack_from(data, start)
            start += _TOKEN.size + length
            if length < 0 or start > len(data):
                raise struct.error
            pieces.append(data[start - length : start])
            scores.append(score)
    except struct.error:
        raise MalformedFile(
            f"{path} ends after {len(pieces)} tokens, expected {vocab_size}", file=str(path)
        ) from None
    return Llama2cTokenizer(pieces, scores)
