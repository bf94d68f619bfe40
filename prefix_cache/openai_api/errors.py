"""Errors in the form of the OpenAI API."""

from __future__ import annotations

import logging

from aiohttp import web
from aiohttp.typedefs import Handler

from prefix_cache.errors import (
    InvalidArgument,
    PrefixCacheError,
    PromptTooLarge,
    Unavailable,
)
from prefix_cache.openai_api.json_response import json_response

_LOG = logging.getLogger(__name__)


class ApiError(Exception):
    """An error to answer with this HTTP status."""

    def __init__(
        self, status: int, message: str, *, param: object = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    @classmethod
    def of(cls, error: PrefixCacheError) -> ApiError:
        """Return how clients of the API know an error of ours."""
        match error:
            case PromptTooLarge():
                param = error.details.get("param")
                return cls(400, str(error), param=param, code="context_length_exceeded")
            case InvalidArgument():
                return cls(400, str(error), param=error.details.get("param"))
            case Unavailable():
                return cls(503, str(error))
            case _:
                return cls(500, str(error))

    def document(self) -> dict[str, object]:
        """Return what a body, or an event of a stream, says of it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": error}


def check_model(model: str, expected: str) -> None:
    """Raise ``ApiError`` for a model that is not served."""
    if model != expected:
        message = f"there is no model {model!r}, expected {expected!r}"
        raise ApiError(404, message, param="model", code="model_not_found")


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer what a handler raises as clients of the API know it."""
    headers = None
    try:
        return await handler(request)
    except ApiError as raised:
        error = raised
    except PrefixCacheError as raised:
        error = ApiError.of(raised)
    except ConnectionError:
        return web.Response()  # to nobody
    except web.RequestPayloadError as raised:
        error = ApiError(400, f"the body cannot be read: {raised}")
    except web.HTTPException as raised:
        error = ApiError(raised.status, f"{request.method} {request.path}: {raised.reason}")
        headers = {"Allow": raised.headers["Allow"]} if "Allow" in raised.headers else None
    except Exception:
        if request.writer.output_size:
            raise  # the answer has begun: it is cut off
        _LOG.exception("%s %s", request.method, request.path)
        error = ApiError(500, "this is a fault of the server, and in its log")
    return json_response(error.document(), error.status, headers)
