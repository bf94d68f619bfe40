"""Requests known by hashes alone, in tokens that a running cache can be asked for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from prefix_cache.replay.formats.request import TOKENS, Grain, Request


def in_tokens(request: Request, grain: Grain) -> Request:
    """Return the request with made-up tokens: those of equal blocks are equal."""
    if grain == TOKENS:
        return request
    words = np.frombuffer(request.prompt, dtype="<u4")
    full = len(words) // grain.words
    blocks = words[: full * grain.words].reshape(full, grain.words)
    tokens = np.tile(blocks, grain.tokens // grain.words).tobytes()
    partial = request.prompt_tokens - full * grain.tokens
    return replace(request, prompt=tokens + partial * request.prompt[-4:])
