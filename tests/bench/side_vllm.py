"""vLLM's side of the comparison with peers: its own classes, driven without an engine.

Runs in the Python in which vLLM is prepared, which is why nothing is imported by name here.
"""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any

from tests.bench.side import Clock, serve_rounds
from tests.bench.workload import NUM_BLOCKS, NUM_TOKENS, REPEATS

_BLOCK_SIZE = 16
_VOCABULARY = range(128_000)


class VllmSide:
    """A pool with free blocks, a full one, and a full one with KV events.

    Hashes are SHA-256, vLLM's default.
    """

    def __init__(self) -> None:
        import_module("vllm_stub").install()
        self._utils = import_module("vllm.v1.core.kv_cache_utils")
        self._request = import_module("vllm.v1.request").Request
        self._parameters = import_module("vllm.sampling_params").SamplingParams(max_tokens=8)
        function = import_module("vllm.utils.hashing").get_hash_fn_by_name("sha256")
        self._utils.init_none_hash(function)
        self._hasher = self._utils.get_request_block_hasher(_BLOCK_SIZE, function)
        self._draw = random.Random(1)
        self._count = 0
        self._base = self._tokens(NUM_TOKENS)
        self._roomy = self._manager(events=False)
        self._full = self._manager(events=False)
        self._announcing = self._manager(events=True)
        for manager in (self._full, self._announcing):
            for _ in range(NUM_BLOCKS * _BLOCK_SIZE // NUM_TOKENS + 1):
                self._turn(manager, self._new_request(self._tokens(NUM_TOKENS)))
            manager.take_events()
        # As vLLM's engine does once it is set up.
        import_module("vllm.utils.gc_utils").freeze_gc_heap()

    def play(self, clock: Clock) -> None:
        """One round."""
        for manager in (self._roomy, self._full):
            self._turn(manager, self._new_request(self._base))
        for name, manager in (("full hit", self._roomy), ("full hit, full pool", self._full)):
            for _ in range(REPEATS):
                request = self._new_request(self._base + self._tokens(1))
                clock.time(name, self._turn, manager, request)
        for name, manager in (("evict", self._full), ("evict, events", self._announcing)):
            for _ in range(REPEATS):
                request = self._new_request(self._tokens(NUM_TOKENS))
                clock.time(name, self._turn, manager, request)

    def _turn(self, manager: Any, request: Any) -> None:
        request.block_hashes = self._hasher(request)
        blocks, num_cached, _ = manager.get_computed_blocks(request)
        assert manager.allocate_slots(request, request.num_tokens - num_cached, num_cached, blocks)
        manager.free(request)
        manager.take_events()

    def _new_request(self, tokens: list[int]) -> Any:
        self._count += 1
        return self._request(str(self._count), tokens, self._parameters, None)

    def _tokens(self, count: int) -> list[int]:
        return self._draw.choices(_VOCABULARY, k=count)

    def _manager(self, *, events: bool) -> Any:
        interface = import_module("vllm.v1.kv_cache_interface")
        attention = interface.FullAttentionSpec(
            block_size=_BLOCK_SIZE,
            num_kv_heads=1,
            head_size=1,
            dtype=import_module("torch").float32,
        )
        config = interface.KVCacheConfig(
            num_blocks=NUM_BLOCKS,
            kv_cache_tensors=[],
            kv_cache_groups=[interface.KVCacheGroupSpec(["layer"], attention)],
        )
        return import_module("vllm.v1.core.kv_cache_manager").KVCacheManager(
            config,
            max_model_len=1 << 20,
            scheduler_block_size=_BLOCK_SIZE,
            hash_block_size=_BLOCK_SIZE,
            enable_caching=True,
            enable_kv_cache_events=events,
            log_stats=False,
        )


if __name__ == "__main__":
    serve_rounds(VllmSide().play)
