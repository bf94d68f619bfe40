"""The paths that say which model is served."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from prefix_cache.openai_api.errors import check_model
from prefix_cache.openai_api.json_response import json_response


def model_routes(model: str, max_model_len: int) -> list[web.RouteDef]:
    """Return ``/v1/models`` and ``/v1/models/{model}`` for one model."""
    card: dict[str, Any] = {
        "id": model,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "prefix-cache",
        "max_model_len": max_model_len,
    }

    async def every(request: web.Request) -> web.Response:
        return json_response({"object": "list", "data": [card]})

    async def one(request: web.Request) -> web.Response:
        check_model(request.match_info["model"], model)
        return json_response(card)

    # A model's name may have slashes.
    return [web.get("/v1/models", every), web.get("/v1/models/{model:.+}", one)]
