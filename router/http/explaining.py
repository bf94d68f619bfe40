"""How a request would be decided now, once the directory was asked for its conversation's pin."""

from __future__ import annotations

import msgspec

from prefix_cache.errors import NoNodeAvailable
from router.directory import follow_pin
from router.http.answers import Answer, json_answer
from router.http.forwarding import Forwarding
from router.http.node_errors import no_node_answer
from router.http.request_parser import Request
from router.status.explanations import explain
from router.turn import Turn


async def explained(forwarding: Forwarding, request: Request, path: str, turn: Turn) -> Answer:
    """Answer how ``turn`` would be decided; nothing is routed, nothing counted.

    The turn was read from the body of ``request``, of the form of those for ``path``.
    """
    dispatcher = forwarding.dispatcher
    await follow_pin(dispatcher, forwarding.directory, turn.conversation)
    try:
        decision = dispatcher.decide(turn)
    except NoNodeAvailable as error:
        return no_node_answer(error)
    leaving = forwarding.body_reader.leaving(path, request.body, turn, decision)
    return json_answer(msgspec.structs.asdict(explain(decision)) | {"leaves": leaving})
