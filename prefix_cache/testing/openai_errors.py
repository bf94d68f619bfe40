"""Errors in the form of the OpenAI API."""

from __future__ import annotations

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from prefix_cache.errors import InvalidArgument, PromptTooLarge
from prefix_cache.testing.faults import CutOff


class ApiError(Exception):
    """An error to answer with this HTTP status."""

    def __init__(
        self, status: int, message: str, *, param: object = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code


def no_model(model: str, expected: str) -> ApiError:
    """Return the error for a model that is not served."""
    message = f"there is no model {model!r}, expected {expected!r}"
    return ApiError(404, message, param="model", code="model_not_found")


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer what a handler raises as clients of the API know it."""
    headers = None
    try:
        return await handler(request)
    except (CutOff, ConnectionError):
        return web.Response()  # to nobody
    except ApiError as raised:
        error = raised
    except PromptTooLarge as raised:
        error = ApiError(400, str(raised), code="context_length_exceeded")
    except InvalidArgument as raised:
        error = ApiError(400, str(raised), param=raised.details.get("name"))
    except web.HTTPException as raised:
        error = ApiError(raised.status, f"{request.method} {request.path}: {raised.reason}")
        headers = {"Allow": raised.headers["Allow"]} if "Allow" in raised.headers else None
    return web.Response(
        status=error.status,
        body=msgspec.json.encode({"error": _document(error)}),
        content_type="application/json",
        headers=headers,
    )


def _document(error: ApiError) -> dict[str, object]:
    kind = "invalid_request_error" if error.status < 500 else "server_error"
    return {"message": error.message, "type": kind, "param": error.param, "code": error.code}
