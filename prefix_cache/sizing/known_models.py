"""Published configs of well-known models, and the shape of a model by name or path.

Each entry holds what counts here of the ``config.json`` that the model's makers publish on Hugging
Face, in the repository named beside it.
"""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Any

from prefix_cache.errors import InvalidArgument, MalformedFile
from prefix_cache.sizing.config_json import shape_from_config
from prefix_cache.sizing.shape import ModelShape


def _llama_like(
    model_type: str, layers: int, hidden: int, inner: int, heads: int, kv_heads: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "torch_dtype": "bfloat16",
        **more,
    }


def _llama3(
    layers: int, hidden: int, inner: int, heads: int, kv_heads: int, **more: Any
) -> dict[str, Any]:
    trained = {"vocab_size": 128_256, "max_position_embeddings": 131_072}
    return _llama_like("llama", layers, hidden, inner, heads, kv_heads, **trained, **more)


def _qwen3(
    layers: int, hidden: int, inner: int, heads: int, kv_heads: int, **more: Any
) -> dict[str, Any]:
    trained = {"vocab_size": 151_936, "max_position_embeddings": 40_960, "head_dim": 128}
    return _llama_like("qwen3", layers, hidden, inner, heads, kv_heads, **trained, **more)


def _opt(layers: int, hidden: int, heads: int) -> dict[str, Any]:
    return {
        "model_type": "opt",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "ffn_dim": 4 * hidden,
        "num_attention_heads": heads,
        "vocab_size": 50_272,
        "max_position_embeddings": 2_048,
        "torch_dtype": "float16",
    }


_CONFIGS: dict[str, dict[str, Any]] = {
    # meta-llama/Llama-3.1-8B
    "llama-3.1-8b": _llama3(32, 4_096, 14_336, 32, 8),
    # meta-llama/Llama-3.1-70B
    "llama-3.1-70b": _llama3(80, 8_192, 28_672, 64, 8),
    # meta-llama/Llama-3.2-1B
    "llama-3.2-1b": _llama3(16, 2_048, 8_192, 32, 8, head_dim=64, tie_word_embeddings=True),
    # Qwen/Qwen3-0.6B
    "qwen3-0.6b": _qwen3(28, 1_024, 3_072, 16, 8, tie_word_embeddings=True),
    # Qwen/Qwen3-8B
    "qwen3-8b": _qwen3(36, 4_096, 12_288, 32, 8),
    # Qwen/Qwen3-32B
    "qwen3-32b": _qwen3(64, 5_120, 25_600, 64, 8),
    # mistralai/Mistral-7B-v0.3, which has no sliding window
    "mistral-7b": _llama_like(
        "mistral", 32, 4_096, 14_336, 32, 8, vocab_size=32_768, max_position_embeddings=32_768
    ),
    # google/gemma-3-27b-it, text_config; its pattern of windows is the class's default
    "gemma-3-27b": {
        "vision_config": {},
        "text_config": _llama_like(
            "gemma3_text",
            62,
            5_376,
            21_504,
            32,
            16,
            head_dim=128,
            sliding_window=1_024,
            max_position_embeddings=131_072,
        ),
    },
    # deepseek-ai/DeepSeek-V3; without the extra layer that predicts a second token
    "deepseek-v3": _llama_like(
        "deepseek_v3",
        61,
        7_168,
        18_432,
        128,
        128,
        vocab_size=129_280,
        max_position_embeddings=163_840,
        q_lora_rank=1_536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        moe_intermediate_size=2_048,
        n_routed_experts=256,
        n_shared_experts=1,
        num_experts_per_tok=8,
        first_k_dense_replace=3,
        topk_method="noaux_tc",
        quantization_config={"quant_method": "fp8"},
    ),
    # facebook/opt-13b, facebook/opt-66b; the 175B by table 1 of the OPT paper, arXiv 2205.01068
    "opt-13b": _opt(40, 5_120, 40),
    "opt-66b": _opt(64, 9_216, 72),
    "opt-175b": _opt(96, 12_288, 96),
    # huggyllama/llama-13b, as table 2 of the LLaMA paper has it, arXiv 2302.13971
    "llama-13b": _llama_like(
        "llama",
        40,
        5_120,
        13_824,
        40,
        40,
        vocab_size=32_000,
        max_position_embeddings=2_048,
    )
    | {"torch_dtype": "float16"},
    # HuggingFaceTB/SmolLM2-135M
    "smollm2-135m": _llama_like(
        "llama",
        30,
        576,
        1_536,
        9,
        3,
        vocab_size=49_152,
        max_position_embeddings=8_192,
        tie_word_embeddings=True,
    ),
}
KNOWN_MODELS = tuple(_CONFIGS)

_TUNED = re.compile(r"(-instruct|-it|-chat|-base|-hf|-v0\.3)+$")


def shape_of(name_or_path: str) -> ModelShape:
    """Return the shape of a known model, or of the ``config.json`` at a path or in a folder.

    Names may be written as on Hugging Face (``meta-llama/Llama-3.1-8B-Instruct``).  Raises
    InvalidArgument that lists the names most alike, MalformedFile for a file that holds no JSON
    object.
    """
    path = Path(name_or_path)
    if path.is_dir():
        path /= "config.json"
    if path.is_file() or path.suffix == ".json":
        return shape_from_config(_read(path), str(path))
    key = _TUNED.sub("", name_or_path.lower().rpartition("/")[2].removeprefix("meta-"))
    if key in _CONFIGS:
        return shape_from_config(_CONFIGS[key], key)
    near = difflib.get_close_matches(key, KNOWN_MODELS, n=3, cutoff=0.5) or KNOWN_MODELS
    raise InvalidArgument(
        f"unknown model {name_or_path!r}: expected the path of a config.json, or a name such as "
        f"{', '.join(near)}",
        model=name_or_path,
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise MalformedFile(f"{path}: cannot be read ({error.strerror})", file=str(path)) from None
    except ValueError as error:
        raise MalformedFile(f"{path}: expected JSON, but {error}", file=str(path)) from None
    if not isinstance(config, dict):
        raise MalformedFile(f"{path}: expected a JSON object", file=str(path))
    return config
