"""A real, small model for all proofs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from prefix_cache.worker.llama import Llama
from prefix_cache.worker.loading import LoadedModel, load_model
from prefix_cache.worker.loading.llama2c import read_llama2c


@pytest.fixture(scope="session")
def stories_path(shared_data: Path) -> Path:
    path = shared_data / "models" / "stories260K"
    if not path.is_dir():
        pytest.skip(f"no model in {path}; set PREFIX_CACHE_DATA")
    return path


@pytest.fixture(scope="session")
def stories(stories_path: Path) -> LoadedModel:
    return load_model(stories_path)


@pytest.fixture(scope="session")
def precise_stories(stories_path: Path) -> LoadedModel:
    """The model computed in float64: no answer hangs on the order in which sums are made."""
    found = read_llama2c(stories_path / "stories260K.bin")
    model = Llama(found.config, found.tensors, torch.float64)
    return LoadedModel(model, found.tokenizer, found.chat)


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """So that sums are made in the same order, and other tests have a core left."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
