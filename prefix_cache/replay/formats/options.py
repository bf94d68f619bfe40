"""What a reader has to know beside the file."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.replay.encoding import UTF8_BYTES, Encoding


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How files are read.

    ``encoding`` makes tokens of text.  Of files of whole conversations, ``window`` are live at
    once.  With ``reencode`` each prompt is encoded anew from its text, as it is for a client that
    sends text; else an answer stays in a later prompt the ids that it was.  With ``normalise``
    what changes from call to call in system prompts and tools is made the same.
    ``assume_turns`` is for files that say nothing but lengths: so many requests make a
    conversation.
    """

    encoding: Encoding = UTF8_BYTES
    window: int = 8
    reencode: bool = False
    normalise: bool = False
    assume_turns: int | None = None
