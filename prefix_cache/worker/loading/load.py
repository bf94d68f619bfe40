"""A model from its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from prefix_cache.errors import InvalidArgument, MalformedFile, UnsupportedModel
from prefix_cache.worker.chat import ChatRenderer
from prefix_cache.worker.llama import Llama
from prefix_cache.worker.loading.checkpoint import Checkpoint
from prefix_cache.worker.loading.gguf_file import read_gguf
from prefix_cache.worker.loading.huggingface import read_huggingface
from prefix_cache.worker.loading.llama2c import read_llama2c
from prefix_cache.worker.tokenizer import Tokenizer

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_FORMATS = "a Hugging Face directory, a .gguf file or a llama2.c .bin file"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """All that is needed to answer requests."""

    model: Llama
    tokenizer: Tokenizer
    chat: ChatRenderer


def load_model(path: str | Path, dtype: str = "float32", device: str = "cpu") -> LoadedModel:
    """Load a model from a Hugging Face directory, a GGUF file or a llama2.c checkpoint.

    A directory may also hold one file of the other formats.  Raises UnsupportedModel for what
    the worker does not compute, MissingTensors, MalformedFile, and InvalidArgument for an
    unknown ``dtype`` or a ``device`` that is not there.
    """
    if dtype not in _DTYPES:
        raise UnsupportedModel(f"dtype is {dtype!r}, expected one of {', '.join(_DTYPES)}")
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InvalidArgument(
            f"device {device!r} cannot be used: {error}", device=device
        ) from error
    checkpoint = _read(Path(path))
    model = Llama(checkpoint.config, checkpoint.tensors, _DTYPES[dtype], device)
    return LoadedModel(model, checkpoint.tokenizer, checkpoint.chat)


def _read(path: Path) -> Checkpoint:
    if (path / "config.json").is_file():
        return read_huggingface(path)
    path = _only_file(path) if path.is_dir() else path
    match path.suffix if path.is_file() else "":
        case ".gguf":
            return read_gguf(path)
        case ".bin":
            return read_llama2c(path)
        case _:
            raise MalformedFile(f"{path} is no model, expected {_FORMATS}", file=str(path))


def _only_file(folder: Path) -> Path:
    """The one file with weights in a directory."""
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix in (".gguf", ".bin") and not path.name.startswith("tok")
    ]
    if len(files) != 1:
        found = ", ".join(path.name for path in files) or "none"
        raise MalformedFile(
            f"{folder} has no config.json and of other models {found}, expected {_FORMATS}",
            file=str(folder),
        )
    return files[0]
