"""One suite for every ``CacheSession``: with an index in this process, and over a node's stream."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from prefix_cache import BlockCache, Identity, errors
from prefix_cache.client import (
    Acknowledge,
    Acknowledged,
    Acquire,
    AcquiredSequence,
    Append,
    Appended,
    CacheSession,
    Commit,
    Committed,
    Fork,
    Forked,
    LocalSession,
    NodeClient,
    Operation,
    Release,
    Released,
    Result,
)
from prefix_cache.index.results import NO_COPIES, Copies, Prefix
from tests.node.nodes import node_process

WHO = Identity("m")
SETTINGS: dict[str, Any] = {"num_blocks": 8, "block_size": 4, "host_blocks": 6}
CHAT = list(range(32))  # the tokens of 8 blocks
NUMBERS = range(4)  # of the sequences of a random history


@pytest.fixture(scope="module")
def node() -> Iterator[NodeClient]:
    with node_process(**SETTINGS) as process, NodeClient(process.address) as client:
        yield client


@pytest.fixture
def local() -> CacheSession:
    return LocalSession(BlockCache(**SETTINGS))


@pytest.fixture
def remote(node: NodeClient) -> Iterator[CacheSession]:
    with node.session() as session:
        yield session
    node.reset()


@pytest.fixture(params=["local", "remote"])
def session(request: pytest.FixtureRequest) -> CacheSession:
    session: CacheSession = request.getfixturevalue(request.param)
    return session


def one(session: CacheSession, operation: Operation) -> Any:
    """The result of a step of one operation."""
    (result,) = session.step([operation])
    return result


def evict_the_chat(session: CacheSession) -> Copies:
    """Cache the chat and let another take all blocks but its first; the copies to be made."""
    session.step([Acquire(1, WHO, CHAT), Commit(1, 32), Release(1)])
    copies: Copies = one(session, Acquire(2, WHO, [99] * 28)).copies
    return copies


def test_a_session_says_what_the_cache_is(session: CacheSession) -> None:
    assert (session.block_size, session.num_blocks, session.host_blocks) == (4, 8, 6)


def test_results_come_in_order_each_of_its_kind(session: CacheSession) -> None:
    opened, *others = session.step(
        [Acquire(7, WHO, [5] * 10), Commit(7, 9), Fork(8, 7), Append(8, [1, 2, 3]), Release(7)]
    )
    assert isinstance(opened, AcquiredSequence)
    assert (opened.id, opened.num_cached_tokens, opened.num_tokens) == (7, 0, 10)
    assert (opened.block_table.tolist(), opened.lease_s) == ([0, 1, 2], None)
    assert (opened.num_loaded_tokens, opened.copies) == (0, NO_COPIES)
    committed, *others = others
    assert isinstance(committed, Committed)
    assert committed.num_committed_tokens == 9
    assert others == [Forked(), Appended((4,), ((2, 3),), 13), Released()]
    assert committed.prefix is not None
    delta = one(session, Acquire(9, WHO, [6] * 2, after=committed.prefix))
    assert (delta.num_cached_tokens, delta.num_tokens) == (8, 10)


def test_a_failed_operation_is_a_result_and_the_others_go_on(session: CacheSession) -> None:
    too_large, unknown, opened, exists, beyond = session.step(
        [
            Acquire(1, WHO, [0] * 33),
            Release(1),
            Acquire(1, WHO, [1]),
            Acquire(1, WHO, [1]),
            Commit(1, 2),
        ]
    )
    assert type(too_large) is errors.PromptTooLarge
    assert type(unknown) is errors.UnknownSequence
    assert isinstance(opened, AcquiredSequence)
    assert type(exists) is errors.SequenceExists
    assert type(beyond) is errors.CommitBeyondTokens
    assert one(session, Commit(1, 1)) == Committed(1, None)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (Acquire(1, WHO, [-1]), errors.InvalidTokens),
        (Append(5, [1.5]), errors.InvalidTokenType),  # type: ignore[list-item]
        (Release(-1), errors.InvalidArgument),
        (Fork(1, 2**64), errors.InvalidArgument),
        (Commit(1, -1), errors.InvalidArgument),
        (Acknowledge(-1), errors.InvalidArgument),
    ],
)
def test_a_step_with_what_is_no_operation_is_not_carried_out(
    session: CacheSession, operation: Operation, expected: type[Exception]
) -> None:
    with pytest.raises(expected):
        session.step([Acquire(5, WHO, [1]), operation])
    assert type(one(session, Release(5))) is errors.UnknownSequence


def test_evicted_blocks_are_copied_to_the_host_and_back(session: CacheSession) -> None:
    """The seventh block finds no slot free, and takes that of the chat's tail."""
    evicted = evict_the_chat(session)
    assert evicted.offloads == ((1, 0), (6, 1), (5, 2), (4, 3), (3, 4), (2, 5))
    assert evicted.loads == ()
    session.step([Acknowledge(evicted.copy_id), Release(2)])

    chat = one(session, Acquire(3, WHO, CHAT))

    assert (chat.num_cached_tokens, chat.num_loaded_tokens) == (28, 24)
    assert chat.block_table.tolist()[0] == 0
    assert [slot for slot, _ in chat.copies.loads] == [0, 5, 4, 3, 2, 1]
    assert [block for _, block in chat.copies.loads] == chat.block_table.tolist()[1:7]
    pending, acknowledged, committed = session.step(
        [Commit(3, 32), Acknowledge(chat.copies.copy_id), Commit(3, 32)]
    )
    assert type(pending) is errors.CopyPending
    assert acknowledged == Acknowledged()
    assert isinstance(committed, Committed)


