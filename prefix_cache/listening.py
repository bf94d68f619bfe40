"""Addresses to listen on: ``host:port`` and ``unix:///path``.

Each is tried before gRPC is asked, which writes the system's reason to stderr and keeps it from us.
"""

from __future__ import annotations

import errno
import socket
from pathlib import Path

from grpc import aio

from prefix_cache.addresses import split_host_and_port
from prefix_cache.errors import CannotListen, InvalidArgument

_UNIX = "unix://"


def bind(server: aio.Server, address: str) -> str:
    """Make ``server`` listen; return the address with the port it got.  Raises ``CannotListen``."""
    try:
        if address.startswith(_UNIX):
            _try_unix(address)
            server.add_insecure_port(address)
            return address
        host, port = host_and_port(address, "host:port, [ipv6]:port or unix:///path")
        _try_tcp(host, port)
        return f"{host}:{server.add_insecure_port(address)}"
    except CannotListen:
        raise
    except OSError as error:
        raise cannot_listen(address, error.strerror or str(error)) from None
    except (RuntimeError, ValueError) as error:  # of gRPC, and of a host that is no name
        raise cannot_listen(address, str(error)) from None


def host_and_port(address: str, expected: str = "host:port or [ipv6]:port") -> tuple[str, int]:
    """Split ``host:port`` or ``[ipv6]:port``.

    Raises ``CannotListen``, which says what was ``expected``, for anything else.
    """
    try:
        return split_host_and_port(address, lowest_port=0)
    except InvalidArgument:
        raise cannot_listen(address, f"expected {expected}") from None


def cannot_listen(address: str, why: str) -> CannotListen:
    """Return the error that names the address and the reason."""
    return CannotListen(f"cannot listen on {address!r}: {why}", address=address)


def _try_tcp(host: str, port: int) -> None:
    """Raise ``OSError`` unless one address of the host can be bound, which is enough for gRPC."""
    failure: OSError | None = None
    for family, kind, _, _, name in socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM
    ):
        try:
            with socket.socket(family, kind) as probe:
                # As gRPC does: connections of a server that has ended are not in the way.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(name)
        except OSError as error:
            failure = failure or error
        else:
            return
    if failure:
        raise failure


def _try_unix(address: str) -> None:
    """Raise ``OSError`` or ``CannotListen`` unless a socket can be put there.

    The socket that a killed server left behind is removed.  gRPC would remove whatever socket is
    there, one that somebody listens on included.
    """
    path = Path(address.removeprefix(_UNIX))
    if not path.is_absolute():
        raise cannot_listen(address, "expected an absolute path, as in unix:///run/node.sock")
    if not path.parent.is_dir():
        raise cannot_listen(address, f"there is no folder {str(path.parent)!r}")
    if path.exists():
        if not path.is_socket():
            raise cannot_listen(address, "a file that is no socket is in its place")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            if probe.connect_ex(str(path)) != errno.ECONNREFUSED:
                raise cannot_listen(address, "another server listens there")
        path.unlink()
    with socket.socket(socket.AF_UNIX) as probe:
        probe.bind(str(path))
    path.unlink()
