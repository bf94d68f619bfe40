"""What tests of all parts share."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

LONGEST = Path(__file__).with_name("test_compiled_wheel.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test goes first: other processes run the others meanwhile."""
    items.sort(key=lambda item: item.path != LONGEST)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: to look through it again stalls whatever is timed."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, which is not part of the project."""
    default = Path(__file__).parents[2] / "shared" / "data"
    path = Path(os.environ.get("PREFIX_CACHE_DATA", default))
    if not path.is_dir():
        pytest.skip(f"no shared data in {path}; set PREFIX_CACHE_DATA")
    return path
