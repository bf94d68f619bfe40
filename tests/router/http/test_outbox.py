"""What is sent in one turn of the loop goes together, but for the first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import pytest

from router.http.outbox import Outbox


class Wire(asyncio.WriteTransport):
    """Keeps what was written, in the order of all transports that share ``written``."""

    def __init__(self, name: str, written: list[tuple[str, bytes]]) -> None:
        super().__init__()
        self._name = name
        self._written = written
        self._is_closed = False
        self.on_written: Callable[[], None] = lambda: None

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._written.append((self._name, b"".join(list_of_data)))
        self.on_written()

    def is_closing(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True


@pytest.fixture
def written() -> list[tuple[str, bytes]]:
    return []


@pytest.fixture
async def outbox() -> Outbox:
    return Outbox(asyncio.get_running_loop())


async def test_the_first_of_a_turn_goes_at_once_and_the_others_at_its_end(
    outbox: Outbox, written: list[tuple[str, bytes]]
) -> None:
    a, b, c = (Wire(name, written) for name in "abc")
    outbox.put(a, (b"1", b"2"))
    outbox.put(b, (b"3",))
    outbox.put(c, (b"4",))
    assert written == [("a", b"12")]
    await asyncio.sleep(0)
    assert written == [("a", b"12"), ("b", b"3"), ("c", b"4")]


async def test_every_turn_has_a_first_one(outbox: Outbox, written: list[tuple[str, bytes]]) -> None:
    wire = Wire("a", written)
    for piece in (b"1", b"2", b"3"):
        outbox.put(wire, (piece,))
        assert written[-1] == ("a", piece)
        await asyncio.sleep(0)


async def test_what_one_connection_says_stays_in_order(
    outbox: Outbox, written: list[tuple[str, bytes]]
) -> None:
    wire = Wire("a", written)
    for piece in (b"1", b"2", b"3"):
        outbox.put(wire, (piece,))
    outbox.flush()
    outbox.put(wire, (b"4",))
    await asyncio.sleep(0)
    assert b"".join(data for _, data in written) == b"1234"


async def test_what_is_said_while_it_sends_comes_after_what_waits(
    outbox: Outbox, written: list[tuple[str, bytes]]
) -> None:
    """A transport that can take more says so as it is written to, and gets the next answer."""
    a, b = Wire("a", written), Wire("b", written)

    def says_more() -> None:
        b.on_written = lambda: None
        outbox.put(b, (b"4",))

    b.on_written = says_more
    for wire, piece in ((a, b"1"), (b, b"2"), (b, b"3")):
        outbox.put(wire, (piece,))
    await asyncio.sleep(0)
    assert written == [("a", b"1"), ("b", b"2"), ("b", b"3"), ("b", b"4")]


async def test_only_little_waits(outbox: Outbox, written: list[tuple[str, bytes]]) -> None:
    """Else a client that does not read would be noticed when a lot has been read for it."""
    a, b = Wire("a", written), Wire("b", written)
    most = b"x" * 65_536
    outbox.put(a, (b"1",))
    outbox.put(b, (most,))
    assert written == [("a", b"1")]
    outbox.put(b, (b"2",))
    assert written == [("a", b"1"), ("b", most), ("b", b"2")]
    outbox.put(b, (most,))
    assert len(written) == 3


async def test_who_is_about_to_close_sends_what_waits_first(
    outbox: Outbox, written: list[tuple[str, bytes]]
) -> None:
    a, b = Wire("a", written), Wire("b", written)
    outbox.put(a, (b"1",))
    outbox.put(b, (b"2",))
    outbox.flush()
    b.close()
    await asyncio.sleep(0)
    assert written == [("a", b"1"), ("b", b"2")]


async def test_a_connection_that_is_lost_within_the_turn_takes_nothing_from_the_others(
    outbox: Outbox, written: list[tuple[str, bytes]]
) -> None:
    a, b, c = (Wire(name, written) for name in "abc")
    outbox.put(a, (b"1",))
    outbox.put(b, (b"2",))
    outbox.put(c, (b"3",))
    b.close()
    await asyncio.sleep(0)
    assert written == [("a", b"1"), ("c", b"3")]
