"""What a router is started with."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prefix_cache.addresses import engine_url, grpc_address, split_host_and_port
from prefix_cache.errors import InvalidArgument
from prefix_cache.redis_client import check_redis_url
from router.policies import POLICIES
from router.turn import DEFAULT_POOL

# Names of nodes travel in headers and in labels of metrics.
_NODE_NAME = re.compile(r"[\x21-\x7e]{1,128}")

_LARGEST = 2**31 - 1
_LONGEST_S = 30 * 24 * 3600.0
_SHORTEST_S = 0.001


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One node of a pool: its cache node's gRPC address, its engine's URL, or both."""

    name: str
    address: str = ""
    url: str = ""

    @classmethod
    def parse(cls, name: str, places: str) -> NodeSpec:
        """Read ``ADDRESS``, ``URL`` or ``ADDRESS,URL``.  Raises InvalidArgument."""
        if not _NODE_NAME.fullmatch(name):
            raise InvalidArgument(
                f"malformed name of a node {name!r}: expected 1 to 128 visible ASCII characters",
                name=name,
            )
        addresses, urls = [], []
        for place in places.split(","):
            place = place.strip()
            if "://" in place and not place.startswith("unix:"):
                urls.append(engine_url(place))
            else:
                addresses.append(grpc_address(place))
        if len(addresses) > 1 or len(urls) > 1:
            raise InvalidArgument(
                f"malformed node {places!r}: expected ADDRESS, URL or ADDRESS,URL", node=places
            )
        return cls(name, *(addresses or [""]), *(urls or [""]))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """Nodes that are kept apart from those of other pools.

    ``models`` are the names that clients may ask for; empty: those that the engines say they
    serve.  ``tokenizer`` (a tokenizer.json, or ``bytes`` for one token per byte of UTF-8) and
    ``chat_template`` (a Jinja file, or ``plain``) make the engine's own tokens of a request;
    without them claims are about text.  ``sent_blocks`` bounds what is remembered of what was
    sent to an engine without a cache node, in pieces of 64 bytes.

    ``dns`` names a host, each of whose addresses is a node: a URL, a gRPC address, or both with
    a comma between, as in ``http://engines:8000``.  With ``registry`` the nodes that announce
    themselves for this pool are its nodes too.

    Raises InvalidArgument for values no pool can work with; its detail ``setting`` is the path
    of the value in a config file.
    """

    name: str = DEFAULT_POOL
    nodes: tuple[NodeSpec, ...] = ()
    models: tuple[str, ...] = ()
    policy: str = "sticky"
    max_load_factor: float = 0.0
    """A home with more than this times the mean load is left by its conversations; 0: never."""
    hard: bool = False
    """Conversations leave their home only when it cannot take the turn."""
    tokenizer: str = ""
    chat_template: str = ""
    model_identity: str = ""
    """Identity.model of the engines' KV; empty: the name of the model that was asked for."""
    revision: str = ""
    kv_dtype: str = "bfloat16"
    sent_blocks: int = 65_536
    dns: str = ""
    registry: bool = False

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise self._invalid("policy", f"one of {', '.join(POLICIES)}")
        if self.max_load_factor != 0 and not 1 <= self.max_load_factor <= 1000:
            raise self._invalid("max_load_factor", "0, or 1 to 1000")
        if not 1 <= self.sent_blocks <= _LARGEST:
            raise self._invalid("sent_blocks", f"1 to {_LARGEST}")
        if self.chat_template and not self.tokenizer:
            raise self._invalid("chat_template", "it only with a tokenizer")
        if "" in self.models:
            raise self._invalid("models", "names that are not empty")
        if self.dns:
            template = self.dns_template
            if template.address.startswith("unix:"):
                raise self._invalid("dns", "a URL or HOST:PORT")

    @property
    def dns_template(self) -> NodeSpec:
        """What ``dns`` says, as a node whose host is to be looked up.  Raises InvalidArgument."""
        try:
            return NodeSpec.parse("dns", self.dns)
        except InvalidArgument as error:
            raise InvalidArgument(
                f"pools.{self.name}.dns: {error}", setting=("pools", self.name, "dns")
            ) from None

    @property
    def has_source(self) -> bool:
        """Whether there is anywhere that nodes can come from."""
        return bool(self.nodes or self.dns or self.registry)

    def _invalid(self, field: str, expected: str) -> InvalidArgument:
        return _invalid(("pools", self.name, field), getattr(self, field), expected)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterConfig:
    """Settings of one router.

    ``listen`` are the addresses of RouterService, ``http`` is the ``host:port`` of the proxy,
    empty for none.  Of a request, head and body are limited to ``max_head_bytes`` and
    ``max_body_bytes``.

    Raises InvalidArgument for values no router can work with; its detail ``setting`` is the path
    of the value in a config file.
    """

    pools: tuple[PoolConfig, ...]
    listen: tuple[str, ...] = ("127.0.0.1:50050",)
    http: str = ""
    workers: int = 1
    """Processes that share the port of the proxy."""
    redis: str = ""
    """URL of the Redis that routers share: redis://, or redis+cluster:// in cluster mode."""
    redis_wait_s: float = 0.005
    """A turn waits this long for Redis and is then routed without it."""
    dns_interval_s: float = 5.0
    """Between two look-ups of a pool's ``dns``."""
    tenant_header: str = ""
    """Header that names the tenant; empty: a hash of the bearer token."""
    max_pins: int = 500_000
    """Conversations remembered; the one unused for longest is forgotten first."""
    pin_ttl_s: float = 3600.0
    """An unused conversation is forgotten after this."""
    route_ttl_s: float = 600.0
    """A routed turn without a report no longer counts as load after this."""
    max_decisions: int = 10_000
    """Decisions that can be explained afterwards."""
    probe_interval_s: float = 1.0
    """Between two probes of a node; a failed one is probed ever more rarely."""
    probe_timeout_s: float = 5.0
    """A node that does not answer a probe within this has failed."""
    max_head_bytes: int = 65_536
    max_body_bytes: int = 64 * 1024 * 1024
    head_timeout_s: float = 10.0
    """A client must have sent the head of a request this long after it began, and each further
    piece of its body this long after the last."""
    connect_timeout_s: float = 2.0
    first_byte_timeout_s: float = 600.0
    """An engine must begin its answer within this."""
    idle_timeout_s: float = 120.0
    """Between two pieces of an answer no more than this may pass."""
    attempts: int = 3
    """Nodes that one request is tried on at most."""

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("workers", 1, 1024),
            ("redis_wait_s", _SHORTEST_S, 60.0),
            ("dns_interval_s", _SHORTEST_S, _LONGEST_S),
            ("max_pins", 1, _LARGEST),
            ("pin_ttl_s", _SHORTEST_S, _LONGEST_S),
            ("route_ttl_s", _SHORTEST_S, _LONGEST_S),
            ("max_decisions", 1, _LARGEST),
            ("probe_interval_s", _SHORTEST_S, _LONGEST_S),
            ("probe_timeout_s", _SHORTEST_S, _LONGEST_S),
            ("max_head_bytes", 256, _LARGEST),
            ("max_body_bytes", 1, _LARGEST),
            ("head_timeout_s", _SHORTEST_S, _LONGEST_S),
            ("connect_timeout_s", _SHORTEST_S, _LONGEST_S),
            ("first_byte_timeout_s", _SHORTEST_S, _LONGEST_S),
            ("idle_timeout_s", _SHORTEST_S, _LONGEST_S),
            ("attempts", 1, 100),
        ):
            value = getattr(self, name)
            if not lowest <= value <= highest:
                raise _invalid((name,), value, f"{lowest} to {highest}")
        self._check_faces()
        self._check_redis()
        self._check_pools()

    def _check_faces(self) -> None:
        if not (self.listen or self.http):
            raise _invalid(("listen",), [], "an address, or a value for http")
        if self.http:
            try:
                split_host_and_port(self.http, lowest_port=0)
            except InvalidArgument as error:
                raise InvalidArgument(f"http: {error}", setting=("http",)) from None
        if self.workers > 1 and not self.http:
            raise _invalid(("workers",), self.workers, "1 without http, whose port they share")

    def _check_redis(self) -> None:
        if self.redis:
            try:
                check_redis_url("redis", self.redis)
            except InvalidArgument as error:
                raise InvalidArgument(str(error), setting=("redis",)) from None
        for pool in self.pools:
            if pool.registry and not self.redis:
                raise _invalid(("pools", pool.name, "registry"), True, "a value for redis as well")

    def _check_pools(self) -> None:
        if not self.pools:
            raise _invalid(("pools",), [], "a pool or more")
        if len({pool.name for pool in self.pools}) < len(self.pools):
            raise _invalid(("pools",), [pool.name for pool in self.pools], "different names")
        models: dict[str, str] = {}
        for pool in self.pools:
            for model in pool.models:
                if model in models:
                    raise InvalidArgument(
                        f"pools.{pool.name}.models: the model {model!r} is listed by the pool "
                        f"{models[model]!r} too, expected one pool for each model",
                        setting=("pools", pool.name, "models"),
                    )
                models[model] = pool.name
        _check_distinct((pool.name, spec) for pool in self.pools for spec in pool.nodes)


