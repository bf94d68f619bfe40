"""Live sequences under the numbers that clients know them by."""

from __future__ import annotations

from prefix_cache.errors import SequenceExists, UnknownSequence
from prefix_cache.index import Appended, Sequence
from prefix_cache.node.node import Node
from prefix_cache.v1 import node_pb2


class NumberedSequences:
    """The sequences of one owner: of a session, or of all unary calls together.

    All calls raise ``UnknownSequence`` for a number that no live sequence has, and
    ``SequenceExists`` for a new one that is taken.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._sequences: dict[int, Sequence] = {}

    def acquire(self, number: int, prompt: node_pb2.Prompt) -> Sequence:
        """Open sequence ``number``."""
        self._check_free(number)
        sequence = self._sequences[number] = self._node.acquire(prompt)
        return sequence

    def append(self, number: int, tokens: bytes) -> tuple[Appended, int]:
        """Add tokens; return what that brought and the tokens of the sequence now."""
        sequence = self._find(number)
        return self._node.cache.append(sequence, tokens), sequence.num_tokens

    def commit(self, number: int, num_tokens: int) -> int:
        """Commit; return the committed tokens of the sequence now."""
        sequence = self._find(number)
        self._node.cache.commit(sequence, num_tokens)
        return sequence.num_committed_tokens

    def fork(self, number: int, parent: int) -> None:
        """Open sequence ``number`` as a fork of ``parent``."""
        self._check_free(number)
        self._sequences[number] = self._node.fork(self._find(parent))

    def release(self, number: int) -> None:
        """End a sequence."""
        self._node.release(self._find(number))
        del self._sequences[number]

    def release_all(self) -> None:
        """End every sequence."""
        while self._sequences:
            _, sequence = self._sequences.popitem()
            self._node.release(sequence)

    def _find(self, number: int) -> Sequence:
        try:
            return self._sequences[number]
        except KeyError:
            raise UnknownSequence(
                f"no sequence {number} is open here", sequence_id=number
            ) from None

    def _check_free(self, number: int) -> None:
        if number in self._sequences:
            raise SequenceExists(
                f"sequence {number} is open already: release it or take another number",
                sequence_id=number,
            )
