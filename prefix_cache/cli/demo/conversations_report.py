"""The tables of ``prefix-cache demo``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from prefix_cache.cli.terminal.printable import printable
from prefix_cache.cli.terminal.shares import bar, percent
from prefix_cache.cli.terminal.tables import plain_console, plain_table, print_whole, room_for
from prefix_cache.replay.player import PlayedTurn
from prefix_cache.replay.savings import Savings, Totals, sticky_turns
from prefix_cache.replay.sources import Source

_MAX_ROWS = 60
_MIN_NAME_WIDTH, _MAX_NAME_WIDTH = 8, 24
_WIDTH_WITHOUT_NAME = 48
_LEFT = {"conversation", "node", "played", ""}


def print_report(source: Source, savings: Savings) -> None:
    """Print what every turn took, and the totals of the three ways of playing."""
    console = plain_console()
    turns = savings.sticky.turns
    console.print(
        Text(printable(source.name), style="bold"),
        f"- {_count(len(source.conversations), 'conversation')},",
        f"{_count(source.num_turns, 'turn')}, tokens are {printable(source.tokens_are)}",
    )
    if len(source.conversations) == 1:
        _print_turns(console, turns)
    else:
        _print_conversations(console, turns)
        _print_turn_numbers(console, turns)
    _print_totals(console, savings)


def print_warnings(savings: Savings) -> None:
    """Say on stderr what did not go as planned: failed nodes, turns not served."""
    for name, play in savings.plays.items():
        if play.retried_turns or play.lost_tokens:
            click.echo(
                f"warning: {name}: nodes failed; {_count(play.retried_turns, 'turn')} went to "
                f"another node, {play.lost_tokens:,} committed tokens were lost",
                err=True,
            )
        if play.not_served:
            first = play.not_served[0]
            click.echo(
                f"warning: {name}: {_count(len(play.not_served), 'turn')} not served; the first, "
                f"turn {first.turn} of {printable(first.conversation)}: {printable(first.error)}",
                err=True,
            )
    compared = len(savings.compared["sticky"])
    if any(len(play.turns) > compared for play in savings.plays.values()):
        click.echo(
            f"warning: the totals are those of the {_count(compared, 'turn')} that were served in "
            "all three ways",
            err=True,
        )


def _print_turns(console: Console, turns: Sequence[PlayedTurn]) -> None:
    table = _table("turn", "prompt", "cached", "prefilled", "node", "")
    for turn in turns[:_MAX_ROWS]:
        table.add_row(str(turn.turn), *_numbers([turn]), turn.node, _bar([turn]))
    _print(console, table, len(turns))


def _print_conversations(console: Console, turns: Sequence[PlayedTurn]) -> None:
    """One row a turn, the turns of a conversation together."""
    by_conversation: dict[str, list[PlayedTurn]] = defaultdict(list)
    for turn in turns:
        by_conversation[turn.conversation].append(turn)
    table = _table("conversation", "turn", "prompt", "cached", "prefilled", "node", "")
    name_width = max(_MIN_NAME_WIDTH, min(_MAX_NAME_WIDTH, console.width - _WIDTH_WITHOUT_NAME))
    rows = [turn for conversation in by_conversation.values() for turn in conversation]
    for turn in rows[:_MAX_ROWS]:
        name = Text(printable(turn.conversation) if turn.turn == 1 else "")
        name.truncate(name_width, overflow="ellipsis")
        table.add_row(name, str(turn.turn), *_numbers([turn]), turn.node, _bar([turn]))
    _print(console, table, len(rows))


def _print_turn_numbers(console: Console, turns: Sequence[PlayedTurn]) -> None:
    """One row for all first turns, one for all second turns, ..."""
    by_number: dict[int, list[PlayedTurn]] = defaultdict(list)
    for turn in turns:
        by_number[turn.turn].append(turn)
    table = _table("turn", "conversations", "prompt", "cached", "prefilled", "hit rate", "")
    for number, group in sorted(by_number.items())[:_MAX_ROWS]:
        hit_rate = percent(Totals.of(group).hit_rate)
        table.add_row(str(number), f"{len(group):,}", *_numbers(group), hit_rate, _bar(group))
    _print(console, table, len(by_number))


def _print_totals(console: Console, savings: Savings) -> None:
    compared = savings.compared
    no_cache = Totals.of(compared["no_cache"])
    table = _table("played", "prompt", "cached", "prefilled", "hit rate", "saved", "")
    for name, turns in compared.items():
        totals = Totals.of(turns)
        ratio = totals.saved_ratio(no_cache)
        saved = "-" if ratio is None else f"{ratio:.1f}x"
        hit_rate = percent(totals.hit_rate)
        table.add_row(name.replace("_", " "), *_numbers(turns), hit_rate, saved, _bar(turns))
    _print_fitting(console, table)
    stayed = sticky_turns(savings.sticky.turns)
    if stayed is not None:
        console.print(f"{percent(stayed)} of the later turns went to their conversation's node.")
    console.print()


def _table(*columns: str) -> Table:
    table = plain_table()
    for column in columns:
        table.add_column(column, justify="left" if column in _LEFT else "right", no_wrap=True)
    return table


def _print(console: Console, table: Table, num_rows: int) -> None:
    _print_fitting(console, table)
    if num_rows > _MAX_ROWS:
        console.print(f"... {num_rows - _MAX_ROWS:,} more rows; all turns are in --json\n")


def _print_fitting(console: Console, table: Table) -> None:
    """Print a table; its bars give way where there is no room, numbers never do."""
    if room_for(console, table).maximum > console.width:
        table.columns.pop()
    print_whole(console, table)


def _numbers(turns: Iterable[PlayedTurn]) -> tuple[str, str, str]:
    totals = Totals.of(turns)
    counts = totals.prompt_tokens, totals.cached_tokens, totals.prefilled_tokens
    prompt, cached, prefilled = (f"{count:,}" for count in counts)
    return prompt, cached, prefilled


def _bar(turns: Iterable[PlayedTurn]) -> Text:
    """Cached share of the prompt tokens."""
    return bar(Totals.of(turns).hit_rate or 0)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
