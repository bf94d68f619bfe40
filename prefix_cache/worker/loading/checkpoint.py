"""What the files of a model hold, in whichever format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from prefix_cache.worker.chat import ChatRenderer
from prefix_cache.worker.model_config import ModelConfig
from prefix_cache.worker.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model in parts.  ``tensors`` have Hugging Face's names and order of rows."""

    config: ModelConfig
    tensors: Mapping[str, Tensor]
    tokenizer: Tokenizer
    chat: ChatRenderer
