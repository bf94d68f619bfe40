"""Files of requests: every format in which traffic is kept, read as the same requests."""

from prefix_cache.replay.formats.expansion import in_tokens
from prefix_cache.replay.formats.options import ReadOptions
from prefix_cache.replay.formats.request import TOKENS, Grain, Request, Span, Usage
from prefix_cache.replay.formats.source import FORMATS, Source, checked_block_size

__all__ = [
    "FORMATS",
    "TOKENS",
    "Grain",
    "ReadOptions",
    "Request",
    "Source",
    "Span",
    "Usage",
    "checked_block_size",
    "in_tokens",
]
