"""Files written for a test, and their requests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prefix_cache.replay.encoding import Encoding
from prefix_cache.replay.formats import ReadOptions, Request, Source


def written(path: Path, *records: Any) -> Path:
    """Write records as JSON lines; text is a line as it is."""
    lines = [each if isinstance(each, str) else json.dumps(each) for each in records]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def requests(path: Path, **options: Any) -> list[Request]:
    return list(Source(path, ReadOptions(**options)))


def ids(*tokens: int) -> bytes:
    return b"".join(token.to_bytes(4, "little") for token in tokens)


def _encode_pairs(text: str) -> bytes:
    raw = text.encode()
    return ids(*(int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)))


PAIRS = Encoding("pairs of bytes", _encode_pairs, lambda words: "")
"""Two bytes are one token, and a single one at the end is a token, too.

So text encodes in another way when what stands before it is of another length.
"""
