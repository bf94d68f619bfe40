"""The work of a test engine, in time: prefill in turn, decode side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from prefix_cache.index import Identity
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.testing.config import EngineConfig
from prefix_cache.testing.memory import Memory, OpenSequence


class Decoding:
    """A prompt that is prefilled; iterating takes the time that the answer's tokens take.

    Yields the number of each token, from 0.
    """

    def __init__(
        self, sequence: OpenSequence, prompt_tokens: int, answer_tokens: int, s_per_token: float
    ) -> None:
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = sequence.num_cached_tokens
        self.decoded = 0
        self._sequence = sequence
        self._answer_tokens = answer_tokens
        self._s_per_token = s_per_token

    async def __aiter__(self) -> AsyncIterator[int]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(self._answer_tokens):
            if self._s_per_token:
                await asyncio.sleep(began + (number + 1) * self._s_per_token - loop.time())
            self.decoded += 1
            yield number
        await self.commit()

    async def commit(self) -> None:
        """Make what was computed findable."""
        await self._sequence.commit(self.prompt_tokens + self.decoded)


class Worker:
    """Computes prompts one after the other, first come, first served."""

    def __init__(self, config: EngineConfig, memory: Memory) -> None:
        self._memory = memory
        self._config = config
        self._prefill = asyncio.Lock()

    @asynccontextmanager
    async def compute(
        self, identity: Identity, prompt: bytes, answer: bytes
    ) -> AsyncIterator[Decoding]:
        """Prefill ``prompt``, then decode ``answer`` (both uint32 little-endian).

        What is computed when the context closes stays cached.  Raises ``PromptTooLarge``, and
        ``InvalidTokens`` for an empty prompt.
        """
        prompt_tokens, answer_tokens = len(prompt) // TOKEN_BYTES, len(answer) // TOKEN_BYTES
        async with AsyncExitStack() as stack:
            async with self._prefill:
                sequence = await stack.enter_async_context(
                    self._memory.sequence(identity, prompt, answer)
                )
                if rate := self._config.prefill_tokens_per_s:
                    await asyncio.sleep((prompt_tokens - sequence.num_cached_tokens) / rate)
                await sequence.commit(prompt_tokens)
            decoding = Decoding(
                sequence, prompt_tokens, answer_tokens, self._config.decode_s_per_token
            )
            try:
                yield decoding
            finally:
                await decoding.commit()
