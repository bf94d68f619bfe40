"""Whose KV it is, through the node: nothing is shared across identities."""

from __future__ import annotations

import numpy as np
import pytest

from prefix_cache import Identity
from prefix_cache.client import Acquire, AcquiredSequence, AsyncNodeClient
from prefix_cache.errors import IdentityMismatch
from tests.node.nodes import running_node

TOKENS = list(range(64))


async def store(client: AsyncNodeClient, who: Identity) -> None:
    sequence = await client.acquire(who, TOKENS)
    await client.commit(sequence.id, 64)
    await client.release(sequence.id)


async def cached(client: AsyncNodeClient, who: Identity) -> int:
    """Cached blocks of the 64 tokens and one more."""
    return len((await client.match(who, [*TOKENS, 64])).block_ids)


async def test_adapters_do_not_share_kv(client: AsyncNodeClient) -> None:
    """F014: what adapter a stored is not there for the base model nor for adapter b."""
    await store(client, Identity("m", adapter="a"))
    assert await cached(client, Identity("m")) == 0
    assert await cached(client, Identity("m", adapter="b")) == 0
    assert await cached(client, Identity("m", adapter="a")) == 4


@pytest.mark.parametrize(
    "field", ["model", "revision", "adapter", "adapter_revision", "kv_dtype", "salt"]
)
async def test_every_field_of_the_identity_travels(client: AsyncNodeClient, field: str) -> None:
    """F019: the salt, like every other field, counts on the node's look-up path too."""
    first, second = (Identity(**{"model": "m", field: value}) for value in ("s1", "s2"))
    await store(client, first)
    assert await cached(client, second) == 0
    assert await cached(client, first) == 4
    await store(client, second)
    assert (await client.stats()).cached == 8


async def test_a_session_keeps_salts_apart_as_unary_calls_do(client: AsyncNodeClient) -> None:
    """F019: both ways into the node agree on whose KV it is."""
    await store(client, Identity("m", salt="s1"))
    async with client.session() as session:
        same, other = await session.step(
            [
                Acquire(1, Identity("m", salt="s1"), [*TOKENS, 64]),
                Acquire(2, Identity("m", salt="s2"), [*TOKENS, 64]),
            ]
        )
        assert isinstance(same, AcquiredSequence)
        assert isinstance(other, AcquiredSequence)
        assert same.num_cached_tokens == 64
        assert other.num_cached_tokens == 0


async def test_extra_keys_travel(client: AsyncNodeClient) -> None:
    """A picture's digest keeps equal placeholders apart; an unknown one allows no reuse."""
    who = Identity("m")
    sequence = await client.acquire(who, TOKENS, [(20, 30, b"A")])
    await client.commit(sequence.id, 64)

    async def found(*extra_keys: tuple[int, int | None, bytes | None]) -> int:
        return (await client.match(who, [*TOKENS, 64], extra_keys)).num_cached_tokens

    assert await found((20, 30, b"A")) == 64
    assert await found((20, 30, b"B")) == 16
    assert await found((20, None, None)) == 16
    assert await found((40, None, b"A"), (20, 30, b"A")) == 32


async def test_tokens_in_every_form_are_the_same_prompt(client: AsyncNodeClient) -> None:
    await store(client, Identity("m"))
    prompt = [*TOKENS, 64]
    for form in (
        prompt,
        tuple(prompt),
        np.array(prompt, dtype=np.int64),
        np.array(prompt, dtype=np.uint8),
        np.array(prompt, dtype=">u4"),
        np.array(prompt, dtype="<u4").tobytes(),
    ):
        assert (await client.match(Identity("m"), form)).num_cached_tokens == 64


async def test_a_node_of_one_model_refuses_others() -> None:
    async with (
        running_node(model="llama", kv_dtype="fp8_e4m3") as running,
        AsyncNodeClient(running.address) as client,
    ):
        good = Identity("llama", kv_dtype="fp8_e4m3")
        await store(client, good)
        for who, field, value, expected in (
            (Identity("qwen", kv_dtype="fp8_e4m3"), "model", "qwen", "llama"),
            (Identity("", kv_dtype="fp8_e4m3"), "model", "", "llama"),
            (Identity("llama"), "kv_dtype", "bfloat16", "fp8_e4m3"),
        ):
            with pytest.raises(IdentityMismatch) as caught:
                await client.acquire(who, TOKENS)
            assert caught.value.details == {"field": field, "client": value, "node": expected}
            assert f"{value!r}" in str(caught.value)
            assert f"{expected!r}" in str(caught.value)
        for opening in ({"model": "qwen"}, {"kv_dtype": "bfloat16"}, {"block_size": 64}):
            with pytest.raises(IdentityMismatch):
                async with client.session(**opening):
                    pass
        async with client.session(model="llama", kv_dtype="fp8_e4m3", block_size=16):
            pass


async def test_a_name_of_any_length_is_refused_with_the_same_error() -> None:
    """Errors travel in headers, which hold a few KiB: long values are clipped."""
    async with (
        running_node(model="llama") as running,
        AsyncNodeClient(running.address) as client,
    ):
        with pytest.raises(IdentityMismatch) as caught:
            await client.match(Identity("\N{SNOWMAN}" * 100_000), TOKENS)
        assert caught.value.details["node"] == "llama"
        assert caught.value.details["client"] == "\N{SNOWMAN}" * 66 + "..."


async def test_a_client_may_tell_its_block_size_once() -> None:
    async with (
        running_node(block_size=32) as running,
        AsyncNodeClient(running.address, block_size=16) as client,
    ):
        with pytest.raises(IdentityMismatch, match="block_size is 16, this node's is 32"):
            await client.match(Identity("m"), TOKENS)
        with pytest.raises(IdentityMismatch):
            async with client.session():
                pass


async def test_a_prompt_of_131072_tokens_passes() -> None:
    async with (
        running_node(num_blocks=8193) as running,
        AsyncNodeClient(running.address) as client,
    ):
        tokens = np.arange(131_072)
        sequence = await client.acquire(Identity("m"), tokens)
        assert sequence.block_table.tolist() == list(range(8192))
        await client.commit(sequence.id, 131_072)
        assert (await client.match(Identity("m"), tokens)).num_cached_tokens == 131_056
