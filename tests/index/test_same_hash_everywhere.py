"""Hashes are the same in every process, on every machine, in every release."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from prefix_cache import Identity

from .stories import chain_hashes

GOLDEN = "97ba2f70091a841510817bfd5cf260d3e8033acfc9ae505fb3916e80027aec68"
GOLDEN_WITH_ALL_PARTS = "30d1c6760f43d6da757fec1469f87e476210bb52aebe88690c11dff84ef29b0a"

SCRIPT = """
from prefix_cache import BlockCache, Identity
cache = BlockCache(4, on_event=lambda event: print(b"".join(event.block_hashes).hex()))
who = Identity(model="m", revision="r1", adapter="a", adapter_revision="r2", salt="s")
pictures = [(3, 20, b"picture"), (5, 9, b"mask"), (17, 32, b"sound")]
sequence = cache.acquire(who, list(range(32)), pictures)
cache.commit(sequence, 32)
"""

ROOT = Path(__file__).parents[2]


def other_pythons() -> list[str]:
    """Interpreters at hand that have what the index imports."""
    found = [shutil.which(f"python3.{minor}") for minor in range(11, 20)]
    return [
        python
        for python in found
        if python is not None
        and os.path.realpath(python) != os.path.realpath(sys.executable)
        and subprocess.run([python, "-c", "import numpy, xxhash"], capture_output=True).returncode
        == 0
    ]


def test_the_hashes_of_a_prompt_are_the_golden_ones() -> None:
    """F115: a change of these values makes every cache in a fleet forget; never do it lightly."""
    hashes = chain_hashes(list(range(32)), Identity(model="m"))
    assert b"".join(hashes).hex() == GOLDEN


@pytest.mark.parametrize("seed", [None, "random", "1"])
@pytest.mark.parametrize("python", [sys.executable, *other_pythons()], ids=os.path.basename)
def test_every_process_computes_the_same_hashes(python: str, seed: str | None) -> None:
    """F115: with every part of an identity, and more extra keys than one to a block."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONHASHSEED", None)
    if seed is not None:
        environment["PYTHONHASHSEED"] = seed

    printed = subprocess.run(
        [python, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )

    assert printed.stdout.strip() == GOLDEN_WITH_ALL_PARTS
