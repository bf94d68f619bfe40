"""What turns were promised and got."""

from __future__ import annotations

from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from router.ledger import Ledger, LedgerTurn
from tests.router.dispatching import key


def entry(
    prompt_tokens: int = 1_000,
    available: int = 0,
    promised: int = 0,
    delivered: int | None = 0,
    is_hashable: bool = True,
) -> LedgerTurn:
    return LedgerTurn("a", "new", prompt_tokens, available, promised, delivered, is_hashable)


def losses(ledger: Ledger) -> tuple[int, int, int, int]:
    sums = ledger.sums
    return sums.unhashable, sums.held_by_nobody, sums.routed_elsewhere, sums.not_delivered


def test_each_lost_token_has_one_reason() -> None:
    """Of 1000: 200 held by nobody, 500 by another node, 50 promised and not there, 250 served."""
    ledger = Ledger(max_accounts=10)
    ledger.enter(None, entry(available=800, promised=300, delivered=250))

    assert losses(ledger) == (0, 200, 500, 50)
    assert (ledger.sums.delivered, ledger.sums.prefilled) == (250, 750)


def test_a_prompt_that_could_not_be_made_out_is_one_loss_of_its_own() -> None:
    ledger = Ledger(max_accounts=10)
    ledger.enter(None, entry(is_hashable=False, delivered=400))

    assert losses(ledger) == (600, 0, 0, 0)
    assert (ledger.sums.delivered, ledger.sums.prefilled) == (400, 600)


def test_an_engine_that_gives_no_word_is_believed_to_deliver_and_counted() -> None:
    ledger = Ledger(max_accounts=10)
    ledger.enter(None, entry(available=900, promised=900, delivered=None))

    assert (ledger.sums.turns_without_word, ledger.sums.prefilled) == (1, 100)
    assert ledger.sums.delivered == 0
    assert losses(ledger) == (0, 100, 0, 0)


def test_more_than_was_promised_is_no_loss() -> None:
    ledger = Ledger(max_accounts=10)
    ledger.enter(None, entry(available=100, promised=100, delivered=900))

    assert losses(ledger) == (0, 100, 0, 0)
    assert ledger.sums.prefilled == 100


def test_what_the_engine_had_after_all_was_not_lost_by_going_there() -> None:
    """Another was claimed to hold 800 and the chosen one nothing, but 600 were cached there."""
    ledger = Ledger(max_accounts=10)
    ledger.enter(None, entry(available=800, promised=0, delivered=600))

    assert losses(ledger) == (0, 200, 200, 0)


@given(
    turns=st.lists(
        st.tuples(
            st.lists(st.integers(0, 1_000), min_size=3, max_size=3).map(sorted),
            st.integers(0, 1_000) | st.none(),
            st.booleans(),
        )
    )
)
def test_losses_add_up_to_what_was_prefilled(
    turns: list[tuple[list[int], int | None, bool]],
) -> None:
    ledger = Ledger(max_accounts=10)
    for (promised, available, prompt), delivered, is_hashable in turns:
        if not is_hashable:
            promised = available = 0
        if delivered is not None:
            delivered = min(delivered, prompt)
        ledger.enter(None, entry(prompt, available, promised, delivered, is_hashable))

    assert sum(losses(ledger)) == ledger.sums.prefilled
    assert min(losses(ledger)) >= 0


def test_a_conversation_has_its_own_sums_and_its_last_32_turns() -> None:
    ledger = Ledger(max_accounts=10)
    for number in range(40):
        ledger.enter(key("one"), entry(100 + number, 96, 96, 90))
    ledger.enter(key("other"), entry(7))

    account = ledger.accounts[key("one")]
    assert [turn.prompt_tokens for turn in account.last] == list(range(108, 140))
    assert asdict(account.sums) == {
        "turns": 40,
        "turns_without_word": 0,
        "prompt_tokens": 4_780,
        "told_tokens": 4_780,
        "available": 3_840,
        "promised": 3_840,
        "delivered": 3_600,
        "prefilled": 1_180,
        "unhashable": 0,
        "held_by_nobody": 940,
        "routed_elsewhere": 0,
        "not_delivered": 240,
    }
    assert (ledger.sums.turns, ledger.sums.prompt_tokens) == (41, 4_787)


def test_the_account_unused_for_longest_goes_first_and_the_sums_stay() -> None:
    ledger = Ledger(max_accounts=3)
    for name in ("first", "second", "third", "first", "fourth"):
        ledger.enter(key(name), entry(10))

    assert [each.conversation for each in ledger.accounts] == ["third", "first", "fourth"]
    assert ledger.sums.turns == 5
