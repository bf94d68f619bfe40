"""How large the benchmarks are."""

from __future__ import annotations

from dataclasses import dataclass

from tests.bench.prompts import BLOCK_SIZE


@dataclass(frozen=True)
class Scale:
    """Lengths are in tokens and multiples of two blocks; what is not said is a count."""

    short_prompt: int = 8_192
    long_prompt: int = 131_072
    turns: int = 4  # per sample
    decoded_tokens: int = 256  # of each sequence
    conversations: int = 8
    conversation_turns: int = 100
    question: int = 256
    answer: int = 768
    calls: int = 256  # of a node, per sample
    probes: int = 500  # small calls whose 99th percentile is taken
    memory_blocks: int = 1_000_000
    fleets: tuple[int, ...] = (8, 64, 256)  # nodes of a router
    pinned_conversations: int = 100_000  # of a router
    requests: int = 2_000  # of a proxy, by one connection, per sample
    picks: int = 50  # decisions per sample
    new_tokens: int = 200  # of a prompt that is known but for them

    @property
    def conversation_blocks(self) -> int:
        """Blocks that the conversations of one sample fill at most."""
        tokens = BLOCK_SIZE + self.conversation_turns * (self.question + self.answer)
        return self.conversations * (tokens // BLOCK_SIZE + 1)


TINY = Scale(
    short_prompt=64,
    long_prompt=128,
    turns=1,
    decoded_tokens=4,
    conversations=1,
    conversation_turns=3,
    question=16,
    answer=32,
    calls=1,
    probes=2,
    memory_blocks=1_024,
    fleets=(2,),
    pinned_conversations=1_000,
    requests=4,
    picks=1,
    new_tokens=16,
)
