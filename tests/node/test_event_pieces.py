"""Large events are told in pieces, which together say the same."""

from __future__ import annotations

from prefix_cache import Identity
from prefix_cache.index import BlocksRemoved, BlocksStored, Cleared
from prefix_cache.node.event_pieces import in_pieces
from tests.node.nodes import packed

WHO = Identity("m")


def hashes(count: int) -> tuple[bytes, ...]:
    return tuple(b"block %04d" % number for number in range(count))


def stored(count: int) -> BlocksStored:
    keys = tuple(b"%d" % number for number in range(count))
    return BlocksStored(hashes(count), b"parent", packed(*range(2 * count)), 2, keys, WHO)


def test_an_event_of_up_to_1024_blocks_stays_as_it_is() -> None:
    for event in (stored(1), stored(1_024), BlocksRemoved(hashes(1_024)), Cleared()):
        assert list(in_pieces(event)) == [event]


def test_stored_blocks_are_told_one_stretch_after_the_other() -> None:
    names = hashes(2_500)
    told = []
    for piece in in_pieces(stored(2_500)):
        assert isinstance(piece, BlocksStored)
        keys = piece.extra_keys
        told.append((piece.block_hashes, piece.parent_block_hash, piece.token_ids, keys))
    keys = stored(2_500).extra_keys
    assert told == [
        (names[:1_024], b"parent", packed(*range(2_048)), keys[:1_024]),
        (names[1_024:2_048], names[1_023], packed(*range(2_048, 4_096)), keys[1_024:2_048]),
        (names[2_048:], names[2_047], packed(*range(4_096, 5_000)), keys[2_048:]),
    ]


def test_removed_blocks_keep_their_order() -> None:
    names = hashes(1_025)
    assert list(in_pieces(BlocksRemoved(names))) == [
        BlocksRemoved(names[:1_024]),
        BlocksRemoved(names[1_024:]),
    ]
