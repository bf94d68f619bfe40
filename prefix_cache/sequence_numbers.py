"""Numbers that clients choose for their sequences."""

from __future__ import annotations

from typing import NoReturn, TypeVar

from prefix_cache.errors import SequenceExists, UnknownSequence

Value = TypeVar("Value")


class SequenceNumbers(dict[int, Value]):
    """What stands for each open sequence of one client, by its number.

    Looking up a number that none has raises ``UnknownSequence``.
    """

    def __missing__(self, number: int) -> NoReturn:
        raise UnknownSequence(f"no sequence {number} is open here", sequence_id=number)

    def check_free(self, number: int) -> None:
        """Raise ``SequenceExists`` for a number that is taken."""
        if number in self:
            raise SequenceExists(
                f"sequence {number} is open already: release it or take another number",
                sequence_id=number,
            )