def test_who_does_not_want_to_load_computes(session: CacheSession) -> None:
    session.step([Acknowledge(evict_the_chat(session).copy_id), Release(2)])
    chat = one(session, Acquire(3, WHO, CHAT, load=False))
    assert (chat.num_cached_tokens, chat.num_loaded_tokens, chat.copies.loads) == (4, 0, ())


def test_lost_copies_are_not_found_and_no_copy_is_acknowledged_twice(
    session: CacheSession,
) -> None:
    evicted = evict_the_chat(session)
    lost = Acknowledge(evicted.copy_id, lost=True)
    assert one(session, lost) == Acknowledged()
    twice = one(session, lost)
    assert type(twice) is errors.UnknownCopy
    assert str(twice) == f"copy {evicted.copy_id} is not pending"
    session.step([Release(2)])
    assert one(session, Acquire(3, WHO, CHAT)).num_cached_tokens == 4


def test_appending_moves_blocks_to_the_host_too(session: CacheSession) -> None:
    session.step([Acquire(1, WHO, CHAT[:28]), Commit(1, 28), Release(1), Acquire(2, WHO, [9] * 4)])
    appended = one(session, Append(2, [9]))
    assert isinstance(appended, Appended)
    assert (appended.new_block_ids, appended.copies) == ((6,), ())
    assert appended.offloads == ((6, 0),)
    assert one(session, Acknowledge(appended.copy_id)) == Acknowledged()


def transcript(session: CacheSession, seed: int) -> list[object]:
    """What a random history of operations brings, the end of all its sequences included."""
    history = History(Random(seed))
    told: list[object] = []

    def carry_out(operations: list[Operation]) -> None:
        results = session.step(operations)
        history.learn(operations, results)
        told.extend(facts(result) for result in results)

    for _ in range(60):
        carry_out([history.operation() for _ in range(history.random.randint(1, 5))])
    carry_out([Release(number) for number in NUMBERS])
    carry_out([Acknowledge(copy_id, lost=True) for copy_id in history.pending])
    return told


class History:
    """Draws operations, with what the results so far have brought."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.pending: list[int] = []
        self._prefixes: list[Prefix] = []
        self._open: set[int] = set()

    def operation(self) -> Operation:
        random = self.random
        # Mostly one that is open, or is not, as the operation has it.
        number = random.choice([random.choice(NUMBERS), *sorted(self._open) * 2])
        match random.randrange(10):
            case 0 | 1 | 2:
                return self._acquire(random.choice(NUMBERS))
            case 3:
                return Append(number, [random.choice((1, 2))] * random.randint(0, 5))
            case 4 | 5:
                return Commit(number, random.choice((4, 8, 12, 30)))
            case 6:
                return Fork(number, random.choice(NUMBERS))
            case 7 | 8 if self.pending:
                copy_id = self.pending.pop(random.randrange(len(self.pending)))
                return Acknowledge(copy_id, lost=random.random() < 0.2)
            case _:
                return Release(number)

    def learn(self, operations: list[Operation], results: list[Result]) -> None:
        for operation, result in zip(operations, results, strict=True):
            match result:
                case AcquiredSequence() | Forked():
                    self._open.add(operation.sequence_id)
                case Released():
                    self._open.discard(operation.sequence_id)
                case Committed(prefix=Prefix() as prefix):
                    self._prefixes.append(prefix)
            match result:
                case AcquiredSequence(copies=Copies(copy_id)) | Appended(copy_id=copy_id):
                    self.pending += [copy_id] if copy_id else []

    def _acquire(self, number: int) -> Acquire:
        random = self.random
        return Acquire(
            number,
            Identity("m", salt=random.choice(("", "", "s"))),
            [random.choice((1, 2))] * random.choice((0, 4, 9, 13)) + [3] * random.randint(0, 9),
            extra_keys=random.choice(((),) * 8 + (((2, 6, b"image"),), ((9, None, None),))),
            after=random.choice([*[None] * 8, *self._prefixes[-2:]]),
            resumed=random.random() < 0.2,
            load=random.random() < 0.8,
        )


def facts(result: Result) -> object:
    """A result as a value that can be compared; copies are numbered by each cache for itself."""
    match result:
        case AcquiredSequence():
            return (
                *(result.id, result.num_cached_tokens, result.num_tokens),
                *(result.block_table.tolist(), result.num_loaded_tokens),
                *(result.copies.offloads, result.copies.loads),
            )
        case errors.CopyPending():
            return type(result)
        case errors.PrefixCacheError():
            details = {name: str(value) for name, value in result.details.items()}
            return type(result), str(result), details
        case Appended():
            return result.new_block_ids, result.copies, result.num_tokens, result.offloads
        case _:
            return result


@pytest.mark.parametrize("seed", range(40))
def test_any_history_has_the_same_results_in_process_and_over_a_node(
    local: CacheSession, remote: CacheSession, seed: int
) -> None:
    assert transcript(remote, seed) == transcript(local, seed)
