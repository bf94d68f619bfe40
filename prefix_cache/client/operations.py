"""The operations of a session's step and their results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from prefix_cache.client.requests import prompt_to_wire, uint32, uint64
from prefix_cache.client.results import (
    AcquiredSequence,
    Appended,
    Committed,
    read_acquired,
    read_appended,
    read_committed,
)
from prefix_cache.errors import PrefixCacheError
from prefix_cache.index.extra_keys import ExtraKey
from prefix_cache.index.identity import Identity
from prefix_cache.index.results import Prefix
from prefix_cache.index.tokens import Tokens, as_token_bytes
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import error_from_operation


@dataclass(frozen=True, slots=True, eq=False)
class Acquire:
    """Open a sequence under a number of your choice: match, pin and allocate in one step.

    In delta form ``tokens`` are those ``after`` the prefix that the last ``Commit`` of a sequence
    returned before it was released.  ``resumed`` says that the prompt was acquired before and
    preempted, for the counts.  Unless it is to ``load``, what is cached on the host only is
    computed again.
    """

    sequence_id: int
    identity: Identity
    tokens: Tokens
    extra_keys: Iterable[ExtraKey] = ()
    after: Prefix | None = None
    resumed: bool = False
    load: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Append:
    """Add tokens to a sequence and allocate the blocks they need."""

    sequence_id: int
    tokens: Tokens


@dataclass(frozen=True, slots=True)
class Commit:
    """Say that the KV of the first ``num_tokens`` tokens is written."""

    sequence_id: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Fork:
    """Open a sequence that shares every block of its parent."""

    sequence_id: int
    parent_sequence_id: int


@dataclass(frozen=True, slots=True)
class Release:
    """End a sequence; its committed blocks stay cached."""

    sequence_id: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Say that the copies between GPU and host of an earlier result were made.

    ``lost``: they were not, and never will be.
    """

    copy_id: int
    lost: bool = False
    sequence_id: ClassVar[int] = 0  # It is about no sequence.


@dataclass(frozen=True, slots=True)
class Forked:
    """The fork is open."""


@dataclass(frozen=True, slots=True)
class Released:
    """The sequence has ended."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The copies are no longer pending."""


Operation = Acquire | Append | Commit | Fork | Release | Acknowledge

# A failed operation changed nothing; its error is the result, not raised.
Result = (
    AcquiredSequence | Appended | Committed | Forked | Released | Acknowledged | PrefixCacheError
)


def step_to_wire(step: int, operations: Sequence[Operation]) -> node_pb2.SessionRequest:
    """Return the message of one step."""
    return node_pb2.SessionRequest(
        step=step, operations=[_operation_to_wire(operation) for operation in operations]
    )


def results_from_wire(
    operations: Sequence[Operation], response: node_pb2.SessionResponse
) -> list[Result]:
    """Return the results of a step, one for each operation, in order."""
    return [
        _result_from_wire(operation, result)
        for operation, result in zip(operations, response.results, strict=True)
    ]


def _operation_to_wire(operation: Operation) -> node_pb2.Operation:
    message = node_pb2.Operation(sequence_id=uint64("sequence_id", operation.sequence_id))
    match operation:
        case Acquire(_, identity, tokens, extra_keys, after, resumed, load):
            # The session checked the block size when it was opened.
            prompt = prompt_to_wire(identity, tokens, extra_keys, after, block_size=0)
            message.acquire.prompt.CopyFrom(prompt)
            message.acquire.resumed = resumed
            message.acquire.without_host = not load
        case Append(_, tokens):
            message.append.tokens = as_token_bytes(tokens)
        case Commit(_, num_tokens):
            message.commit.num_tokens = uint32("num_tokens", num_tokens)
        case Fork(_, parent):
            message.fork.parent_sequence_id = uint64("parent_sequence_id", parent)
        case Release():
            message.release.SetInParent()
        case Acknowledge(copy_id, lost):
            message.acknowledge.copy_id = uint64("copy_id", copy_id)
            message.acknowledge.lost = lost
    return message


def _result_from_wire(operation: Operation, result: node_pb2.OperationResult) -> Result:
    match result.WhichOneof("result"):
        case "acquire":
            return read_acquired(operation.sequence_id, result.acquire)
        case "append":
            return read_appended(result.append)
        case "commit":
            return read_committed(result.commit)
        case "fork":
            return Forked()
        case "release":
            return Released()
        case "acknowledge":
            return Acknowledged()
        case _:
            return error_from_operation(result.error)
