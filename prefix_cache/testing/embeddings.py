"""The answers of ``/v1/embeddings``: a vector made of nothing but the text."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from prefix_cache.index.tokens import TOKEN_BYTES, as_token_bytes
from prefix_cache.plain_template import utf8_tokens
from prefix_cache.testing.bodies import EmbeddingBody

_DIMENSIONS = 32


def embeddings(body: EmbeddingBody) -> dict[str, Any]:
    """Return a vector of length 1 for each text, in floats or as float32 in base64."""
    given = body.input
    several = isinstance(given, list) and given and not isinstance(given[0], int)
    texts = [_tokens(text) for text in (given if several else [given])]
    vectors = [_vector(text, body.dimensions or _DIMENSIONS) for text in texts]
    data = [
        {
            "object": "embedding",
            "index": index,
            "embedding": _base64(vector) if body.encoding_format == "base64" else vector.tolist(),
        }
        for index, vector in enumerate(vectors)
    ]
    num_tokens = sum(map(len, texts)) // TOKEN_BYTES
    usage = {"prompt_tokens": num_tokens, "total_tokens": num_tokens}
    return {"object": "list", "model": body.model, "data": data, "usage": usage}


def _tokens(text: Any) -> bytes:
    return utf8_tokens(text) if isinstance(text, str) else as_token_bytes(text)


def _vector(tokens: bytes, dimensions: int) -> npt.NDArray[np.float32]:
    generator = np.random.default_rng(xxhash.xxh3_64_intdigest(tokens))
    vector = generator.standard_normal(dimensions)
    return (vector / np.linalg.norm(vector)).astype("<f4")


def _base64(vector: npt.NDArray[np.float32]) -> str:
    return base64.b64encode(vector.tobytes()).decode()
