"""Nodes from a DNS name: each of its addresses is one, as of a headless service."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from prefix_cache.addresses import split_host_and_port
from router.config import NodeSpec, PoolConfig
from router.discovery.membership import Member

Resolve = Callable[[str], Awaitable[Iterable[str]]]

_log = logging.getLogger(__name__)


async def look_up(host: str) -> Iterable[str]:
    """Return the addresses of a name, IPv4 and IPv6.  Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return {str(address[0]) for *_, address in found}


async def dns_members(
    pool: PoolConfig, interval_s: float, resolve: Resolve = look_up
) -> AsyncGenerator[Sequence[Member], None]:
    """Yield the nodes that ``pool.dns`` stands for, again every ``interval_s`` seconds.

    They are called by their host and port.  A look-up that fails changes nothing.
    """
    template = pool.dns_template
    host = _host(template)
    members: Sequence[Member] = ()
    is_failing = False
    while True:
        try:
            addresses = sorted(await resolve(host))
        except (OSError, UnicodeError) as error:  # the latter of a name with a part too long
            if not is_failing:
                _log.warning("%s cannot be looked up, its last nodes are kept: %s", host, error)
            is_failing = True
        else:
            is_failing = False
            members = [Member(pool.name, _node(template, address)) for address in addresses]
        yield members
        await asyncio.sleep(interval_s)


def _host(template: NodeSpec) -> str:
    place = template.address or urlsplit(template.url).netloc
    return split_host_and_port(place)[0].strip("[]")


def _node(template: NodeSpec, address: str) -> NodeSpec:
    host = f"[{address}]" if ":" in address else address
    spec = template
    if template.url:
        place = f"{host}:{urlsplit(template.url).port}"
        spec = replace(spec, name=place, url=f"http://{place}")
    if template.address:
        place = f"{host}:{split_host_and_port(template.address)[1]}"
        spec = replace(spec, address=place)
    return replace(spec, name=place)
