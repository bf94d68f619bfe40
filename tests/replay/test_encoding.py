"""Text to token ids."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from prefix_cache.errors import InvalidArgument, MalformedFile, MissingExtra
from prefix_cache.replay.conversations import Conversation, Message
from prefix_cache.replay.encoding import UTF8_BYTES, load_encoding
from prefix_cache.replay.turns import tokenize


def ids(tokens: bytes) -> list[int]:
    return [int(token) for token in np.frombuffer(tokens, "<u4")]


def test_without_a_tokenizer_utf8_bytes_are_the_tokens() -> None:
    encoding = load_encoding(None)
    assert encoding is UTF8_BYTES
    assert encoding.tokens_are == "UTF-8 bytes"
    assert ids(encoding.encode("aé")) == [97, 195, 169]
    assert ids(encoding.encode("")) == []


def test_a_tokenizer_file_gives_its_ids(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the extra `tokenizers` is not installed")
    path = tmp_path / "tokenizer.json"
    vocabulary = {"hello": 7, "world": 9, "?": 0}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "?"}
    path.write_text(json.dumps({"model": model, "pre_tokenizer": {"type": "Whitespace"}}))
    encoding = load_encoding(path)
    assert encoding.tokens_are == "ids of tokenizer.json"
    assert ids(encoding.encode("hello world moon")) == [7, 9, 0]


def test_a_conversation_that_a_tokenizer_has_no_ids_for_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the extra `tokenizers` is not installed")
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"type": "WordLevel", "vocab": {}, "unk_token": "?"}}))
    encoding = load_encoding(path)
    with pytest.raises(InvalidArgument, match=r"^tokenizer\.json cannot encode the text \(WordL"):
        encoding.encode("moon")
    chat = Conversation("night", "", (Message("user", "moon"),))
    with pytest.raises(InvalidArgument, match=r"^conversation 'night': tokenizer\.json cannot"):
        tokenize(chat, encoding)


def test_a_file_that_is_no_tokenizer_is_malformed(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the extra `tokenizers` is not installed")
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(MalformedFile, match=r"tokenizer\.json: no tokenizer"):
        load_encoding(path)


def test_without_the_extra_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'prefix-cache\[tokenizers\]'"):
        load_encoding(tmp_path / "tokenizer.json")


def test_bytes_are_decoded_and_ids_that_are_none_show_as_such() -> None:
    assert UTF8_BYTES.decode(UTF8_BYTES.encode("aé")) == "aé"
    assert UTF8_BYTES.decode(np.array([97, 70000, 195], "<u4").tobytes()) == "a\ufffd\ufffd"


def test_a_tokenizer_decodes_its_ids(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the extra `tokenizers` is not installed")
    path = tmp_path / "tokenizer.json"
    model = {"type": "WordLevel", "vocab": {"hello": 7, "world": 9, "?": 0}, "unk_token": "?"}
    path.write_text(json.dumps({"model": model}))
    assert load_encoding(path).decode(np.array([9, 7, 12345], "<u4").tobytes()) == "world hello"
