"""Dynamo's side of the comparison with peers: its block hash and radix tree.

Runs in the Python in which Dynamo is installed, which is why nothing is imported by name here.
"""

from __future__ import annotations

import json
import random
from importlib import import_module

from tests.bench.side import Clock, serve_rounds
from tests.bench.workload import NUM_BLOCKS, NUM_TOKENS, REPEATS

_BLOCK_SIZE = 16
_VOCABULARY = range(128_000)


class DynamoSide:
    """One worker's blocks, in chains of one prompt each."""

    def __init__(self) -> None:
        core = import_module("dynamo._core")
        self._hash = core.compute_block_hash_for_seq
        self._tree = core.RadixTree()
        self._draw = random.Random(1)
        for number in range(NUM_BLOCKS * _BLOCK_SIZE // NUM_TOKENS):
            self._prompt = self._draw.choices(_VOCABULARY, k=NUM_TOKENS)
            self._store(number, self._hash(self._prompt, _BLOCK_SIZE))
        assert self._find(self._prompt) == NUM_TOKENS // _BLOCK_SIZE

    def play(self, clock: Clock) -> None:
        """One round."""
        for _ in range(REPEATS):
            clock.time("find", self._find, self._prompt)

    def _find(self, prompt: list[int]) -> int:
        """How many blocks the worker has."""
        found = self._tree.find_matches(self._hash(prompt, _BLOCK_SIZE), False)
        return max(found.scores.values(), default=0)

    def _store(self, number: int, tokens_hashes: list[int]) -> None:
        blocks = [
            {"block_hash": self._draw.getrandbits(63), "tokens_hash": tokens_hash}
            for tokens_hash in tokens_hashes
        ]
        stored = {"stored": {"parent_hash": None, "blocks": blocks}}
        event = {"event_id": number, "dp_rank": 0, "data": stored}
        self._tree.apply_event(0, json.dumps(event).encode())


if __name__ == "__main__":
    serve_rounds(DynamoSide().play)
