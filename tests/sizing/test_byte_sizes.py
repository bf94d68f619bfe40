"""Sizes as people write them."""

from __future__ import annotations

import pytest

from prefix_cache.errors import InvalidArgument
from prefix_cache.sizing import gpu, gpu_memory, parse_bytes, show_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("24GB", 24_000_000_000),
        ("24GiB", 25_769_803_776),
        ("1.5 gib", 1_610_612_736),
        ("512MiB", 536_870_912),
        ("100B", 100),
        ("0GiB", 0),
        ("0.1GB", 100_000_000),
    ],
)
def test_decimal_and_binary_units_are_told_apart(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["24G", "24", "-1GiB", "", "GiB", "1e3GiB", "nan GiB", "24 GIBI"])
def test_a_size_that_may_be_two_or_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is no size: expected a number and a unit"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (131_072, "128 KiB"), (25_769_803_776, "24 GiB"), (4_984_817_254, "4.642 GiB")],
)
def test_sizes_are_shown_in_the_unit_that_suits_them(size: int, shown: str) -> None:
    assert show_bytes(size) == shown


def test_a_card_may_be_named_in_several_ways() -> None:
    assert gpu("RTX 4090") == gpu("rtx_4090") == gpu("rtx4090")
    assert gpu("A100-80GB").memory_bytes == 85_899_345_920
    assert gpu("a100-40g").memory_bandwidth == 1.555e12
    assert gpu("h100").flops == 9.89e14
    assert gpu_memory("l4") == 23_034 * 2**20
    assert gpu_memory("24GiB") == 25_769_803_776


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("rtx5", "unknown GPU 'rtx5': expected a size such as 24GiB, or a card such as rtx"),
        ("0GiB", "has no memory"),
        ("-24GiB", "is no size"),
    ],
)
def test_what_is_no_card_and_no_memory_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InvalidArgument, match=problem):
        gpu_memory(text)
