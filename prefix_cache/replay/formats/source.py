"""A file to replay: what it is, and its requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefix_cache.errors import InvalidArgument
from prefix_cache.replay.formats.chats import read_chats
from prefix_cache.replay.formats.engine_logs import is_engine_log, read_engine_log
from prefix_cache.replay.formats.fields import first_of
from prefix_cache.replay.formats.hash_traces import CHAINS, MOONCAKE, read_chains, read_mooncake
from prefix_cache.replay.formats.in_time import InTime
from prefix_cache.replay.formats.lengths import PROMPT_LENGTH, read_lengths
from prefix_cache.replay.formats.options import ReadOptions
from prefix_cache.replay.formats.records import Records
from prefix_cache.replay.formats.request import TOKENS, Grain, Request
from prefix_cache.replay.formats.session_logs import read_sessions
from prefix_cache.replay.formats.token_traces import PROMPT_IDS, flat, read_tokens
from prefix_cache.replay.json_lines import malformed

Reader = Callable[[Records, ReadOptions], Iterator[Request]]


@dataclass(frozen=True, slots=True)
class Format:
    """How one kind of file is read, and what it holds."""

    read: Reader
    grain: Grain = TOKENS
    is_text: bool = False


FORMATS: Mapping[str, Format] = {
    "openai": Format(read_chats, is_text=True),
    "sharegpt": Format(read_chats, is_text=True),
    "sessions": Format(read_sessions, is_text=True),
    "mooncake": Format(lambda records, options: read_mooncake(records), MOONCAKE),
    "hash16": Format(lambda records, options: read_chains(records), CHAINS),
    "tokens": Format(lambda records, options: read_tokens(records)),
    "engine-log": Format(lambda records, options: read_engine_log(records)),
    "lengths": Format(lambda records, options: read_lengths(records, options.assume_turns), TOKENS),
}
"""By the names that users know them by."""


class Source:
    """The requests of a file, read anew at each iteration, a few at a time in memory.

    ``file_format`` is one of ``FORMATS``, InvalidArgument is raised for any other; without it
    the file tells.  Raises MalformedFile when it does not, or cannot be read; iterating raises it
    for a record that is none.
    """

    def __init__(
        self,
        path: Path,
        options: ReadOptions,
        *,
        file_format: str | None = None,
        skip_bad: bool = False,
    ) -> None:
        self.name = path.name
        self._options = options
        self._records = Records(path, skip_bad=skip_bad)
        self.format = _known(file_format) if file_format else _sniffed(self._records)
        self._format = FORMATS[self.format]
        self._in_time = InTime(iter(()))

    @property
    def grain(self) -> Grain:
        """What the words of its prompts stand for."""
        return self._format.grain

    @property
    def has_tokens(self) -> bool:
        """Whether its tokens are in the file, so that they can be compared one by one."""
        return self.grain == TOKENS and not self._is_made_up

    @property
    def _is_made_up(self) -> bool:
        return self.format == "lengths"

    @property
    def tokens_are(self) -> str:
        """What the tokens are, for people."""
        if self._format.is_text:
            return self._options.encoding.tokens_are
        if self._is_made_up:
            return "made-up ids"
        if self.grain.words > 1:
            return f"known by one hash for each {self.grain.tokens}"
        return "ids of the file"

    @property
    def text_of(self) -> Callable[[bytes], str] | None:
        """What makes text of words, where they stand for text."""
        return self._options.encoding.decode if self._format.is_text else None

    @property
    def skipped(self) -> int:
        """Bad records left out so far."""
        return self._records.skipped

    @property
    def problems(self) -> list[str]:
        """What was wrong with the first and the last of those."""
        return self._records.problems

    @property
    def late(self) -> int:
        """Requests whose time was before that of one played already."""
        return self._in_time.late

    def __iter__(self) -> Iterator[Request]:
        self._in_time = InTime(self._format.read(self._records, self._options))
        return iter(self._in_time)


def checked_block_size(block_size: int | None, grain: Grain) -> int:
    """Return the block size, by default 16 or that of the file's hashes.

    Raises InvalidArgument for one that the hashes cannot answer for.
    """
    if block_size is None:
        return max(16, grain.tokens)
    if block_size % grain.tokens:
        raise InvalidArgument(
            f"block size {block_size}: the file has one hash for {grain.tokens} tokens, "
            f"expected a multiple of {grain.tokens}",
            block_size=block_size,
        )
    return block_size


def _known(name: str) -> str:
    if name not in FORMATS:
        raise InvalidArgument(
            f"unknown format {name!r}; expected one of {', '.join(FORMATS)}", format=name
        )
    return name


def _sniffed(records: Records) -> str:
    """Return the format of a file by its first record that has one."""
    if any(is_engine_log(line) for line in records.head() if not line.startswith("{")):
        return "engine-log"
    lenient = Records(records.path, skip_bad=True)
    for found in lenient.read(lambda value, line: _format_of(value)):
        if found:
            return found
    strict = Records(records.path)
    next(strict.read(lambda value, line: value), None)  # says what is wrong with the first one
    raise malformed(
        records.path,
        f"no record in it tells its format; expected one of {', '.join(FORMATS)}",
    )


def _format_of(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    if "hash_ids" in value:
        return "hash16" if "chat_id" in value else "mooncake"
    record = flat(value)
    if isinstance(first_of(record, PROMPT_IDS), list):
        return "tokens"
    if "message" in record or (
        "messages" in record and record.keys() & {"usage", "request", "body"}
    ):
        return "sessions"
    if "messages" in record:
        return "openai"
    if "conversations" in record:
        return "sharegpt"
    return "lengths" if first_of(record, PROMPT_LENGTH) is not None else None
