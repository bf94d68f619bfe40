"""Runs a model over blocks without an engine."""

from __future__ import annotations

import torch
from torch import Tensor

from prefix_cache.kv.batch import PagedBatch, SequenceSlice
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker.llama import Llama
from prefix_cache.worker.tokenizer import Tokenizer

BLOCK_SIZE = 4


def new_pool(model: Llama, num_blocks: int) -> KVPool:
    return KVPool(model.kv_layout(BLOCK_SIZE), num_blocks, compute_dtype=model.dtype)


def forward(
    model: Llama,
    pool: KVPool,
    *parts: tuple[list[int], list[int], int],
    all_rows: bool = False,
) -> Tensor:
    """Compute tokens of sequences: for each its block table, new tokens, and where they start."""
    batch = PagedBatch.of(
        [SequenceSlice(table, first, len(tokens)) for table, tokens, first in parts], BLOCK_SIZE
    )
    token_ids = torch.tensor([token for _, tokens, _ in parts for token in tokens])
    rows = torch.arange(len(token_ids)) if all_rows else None
    return model.forward(token_ids, batch, pool, rows)


def all_logits(model: Llama, tokens: list[int]) -> Tensor:
    """The logits after each token of one sequence, computed at once."""
    num_blocks = -(-len(tokens) // BLOCK_SIZE)
    pool = new_pool(model, num_blocks)
    return forward(model, pool, (list(range(num_blocks)), tokens, 0), all_rows=True)


def greedy_tokens(model: Llama, tokenizer: Tokenizer, prompt: list[int], count: int) -> list[int]:
    """At most ``count`` tokens that go on the prompt, each the most likely one, without EOS."""
    num_blocks = -(-(len(prompt) + count) // BLOCK_SIZE)
    pool, table = new_pool(model, num_blocks), list(range(num_blocks))
    answer: list[int] = []
    new, first = prompt, 0
    while len(answer) < count:
        token = int(forward(model, pool, (table, new, first)).argmax())
        if token in tokenizer.eos_ids:
            break
        answer.append(token)
        new, first = [token], first + len(new)
    return answer
