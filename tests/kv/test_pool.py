"""KV memory: what is written by slot is read by block table, copied and accounted for."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prefix_cache.errors import CorruptBlock, InvalidArgument, ValueOutOfRange
from prefix_cache.kv import KVLayout, KVPool, Scales

PER_BLOCK = Scales.per_block()
STORAGES = [("float32", None), ("bfloat16", None), ("float16", None), ("fp8_e4m3", PER_BLOCK)]


def tokens(count: int, start: float = 0.0) -> tuple[Tensor, Tensor]:
    """Keys and values that every dtype holds exactly: 2 KV heads of 4."""
    keys = (
        (start + torch.arange(count, dtype=torch.float32))[:, None, None]
        .expand(count, 2, 4)
        .clone()
    )
    return keys, -keys


def small_pool(
    dtype: str = "float32", scales: Scales | None = None, num_blocks: int = 4, host_blocks: int = 0
) -> KVPool:
    """Two layers, blocks of 4 tokens."""
    return KVPool(
        KVLayout(2, 2, 4, block_size=4, dtype=dtype),
        num_blocks,
        host_blocks=host_blocks,
        scales=scales,
    )


def held(pool: KVPool, block: int, layer: int = 0) -> list[float]:
    """The keys of a block; the values are their negatives."""
    keys, values = pool.gather(layer, [block], 4)
    assert torch.equal(keys, -values)
    assert (keys == keys[:, :1, :1]).all()
    return keys[:, 0, 0].tolist()


@pytest.mark.parametrize(("dtype", "scales"), STORAGES)
def test_what_is_written_by_slot_is_gathered_by_block_table(
    dtype: str, scales: Scales | None
) -> None:
    pool = small_pool(dtype, scales)
    pool.write(1, torch.tensor([12, 13, 14, 15, 4, 5]), *tokens(6))
    keys, values = pool.gather(1, [3, 1], 6)
    assert keys.dtype == torch.float32
    assert keys[:, 1, 2].tolist() == [0, 1, 2, 3, 4, 5]
    assert torch.equal(values, -keys)
    assert held(pool, 3, layer=0) == [0, 0, 0, 0]


@pytest.mark.parametrize(("dtype", "scales"), STORAGES)
def test_blocks_are_copied_in_all_layers_one_after_another(
    dtype: str, scales: Scales | None
) -> None:
    pool = small_pool(dtype, scales)
    for layer in range(2):
        pool.write(layer, torch.arange(4), *tokens(4, start=8 * layer))
    pool.copy_blocks([(0, 2), (2, 3), (1, 2)])
    for layer in range(2):
        assert held(pool, 3, layer) == held(pool, 0, layer) == [8 * layer + i for i in range(4)]
        assert held(pool, 2, layer) == [0, 0, 0, 0]


@pytest.mark.parametrize(("dtype", "scales"), STORAGES)
def test_blocks_come_back_from_the_host_as_they_were(dtype: str, scales: Scales | None) -> None:
    pool = small_pool(dtype, scales, host_blocks=2)
    for layer in range(2):
        pool.write(layer, torch.arange(8), *tokens(8, start=8 * layer))
    pool.offload([(0, 1), (1, 0)])
    for layer in range(2):
        pool.write(layer, torch.arange(8), *tokens(8, start=100))
    pool.load([(1, 3), (0, 0)])
    for layer in range(2):
        assert held(pool, 3, layer) == [8 * layer + i for i in range(4)]
        assert held(pool, 0, layer) == [8 * layer + i for i in range(4, 8)]


def test_a_slot_may_be_loaded_often_and_used_again() -> None:
    pool = small_pool(host_blocks=1)
    pool.write(0, torch.arange(8), *tokens(8))
    pool.offload([(0, 0)])
    pool.load([(0, 2)])
    pool.load([(0, 3)])
    assert held(pool, 2) == held(pool, 3) == [0, 1, 2, 3]
    pool.offload([(1, 0)])
    pool.load([(0, 2)])
    assert held(pool, 2) == [4, 5, 6, 7]


def test_a_slot_that_nothing_was_offloaded_to_is_not_loaded() -> None:
    """A load before its offload would be foreign KV, or none."""
    pool = small_pool(host_blocks=2)
    pool.write(0, torch.arange(4), *tokens(4))
    pool.offload([(0, 1)])
    with pytest.raises(CorruptBlock, match="nothing was offloaded to slot 0") as raised:
        pool.load([(1, 3), (0, 2)])
    assert raised.value.details == {"slot": 0}
    assert held(pool, 3) == [0, 0, 0, 0]


@pytest.mark.parametrize("what", ["data", "scales"])
def test_a_slot_that_was_written_to_meanwhile_is_not_loaded(what: str) -> None:
    pool = small_pool("fp8_e4m3", PER_BLOCK, host_blocks=2)
    pool.write(1, torch.arange(4), *tokens(4))
    pool.offload([(0, 0), (0, 1)])
    getattr(pool._host, what)[1, 0, 1].view(torch.uint8).flatten()[-1] += 1
    pool.load([(0, 2)])
    with pytest.raises(CorruptBlock, match="slot 1 does not hold what was offloaded to it"):
        pool.load([(1, 3)])


@pytest.mark.parametrize(
    ("dtype", "scales", "num_bytes", "host_bytes"),
    [
        # 30 layers * 2 * 16 tokens * 3 heads * 64 = 184,320 values a block.
        ("float32", None, 7_372_800, 2_211_840),
        ("bfloat16", None, 3_686_400, 1_105_920),
        ("float16", None, 3_686_400, 1_105_920),
        ("fp8_e5m2", Scales.per_layer([1.0] * 30, [1.0] * 30), 1_843_200, 552_960),
        # And 30 layers * 2 * 3 heads = 180 scales of 4 bytes.
        ("fp8_e4m3", PER_BLOCK, 1_850_400, 555_120),
    ],
)
def test_bytes_are_accounted_exactly(
    dtype: str, scales: Scales | None, num_bytes: int, host_bytes: int
) -> None:
    layout = KVLayout(num_layers=30, num_kv_heads=3, head_dim=64, dtype=dtype)
    pool = KVPool(layout, 10, host_blocks=3, scales=scales)
    assert (pool.num_bytes, pool.host_bytes) == (num_bytes, host_bytes)
    for store, accounted in ((pool._store, num_bytes), (pool._host, host_bytes)):
        assert sum(t.untyped_storage().nbytes() for t in store.tensors()) == accounted


def test_a_layout_says_what_a_token_takes() -> None:
    layout = KVLayout(num_layers=32, num_kv_heads=8, head_dim=128, dtype="bfloat16")
    assert (layout.bytes_per_token, layout.bytes_per_block) == (131_072, 2_097_152)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"dtype": "int8"},
            "unknown KV dtype 'int8'; expected one of "
            "float32, bfloat16, float16, fp8_e4m3, fp8_e5m2",
        ),
        ({"num_layers": 0}, "num_layers is 0; expected at least 1"),
        ({"head_dim": -1}, "head_dim is -1"),
        ({"block_size": 0}, "block_size is 0"),
    ],
)
def test_a_layout_of_nothing_known_is_refused(changes: dict[str, object], message: str) -> None:
    arguments = {"num_layers": 1, "num_kv_heads": 1, "head_dim": 4, **changes}
    with pytest.raises(InvalidArgument, match=message):
        KVLayout(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("slots", "shape", "layer", "message"),
    [
        ([16], (1, 2, 4), 0, "slot 16 is out of range; expected 0..15"),
        ([3, -1], (2, 2, 4), 0, "slot -1 is out of range"),
        ([0], (2, 2, 4), 0, "keys of shape \\(2, 2, 4\\); expected \\(1, 2, 4\\)"),
        ([0], (1, 4, 2), 0, "keys of shape \\(1, 4, 2\\)"),
        ([0], (1, 2, 4), 2, "layer 2; expected 0..1"),
        ([0], (1, 2, 4), -1, "layer -1"),
    ],
)
def test_a_write_that_does_not_fit_is_refused(
    slots: list[int], shape: tuple[int, ...], layer: int, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        small_pool().write(layer, torch.tensor(slots), torch.ones(shape), torch.ones(shape))


def test_values_of_another_shape_than_the_keys_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="values of shape"):
        small_pool().write(0, torch.tensor([0]), torch.ones(1, 2, 4), torch.ones(1, 1, 4))


def test_no_tokens_are_written_as_nothing() -> None:
    small_pool().write(0, torch.tensor([], dtype=torch.int64), *tokens(0))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 70_000.0])
def test_what_float16_does_not_hold_is_refused_and_nothing_written(value: float) -> None:
    """A NaN in one sequence's block would reach the next owner's attention through the mask."""
    pool = small_pool("float16")
    keys, values = tokens(2, start=1)
    values[1, 0, 3] = value
    message = f"a value of {value:g} in layer 1; the pool holds magnitudes up to 65504 there"
    with pytest.raises(ValueOutOfRange, match=message.replace("+", "\\+")):
        pool.write(1, torch.tensor([0, 1]), keys, values)
    assert held(pool, 0, layer=1) == [0, 0, 0, 0]


@pytest.mark.parametrize(("dtype", "scales"), STORAGES)
@pytest.mark.parametrize("computed", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_infinity_is_refused_in_whatever_dtype_it_was_computed(
    dtype: str, scales: Scales | None, computed: torch.dtype
) -> None:
    pool = small_pool(dtype, scales)
    keys, values = (tensor.to(computed) for tensor in tokens(2))
    pool.write(0, torch.tensor([0, 1]), keys, values)
    assert held(pool, 0) == [0, 1, 0, 0]
    keys[1, 1, 1] = float("inf")
    with pytest.raises(ValueOutOfRange, match="a key of inf in layer 0"):
        pool.write(0, torch.tensor([0, 1]), keys, values)


@pytest.mark.parametrize(
    ("table", "num_tokens", "message"),
    [
        ([0, 4], 5, "block 4 is out of range; expected 0..3"),
        ([-1], 1, "block -1 is out of range"),
        ([0], 5, "5 tokens; 1 blocks hold 0..4"),
        ([0], -1, "-1 tokens"),
    ],
)
def test_what_is_not_there_is_not_gathered(table: list[int], num_tokens: int, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        small_pool().gather(0, table, num_tokens)


def test_copies_out_of_range_are_refused_before_any_is_made() -> None:
    pool = small_pool(host_blocks=2)
    pool.write(0, torch.arange(4), *tokens(4, start=1))
    pool.offload([(0, 0)])
    for copy, pairs in (
        (pool.copy_blocks, [(0, 1), (0, 4)]),
        (pool.copy_blocks, [(0, 1), (-1, 1)]),
        (pool.offload, [(1, 0), (1, 2)]),
        (pool.load, [(0, 1), (0, 4)]),
        (pool.load, [(0, 1), (2, 1)]),
    ):
        with pytest.raises(InvalidArgument, match="is out of range"):
            copy(pairs)
    assert held(pool, 1) == [0, 0, 0, 0]
    pool.load([(0, 1)])
    assert held(pool, 1) == [1, 2, 3, 4]


@pytest.mark.parametrize("sizes", [(-1, 0), (1, -1)])
def test_a_pool_of_fewer_than_no_blocks_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(InvalidArgument, match="-1 blocks; expected 0 or more"):
        small_pool(num_blocks=sizes[0], host_blocks=sizes[1])
