"""F070: copies after the writer and before the reader, by a worker that is late with everything."""

from __future__ import annotations

from random import Random

import pytest

from prefix_cache.client import AsyncNodeClient
from tests.node.copying_worker import BLOCK_SIZE, CopyingWorker, WrongKV
from tests.node.nodes import running_node


async def serve(seed: int, *, in_order: bool) -> int:
    """Run random sequences through a node with a host tier; return the blocks loaded."""
    random = Random(seed)
    async with (
        running_node(num_blocks=12, block_size=BLOCK_SIZE, host_blocks=10) as running,
        AsyncNodeClient(running.address) as client,
        client.session() as session,
    ):
        worker = CopyingWorker(session, in_order=in_order)
        for number in range(300):
            prompt = [random.randrange(3)] * random.randint(1, 16) + [7] * random.randint(0, 8)
            await worker.start(number, prompt)
            worker.work(random.randint(0, 6))
            # Two sequences of up to 6 blocks fit.
            if len(worker.running) == 2:
                await worker.finish(random.choice(list(worker.running)))
            running.node.cache.audit()
        worker.work(1_000)
    return worker.loaded_blocks


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_loaded_is_what_was_written_however_late_the_worker_is(seed: int) -> None:
    assert await serve(seed, in_order=True) > 50


async def test_copies_that_do_not_wait_for_the_writer_bring_other_kv() -> None:
    """The control arm: the story above can tell."""
    with pytest.raises(WrongKV):
        await serve(0, in_order=False)
