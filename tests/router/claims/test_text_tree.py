"""The tree of sent texts against a naive memory of every text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.claims.text_tree import PIECE_BYTES, Holder, Run, TextTree

# Of two letters, so that texts share beginnings; some with a piece that is not whole.
TEXTS = st.builds(
    lambda letters, rest: b"".join(letter * PIECE_BYTES for letter in letters) + rest,
    st.lists(st.sampled_from([b"a", b"b"]), max_size=6),
    st.sampled_from([b"", b"a", b"b" * 63]),
)
SENT = st.lists(st.tuples(st.integers(0, 2), TEXTS), max_size=30)


def common_pieces(text: bytes, other: bytes) -> int:
    whole = len(text) // PIECE_BYTES * PIECE_BYTES
    same = 0
    while same < whole and text[: same + PIECE_BYTES] == other[: same + PIECE_BYTES]:
        same += PIECE_BYTES
    return same


def audit(holder: Holder) -> None:
    """Each run comes after those behind it, and who holds a run holds what is before it."""
    place = {run: number for number, run in enumerate(holder.runs)}
    for run in holder.runs:
        assert holder in run.holders
        before = run.before
        assert before is not None
        if before.before is not None:
            assert place[before] > place[run]
        assert before.children[run.text[:PIECE_BYTES]] is run
    assert holder.num_bytes == sum(len(run.text) for run in holder.runs)


@given(SENT, TEXTS)
def test_every_holder_holds_what_the_most_alike_of_its_texts_has_in_common(
    sent: list[tuple[int, bytes]], asked: bytes
) -> None:
    tree, holders = TextTree(), [Holder() for _ in range(3)]
    for number, text in sent:
        tree.add(text, holders[number])
    for number, holder in enumerate(holders):
        texts = [text for of, text in sent if of == number]
        expected = max((common_pieces(text, asked) for text in texts), default=0)
        assert tree.held_bytes(asked, holder) == expected
        audit(holder)


@given(SENT, st.data())
def test_what_is_forgotten_is_never_the_beginning_of_what_is_left(
    sent: list[tuple[int, bytes]], data: st.DataObject
) -> None:
    tree, holders = TextTree(), [Holder() for _ in range(3)]
    for number, text in sent:
        tree.add(text, holders[number])
        forgets = data.draw(st.booleans())
        if forgets and holders[number].runs:
            tree.forget_oldest(holders[number])
        for holder in holders:
            audit(holder)
    for holder in holders:
        while holder.runs:
            tree.forget_oldest(holder)
        assert holder.num_bytes == 0
    assert all(tree.held_bytes(text, holder) == 0 for _, text in sent for holder in holders)


def runs_of(holder: Holder) -> list[int]:
    """Lengths in pieces, the least recent first."""
    return [len(run.text) // PIECE_BYTES for run in holder.runs]


def test_a_chat_that_goes_on_stays_one_run_until_another_engine_has_it_too() -> None:
    tree, here, there = TextTree(), Holder(), Holder()
    text = b"x" * PIECE_BYTES
    for turns in range(1, 101):
        tree.add(text * turns, here)
    assert runs_of(here) == [100]
    tree.add(text * 100, there)
    tree.add(text * 101, here)
    assert runs_of(here) == [1, 100]


def test_a_long_text_is_several_runs_of_which_the_last_goes_first() -> None:
    tree, holder = TextTree(), Holder()
    text = b"".join(b"%064d" % number for number in range(600))
    tree.add(text, holder)
    assert runs_of(holder) == [88, 256, 256]
    tree.forget_oldest(holder)
    assert tree.held_bytes(text, holder) == 512 * PIECE_BYTES


def test_asking_makes_no_run() -> None:
    tree, holder = TextTree(), Holder()
    tree.add(b"x" * 640, holder)
    [run] = holder.runs
    assert tree.held_bytes(b"x" * 320 + b"y" * 320, holder) == 320
    assert holder.runs.keys() == {run}
    assert isinstance(run, Run)
    assert len(run.text) == 640


@given(SENT, TEXTS)
def test_it_is_known_to_the_byte_where_a_text_leaves_what_was_sent(
    sent: list[tuple[int, bytes]], asked: bytes
) -> None:
    """Of what was sent whole pieces are remembered."""
    tree, holders = TextTree(), [Holder() for _ in range(3)]
    for number, text in sent:
        tree.add(text, holders[number])
    for number, holder in enumerate(holders):
        texts = [
            text[: len(text) // PIECE_BYTES * PIECE_BYTES] for of, text in sent if of == number
        ]
        lengths = range(len(asked), -1, -1)
        most = next(
            (length for length in lengths if any(t.startswith(asked[:length]) for t in texts)), 0
        )
        goes_on = any(len(text) > most and text.startswith(asked[:most]) for text in texts)
        assert tree.leaves(asked, holder) == (most, goes_on)


def test_a_text_may_leave_in_the_middle_of_a_piece() -> None:
    tree, holder, other = TextTree(), Holder(), Holder()
    for way in (b"x" * 100 + b"1" * 92, b"x" * 100 + b"2" * 92, b"x" * 70 + b"3" * 58):
        tree.add(way, holder)
    assert tree.leaves(b"x" * 100 + b"4" * 100, holder) == (100, True)
    assert tree.leaves(b"x" * 70 + b"4" * 100, holder) == (70, True)
    assert tree.leaves(b"x" * 100 + b"2" * 100, holder) == (192, False)
    assert tree.leaves(b"y" * 100, holder) == (0, True)
    assert tree.leaves(b"x" * 100, other) == (0, False)
