"""What conversations were promised and got; their turns may be spread over workers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec

from router.dispatcher import Dispatcher
from router.ledger import TURNS_KEPT, Account, Ledger
from router.status.counts import SumsByName, add_sums, sums_document
from router.turn import ConversationKey

MAX_CONVERSATIONS_SHOWN = 1_000
"""More at once would hold up turns, and are more than anybody reads."""

# Of a tenant or a conversation's id, so many characters are shown.
_KEY_CHARACTERS = 256


class Recent(msgspec.Struct):
    """The conversations that one worker used last, and how many it remembers.

    Of each, when its last turn ended, in seconds since the epoch.
    """

    used_at: list[tuple[float, ConversationKey]]
    remembered: int


class ServedTurn(msgspec.Struct):
    """A turn of the ledger; it ended ``at`` so many seconds since the epoch."""

    node: str
    reason: str
    prompt_tokens: int
    available: int
    promised: int
    delivered: int | None
    is_hashable: bool
    prefilled: int
    at: float


class ConversationCounts(msgspec.Struct):
    """Sums over the turns of one conversation, and the last of them, oldest first."""

    sums: SumsByName
    last: list[ServedTurn]

    def add(self, more: ConversationCounts) -> None:
        """Add turns that another worker served."""
        add_sums(self.sums, more.sums)
        self.last = sorted(self.last + more.last, key=attrgetter("at"))[-TURNS_KEPT:]


def recent(ledger: Ledger, limit: int) -> Recent:
    """Return the ``limit`` conversations used last, latest first."""
    accounts = ledger.accounts
    used_last = islice(reversed(accounts.items()), limit)
    return Recent([(account.last_at[-1], key) for key, account in used_last], len(accounts))


def latest(of_workers: Iterable[Recent], limit: int) -> list[ConversationKey]:
    """Return the ``limit`` conversations that were used last at any worker, latest first."""
    used_at: dict[ConversationKey, float] = {}
    for each in of_workers:
        for at, key in each.used_at:
            used_at[key] = max(at, used_at.get(key, at))
    return sorted(used_at, key=lambda key: -used_at[key])[:limit]


def accounts_of(
    ledger: Ledger, keys: Iterable[ConversationKey]
) -> list[tuple[ConversationKey, ConversationCounts]]:
    """Return the accounts of those of the conversations that this worker remembers."""
    accounts = ledger.accounts
    return [(key, _counts(accounts[key])) for key in keys if key in accounts]


def conversation_document(
    dispatcher: Dispatcher, key: ConversationKey, counts: ConversationCounts
) -> dict[str, Any]:
    """One conversation with its last turns, oldest first."""
    pin = dispatcher.conversations.get(key)
    return {
        "tenant": key.tenant[:_KEY_CHARACTERS],
        "conversation": key.conversation[:_KEY_CHARACTERS],
        "home": pin.home.node if pin else None,
        "sums": sums_document(counts.sums),
        "last_turns": counts.last,
    }


def _counts(account: Account) -> ConversationCounts:
    last = zip(account.last, account.last_at, strict=True)
    return ConversationCounts(
        asdict(account.sums), [ServedTurn(*turn, turn.prefilled, at) for turn, at in last]
    )
