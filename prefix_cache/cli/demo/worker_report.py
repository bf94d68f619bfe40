"""The table of ``prefix-cache demo --worker``."""

from __future__ import annotations

from prefix_cache.cli.terminal.tables import plain_console, plain_table, print_whole
from prefix_cache.replay.worker_chat import WorkerChat, WorkerTurn

_COLUMNS = ("turn", "prompt", "cached", "prefilled", "TTFT", "without", "ratio", "worker")


def print_report(chat: WorkerChat) -> None:
    """Print one row for each turn, and what it comes to."""
    console = plain_console()
    table = plain_table()
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for turn in chat.turns:
        table.add_row(*_cells(turn))
    print_whole(console, table)
    totals = chat.totals
    console.print(
        f"Of {totals.prompt_tokens:,} prompt tokens {totals.prefilled_tokens:,} were prefilled."
    )
    console.print("TTFT is the time to the first token with the cache, as the client measured it.")
    lost = sum(turn.lost_tokens for turn in chat.turns)
    if lost:
        console.print(f"{lost:,} tokens were lost: answers came back as text, with other tokens.")
    different = [turn.turn for turn in chat.turns if not turn.same_text]
    if different:
        turns = ", ".join(map(str, different))
        console.print(f"The answers differed with and without the cache in turns {turns}.")
    else:
        console.print("Every answer was the same with and without the cache.")


def _cells(turn: WorkerTurn) -> tuple[str, ...]:
    return (
        str(turn.turn),
        f"{turn.prompt_tokens:,}",
        f"{turn.cached_tokens:,}",
        f"{turn.prefilled_tokens:,}",
        f"{turn.ttft_cached_s:.3f} s",
        f"{turn.ttft_uncached_s:.3f} s",
        f"{turn.ttft_cached_s / turn.ttft_uncached_s:.2f}",
        turn.node,
    )
