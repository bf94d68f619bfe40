"""How a request would be decided now, once the directory was asked for its conversation's pin."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from prefix_cache.errors import NoNodeAvailable
from router.directory import follow_pin
from router.http.answers import json_answer
from router.http.forwarding import Forwarding
from router.http.node_errors import no_node_answer
from router.http.request_parser import Request
from router.status import explanation_document
from router.turn import Turn

if TYPE_CHECKING:
    from router.http.client_connection import ClientConnection

_log = logging.getLogger(__name__)


class Explaining:
    """Answers ``client`` how ``turn`` would be decided; nothing is routed, nothing counted.

    The turn was read from the body of ``request``, of the form of those for ``path``.
    """

    def __init__(
        self,
        forwarding: Forwarding,
        client: ClientConnection,
        request: Request,
        path: str,
        turn: Turn,
    ) -> None:
        self._forwarding = forwarding
        self._client = client
        self._body = request.body
        self._path = path
        self._turn = turn
        self._task = asyncio.get_running_loop().create_task(self._explain())
        self._task.add_done_callback(self._done)

    async def _explain(self) -> None:
        dispatcher, turn = self._forwarding.dispatcher, self._turn
        await follow_pin(dispatcher, self._forwarding.directory, turn.conversation)
        try:
            decision = dispatcher.decide(turn)
        except NoNodeAvailable as error:
            self._client.answer(no_node_answer(error))
        else:
            leaving = self._forwarding.body_reader.leaving(self._path, self._body, turn, decision)
            self._client.answer(json_answer(explanation_document(decision) | {"leaves": leaving}))

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("internal error", exc_info=error)
            self._client.abort()

    def client_gone(self) -> None:
        """Nobody waits for it any more."""
        self._task.cancel()

    def cut_off(self) -> None:
        """The router has to end."""
        self._task.cancel()
        self._client.abort()

    def expired(self) -> None:
        """No deadline was set: a directory answers soon or not at all."""

    def pause(self) -> None:
        """The answer is one piece."""

    def resume(self) -> None:
        """The answer is one piece."""
