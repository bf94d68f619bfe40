"""Directories of Hugging Face: config.json, safetensors in one file or many, tokenizer.json."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec
import tokenizers
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from prefix_cache.chat_template import JinjaTemplate, read_tokenizer_config, special_tokens
from prefix_cache.errors import MalformedFile
from prefix_cache.worker.chat import ChatRenderer
from prefix_cache.worker.hf_tokenizer import HFTokenizer
from prefix_cache.worker.llama_tensors import HEAD
from prefix_cache.worker.loading.checkpoint import Checkpoint
from prefix_cache.worker.loading.hf_config import (
    HFArchitecture,
    HFConfig,
    check_architecture,
    model_config,
)
from prefix_cache.worker.loading.json_file import read_json

_ONE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_UNUSED = ".rotary_emb.inv_freq"  # computed from the config


class _Generation(msgspec.Struct):
    eos_token_id: int | tuple[int, ...] | None = None


class _Index(msgspec.Struct):
    weight_map: dict[str, str]


class _Template(msgspec.Struct):
    """One of several chat templates."""

    name: str
    template: str


def read_huggingface(folder: Path) -> Checkpoint:
    """Read a directory.

    Raises MalformedFile for a file that is missing, truncated or not of its kind, and
    UnsupportedModel for a model that is no Llama.
    """
    path = folder / "config.json"
    name = folder.resolve().name
    check_architecture(read_json(path, HFArchitecture), name)
    found = read_json(path, HFConfig)
    try:
        config = model_config(found, name)
    except msgspec.ValidationError as error:
        raise MalformedFile(
            f"{path}: {error} in the scaling of positions", file=str(path)
        ) from error
    tensors = _read_tensors(folder)
    if config.tie_word_embeddings:
        tensors.pop(HEAD, None)  # a copy of the embeddings
    chat = ChatRenderer(_chat_template(folder))
    return Checkpoint(config, tensors, _read_tokenizer(folder, found), chat)


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in _tensor_files(folder):
        try:
            tensors.update(load_file(path))
        except (OSError, SafetensorError) as error:
            raise MalformedFile(f"{path} cannot be read: {error}", file=str(path)) from error
    return {name: tensor for name, tensor in tensors.items() if not name.endswith(_UNUSED)}


def _tensor_files(folder: Path) -> list[Path]:
    if (folder / _INDEX).is_file():
        names = set(read_json(folder / _INDEX, _Index).weight_map.values())
        return [folder / Path(name).name for name in sorted(names)]
    if not (folder / _ONE).is_file():
        raise MalformedFile(f"{folder} has no weights: {_ONE} or {_INDEX}", file=str(folder))
    return [folder / _ONE]


def _read_tokenizer(folder: Path, config: HFConfig) -> HFTokenizer:
    path = folder / "tokenizer.json"
    try:
        library = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise MalformedFile(f"{path} is no tokenizer: {error}", file=str(path)) from error
    eos_ids = _ids(config.eos_token_id)
    generation = folder / "generation_config.json"
    if generation.is_file():
        eos_ids |= _ids(read_json(generation, _Generation).eos_token_id)
    return HFTokenizer(library, eos_ids)


def _ids(value: int | Iterable[int] | None) -> set[int]:
    match value:
        case None:
            return set()
        case int():
            return {value}
        case _:
            return set(value)


def _chat_template(folder: Path) -> JinjaTemplate | None:
    config_path = folder / "tokenizer_config.json"
    config = read_tokenizer_config(config_path)
    path = folder / "chat_template.jinja"
    if path.is_file():
        return JinjaTemplate.of_file(path, special_tokens(config))
    try:
        found = msgspec.convert(config.get("chat_template"), str | tuple[_Template, ...] | None)
    except msgspec.ValidationError as error:
        raise MalformedFile(
            f"{config_path}: chat_template: {error}", file=str(config_path)
        ) from error
    if isinstance(found, tuple):
        found = next((each.template for each in found if each.name == "default"), None)
    if found is None:
        return None
    return JinjaTemplate(found, special_tokens(config), f"chat_template of {folder}")
