"""Explanations, to and from the wire."""

from __future__ import annotations

from prefix_cache.errors import Unsupported
from prefix_cache.index.diagnosis import Explanation, Reason, ReasonKind
from prefix_cache.v1 import node_pb2

_TO_WIRE = {kind: node_pb2.ReasonKind.Value(f"REASON_KIND_{kind.name}") for kind in ReasonKind}
_FROM_WIRE = {number: kind for kind, number in _TO_WIRE.items()}


def explanation_to_wire(explanation: Explanation) -> node_pb2.ExplainResponse:
    """Return the answer to Explain."""
    return node_pb2.ExplainResponse(
        num_cached_tokens=explanation.num_cached_tokens,
        reasons=[_reason_to_wire(reason) for reason in explanation.reasons],
    )


def explanation_from_wire(message: node_pb2.ExplainResponse) -> Explanation:
    """Raise ``Unsupported`` for a reason that only a newer version knows."""
    return Explanation(
        num_cached_tokens=message.num_cached_tokens,
        reasons=tuple(_reason_from_wire(reason) for reason in message.reasons),
    )


def _reason_to_wire(reason: Reason) -> node_pb2.Reason:
    return node_pb2.Reason(
        kind=_TO_WIRE[reason.kind],
        start=reason.start,
        end=reason.end,
        position=reason.position,
        prompt_token=reason.prompt_token,
        cached_token=reason.cached_token,
        agrees_from=reason.agrees_from,
        releases_ago=reason.releases_ago,
        fields=reason.fields,
    )


def _reason_from_wire(message: node_pb2.Reason) -> Reason:
    kind = _FROM_WIRE.get(message.kind)
    if kind is None:
        raise Unsupported(
            f"the node gives a reason of kind {message.kind}, which this version does not know",
            kind=message.kind,
        )
    return Reason(
        kind=kind,
        start=message.start,
        end=message.end,
        position=message.position if message.HasField("position") else None,
        prompt_token=message.prompt_token if message.HasField("prompt_token") else None,
        cached_token=message.cached_token if message.HasField("cached_token") else None,
        agrees_from=message.agrees_from if message.HasField("agrees_from") else None,
        releases_ago=message.releases_ago if message.HasField("releases_ago") else None,
        fields=tuple(message.fields),
    )
