"""A real model, trained by others: its logits and its text are known without our code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prefix_cache.worker.loading import LoadedModel, load_model
from prefix_cache.worker.stream_decoder import StreamDecoder
from tests.worker.paged import all_logits, greedy_tokens
from tests.worker.reference_llama import Array, neighbours, reference_logits

STORY = """\
Once upon a time, there was a little girl named Lily. She loved to play outside in the park. \
One day, she saw a big, red ball. She wanted to play with it, but it was too high.
Lily's mom said, "Lily, let's go to the park." Lily was sad and didn't know what to do. \
She said, "I want to play with your ball, but I can't find it."
Lily was sad and didn't know what to do. She said, "I'm sorry, Lily. I didn't know what to do."
Lily didn't want to help her mom, so she said, "I'm sorry, mom. I didn't know what to do." \
Her mom said, "Don't worry, Lily. We can help you."""


@pytest.fixture(scope="module")
def stories(shared_data: Path) -> LoadedModel:
    return load_model(shared_data / "models" / "stories260K")


def as_stored(path: Path) -> dict[str, Array]:
    """The weights in the order of the file, which is that of the forward pass of its program."""
    hidden, inner, layers, heads, kv_heads, vocab, positions = np.fromfile(path, "<i4", 7).tolist()
    kv = hidden // heads * kv_heads
    values = np.fromfile(path, "<f4", offset=28).astype(np.float64)
    place = 0

    def take(*shape: int) -> Array:
        nonlocal place
        size = int(np.prod(shape))
        place += size
        return values[place - size : place].reshape(shape)

    weights = {"model.embed_tokens.weight": take(vocab, hidden)}
    for part, shape in (
        ("input_layernorm", (hidden,)),
        ("self_attn.q_proj", (hidden, hidden)),
        ("self_attn.k_proj", (kv, hidden)),
        ("self_attn.v_proj", (kv, hidden)),
        ("self_attn.o_proj", (hidden, hidden)),
        ("post_attention_layernorm", (hidden,)),
        ("mlp.gate_proj", (inner, hidden)),
        ("mlp.down_proj", (hidden, inner)),
        ("mlp.up_proj", (inner, hidden)),
    ):
        for layer, weight in enumerate(take(layers, *shape)):
            weights[f"model.layers.{layer}.{part}.weight"] = weight
    weights["model.norm.weight"] = take(hidden)
    assert len(values) - place == positions * hidden // heads
    return weights


def test_it_has_the_sizes_of_its_header(stories: LoadedModel) -> None:
    config = stories.model.config
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (5, 8, 4)
    assert (config.hidden_size, config.intermediate_size, config.head_dim) == (64, 172, 8)
    assert (config.vocab_size, config.max_position) == (512, 512)
    assert (config.name, config.tie_word_embeddings) == ("stories260K", True)


def test_its_logits_are_those_of_the_forward_pass_of_llama2c(
    stories: LoadedModel, shared_data: Path
) -> None:
    tokens = stories.tokenizer.encode(STORY, bos=True)
    weights = as_stored(shared_data / "models" / "stories260K" / "stories260K.bin")
    expected = reference_logits(tokens, weights, num_layers=5, head_dim=8, paired=neighbours)
    assert len(tokens) == 257
    np.testing.assert_allclose(all_logits(stories.model, tokens), expected, atol=1e-4)


@pytest.mark.parametrize("prompt", ["", "Once upon a time"])
def test_it_tells_the_story_that_its_program_tells(stories: LoadedModel, prompt: str) -> None:
    ids = stories.tokenizer.encode(prompt, bos=True)
    decoder = StreamDecoder(stories.tokenizer, ids[-1])
    tokens = greedy_tokens(stories.model, stories.tokenizer, ids, 257 - len(ids))
    assert prompt + "".join(map(decoder.add, tokens)) == STORY