def parse_nodes(texts: Iterable[str]) -> tuple[NodeSpec, ...]:
    """Read ``NAME=ADDRESS``, ``NAME=URL`` or ``NAME=ADDRESS,URL`` texts, in order.

    Raises InvalidArgument for malformed text, and for a name, an address or a URL given twice.
    """
    specs = []
    for text in texts:
        name, equals, places = (part.strip() for part in text.partition("="))
        if not (name and equals and places):
            raise InvalidArgument(
                f"malformed node {text!r}: expected NAME=ADDRESS, NAME=URL or NAME=ADDRESS,URL, "
                "such as a=127.0.0.1:50051,http://127.0.0.1:8001",
                node=text,
            )
        specs.append(NodeSpec.parse(name, places))
    _check_distinct((DEFAULT_POOL, spec) for spec in specs)
    return tuple(specs)


def _check_distinct(nodes: Iterable[tuple[str, NodeSpec]]) -> None:
    """Raise InvalidArgument for the first node, of pools and nodes, that takes another's place."""
    taken: dict[str, set[str]] = {"name": set(), "address": set(), "url": set()}
    for pool, spec in nodes:
        for field, said in _TWICE.items():
            value = getattr(spec, field)
            if value in taken[field]:
                raise InvalidArgument(
                    f"two nodes {said} {value!r}",
                    setting=("pools", pool, "nodes", spec.name),
                    **{field: value},
                )
            if value:
                taken[field].add(value)


_TWICE: Mapping[str, str] = {
    "name": "are named",
    "address": "have the address",
    "url": "have the URL",
}


def _invalid(setting: tuple[str, ...], value: object, expected: str) -> InvalidArgument:
    return InvalidArgument(
        f"{'.'.join(setting)} is {value!r}, expected {expected}", setting=setting, value=value
    )
