"""The order in which conversations without times are played."""

from __future__ import annotations

from prefix_cache.replay.rotation import in_rotation


def test_live_conversations_take_turns_and_the_next_takes_the_place_of_one_that_ends() -> None:
    conversations = [["a1", "a2", "a3"], ["b1"], ["c1", "c2"], [], ["e1"]]

    order = list(in_rotation(map(iter, conversations), window=2))

    assert order == ["a1", "b1", "a2", "c1", "a3", "c2", "e1"]


def test_no_conversation_is_opened_before_its_turn_comes() -> None:
    opened = []

    def conversation(name: str) -> list[str]:
        opened.append(name)
        return [name]

    turns = in_rotation((iter(conversation(name)) for name in "abc"), window=2)

    assert (next(turns), opened) == ("a", ["a", "b"])
