from __future__ import annotations

import math
from typing import Any

import pytest

from prefix_cache.errors import InvalidArgument
from tests.worker.tiny_llama import tiny_config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 0}, "tiny: hidden_size is 0, expected a positive integer"),
        ({"num_layers": True}, "num_layers is True, expected a positive integer"),
        ({"num_heads": 5}, "num_heads is 5, expected a multiple of num_kv_heads 2"),
        ({"head_dim": 7}, "head_dim is 7, expected an even number"),
        ({"num_layers": 2**31}, "num_layers is 2147483648, expected at most 10000"),
        ({"rope_theta": -1.0}, "rope_theta is -1.0, expected a finite number above 0"),
        ({"rms_norm_eps": math.nan}, "rms_norm_eps is nan, expected a finite number from 0 on"),
    ],
)
def test_sizes_that_no_model_has_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        tiny_config(**changes)
