"""The built-in inputs, and files as inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from prefix_cache.errors import MalformedFile
from prefix_cache.replay.sources import chats, from_file, mission


def test_the_mission_is_ten_turns_of_43500_prompt_tokens() -> None:
    source = mission()
    (conversation,) = source.conversations
    turns = list(conversation.turns())
    assert [len(turn.prompt) // 4 for turn in turns] == [
        *(1200, 1900, 2600, 3300, 4000, 4700, 5400, 6100, 6800, 7500)
    ]
    assert {len(turn.answer) // 4 for turn in turns} == {500}
    assert (source.name, source.num_turns, source.tokens_are) == ("mission", 10, "made-up ids")


def test_the_mission_is_the_same_every_time_and_repeats_no_token() -> None:
    assert mission() == mission()
    *_, last = mission().conversations[0].turns()
    assert len(np.unique(np.frombuffer(last.prompt, "<u4"))) == 7500


def test_the_chats_share_two_long_system_prompts() -> None:
    source = chats()
    assert [len(conversation.pieces) for conversation in source.conversations] == [
        *(7, 5, 5, 6, 5, 3, 4, 4, 3, 4, 3)
    ]
    heads = [conversation.pieces[0][0][: 4 * 1500] for conversation in source.conversations]
    assert sorted(heads.count(head) for head in set(heads)) == [5, 6]


def test_a_file_is_named_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "hello.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "Hello"}]}')
    source = from_file(path)
    assert (source.name, source.num_turns, source.tokens_are) == ("hello.jsonl", 1, "UTF-8 bytes")


def test_a_file_without_a_turn_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "system.jsonl"
    path.write_text('{"messages": [{"role": "system", "content": "Be brief."}]}')
    with pytest.raises(MalformedFile, match="no turn to play; expected a user or assistant"):
        from_file(path)
