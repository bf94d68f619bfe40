"""A model without weights whose answers depend, exactly, on all the KV it reads.

Key and value of a token are numbers: the token, and a number made of it and of all that is read
before it.  The logits are made of everything read.  So one wrong, stale or missing block changes
the answer, and whatever is computed together with a sequence does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from prefix_cache.kv.batch import PagedBatch, SequenceSlice
from prefix_cache.kv.layout import KVLayout
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker.model_config import ModelConfig
from prefix_cache.worker.sampling import SamplingParams, sample
from prefix_cache.worker.tokenizer import Tokenizer

VOCAB_SIZE = 64
EOS = 63
_PRIME = 16_777_213  # the largest below 2^24: every number less than it is exact in float32
LAYOUT = KVLayout(num_layers=1, num_kv_heads=1, head_dim=2)


class FakeModel:
    def __init__(self, max_position: int = 100_000) -> None:
        self.config = ModelConfig(
            name="fake",
            vocab_size=VOCAB_SIZE,
            hidden_size=2,
            intermediate_size=2,
            num_layers=1,
            num_heads=1,
            num_kv_heads=1,
            head_dim=2,
            max_position=max_position,
        )
        self.batches: list[list[SequenceSlice]] = []

    def forward(
        self, token_ids: Tensor, batch: PagedBatch, pool: KVPool, rows: Tensor | None = None
    ) -> Tensor:
        self.batches.append(list(batch.slices))
        tokens, at = token_ids.tolist(), 0
        values: list[int] = []
        digests: list[int] = []
        for part in batch.slices:
            digest = _digest_of(pool, part)
            for position in range(part.first, part.end):
                value, digest = _next(digest, position, tokens[at])
                values.append(value)
                digests.append(digest)
                at += 1
        pool.write(0, batch.slot_mapping, _as_kv(tokens), _as_kv(values))
        wanted = batch.last_rows if rows is None else rows
        return _logits([digests[row] for row in wanted.tolist()])


class FakeTokenizer(Tokenizer):
    """Token n is the character n places after "@"."""

    vocab_size = VOCAB_SIZE
    eos_ids = frozenset({EOS})

    def _encode(self, text: str, bos: bool) -> list[int]:
        return [ord(character) - ord("@") for character in text]

    def piece(self, token_id: int, after: int | None) -> bytes:
        return chr(ord("@") + token_id).encode()


def answer(prompt: Sequence[int], params: SamplingParams, index: int = 0) -> list[int]:
    """Tokens of a sampled answer, by the definition and without any cache."""
    digest, generator = 0, params.generator(index)
    for position, token in enumerate(prompt):
        _, digest = _next(digest, position, token)
    tokens: list[int] = []
    while len(tokens) < params.max_tokens and (params.ignore_eos or EOS not in tokens):
        tokens += sample(_logits([digest]), [params], [generator])
        _, digest = _next(digest, len(prompt) + len(tokens) - 1, tokens[-1])
    return tokens


def log_probabilities(tokens: Sequence[int]) -> npt.NDArray[np.float64]:
    """Of each token that may come after ``tokens``."""
    digest = 0
    for position, token in enumerate(tokens):
        _, digest = _next(digest, position, token)
    return np.asarray(_logits([digest]).double().log_softmax(dim=-1)[0])


def _next(digest: int, position: int, token: int) -> tuple[int, int]:
    """The value of a token, and the digest with it."""
    value = (digest * 1_664_525 + token * 7_919 + 13) % _PRIME
    return value, (digest + _part(position, token, value)) % _PRIME


def _part(position: int, token: int, value: int) -> int:
    return (position + 1) * (31 * token + value + 1)


def _digest_of(pool: KVPool, part: SequenceSlice) -> int:
    if not part.first:
        return 0
    keys, values = pool.gather(0, np.asarray(part.block_table, np.int32), part.first)
    tokens, numbers = keys[:, 0, 0].to(torch.int64), values[:, 0, 0].to(torch.int64)
    positions = torch.arange(1, part.first + 1)
    return int((positions * (31 * tokens + numbers + 1) % _PRIME).sum()) % _PRIME


def _as_kv(numbers: Sequence[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float32)[:, None, None].repeat(1, 1, 2)


def _logits(digests: Sequence[int]) -> Tensor:
    tokens = torch.arange(VOCAB_SIZE)
    seeds = torch.tensor(digests, dtype=torch.int64)[:, None]
    scrambled = (seeds * (2 * tokens + 1) * 40_503 + tokens * 2_654_435_761) % 65_521
    return scrambled.float() / 65_521 * 8
