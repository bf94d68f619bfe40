"""Every error this project raises on purpose.

Each has a ``reason``, stable and the same on the wire (``google.rpc.ErrorInfo.reason``), and
``details``: the values concerned.  The message names them and says what was expected.
"""

from __future__ import annotations

from typing import ClassVar


class PrefixCacheError(Exception):
    """Base of all.  ``details`` holds the values that the message names."""

    reason: ClassVar[str] = "INTERNAL"
    by_reason: ClassVar[dict[str, type[PrefixCacheError]]] = {}

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.details = details

    def __init_subclass__(cls, *, reason: str) -> None:
        super().__init_subclass__()
        cls.reason = reason
        cls.by_reason[reason] = cls


# --- what a caller passed -------------------------------------------------------------------


class InvalidArgument(PrefixCacheError, ValueError, reason="INVALID_ARGUMENT"):
    """A value is outside what the call accepts."""


class InvalidMessage(InvalidArgument, reason="INVALID_MESSAGE"):
    """The bytes of a request are no message of the method called."""


class InvalidRequest(InvalidArgument, reason="INVALID_REQUEST"):
    """The body or a header of an HTTP request is none that can be served; names the ``param``."""


class UnknownModel(InvalidArgument, LookupError, reason="UNKNOWN_MODEL"):
    """No pool serves the model asked for."""


class InvalidTokens(InvalidArgument, reason="INVALID_TOKENS"):
    """Token ids outside 0..2^32-1, a byte string that is no multiple of four, or none at all."""


class InvalidTokenType(PrefixCacheError, TypeError, reason="INVALID_TOKEN_TYPE"):
    """Tokens are no flat sequence of integers."""


class InvalidExtraKeys(InvalidArgument, reason="INVALID_EXTRA_KEYS"):
    """An extra key is not ``(start, end | None, key | None)`` over token positions."""


class InvalidIdentity(InvalidArgument, reason="INVALID_IDENTITY"):
    """An identity has a field of the wrong type."""


class IdentityMismatch(InvalidArgument, reason="IDENTITY_MISMATCH"):
    """The client works with another block size, model or KV dtype than the node."""


class CommitBeyondTokens(InvalidArgument, reason="COMMIT_BEYOND_TOKENS"):
    """More tokens were committed than the sequence has."""


class MalformedFile(InvalidArgument, reason="MALFORMED_FILE"):
    """An input file cannot be read; names the file and the line."""


class CutShort(MalformedFile, reason="CUT_SHORT"):
    """A packed input file ends too early, or goes wrong; what is before that line was read."""


class UnsupportedModel(InvalidArgument, reason="UNSUPPORTED_MODEL"):
    """A model computes what the worker does not; names what was found and what is supported."""


class MissingTensors(InvalidArgument, reason="MISSING_TENSORS"):
    """The files of a model lack weights that its config calls for; names them."""


class MissingScales(InvalidArgument, reason="MISSING_SCALES"):
    """KV is to be stored as FP8, and nothing says by what its values are scaled."""


class ValueOutOfRange(InvalidArgument, reason="VALUE_OUT_OF_RANGE"):
    """A key or value is beyond what the KV dtype holds at its scale, or is not a number."""


# --- what the state does not allow ----------------------------------------------------------


class PoolExhausted(PrefixCacheError, reason="POOL_EXHAUSTED"):
    """More blocks are needed than are free or evictable now; release something and retry."""


class PromptTooLarge(PoolExhausted, ValueError, reason="PROMPT_TOO_LARGE"):
    """More blocks are needed than the pool has or one client may hold; no waiting helps.

    Who retries on ``PoolExhausted`` looks for this one first.
    """


class UnknownSequence(PrefixCacheError, LookupError, reason="UNKNOWN_SEQUENCE"):
    """No such sequence."""


class ReleasedSequence(UnknownSequence, reason="RELEASED_SEQUENCE"):
    """The sequence was released before."""


class LeaseExpired(UnknownSequence, reason="LEASE_EXPIRED"):
    """The sequence was not touched within its lease and has ended."""


class ForeignSequence(UnknownSequence, reason="FOREIGN_SEQUENCE"):
    """The sequence belongs to another cache."""


class UnknownPrefix(PrefixCacheError, LookupError, reason="UNKNOWN_PREFIX"):
    """A prompt in delta form goes on from a prefix that is not known; send it in full."""


class UnknownCopy(PrefixCacheError, LookupError, reason="UNKNOWN_COPY"):
    """No such copies between GPU and host are pending."""


class CopyPending(PrefixCacheError, ValueError, reason="COPY_PENDING"):
    """KV cannot be written yet that is still to be loaded: acknowledge the copies first."""


class SequenceExists(PrefixCacheError, ValueError, reason="SEQUENCE_EXISTS"):
    """The session already has a live sequence of this number."""


class SequencesLive(PrefixCacheError, RuntimeError, reason="SEQUENCES_LIVE"):
    """The call needs that no sequence lives."""


class ClientLimit(PrefixCacheError, reason="CLIENT_LIMIT"):
    """The client holds as many sequences or blocks as one client may; release something."""


class WorkerRestarted(PrefixCacheError, reason="WORKER_RESTARTED"):
    """The KV memory of what was open is gone: another life of the worker has begun."""


class UnknownRoute(PrefixCacheError, LookupError, reason="UNKNOWN_ROUTE"):
    """No routed turn of this number waits for its report."""


class EventGap(PrefixCacheError, LookupError, reason="EVENT_GAP"):
    """Events of a node were missed: watch again from the last one seen."""


class CorruptBlock(PrefixCacheError, reason="CORRUPT_BLOCK"):
    """A host slot does not hold the KV that was offloaded to it, or nothing was."""


class AuditError(PrefixCacheError, AssertionError, reason="AUDIT"):
    """The index contradicts itself: a fault of ours."""


# --- what stands around us ------------------------------------------------------------------


class Unsupported(PrefixCacheError, reason="UNSUPPORTED"):
    """The peer does not offer this."""


class Unavailable(PrefixCacheError, ConnectionError, reason="UNAVAILABLE"):
    """The peer cannot be reached, or broke off."""


class Draining(Unavailable, reason="DRAINING"):
    """The node takes no new sequences any more."""


class EngineEnded(Unavailable, reason="ENGINE_ENDED"):
    """Nobody listens at the engine's port: its process is gone, and its cache with it."""


class WorkerReplaced(Unavailable, reason="WORKER_REPLACED"):
    """Another worker has taken the cache node over; this one will not serve any more."""


class NoNodeAvailable(Unavailable, reason="NO_NODE_AVAILABLE"):
    """No node can take the turn."""


class DeadlineExceeded(PrefixCacheError, TimeoutError, reason="DEADLINE_EXCEEDED"):
    """The peer did not answer in time."""


class PermissionDenied(PrefixCacheError, PermissionError, reason="PERMISSION_DENIED"):
    """The peer does this for nobody, or not for this client."""


class MessageTooLarge(PrefixCacheError, ValueError, reason="MESSAGE_TOO_LARGE"):
    """A message is above the peer's limit."""


class MissingExtra(PrefixCacheError, ImportError, reason="MISSING_EXTRA"):
    """An optional part is not installed; names the extra that brings it."""


class CannotListen(PrefixCacheError, OSError, reason="CANNOT_LISTEN"):
    """The address cannot be listened on, for example because it is in use."""
