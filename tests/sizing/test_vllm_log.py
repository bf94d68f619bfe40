"""What vLLM says at its start, and what we say of the same model and memory.

The logs are of vLLM 0.32 on a CPU, which takes blocks of 128 tokens for heads of 64 elements.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from prefix_cache.sizing.config_json import shape_from_config
from prefix_cache.sizing.fit import fit
from prefix_cache.sizing.stages import stages
from tests.sizing.setups import llama_config, setup

DATA = Path(__file__).with_name("data")
GRANTED = re.compile(r"Explicitly set \((?P<gib>[0-9.]+)/[0-9.]+\) GiB for KV cache")
CAPACITY = re.compile(
    r"KV cache size: (?P<tokens>[0-9,]+) tokens, "
    r"Maximum concurrency for (?P<context>[0-9,]+) tokens per request: (?P<times>[0-9.]+)x"
)
MODELS: dict[str, dict[str, Any]] = {
    "vllm-0.32-cpu-context-8192.log": llama_config(
        num_hidden_layers=4, hidden_size=256, num_attention_heads=8, head_dim=64
    ),
    "vllm-0.32-cpu-context-5000.log": llama_config(
        num_hidden_layers=5,
        hidden_size=576,
        num_attention_heads=9,
        num_key_value_heads=3,
        head_dim=64,
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_same_memory_holds_what_vllm_says(name: str) -> None:
    log = (DATA / name).read_text()
    granted, capacity = GRANTED.search(log), CAPACITY.search(log)
    assert granted
    assert capacity
    context = int(capacity["context"].replace(",", ""))
    shape = shape_from_config(MODELS[name], name)
    (stage,) = stages(setup(shape, context=context, block_size=128))
    found = fit(stage, int(float(granted["gib"]) * 2**30))
    assert f"{found.by_division:.2f}" == capacity["times"]
    # vLLM counts the tokens of whole requests: what their last blocks leave empty is none.
    assert f"{int(found.by_division * context):,}" == capacity["tokens"]
