"""Workers that ask each other, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from router.workers.asking import answering, ask_others
from router.workers.mailbox import Seat


def saying(answer: bytes) -> Callable[[bytes], bytes]:
    """Answers so, and repeats the question."""
    return lambda question: answer + question


async def test_all_others_are_asked_and_each_answer_is_known_by_its_worker(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        for index in range(4):
            answer = saying(b"%d:" % index)
            await stack.enter_async_context(answering(Seat(index, 4, tmp_path), answer))
        said = await ask_others(Seat(2, 4, tmp_path), b"how?")
    assert said == {3: b"3:how?", 0: b"0:how?", 1: b"1:how?"}


@pytest.mark.parametrize("question", [b"", bytes(1_000_000)], ids=["empty", "large"])
@pytest.mark.parametrize("answer", [b"", bytes(10_000_000)], ids=["empty", "large"])
async def test_what_is_said_arrives_whole(tmp_path: Path, question: bytes, answer: bytes) -> None:
    async with answering(Seat(1, 2, tmp_path), saying(answer)):
        assert await ask_others(Seat(0, 2, tmp_path), question) == {1: answer + question}


async def test_who_is_away_was_killed_or_breaks_off_is_left_out(tmp_path: Path) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((100).to_bytes(8) + b"half")
        writer.close()

    killed = await asyncio.start_unix_server(break_off, tmp_path / "1.ask")
    killed.close()
    await killed.wait_closed()
    assert (tmp_path / "1.ask").exists()
    broken = await asyncio.start_unix_server(break_off, tmp_path / "2.ask")
    async with broken, answering(Seat(3, 5, tmp_path), lambda asked: b"here"):
        assert await ask_others(Seat(0, 5, tmp_path), b"") == {3: b"here"}


async def test_who_hangs_is_left_out_and_the_others_are_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.workers.asking._WAIT_S", 0.2)
    asked, ends = asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await ends.wait()
        writer.close()

    hanging = await asyncio.start_unix_server(hang, tmp_path / "1.ask")
    async with hanging, answering(Seat(2, 3, tmp_path), lambda question: b"here"):
        assert await ask_others(Seat(0, 3, tmp_path), b"") == {2: b"here"}
        assert asked.is_set()
        ends.set()


async def test_a_worker_that_starts_again_takes_the_place_of_the_one_that_was_killed(
    tmp_path: Path,
) -> None:
    killed = await asyncio.start_unix_server(lambda reader, writer: None, tmp_path / "1.ask")
    killed.close()
    await killed.wait_closed()
    async with answering(Seat(1, 2, tmp_path), lambda asked: b"again"):
        assert await ask_others(Seat(0, 2, tmp_path), b"") == {1: b"again"}
    assert await ask_others(Seat(0, 2, tmp_path), b"") == {}


async def test_who_no_longer_waits_for_an_answer_disturbs_nobody(tmp_path: Path) -> None:
    async with answering(Seat(1, 2, tmp_path), lambda asked: bytes(10_000_000)):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "1.ask")
        writer.write((3).to_bytes(8) + b"how")
        await reader.readexactly(8)
        writer.transport.abort()
        _, silent = await asyncio.open_unix_connection(tmp_path / "1.ask")
        silent.close()
        said = await ask_others(Seat(0, 2, tmp_path), b"")
    assert len(said[1]) == 10_000_000
