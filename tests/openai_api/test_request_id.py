"""The id by which a request is known."""

from __future__ import annotations

import pytest

from prefix_cache.openai_api.request_id import request_id


def test_a_request_has_the_id_that_its_client_gave() -> None:
    assert request_id({"X-Request-Id": "mine"}) == "mine"


@pytest.mark.parametrize("headers", [{}, {"X-Request-Id": ""}, {"X-Request-Id": "\udcff\udcfe"}])
def test_without_an_id_that_can_be_said_in_json_it_gets_one_of_its_own(
    headers: dict[str, str],
) -> None:
    """Headers are bytes, and those that are no UTF-8 come as surrogates."""
    first, second = request_id(headers), request_id(headers)
    assert len(first) == len(second) == 32
    assert first != second
