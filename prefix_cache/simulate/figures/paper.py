"""Numbers of the PagedAttention paper (SOSP 2023, arXiv 2309.06180), as its text and figures say.

Figures are numbered by the list that this package follows; ``Figure.published`` says where each
stands in the paper.
"""

from __future__ import annotations

TOKENS_SHARE = {"reserve_max": 0.204, "pow2": 0.268, "oracle": 0.382, "paged": 0.963}
"""Share of KV memory that holds tokens."""

BATCHED_SHAREGPT = {"reserve_max": 7.0, "pow2": 9.81, "oracle": 13.62, "paged": 30.42}
BATCHED_ALPACA = {"reserve_max": 7.0, "pow2": 43.24, "oracle": 72.75, "paged": 132.44}
"""Requests that run at the same time, OPT-13B at 2 and at 30 requests a second."""

THROUGHPUT = (2.0, 4.0)
"""Times that of the systems before, at equal latency, as the abstract sums it up."""

RATE_AGAINST_MAX = (2.7, 8.0)
RATE_AGAINST_ORACLE = (1.7, 2.7)
"""Times the rate that paged sustains on ShareGPT, three models."""

SAVED_BY_SAMPLES = {2: 0.0609, 4: 0.0853, 6: 0.0979}
SAVED_BY_BEAMS = {2: 0.3756, 4: 0.5313, 6: 0.5516}
"""Share of blocks saved by sharing, OPT-13B on Alpaca, by width."""
SAVED_BY_SAMPLES_SHAREGPT = (0.162, 0.305)
SAVED_BY_BEAMS_SHAREGPT = (0.443, 0.663)
"""The same on ShareGPT, from width 2 to width 6."""

GAIN_ONE_SEQUENCE = 1.3
GAIN_SIX_BEAMS = 2.3
"""Times the oracle's rate, OPT-13B on Alpaca."""

GAIN_BY_PREFIX = {80: 1.67, 341: 3.58}
"""Times the oracle's throughput, by tokens of the shared prefix."""

GAIN_IN_CHAT = 2.0
"""Times the rate of each of the contiguous allocators."""

RECOMPUTE_BY_SWAP = {False: (0.0, 1.0), True: (0.5, 1.2)}
"""Time to recompute by that to swap: small blocks, and those of 16 tokens and more.

Recompute is faster at small blocks, and never takes over a fifth more; from 16 on both are
comparable, which is taken as up to half.
"""
