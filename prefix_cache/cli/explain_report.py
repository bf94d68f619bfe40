"""What ``prefix-cache explain`` prints."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from prefix_cache.cli.prompt_options import Prompt
from prefix_cache.cli.terminal.printable import printable
from prefix_cache.cli.terminal.shares import bar
from prefix_cache.cli.terminal.tables import plain_console, plain_table, room_for
from prefix_cache.index import Explanation, Reason, ReasonKind
from prefix_cache.index.tokens import TOKEN_BYTES, as_token_bytes
from prefix_cache.replay.last_prompt import LastPrompt

_HITS = (ReasonKind.CACHED, ReasonKind.ON_HOST)

_CONTEXT_TOKENS = 60  # decoded on either side
_CONTEXT_CHARACTERS = 40  # shown of them


@dataclass(frozen=True)
class _Difference:
    """Text that differs with what stands around it, and the text of both tokens."""

    before: str
    text: str
    after: str
    prompt_token: str
    cached_token: str


def print_report(explanation: Explanation, prompt: Prompt) -> None:
    """Print one row for each range, and below where the prompt leaves what is cached."""
    console = plain_console()
    num_tokens = len(prompt.tokens) // TOKEN_BYTES
    cached = explanation.num_cached_tokens
    console.print(f"{cached:,} of {num_tokens:,} tokens cached ({cached / num_tokens:.1%})")
    console.print(f"tokens: {prompt.tokens_are}")
    table = plain_table()
    for column in ("first", "last", "tokens"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("share", no_wrap=True)
    table.add_column("why")
    for reason in explanation.reasons:
        count = reason.end - reason.start
        share = bar(count / num_tokens, "green" if reason.kind in _HITS else "red")
        table.add_row(f"{reason.start:,}", f"{reason.end - 1:,}", f"{count:,}", share, _why(reason))
    console.width = max(console.width, room_for(console, table).minimum)
    console.print(table)
    for reason in explanation.reasons:
        if reason.position is not None:
            _print_difference(console, reason, reason.position, prompt)


def as_json_object(explanation: Explanation, prompt: Prompt) -> dict[str, Any]:
    """Return the same for programs; a range ends before ``end``."""
    return {
        "prompt_tokens": len(prompt.tokens) // TOKEN_BYTES,
        "cached_tokens": explanation.num_cached_tokens,
        "tokens_are": prompt.tokens_are,
        "reasons": [_reason_as_json(reason, prompt) for reason in explanation.reasons],
    }


def _why(reason: Reason) -> str:
    match reason.kind:
        case ReasonKind.CACHED:
            return "cached"
        case ReasonKind.ON_HOST:
            return "cached on the host"
        case ReasonKind.NEVER_SEEN:
            return "never seen"
        case ReasonKind.DIVERGED:
            return f"diverged at token {reason.position:,}"
        case ReasonKind.EVICTED:
            return f"evicted; releases since: {reason.releases_ago:,}"
        case ReasonKind.OTHER_IDENTITY:
            return f"cached under another identity: other {', '.join(reason.fields)}"
        case ReasonKind.EXTRA_KEY:
            return "other extra keys, or an unknown one"
        case ReasonKind.UNCOMMITTED:
            return "in a live sequence, not committed yet"
        case ReasonKind.PARTIAL_BLOCK:
            return "the last block is not full"
        case ReasonKind.LAST_TOKEN:
            return "cached, but one token must be computed"


def _print_difference(console: Console, reason: Reason, position: int, prompt: Prompt) -> None:
    place = f"token {position:,}"
    if prompt.messages:
        index, role = _message(position, prompt.messages)
        place += f", in the {role}" if index is None else f", in message {index} ({role})"
    console.print(f"The prompt leaves what is cached at {place}.")
    mine, theirs = f"{reason.prompt_token}", f"{reason.cached_token}"
    difference = _difference(reason, position, prompt)
    if difference:
        around = (printable(difference.before), "»", printable(difference.text), "«")
        console.print(Text.assemble("  ", *around, printable(difference.after)), soft_wrap=True)
        mine += f" {difference.prompt_token!r}"
        theirs += f" {difference.cached_token!r}"
    console.print(f"  The prompt has {mine} there, the cache has {theirs}.", soft_wrap=True)
    if reason.agrees_from is not None:
        last = reason.agrees_from - 1
        only = (
            f"token {last:,} differs"
            if last == position
            else f"tokens {position:,}..{last:,} differ"
        )
        console.print(f"  Only {only}: from token {reason.agrees_from:,} on both agree again.")


def _reason_as_json(reason: Reason, prompt: Prompt) -> dict[str, Any]:
    found = {name: value for name, value in asdict(reason).items() if value not in (None, ())}
    if reason.position is not None:
        difference = _difference(reason, reason.position, prompt)
        if difference:
            found["difference"] = asdict(difference)
        if prompt.messages:
            index, role = _message(reason.position, prompt.messages)
            found["message"] = {"index": index, "role": role}
    return found


def _difference(reason: Reason, position: int, prompt: Prompt) -> _Difference | None:
    """The text at ``position``, in whole characters, for tokens that were made of text."""
    if prompt.encoding is None:
        return None
    decode, begins_character = prompt.encoding.decode, prompt.encoding.begins_character
    ids = np.frombuffer(prompt.tokens, "<u4")

    def text(start: int, end: int) -> str:
        return decode(prompt.tokens[start * TOKEN_BYTES : end * TOKEN_BYTES])

    def edge(at: int, step: int) -> int:
        """The first token from ``at`` on, in steps, where a character begins."""
        at = min(max(at, 0), len(ids))
        while at < len(ids) and not begins_character(int(ids[at])):
            at += step
        return at

    start, end = edge(position, -1), edge(reason.agrees_from or position + 1, 1)
    return _Difference(
        before=text(edge(start - _CONTEXT_TOKENS, 1), start)[-_CONTEXT_CHARACTERS:],
        text=text(start, edge(min(end, start + _CONTEXT_TOKENS), 1)),
        after=text(end, edge(end + _CONTEXT_TOKENS, 1))[:_CONTEXT_CHARACTERS],
        prompt_token=text(position, position + 1),
        cached_token=decode(as_token_bytes([reason.cached_token or 0])),
    )


def _message(position: int, prompt: LastPrompt) -> tuple[int | None, str]:
    """Index and role of the message that the token at ``position`` is in; no index for tools."""
    index = prompt.message_of(position)
    return index, "tools" if index is None else prompt.conversation.messages[index].role
