"""A node or a worker that was replaced while others still hold to the one before."""

from __future__ import annotations

import signal

import pytest

from prefix_cache import Identity
from prefix_cache.client import Acquire, AsyncNodeClient, Commit, NodeClient
from prefix_cache.errors import PrefixCacheError, Unavailable, UnknownSequence
from tests.node.client_processes import client_process, eventually
from tests.node.nodes import RunningNode, answers, node_process, wait_until

WHO = Identity("m")
PROMPT = list(range(40))

# A worker that is frozen in the middle of its work and goes on with it when it wakes up.
_WORKER = """
import os, signal
with NodeClient(sys.argv[1]) as client:
    try:
        with client.session(worker_epoch=1) as session:
            session.step([Acquire(1, WHO, list(range(40))), Commit(1, 20)])
            say("written")
            os.kill(os.getpid(), signal.SIGSTOP)
            session.step([Commit(1, 40)])
    except errors.WorkerRestarted as error:
        say(error.details["current"])
    try:
        client.session(worker_epoch=1).__enter__()
    except errors.WorkerRestarted as error:
        say(error)
"""


def test_what_was_held_at_a_node_names_nothing_at_its_successor() -> None:
    with node_process(name="left") as first, NodeClient(first.address) as client:
        before = client.info()
        sequence = client.acquire(WHO, PROMPT)
        with client.session(worker_epoch=5) as session:
            session.step([Acquire(1, WHO, PROMPT), Commit(1, 40)])
            first.signal(signal.SIGKILL)
            first.wait()
            with node_process(name="left", listen=[first.address]):
                wait_until(lambda: answers(client))
                after = client.info()
                assert (after.name, after.worker_epoch) == ("left", 0)
                assert after.incarnation != before.incarnation

                with pytest.raises(Unavailable):
                    session.step([Commit(1, 40)])
                for call in (
                    lambda: client.append(sequence.id, [1]),
                    lambda: client.commit(sequence.id, 40),
                    lambda: client.fork(sequence.id),
                    lambda: client.release(sequence.id),
                ):
                    with pytest.raises(UnknownSequence):
                        call()
                assert client.match(WHO, PROMPT).num_cached_tokens == 0
                with client.session(worker_epoch=5) as again:
                    assert again.incarnation == after.incarnation
                    (acquired,) = again.step([Acquire(1, WHO, PROMPT)])
                    assert not isinstance(acquired, PrefixCacheError)


async def test_a_worker_that_wakes_up_after_it_was_replaced_claims_nothing(
    running: RunningNode, client: AsyncNodeClient
) -> None:
    cache = running.node.cache
    async with client_process(_WORKER, running.address) as frozen:
        assert await frozen.line() == "written"
        assert (await client.match(WHO, PROMPT)).num_cached_tokens == 16
        async with client.session(worker_epoch=2) as session:
            await eventually(lambda: cache.stats().live_sequences == 0)
            assert cache.stats().free == 64
            await session.step([Acquire(1, WHO, PROMPT)])
            frozen.signal(signal.SIGCONT)
            assert await frozen.line() == "2"
            assert await frozen.line() == ("worker epoch 1 has ended, the worker's epoch is 2 now")
            stats = cache.stats()
            assert (stats.live_sequences, stats.cached) == (1, 0)
