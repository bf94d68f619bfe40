"""What an engine is asked for, and what it answers step by step."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from prefix_cache.errors import PrefixCacheError
from prefix_cache.worker.sampling import SamplingParams

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True, eq=False)
class GenerationRequest:
    """A prompt and how to go on from it.

    ``id`` is the caller's and unique among the requests under way.  KV is shared only with
    requests of the same ``salt``.  ``arrival`` is in seconds of ``time.monotonic``.
    """

    id: str
    prompt_ids: Sequence[int]
    params: SamplingParams
    salt: str = ""
    arrival: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer; ``cached_tokens`` are those of the prompt that needed no prefill."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """What a step brought to answer ``index`` of a request.

    ``token_ids`` and ``text`` are the new ones; text that may be the start of a stop string is
    held back.  With ``finish_reason`` the answer ends and ``usage`` says its tokens; "error" comes
    with the ``error``.  ``first_token_s`` are the seconds from arrival to the first token, as soon
    as there is one.  Answers of a beam search come whole, the best one first.
    """

    id: str
    index: int
    token_ids: tuple[int, ...] = ()
    text: str = ""
    finish_reason: FinishReason | None = None
    usage: Usage | None = None
    first_token_s: float | None = None
    error: PrefixCacheError | None = None
