"""What tests of all parts share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data, which is not part of the project."""
    default = Path(__file__).parents[2] / "shared" / "data"
    path = Path(os.environ.get("PREFIX_CACHE_DATA", default))
    if not path.is_dir():
        pytest.skip(f"no shared data in {path}; set PREFIX_CACHE_DATA")
    return path
