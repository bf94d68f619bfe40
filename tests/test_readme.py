"""The README's code, run as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefix_cache.client import NodeClient
from tests.node.nodes import node_process

README = Path(__file__).parents[1] / "README.md"


def code_block(inside: str) -> str:
    """The only Python block of the README that has this in it."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if inside in block]
    return str(block)


class Model:
    """Its KV of a token is the token, its next token counts on, and it reads only its memory."""

    name = "counts-on"

    def __init__(self, num_blocks: int) -> None:
        self.memory = np.full((num_blocks, 16), -1)
        self.prefilled = 0

    def prefill(self, tokens: list[int], table: list[int], skip: int) -> None:
        for position in range(skip, len(tokens)):
            self.memory[table[position // 16], position % 16] = tokens[position]
            self.prefilled += 1

    def sample(self, tokens: list[int], table: list[int]) -> int:
        kv = [int(self.memory[table[p // 16], p % 16]) for p in range(len(tokens))]
        assert kv == tokens, "the block table leads to the KV of other tokens"
        return tokens[-1] + 1

    def decode(self, tokens: list[int], table: list[int]) -> None:
        position = len(tokens) - 1
        self.memory[table[position // 16], position % 16] = tokens[-1]


def test_the_ten_lines_print_what_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    exec(code_block("BlockCache("), {})
    assert capsys.readouterr().out == "1696\n"


def test_the_engine_loop_prefills_only_what_is_new() -> None:
    """Two prompts of 100 tokens, 40 tokens each; then a second turn after each of them."""
    scope: dict[str, Any] = {}
    exec(code_block("def generate("), scope)
    generate = scope["generate"]
    model = Model(num_blocks=64)
    with node_process(num_blocks=64) as node:
        first = generate(model, node.address, [[7] * 100, [8] * 100], 40)
        assert [first[0][100:], first[1][100:]] == [list(range(8, 48)), list(range(9, 49))]
        assert model.prefilled == 200

        model.prefilled = 0
        second = generate(model, node.address, [[*first[0], 5, 6], [*first[1], 5, 6]], 3)
        assert second[0][140:] == [5, 6, 7, 8, 9]
        # 142 tokens each, of which 8 blocks of 16 are cached: 14 are left.
        assert model.prefilled == 28
        with NodeClient(node.address) as client:
            stats = client.stats()
        assert (stats.live_sequences, stats.private, stats.hit_tokens) == (0, 0, 256)


def test_the_chat_sends_only_what_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, Any] = {}
    exec(code_block("def chat("), scope)
    with node_process(num_blocks=512) as node:
        scope["chat"](node.address)
    assert capsys.readouterr().out == "0 of 1200\n1696 of 1900\n2400 of 2600\n"
