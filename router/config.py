"""What a router is started with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prefix_cache.errors import InvalidArgument
from router.policies import POLICIES


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """Settings of one router.  Raises InvalidArgument for values no router can work with.

    ``nodes`` maps the name of each node to its address; ``listen`` are the router's own.
    """

    nodes: Mapping[str, str]
    listen: tuple[str, ...] = ("127.0.0.1:50050",)
    policy: str = "sticky"
    max_pins: int = 500_000
    """Conversations remembered; the one unused for longest is forgotten first."""
    pin_ttl_s: float = 3600.0
    """An unused conversation is forgotten after this."""
    route_ttl_s: float = 600.0
    """A routed turn without a report no longer counts as load after this."""
    probe_interval_s: float = 1.0
    """Between two probes of a node; a failed one is probed ever more rarely."""
    probe_timeout_s: float = 5.0
    """A node that does not answer a probe within this has failed."""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InvalidArgument("a router needs at least one node")
        if self.policy not in POLICIES:
            raise InvalidArgument(
                f"unknown policy {self.policy!r}: expected one of {', '.join(POLICIES)}",
                policy=self.policy,
            )
        for name in ("max_pins", "pin_ttl_s", "route_ttl_s", "probe_interval_s", "probe_timeout_s"):
            value = getattr(self, name)
            if not value > 0:
                raise InvalidArgument(f"{name} must be above 0, not {value}", **{name: value})


def parse_nodes(texts: Iterable[str]) -> dict[str, str]:
    """Read ``NAME=ADDRESS`` texts: name to address, in order.

    Raises InvalidArgument for malformed text, and for a name or an address given twice.
    """
    nodes: dict[str, str] = {}
    for text in texts:
        name, equals, address = (part.strip() for part in text.partition("="))
        if not (name and equals and address):
            raise InvalidArgument(
                f"malformed node {text!r}: expected NAME=ADDRESS, such as a=127.0.0.1:50051",
                node=text,
            )
        if name in nodes:
            raise InvalidArgument(f"two nodes are named {name!r}", name=name)
        if address in nodes.values():
            raise InvalidArgument(f"two nodes have the address {address!r}", address=address)
        nodes[name] = address
    return nodes
