"""FP8: what the formats hold, by what values are scaled, and that nothing is clipped unsaid."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from prefix_cache.errors import InvalidArgument, MissingScales, ValueOutOfRange
from prefix_cache.kv import Calibration, KVLayout, KVPool, Scales
from prefix_cache.kv.fp8 import dequantise, largest, quantise
from prefix_cache.kv.layout import FP8

E4M3, E5M2 = FP8["fp8_e4m3"], FP8["fp8_e5m2"]
ONE_HEAD = (1, 1, 2)
SCALE_1 = Scales.per_layer([1.0], [1.0])


def pool_of(
    scales: Scales, shape: tuple[int, int, int] = ONE_HEAD, dtype: str = "fp8_e4m3"
) -> KVPool:
    """Two blocks of 4 tokens; ``shape``: layers, KV heads, head dim."""
    return KVPool(KVLayout(*shape, block_size=4, dtype=dtype), 2, scales=scales)


def write(pool: KVPool, slots: list[int], values: list[float], layer: int = 0) -> None:
    """Tokens whose keys have these values in all heads; their values are zeros."""
    shape = (len(slots), pool.layout.num_kv_heads, pool.layout.head_dim)
    keys = torch.tensor(values)[:, None, None].expand(shape)
    pool.write(layer, torch.tensor(slots), keys, torch.zeros(shape))


def keys_of(pool: KVPool, block: int, count: int, layer: int = 0) -> list[float]:
    keys, values = pool.gather(layer, [block], count)
    assert not values.any()
    return keys[:, 0, 0].tolist()


def stored_in(scales: Scales, values: list[float], dtype: str = "fp8_e4m3") -> list[float]:
    """What is read of these tokens."""
    pool = pool_of(scales, dtype=dtype)
    write(pool, list(range(len(values))), values)
    return keys_of(pool, 0, len(values))


# --- the formats ----------------------------------------------------------------------------


def test_values_are_rounded_as_the_formats_say() -> None:
    assert stored_in(SCALE_1, [3.14159, 0.1234, -3.14159]) == [3.25, 0.125, -3.25]
    assert stored_in(SCALE_1, [3.14159, 0.1234], "fp8_e5m2") == [3.0, 0.125]


def test_the_largest_values_are_held() -> None:
    assert stored_in(SCALE_1, [448.0, -448.0]) == [448.0, -448.0]
    assert stored_in(SCALE_1, [57_344.0, -57_344.0], "fp8_e5m2") == [57_344.0, -57_344.0]
    assert (largest(E4M3), largest(E5M2)) == (448.0, 57_344.0)


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
def test_every_number_of_a_format_is_read_as_torch_reads_it(dtype: torch.dtype) -> None:
    stored = torch.arange(256, dtype=torch.uint8).view(dtype)
    numbers = stored.float()
    finite = numbers.isfinite()
    assert finite.sum() == {E4M3: 254, E5M2: 248}[dtype]
    assert torch.equal(dequantise(stored, 0.5, torch.float32)[finite], numbers[finite] * 0.5)
    assert torch.equal(quantise(numbers, 1.0, dtype).float()[finite], numbers[finite])


# --- no silent scale, no silent clipping ----------------------------------------------------


@pytest.mark.parametrize("dtype", list(FP8))
def test_fp8_without_scales_is_refused_and_says_how_to_get_them(dtype: str) -> None:
    with pytest.raises(MissingScales, match=r"needs scales: Scales.per_block\(\), or .*Calibra"):
        KVPool(KVLayout(1, 1, 2, dtype=dtype), 2)


def test_other_dtypes_have_no_scales() -> None:
    with pytest.raises(InvalidArgument, match="scales for a bfloat16 pool; only FP8 has them"):
        KVPool(KVLayout(1, 1, 2, dtype="bfloat16"), 2, scales=Scales.per_block())


def test_values_up_to_600_do_not_fit_a_scale_of_1_and_are_not_clipped() -> None:
    pool = pool_of(SCALE_1)
    with pytest.raises(ValueOutOfRange, match=r"a key of -600 in layer 0; .* up to 448") as raised:
        write(pool, [0, 1], [4.0, -600.0])
    assert raised.value.details == {"value": -600.0, "layer": 0, "limit": 448.0}
    assert keys_of(pool, 0, 2) == [0.0, 0.0]
    write(pool, [0], [4.0])
    assert keys_of(pool, 0, 1) == [4.0]


@pytest.mark.parametrize(
    "scales",
    [Scales.per_block(), Scales.per_layer([2.0], [2.0]), Scales.per_head([[2.0]], [[2.0]])],
)
def test_values_up_to_600_and_up_to_4_are_held_by_scales_that_fit(scales: Scales) -> None:
    assert stored_in(scales, [600.0]) == [576.0]  # 288 * 2: the next one is 640
    assert stored_in(scales, [4.0]) == [4.0]


def test_with_scales_per_block_hardly_anything_is_out_of_range() -> None:
    assert stored_in(Scales.per_block(), [2.0**119, 0.0]) == [2.0**119, 0.0]
    assert stored_in(Scales.per_block(), [1e-30]) == [pytest.approx(1e-30, rel=1 / 16)]
    assert stored_in(Scales.per_block(), [0.0]) == [0.0]
    for value in (1e36, float("inf"), float("nan")):
        with pytest.raises(ValueOutOfRange, match="the pool holds magnitudes up to 6"):
            stored_in(Scales.per_block(), [1.0, value])


def test_scales_of_layers_and_heads_are_their_own() -> None:
    scales = Scales.per_head([[1.0, 4.0], [16.0, 64.0]], [[1.0, 1.0], [1.0, 1.0]])
    pool = pool_of(scales, (2, 2, 2))
    for layer, limit in enumerate([448.0, 7168.0]):
        write(pool, [0], [limit], layer)
        assert keys_of(pool, 0, 1, layer) == [limit]
        with pytest.raises(ValueOutOfRange, match=f"in layer {layer}; .* up to {limit:g} there"):
            write(pool, [0], [limit + 1], layer)


@pytest.mark.parametrize(
    ("keys", "values", "message"),
    [
        ([1.0, 0.0], [1.0, 1.0], "a scale of 0.0; expected a finite number above 0"),
        ([1.0, -2.0], [1.0, 1.0], "a scale of -2.0"),
        ([1.0, float("nan")], [1.0, 1.0], "a scale of nan"),
        ([1.0, float("inf")], [1.0, 1.0], "a scale of inf"),
        ([1.0, 1.0], [1.0], "shapes \\(2,\\) and \\(1,\\); expected \\[layers\\] twice"),
        ([[1.0], [1.0]], [[1.0], [1.0]], "shapes \\(2, 1\\)"),
        ([1.0], [1.0], "scales for 1 layers of 1 KV heads; the layout has 2 of 1"),
    ],
)
def test_scales_that_do_not_fit_are_refused(
    keys: list[float], values: list[float], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        pool_of(Scales.per_layer(keys, values), (2, 1, 2))


# --- scales per block -----------------------------------------------------------------------


def test_a_larger_token_raises_its_blocks_scale_and_the_others_keep_their_bits() -> None:
    pool = pool_of(Scales.per_block())
    write(pool, [0, 1, 4], [0.40625, -0.375, 0.40625])
    write(pool, [2], [600.0])
    assert keys_of(pool, 0, 3) == [0.40625, -0.375, 576.0]
    assert keys_of(pool, 1, 1) == [0.40625]


def test_a_smaller_token_leaves_the_scale_as_it_is() -> None:
    pool = pool_of(Scales.per_block())
    write(pool, [0], [448.0])
    write(pool, [1], [0.001])
    assert keys_of(pool, 0, 2) == [448.0, 0.001953125]  # 1 / 512 is the smallest at scale 1


def test_a_block_that_begins_anew_forgets_the_scale_of_its_last_owner() -> None:
    pool = pool_of(Scales.per_block())
    write(pool, [0, 1], [448.0, 448.0])
    write(pool, [0], [0.001])
    assert keys_of(pool, 0, 1) == [pytest.approx(0.001, rel=1 / 16)]


def test_a_head_of_large_values_does_not_cost_the_others_precision() -> None:
    pool = pool_of(Scales.per_block(), (1, 2, 2))
    keys = torch.tensor([[[1e-4, 1e-4], [400.0, 400.0]]])
    pool.write(0, torch.tensor([0]), keys, keys.flip(1))
    read_keys, read_values = pool.gather(0, [0], 1)
    torch.testing.assert_close(read_keys, keys, rtol=1 / 16, atol=0)
    torch.testing.assert_close(read_values, keys.flip(1), rtol=1 / 16, atol=0)


@pytest.mark.parametrize("dtype", list(FP8))
def test_tokens_written_one_by_one_are_stored_as_if_written_at_once(dtype: str) -> None:
    """Of any values that differ by less than the format's normal numbers span."""
    layout = KVLayout(1, 2, 8, dtype=dtype)
    generator = torch.Generator().manual_seed(1)
    magnitudes = torch.randn(2, 48, 2, 8, generator=generator).clamp(-2, 2).exp2()
    signs = torch.randn(2, 48, 2, 8, generator=generator).sign()
    keys, values = magnitudes * signs
    slots = torch.randperm(4, generator=generator)[:3].repeat_interleave(16) * 16
    slots = slots + torch.arange(16).repeat(3)
    at_once, by_token = (KVPool(layout, 4, scales=Scales.per_block()) for _ in range(2))
    at_once.write(0, slots, keys, values)
    for i in range(48):
        by_token.write(0, slots[i : i + 1], keys[i : i + 1], values[i : i + 1])
    assert torch.equal(
        at_once.read(0, torch.arange(4)[None]), by_token.read(0, torch.arange(4)[None])
    )


