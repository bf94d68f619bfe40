"""What a test engine is started with."""

from __future__ import annotations

from dataclasses import dataclass, field

from prefix_cache.errors import InvalidArgument
from prefix_cache.testing.faults import Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Settings of one test engine.  Raises ``InvalidArgument`` for a value out of range.

    ``listen`` is ``host:port`` (port 0: a free one).  Only ``model`` is served.  The KV memory has
    ``num_blocks`` blocks of ``block_size`` tokens.  Of a prompt, tokens that are not cached take
    one second for each ``prefill_tokens_per_s`` (0: no time), one prompt after the other; each
    token of an answer takes ``decode_s_per_token``, those of several answers at once.

    ``node`` is the address of the cache node that the engine tells what it holds, empty for none.
    ``faults`` are those it begins with.  An engine told to end gives answers ``drain_grace_s``
    seconds to end.
    """

    listen: str = "127.0.0.1:0"
    model: str = "test"
    num_blocks: int = 65_536
    block_size: int = 16
    prefill_tokens_per_s: float = 0.0
    decode_s_per_token: float = 0.0
    node: str = ""
    faults: Faults = field(default_factory=Faults)
    drain_grace_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("prefill_tokens_per_s", "decode_s_per_token", "drain_grace_s"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise InvalidArgument(
                    f"{name} is {value}, expected 0 or more", name=name, value=value
                )
