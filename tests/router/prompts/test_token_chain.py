from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_cache.index import Identity
from prefix_cache.index.block_hash import BlockHasher
from prefix_cache.index.tokens import as_token_bytes
from router.prompts.byte_lru import ByteLRU
from router.prompts.token_chain import TokenChains
from router.turn import ConversationKey

WHO = Identity("m")
CHAT = ConversationKey("", "chat")
OTHER = ConversationKey("", "other")


def reference(tokens: bytes, block_size: int, who: Identity = WHO) -> list[bytes]:
    hasher = BlockHasher(block_size, None)
    whole = len(tokens) // (4 * block_size) * 4 * block_size
    return list(hasher.split(hasher.chain(hasher.root(who), tokens[:whole], {})))


def packed(*tokens: int) -> bytes:
    return as_token_bytes(tokens)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Tokens that were hashed."""
    count, chain = [0], BlockHasher.chain

    def counting(
        of: BlockHasher, parent: bytes, tokens: bytes, extra: Mapping[int, bytes]
    ) -> bytearray:
        count[0] += len(tokens) // 4
        return chain(of, parent, tokens, extra)

    monkeypatch.setattr(BlockHasher, "chain", counting)
    return lambda: count[0]


@given(st.lists(st.lists(st.integers(0, 1), max_size=20), min_size=1, max_size=6))
def test_whatever_came_before_the_hashes_are_those_of_a_node(turns: list[list[int]]) -> None:
    chains = TokenChains(2)
    for tokens in turns:
        assert chains.hashes(CHAT, WHO, packed(*tokens)) == reference(packed(*tokens), 2)


def test_of_a_later_turn_only_what_is_new_is_hashed(hashed: Callable[[], int]) -> None:
    chains = TokenChains(16)
    chains.hashes(CHAT, WHO, packed(*range(1000)))
    assert hashed() == 992
    chains.hashes(CHAT, WHO, packed(*range(1200)))
    assert hashed() == 992 + 208
    chains.hashes(CHAT, WHO, packed(*range(600), *range(7, 100)))
    assert hashed() == 992 + 208 + 96
    chains.hashes(CHAT, WHO, packed(*range(300)))
    assert hashed() == 992 + 208 + 96


def test_another_identity_or_conversation_shares_nothing() -> None:
    chains, tokens = TokenChains(16), packed(*range(64))
    chains.hashes(CHAT, WHO, tokens)
    salted = Identity("m", salt="s")
    assert chains.hashes(CHAT, salted, tokens) == reference(tokens, 16, salted)
    assert chains.hashes(OTHER, WHO, tokens) == reference(tokens, 16)
    assert chains.hashes(None, WHO, tokens) == reference(tokens, 16)


def test_memory_is_bounded_and_the_conversation_unused_for_longest_goes(
    hashed: Callable[[], int],
) -> None:
    chains = TokenChains(16, max_bytes=3 * (1024 * 4 + 64 * 64))

    def turn(number: int) -> None:
        chains.hashes(ConversationKey("", str(number)), WHO, packed(*range(1024)))

    for number in (0, 1, 2, 0, 3):
        turn(number)
    assert hashed() == 4 * 1024
    for number in (0, 2, 3):
        turn(number)
    assert hashed() == 4 * 1024
    turn(1)
    assert hashed() == 5 * 1024


def test_a_value_above_the_bound_is_not_kept_and_drops_nothing() -> None:
    memory: ByteLRU[str, str] = ByteLRU(10)
    memory.put("a", "A", 4)
    memory.put("b", "B", 11)
    assert (memory.get("a"), memory.get("b"), len(memory)) == ("A", None, 1)
    memory.put("a", "AA", 11)
    assert memory.get("a") is None
