from __future__ import annotations

import numpy as np
import pytest
import torch

from prefix_cache.errors import InvalidArgument, MissingTensors, UnsupportedModel, ValueOutOfRange
from prefix_cache.worker.llama import Llama
from prefix_cache.worker.model_config import ModelConfig
from prefix_cache.worker.rope import Llama3Scaling, rope_frequencies
from tests.worker.paged import all_logits, forward, new_pool
from tests.worker.reference_llama import reference_logits
from tests.worker.tiny_llama import random_tensors, tiny_config

TOKENS = [3, 141, 59, 26, 53, 58, 97, 93, 238, 46, 264, 33, 83, 27]


def tiny_llama(config: ModelConfig | None = None) -> Llama:
    config = config or tiny_config()
    return Llama(config, random_tensors(config))


@pytest.mark.parametrize(
    "config",
    [
        tiny_config(),
        tiny_config(tie_word_embeddings=True),
        tiny_config(num_kv_heads=6, head_dim=4),
        tiny_config(num_kv_heads=1, rms_norm_eps=1e-3),
        tiny_config(rope_theta=500.0, rope_scaling=Llama3Scaling(8.0, 1.0, 4.0, 32)),
    ],
    ids=["grouped heads", "tied head", "a KV head for each", "one KV head", "scaled positions"],
)
def test_logits_are_those_of_a_dense_llama(config: ModelConfig) -> None:
    expected = reference_logits(
        TOKENS,
        random_tensors(config),
        num_layers=config.num_layers,
        head_dim=config.head_dim,
        eps=config.rms_norm_eps,
        frequencies=rope_frequencies(config.head_dim, config.rope_theta, config.rope_scaling),
    )
    np.testing.assert_allclose(all_logits(tiny_llama(config), TOKENS), expected, atol=1e-4)


def test_a_prompt_in_chunks_gives_the_same_logits_whatever_the_blocks() -> None:
    model = tiny_llama()
    expected = all_logits(model, TOKENS)
    pool = new_pool(model, 12)
    table = [7, 2, 11, 0]
    chunks = [forward(model, pool, (table, TOKENS[:5], 0), all_rows=True)]
    chunks.append(forward(model, pool, (table, TOKENS[5:6], 5), all_rows=True))
    chunks.append(forward(model, pool, (table, TOKENS[6:], 6), all_rows=True))
    torch.testing.assert_close(torch.cat(chunks), expected, atol=1e-5, rtol=0)


def test_sequences_in_one_batch_do_not_see_each_other() -> None:
    model = tiny_llama()
    other = TOKENS[::-1]
    pool = new_pool(model, 8)
    forward(model, pool, ([0, 1, 2, 3], TOKENS[:-1], 0))
    both = forward(model, pool, ([4, 5, 6, 7], other, 0), ([0, 1, 2, 3], TOKENS[-1:], 13))
    expected = torch.stack([all_logits(model, other)[-1], all_logits(model, TOKENS)[-1]])
    torch.testing.assert_close(both, expected, atol=1e-5, rtol=0)


def test_logits_are_float32_and_need_no_gradients_in_any_dtype() -> None:
    config = tiny_config()
    model = Llama(config, random_tensors(config), torch.bfloat16)
    logits = all_logits(model, TOKENS)
    assert logits.dtype == torch.float32
    assert logits.shape == (14, 272)
    assert not logits.requires_grad
    torch.testing.assert_close(logits, all_logits(tiny_llama(), TOKENS), atol=0.3, rtol=0)


def test_the_kv_of_a_token_takes_what_its_layout_says() -> None:
    layout = tiny_llama().kv_layout(block_size=16, dtype="bfloat16")
    assert layout.bytes_per_token == 2 * 2 * 2 * 8 * 2  # K and V, layers, heads, dimensions, bytes


def test_logits_that_are_no_numbers_are_refused() -> None:
    config = tiny_config()
    tensors = random_tensors(config)
    tensors["lm_head.weight"][7, 3] = torch.nan
    with pytest.raises(ValueOutOfRange, match="logits of tiny are no finite numbers"):
        all_logits(Llama(config, tensors), [5, 17])


def test_missing_tensors_are_named() -> None:
    config = tiny_config()
    tensors = random_tensors(config)
    del tensors["model.layers.1.mlp.up_proj.weight"], tensors["lm_head.weight"]
    with pytest.raises(
        MissingTensors,
        match=r"tiny lacks model.layers.1.mlp.up_proj.weight, lm_head.weight; expected 21 tensors",
    ):
        Llama(config, tensors)


def test_of_many_missing_tensors_the_first_are_named() -> None:
    with pytest.raises(MissingTensors, match=r"q_proj.weight, .* and 16 more; expected 21"):
        Llama(tiny_config(), {})


def test_a_tensor_of_another_shape_is_named() -> None:
    config = tiny_config()
    tensors = random_tensors(config)
    tensors["model.norm.weight"] = torch.ones(31)
    with pytest.raises(InvalidArgument, match=r"model.norm.weight is \[31\], expected \[32\]"):
        Llama(config, tensors)


def test_a_tensor_that_a_llama_has_not_is_refused_rather_than_left_out() -> None:
    config = tiny_config()
    bias = {"model.layers.0.self_attn.q_proj.bias": torch.ones(48)}
    with pytest.raises(UnsupportedModel, match=r"tiny has model.layers.0.self_attn.q_proj.bias"):
        Llama(config, random_tensors(config) | bias)


def test_weights_of_integers_are_refused() -> None:
    config = tiny_config()
    tensors = random_tensors(config)
    tensors["model.norm.weight"] = torch.ones(32, dtype=torch.int8)
    with pytest.raises(UnsupportedModel, match=r"model.norm.weight is of torch.int8"):
        Llama(config, tensors)