# --- calibration ----------------------------------------------------------------------------


def observed(per_head: bool, dtype: str = "fp8_e4m3") -> Calibration:
    """Two layers of two heads: the largest are 1, 4 in the first layer, 16, 64 in the second."""
    calibration = Calibration(KVLayout(2, 2, 2, dtype=dtype), per_head=per_head)
    for layer, (one, other) in enumerate([(1.0, -4.0), (16.0, -64.0)]):
        keys = torch.tensor([[[one, 0.0], [other, 0.0]], [[0.0, -0.5], [0.5, 0.0]]])
        calibration.observe(layer, keys[1:], keys[1:])
        calibration.observe(layer, keys, 2 * keys)
        calibration.observe(layer, keys[1:], keys[1:])
    return calibration


def numbers(scales: Scales) -> Tensor:
    assert scales.fixed is not None
    return scales.fixed


def test_calibration_takes_the_largest_magnitude_of_each_layer() -> None:
    scales = observed(per_head=False).scales(headroom=1)
    assert (numbers(scales) * 448).tolist() == [[[4.0], [8.0]], [[64.0], [128.0]]]


def test_calibration_takes_the_largest_magnitude_of_each_head() -> None:
    scales = observed(per_head=True, dtype="fp8_e5m2").scales(headroom=1)
    assert (numbers(scales) * 57_344).tolist() == [
        [[1.0, 4.0], [2.0, 8.0]],
        [[16.0, 64.0], [32.0, 128.0]],
    ]


