from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from prefix_cache.worker.stop_strings import StopStrings


def let_through(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    """What is shown after each piece and at the end, and the stop string found."""
    found = StopStrings(stops)
    return [*(found.add(piece) for piece in pieces), found.finish()], found.matched


def test_text_ends_before_the_stop_string() -> None:
    assert let_through(["END"], ["one END two"]) == (["one ", ""], "END")


def test_what_may_become_a_stop_string_is_held_back() -> None:
    assert let_through(["\n\n"], ["a\n", "b", "\n", "\nc"]) == (["a", "\nb", "", "", ""], "\n\n")


def test_what_was_held_back_is_shown_when_the_text_ends() -> None:
    assert let_through(["STOP"], ["please ST"]) == (["please ", "ST"], None)


def test_nothing_is_shown_after_a_match() -> None:
    assert let_through(["."], ["a.", "b"]) == (["a", "", ""], ".")


def test_a_stop_string_may_begin_within_a_false_start() -> None:
    assert let_through(["aab"], ["a", "a", "a", "b"]) == (["", "", "a", "", ""], "aab")


def test_the_one_that_is_complete_first_counts() -> None:
    assert let_through(["abcd", "bc"], ["xabcd"]) == (["xa", ""], "bc")


def test_of_two_complete_at_once_the_longer_counts() -> None:
    assert let_through(["bc", "abc"], ["xabc"]) == (["x", ""], "abc")


def test_without_stop_strings_everything_is_shown_at_once() -> None:
    assert let_through([], ["a", "b"]) == (["a", "b", ""], None)


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    st.lists(st.text("abc"), max_size=8),
)
def test_how_the_text_is_cut_makes_no_difference(stops: list[str], pieces: list[str]) -> None:
    shown, matched = let_through(stops, pieces)
    text = "".join(pieces)
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(s) for s in stops)]
    if not ends:
        assert ("".join(shown), matched) == (text, None)
    else:
        longest = max((s for s in stops if text[: ends[0]].endswith(s)), key=len)
        assert ("".join(shown), matched) == (text[: ends[0] - len(longest)], longest)
