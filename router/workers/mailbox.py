"""How the workers of one router reach each other: a Unix datagram socket for each."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

LARGEST_BYTES = 1 << 17

_BUFFER_BYTES = 1 << 20
_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Seat:
    """Which of the ``count`` workers a process is, from 0.

    ``folder``, which only they can enter, is where their sockets are.
    """

    index: int
    count: int
    folder: Path

    @property
    def others(self) -> list[int]:
        """The other workers, the next one first."""
        return [(self.index + step) % self.count for step in range(1, self.count)]


class Delivery(Enum):
    """What became of a datagram."""

    DONE = auto()
    FULL = auto()
    """Too many wait there already."""
    AWAY = auto()
    """Nobody listens there."""


class Mailbox:
    """The socket of one worker; ``on_data`` is called with each datagram that arrives."""

    def __init__(self, seat: Seat, on_data: Callable[[bytes], None]) -> None:
        self._folder = seat.folder
        self._path = seat.folder / str(seat.index)
        self._on_data = on_data
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        self._path.unlink(missing_ok=True)  # of a worker that was killed
        self._socket.bind(str(self._path))
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    def send(self, index: int, data: bytes) -> Delivery:
        """Send to a worker; ``data`` has at most ``LARGEST_BYTES``."""
        try:
            self._socket.sendto(data, str(self._folder / str(index)))
        except (FileNotFoundError, ConnectionRefusedError):
            return Delivery.AWAY
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ENOBUFS):
                return Delivery.FULL
            raise
        return Delivery.DONE

    def close(self) -> None:
        """Listen no longer."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _receive(self) -> None:
        for _ in range(_AT_ONCE):  # and then let others have the loop
            try:
                data = self._socket.recv(LARGEST_BYTES)
            except BlockingIOError:
                return
            self._on_data(data)
