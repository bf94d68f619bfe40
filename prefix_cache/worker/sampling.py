"""How the next token is chosen from the logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from prefix_cache.errors import InvalidArgument

MAX_STOP_STRINGS = 16
MAX_TEMPERATURE = 2.0
_SEEDS = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one request is answered.  Raises InvalidArgument, naming the value and its range.

    Temperature 0 takes the most likely token.  With ``beam_width`` > 0 the ``n`` answers are the
    best ones of a beam search; else they are sampled.  With ``ignore_eos`` an answer ends at
    ``max_tokens`` or a stop string only.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    beam_width: int = 0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        self._check("max_tokens", _is_int(self.max_tokens, 1), "an integer from 1")
        warm = _is_number(self.temperature) and 0 <= self.temperature <= MAX_TEMPERATURE
        self._check("temperature", warm, f"a number from 0 to {MAX_TEMPERATURE:g}")
        some = _is_number(self.top_p) and 0 < self.top_p <= 1
        self._check("top_p", some, "a number above 0, at most 1")
        seeded = self.seed is None or (type(self.seed) is int and self.seed in _SEEDS)
        self._check("seed", seeded, "none or an integer from -2^63 to 2^63 - 1")
        stops = self.stop
        strings = isinstance(stops, tuple) and all(isinstance(stop, str) and stop for stop in stops)
        self._check("stop", strings and len(stops) <= MAX_STOP_STRINGS, _STOPS)
        self._check("n", _is_int(self.n, 1), "an integer from 1")
        beams = _is_int(self.beam_width, 0) and (not self.beam_width or self.beam_width >= self.n)
        self._check("beam_width", beams, f"0 or an integer from n, which is {self.n}")

    def generator(self, index: int) -> np.random.Generator:
        """Return the source of chance for answer ``index`` of n: the same for the same seed."""
        if self.seed is None:
            return np.random.default_rng()
        return np.random.default_rng([self.seed % 2**64, index])

    def _check(self, name: str, valid: bool, expected: str) -> None:
        if not valid:
            value = getattr(self, name)
            raise InvalidArgument(f"{name} is {value!r}, expected {expected}", **{name: value})


_STOPS = f"a tuple of at most {MAX_STOP_STRINGS} strings, none of them empty"


def sample(
    logits: Tensor, params: Sequence[SamplingParams], generators: Sequence[np.random.Generator]
) -> list[int]:
    """Return a token id for each row of ``logits`` [B, V].

    A row takes one number from its own generator, unless its temperature is 0: so what it is
    given does not depend on the rows beside it.
    """
    chosen: list[int] = logits.argmax(dim=-1).tolist()
    for row, (param, generator) in enumerate(zip(params, generators, strict=True)):
        if param.temperature > 0:
            chosen[row] = _draw(logits[row], param, generator.random())
    return chosen


def _draw(logits: Tensor, params: SamplingParams, chance: float) -> int:
    """The token at ``chance`` (0 to 1) of the probabilities laid end to end."""
    scaled = (logits.double() - logits.max()) / params.temperature
    probabilities = scaled.softmax(dim=-1)
    if params.top_p == 1:
        return _at(probabilities, chance)
    ordered, tokens = probabilities.sort(descending=True, stable=True)
    # The fewest tokens whose sum reaches top_p: those before which the sum is below it.
    kept = int((ordered.cumsum(dim=-1) - ordered < params.top_p).sum())
    return int(tokens[_at(ordered[:kept], chance)])


def _at(probabilities: Tensor, chance: float) -> int:
    ends = probabilities.cumsum(dim=-1)
    # Below the last end, which rounding could reach: nothing that has no probability is chosen.
    below = torch.nextafter(ends[-1], ends.new_zeros(()))
    return int(torch.searchsorted(ends, torch.minimum(ends[-1] * chance, below), right=True))


def _is_int(value: object, least: int) -> bool:
    return type(value) is int and value >= least


def _is_number(value: object) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))
