"""Live sequences under the numbers that clients know them by."""

from __future__ import annotations

from itertools import islice

from prefix_cache.index import Appended, Sequence
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.node.node import Node
from prefix_cache.node.owed_copies import OwedCopies
from prefix_cache.node.quotas import Holding
from prefix_cache.sequence_numbers import SequenceNumbers
from prefix_cache.v1 import node_pb2


class NumberedSequences:
    """The sequences of one owner: of a session, or of all unary calls together.

    ``copies`` are those it was told to make.  ``holding`` is what the client holds that asks for a
    sequence.  All calls raise ``UnknownSequence`` for a number that no live sequence has,
    ``SequenceExists`` for a new one that is taken, and ``ClientLimit`` or ``PromptTooLarge`` for
    more than one client may hold.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self.copies = OwedCopies(node)
        self._sequences: SequenceNumbers[tuple[Sequence, Holding]] = SequenceNumbers()

    def acquire(
        self,
        number: int,
        request: node_pb2.AcquireRequest | node_pb2.AcquireOperation,
        holding: Holding,
    ) -> Sequence:
        """Open sequence ``number``."""
        self._sequences.check_free(number)
        prompt = request.prompt
        num_tokens = prompt.parent_num_tokens + len(prompt.tokens) // TOKEN_BYTES
        blocks = self._node.blocks_for(num_tokens)
        if self._node.quotas.refusal(holding, sequences=1, blocks=blocks):
            # How long the prefix of a delta is, only the client has said: it must be known first.
            self._node.match(prompt)
        self._node.quotas.check(holding, sequences=1, blocks=blocks)
        sequence = self._node.acquire(request)
        self.copies.add(sequence.copies.copy_id)
        self._add(number, sequence, holding)
        return sequence

    def append(self, number: int, tokens: bytes) -> tuple[Appended, int]:
        """Add tokens; return what that brought and the tokens of the sequence now."""
        sequence, holding = self._find(number)
        num_tokens = sequence.num_tokens + len(tokens) // TOKEN_BYTES
        blocks = self._node.blocks_for(num_tokens) - self._node.blocks_for(sequence.num_tokens)
        self._node.quotas.check(holding, sequences=0, blocks=blocks)
        appended = self._node.cache.append(sequence, tokens)
        self.copies.add(appended.copy_id)
        holding.blocks += blocks
        return appended, num_tokens

    def commit(self, number: int, num_tokens: int) -> Sequence:
        """Commit; return the sequence, which says how far."""
        sequence, _ = self._find(number)
        self._node.cache.commit(sequence, num_tokens)
        return sequence

    def fork(self, number: int, parent: int, holding: Holding) -> None:
        """Open sequence ``number`` as a fork of ``parent``."""
        self._sequences.check_free(number)
        sequence, _ = self._find(parent)
        blocks = self._node.blocks_for(sequence.num_tokens)
        self._node.quotas.check(holding, sequences=1, blocks=blocks)
        self._add(number, self._node.fork(sequence), holding)

    def release(self, number: int) -> None:
        """End a sequence."""
        self._find(number)
        self._end(number)

    def end_some(self, count: int) -> bool:
        """End up to ``count`` sequences, then withdraw as many copies; return whether any is left.

        The owner has ended, and writes no KV any more.
        """
        for number in list(islice(self._sequences, count)):
            self._end(number)
        return bool(self._sequences) or self.copies.withdraw_some(count)

    def end_all(self) -> None:
        """End every sequence and withdraw all copies."""
        self.end_some(len(self._sequences))
        self.copies.withdraw_all()

    def _add(self, number: int, sequence: Sequence, holding: Holding) -> None:
        self._sequences[number] = sequence, holding
        holding.sequences += 1
        holding.blocks += self._node.blocks_for(sequence.num_tokens)

    def _end(self, number: int) -> None:
        sequence, holding = self._sequences.pop(number)
        holding.sequences -= 1
        holding.blocks -= self._node.blocks_for(sequence.num_tokens)
        self.copies.outlive(sequence.copies, holding)
        self._node.release(sequence)

    def _find(self, number: int) -> tuple[Sequence, Holding]:
        return self._sequences[number]
