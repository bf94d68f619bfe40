"""Promised, available, delivered and prefilled tokens, per conversation and turn and in all."""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from router.turn import ConversationKey

TURNS_KEPT = 32
"""Of each conversation."""


class LedgerTurn(NamedTuple):
    """What one served turn was promised and got, in tokens of its prompt.

    ``available`` is the most that any node that could have taken it was claimed to hold,
    ``promised`` what the chosen one was, ``delivered`` what its engine said was cached (None: it
    did not say).
    """

    node: str
    reason: str
    prompt_tokens: int
    available: int
    promised: int
    delivered: int | None
    is_hashable: bool

    @property
    def cached(self) -> int:
        """Tokens that were cached; as promised, where the engine gave no word."""
        return self.promised if self.delivered is None else self.delivered

    @property
    def prefilled(self) -> int:
        """Tokens that had to be computed."""
        return self.prompt_tokens - self.cached


@dataclass(slots=True)
class Sums:
    """Sums over served turns, in tokens where nothing else is said.

    The last four are losses: tokens that no cache served, and nobody said a word.  Each has one
    reason: they add up to what was prefilled.
    """

    turns: int = 0
    turns_without_word: int = 0
    """Turns whose engine did not say how much was cached."""
    prompt_tokens: int = 0
    told_tokens: int = 0
    """Prompt tokens of the turns whose engine did say."""
    available: int = 0
    promised: int = 0
    delivered: int = 0
    prefilled: int = 0
    unhashable: int = 0
    """Of prompts that the router could not make out."""
    held_by_nobody: int = 0
    """Claimed by no node that could have taken the turn: new text, mostly."""
    routed_elsewhere: int = 0
    """Claimed by a node that the turn did not go to, and by none that it went to."""
    not_delivered: int = 0
    """Promised by the chosen node's claims, and not cached there."""

    def count(self, turn: LedgerTurn) -> None:
        """Count one turn."""
        self.turns += 1
        self.prompt_tokens += turn.prompt_tokens
        self.available += turn.available
        self.promised += turn.promised
        self.prefilled += turn.prefilled
        if turn.delivered is None:
            self.turns_without_word += 1
        else:
            self.told_tokens += turn.prompt_tokens
            self.delivered += turn.delivered
        if not turn.is_hashable:
            self.unhashable += turn.prefilled
            return
        # An engine may have cached more than was claimed; that was nowhere else and is no loss.
        cached = turn.cached
        self.not_delivered += max(0, turn.promised - cached)
        self.routed_elsewhere += max(0, turn.available - max(turn.promised, cached))
        self.held_by_nobody += turn.prompt_tokens - max(turn.available, cached)


class Account:
    """One conversation: its last turns, oldest first, and the sums of all."""

    __slots__ = ("last", "last_at", "sums")

    def __init__(self) -> None:
        self.sums = Sums()
        self.last: deque[LedgerTurn] = deque(maxlen=TURNS_KEPT)
        self.last_at: deque[float] = deque(maxlen=TURNS_KEPT)
        """When each of these was entered, in seconds since the epoch."""


class Ledger:
    """Accounts by conversation, at most ``max_accounts``: the one unused for longest goes first."""

    def __init__(self, *, max_accounts: int, clock: Callable[[], float] = time.time) -> None:
        self._max_accounts = max_accounts
        self._clock = clock
        self.accounts: OrderedDict[ConversationKey, Account] = OrderedDict()
        self.sums = Sums()

    def enter(self, conversation: ConversationKey | None, turn: LedgerTurn) -> None:
        """Enter a served turn."""
        self.sums.count(turn)
        if conversation is None:
            return
        account = self.accounts.get(conversation)
        if account is None:
            account = self.accounts[conversation] = Account()
            if len(self.accounts) > self._max_accounts:
                self.accounts.popitem(last=False)
        else:
            self.accounts.move_to_end(conversation)
        account.sums.count(turn)
        account.last.append(turn)
        account.last_at.append(self._clock())
