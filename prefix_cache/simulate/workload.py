"""Loads: requests that come at random, with lengths from a distribution or a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from prefix_cache.simulate.beams import branches
from prefix_cache.simulate.lengths import Lengths
from prefix_cache.simulate.request import Request

_NUM_TOKEN_IDS = 50_000


class Load(Protocol):
    """Requests that may come faster or slower."""

    def at_rate(self, requests_per_s: float) -> list[Request]:
        """Return the requests, so many a second; all at once for an infinite rate.

        At every rate they are the same, in the same order.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Workload:
    """``num_requests`` of such lengths, by Poisson arrivals; equal seeds give equal requests.

    Each begins with the same ``shared_prefix`` tokens, and generates ``width`` samples, or beams.
    Prompts, then answers, are cut so that a request has at most ``max_length`` tokens.
    """

    lengths: Lengths
    num_requests: int
    seed: int = 0
    width: int = 1
    beams: bool = False
    shared_prefix: int = 0
    max_length: int = 2_048

    def at_rate(self, requests_per_s: float) -> list[Request]:
        """Return the requests, as ``Load`` says."""
        return at_rate(self._each_second, requests_per_s)

    @cached_property
    def _each_second(self) -> list[Request]:
        random = np.random.default_rng(self.seed)
        arrivals = random.exponential(size=self.num_requests).cumsum()
        prefix = token_ids(self.shared_prefix, random)
        requests = []
        for arrival, (prompt, answer) in zip(
            arrivals.tolist(), self.lengths.draw(self.num_requests, random), strict=True
        ):
            prompt = min(prompt, self.max_length - self.shared_prefix - 1)
            answer = min(answer, self.max_length - self.shared_prefix - prompt)
            requests.append(
                Request(
                    arrival,
                    prefix + token_ids(prompt, random),
                    token_ids(answer, random),
                    self.width,
                    branches(self.width, answer, random) if self.beams else (),
                )
            )
        return requests


def at_rate(each_second: Sequence[Request], requests_per_s: float) -> list[Request]:
    """Return requests that come once a second on average at another rate."""
    return [
        replace(request, arrival_s=request.arrival_s / requests_per_s) for request in each_second
    ]


def token_ids(count: int, random: np.random.Generator) -> bytes:
    """Return random token ids, uint32 little-endian."""
    return random.integers(_NUM_TOKEN_IDS, size=count, dtype=np.uint32).tobytes()
