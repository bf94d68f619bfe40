"""The port that workers share."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from router.workers.supervisor import _reserved


@pytest.fixture
def address_of_one_who_just_ended() -> Iterator[str]:
    """It listened alone, and its last connections are still known to the system."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        host, port = listening.getsockname()
        with socket.create_connection((host, port)):
            listening.accept()[0].close()
            listening.close()
            yield f"{host}:{port}"


def test_workers_can_take_it_from_one_who_just_ended(address_of_one_who_just_ended: str) -> None:
    with _reserved(address_of_one_who_just_ended) as address:
        assert address == address_of_one_who_just_ended
