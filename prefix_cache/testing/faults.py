"""Faults on demand: what an engine does wrong, and for how many requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

import msgspec

_Seconds = Annotated[float, msgspec.Meta(ge=0)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class Faults(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What goes wrong with the next ``requests`` requests for an answer; 0: with all of them.

    ``refuse`` closes the connection at once, that of any other request as well.  ``hang`` never
    begins to answer.  ``first_byte_delay_s`` begins later.  ``cut_after_items`` breaks the
    connection off after so many events of a stream, or within an answer that is no stream.
    ``status`` is answered instead, from 400 to 599.  ``wipe`` loses the KV memory without
    a word, once, now.
    """

    refuse: bool = False
    hang: bool = False
    first_byte_delay_s: _Seconds = 0.0
    cut_after_items: _Count | None = None
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] | None = None
    wipe: bool = False
    requests: _Count = 0


class FaultSwitch:
    """The faults in force.  ``wipe`` loses the KV memory."""

    def __init__(self, faults: Faults, wipe: Callable[[], None]) -> None:
        self._wipe = wipe
        self.changed = asyncio.Event()
        """Is set when the faults in force now are replaced."""
        self.set(faults)

    def set(self, faults: Faults) -> None:
        """Replace the faults in force; requests that hang go on, unless others hang, too."""
        if faults.wipe:
            self._wipe()
        self.now = msgspec.structs.replace(faults, wipe=False)
        self.changed.set()
        self.changed = asyncio.Event()

    def take(self) -> Faults:
        """Return the faults that one request meets, and count it."""
        faults = self.now
        if faults.requests == 1:
            self.now = Faults()
        elif faults.requests:
            self.now = msgspec.structs.replace(faults, requests=faults.requests - 1)
        return faults

    async def hang(self, changed: asyncio.Event) -> None:
        """Return once faults are set that do not hang; ``changed`` is that of the request's own."""
        await changed.wait()
        while self.now.hang:
            await self.changed.wait()


class CutOff(Exception):
    """The connection was closed within or before an answer."""
