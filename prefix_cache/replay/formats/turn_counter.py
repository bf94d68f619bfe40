"""Which turn of its conversation a request is, where the file does not say."""

from __future__ import annotations

from collections import OrderedDict

_CAPACITY = 1 << 17


class TurnCounter:
    """Counts the turns of the latest conversations; those long silent begin anew at 1."""

    def __init__(self) -> None:
        self._turns: OrderedDict[str, int] = OrderedDict()

    def next(self, conversation: str) -> int:
        """Return the number of the conversation's next turn, from 1."""
        turn = self._turns.pop(conversation, 0) + 1
        self._turns[conversation] = turn
        if len(self._turns) > _CAPACITY:
            self._turns.popitem(last=False)
        return turn
