"""Our errors as clients of the API know them."""

from __future__ import annotations

import pytest

from prefix_cache.errors import (
    AuditError,
    InvalidArgument,
    InvalidRequest,
    PrefixCacheError,
    PromptTooLarge,
    Unavailable,
)
from prefix_cache.openai_api.errors import ApiError


@pytest.mark.parametrize(
    ("error", "status", "document"),
    [
        (
            InvalidRequest("n is 0", param="n"),
            400,
            {"type": "invalid_request_error", "param": "n", "code": None},
        ),
        (
            InvalidArgument("no", value=1),
            400,
            {"type": "invalid_request_error", "param": None, "code": None},
        ),
        (
            PromptTooLarge("long"),
            400,
            {
                "type": "invalid_request_error",
                "param": None,
                "code": "context_length_exceeded",
            },
        ),
        (Unavailable("away"), 503, {"type": "server_error", "param": None, "code": None}),
        (AuditError("ours"), 500, {"type": "server_error", "param": None, "code": None}),
    ],
)
def test_an_error_has_a_status_and_a_document(
    error: PrefixCacheError, status: int, document: dict[str, str | None]
) -> None:
    known = ApiError.of(error)
    assert known.status == status
    assert known.document() == {"error": {"message": str(error), **document}}
