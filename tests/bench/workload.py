"""What the index and its peers do in the comparison, so that all do the same."""

from __future__ import annotations

NUM_TOKENS = 8_192  # 512 blocks of 16
NUM_BLOCKS = 100_000  # of the pool
REPEATS = 50  # of each work in a round
