"""How beams branch: which of them go on from which."""

from __future__ import annotations

import numpy as np

from prefix_cache.simulate.request import Branch

LOSS = 0.07
"""Chance of a beam at each step to be dropped for a second continuation of another one: of 0.02,
0.05, 0.07, 0.1 and 0.2 the nearest to what 2, 4 and 6 beams saved on Alpaca in the paper."""


def branches(width: int, answer_tokens: int, random: np.random.Generator) -> tuple[Branch, ...]:
    """Return the branches of ``width`` beams while an answer is generated.

    At each step each beam is dropped with the chance ``LOSS``; another one, of those that stay,
    takes its place with a copy.
    """
    if width == 1:
        return ()
    dropped = random.random((answer_tokens, width)) < LOSS
    found = []
    for step in np.flatnonzero(dropped[:-1].any(axis=1)).tolist():
        stays = np.flatnonzero(~dropped[step])
        if step and len(stays):
            found += [
                Branch(step, int(loser), int(random.choice(stays)))
                for loser in np.flatnonzero(dropped[step])
            ]
    return tuple(found)