def test_calibrated_scales_leave_headroom_for_what_was_not_seen() -> None:
    pool = pool_of(observed(per_head=False).scales(), (2, 2, 2))
    write(pool, [0], [7.9])
    assert keys_of(pool, 0, 1) == [pytest.approx(7.9, rel=1 / 16)]
    with pytest.raises(ValueOutOfRange, match=r"a key of 8\.1 in layer 0; .* up to 8 there"):
        write(pool, [0], [8.1])


def test_a_pool_in_float32_calibrates_one_in_fp8() -> None:
    layout = KVLayout(2, 2, 4)
    exact = KVPool(layout, 2)
    keys, values = torch.randn(2, 20, 2, 4, generator=torch.Generator().manual_seed(0)) * 1000
    for layer in range(2):
        exact.write(layer, torch.arange(20), keys, values)
    fp8 = KVLayout(2, 2, 4, dtype="fp8_e4m3")
    calibration = Calibration(fp8, per_head=True)
    for layer in range(2):
        calibration.observe(layer, *exact.gather(layer, [0, 1], 20))
    pool = KVPool(fp8, 2, scales=calibration.scales())
    pool.write(1, torch.arange(20), keys, values)
    read_keys, read_values = pool.gather(1, [0, 1], 20)
    torch.testing.assert_close(read_keys, keys, rtol=1 / 16, atol=0)
    torch.testing.assert_close(read_values, values, rtol=1 / 16, atol=0)


def test_a_layer_that_was_not_observed_has_no_scale() -> None:
    calibration = Calibration(KVLayout(2, 1, 2, dtype="fp8_e4m3"))
    calibration.observe(0, torch.ones(1, 1, 2), torch.ones(1, 1, 2))
    with pytest.raises(InvalidArgument, match="nothing but zeros was observed in layer 1"):
        calibration.scales()


def test_what_is_no_calibration_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="calibration for float16; only fp8_e4m3 and fp8"):
        Calibration(KVLayout(1, 1, 2, dtype="float16"))
    with pytest.raises(InvalidArgument, match=r"a headroom of 0.5; expected 1 or more"):
        observed(per_head=False).scales(headroom=0.5)
    with pytest.raises(ValueOutOfRange, match="a value of inf in layer 1"):
        observed(per_head=False).observe(
            1, torch.ones(1, 2, 2), torch.full((1, 2, 2), float("inf"))
        )
