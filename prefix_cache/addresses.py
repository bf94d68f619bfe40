"""Addresses of nodes as people write them, checked and in one form each."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from prefix_cache.errors import InvalidArgument

_HOST_AND_PORT = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9._-]+):(?P<port>[0-9]{1,5})"
)
_UNIX = re.compile(r"unix:///\S+")
_HIGHEST_PORT = 65_535


def split_host_and_port(text: str, *, lowest_port: int = 1) -> tuple[str, int]:
    """Split ``host:port`` or ``[ipv6]:port``; an IPv6 host keeps its brackets and its zone.

    Raises InvalidArgument.
    """
    match = _HOST_AND_PORT.fullmatch(text)
    if match is None or not lowest_port <= int(match["port"]) <= _HIGHEST_PORT:
        raise InvalidArgument(
            f"malformed address {text!r}: expected HOST:PORT or [IPV6]:PORT, with a port from "
            f"{lowest_port} to {_HIGHEST_PORT}",
            address=text,
        )
    return match["host"], int(match["port"])


def grpc_address(text: str) -> str:
    """Return the address of a cache node: ``host:port``, ``[ipv6]:port`` or ``unix:///path``.

    Raises InvalidArgument.
    """
    if text.startswith("unix:"):
        if not _UNIX.fullmatch(text):
            raise InvalidArgument(
                f"malformed address {text!r}: expected unix:///PATH", address=text
            )
        return text
    split_host_and_port(text)
    return text


def engine_url(text: str) -> str:
    """Return the URL of an engine as ``http://host:port``, with the port even where it is 80.

    Raises InvalidArgument for anything else than such a URL, ``https`` included: the router
    speaks plain HTTP to engines.
    """
    expected = "expected http://HOST:PORT"
    if text.lower().startswith("https:"):
        raise InvalidArgument(f"{text!r}: engines are reached without TLS, {expected}", url=text)
    try:
        parts = urlsplit(text)
    except ValueError:  # a bracket without its other
        raise InvalidArgument(f"malformed URL {text!r}: {expected}", url=text) from None
    if parts.scheme != "http" or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise InvalidArgument(f"malformed URL {text!r}: {expected}", url=text)
    place = parts.netloc.lower()
    has_port = ":" in place.rpartition("]")[2]
    host, port = split_host_and_port(place if has_port else f"{place}:80")
    return f"http://{host}:{port}"
