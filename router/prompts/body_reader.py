"""Reads the body of a request: the turn it asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from prefix_cache.client import NodeState
from prefix_cache.errors import InvalidRequest, InvalidTokens, InvalidTokenType, UnknownModel
from router.fleet import Pool
from router.picker import Decision
from router.prompts.bodies import Body, ChatBody, CompletionBody, ResponsesBody
from router.prompts.conversation_key import conversation_key, response_name
from router.prompts.pool_prompts import Leaving, PoolPrompts
from router.turn import ConversationKey, Turn

_KINDS: Mapping[str, type[Body]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/responses": ResponsesBody,
    "/v1/embeddings": Body,
}
PATHS = tuple(_KINDS)

# To read more values than any prompt has would hold up all that the router does, for seconds.
_READABLE_BYTES = 1024 * 1024
_READABLE_VALUES = 100_000
_unread = msgspec.json.Decoder(Body)

# A member of an enum is looked up slowly, and this is asked for every request.
_READY = NodeState.READY

# Near the beginning of a response, and of the first event of its stream.
_RESPONSE_ID = re.compile(rb'"id"\s*:\s*"(resp_[\w-]{1,128})"')
_RESPONSE_ID_WITHIN = 1024
# A high one without a low one behind it, or a low one without a high one before it.  msgspec says
# of most of them that the input was truncated.
_LONE_SURROGATE = re.compile(
    rb"\\u(?:[dD][89abAB]..(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB]..\\u)[dD][c-fC-F])"
)
# Where msgspec says it was: "... - at `$.messages[...]`".
_PLACE = re.compile(r"at `\$\.(\w+)")


class BodyReader:
    """Reads bodies for the pools of a router.  Raises what `load_rendering` does.

    ``tenant_header`` names the header that tells the tenant; without it, or where a request has
    none, a hash of ``Authorization`` does.
    """

    def __init__(self, pools: Mapping[str, Pool], tenant_header: str = "") -> None:
        self._pools = pools
        self._tenant_header = tenant_header.lower().encode()
        self._prompts = {name: PoolPrompts(pool) for name, pool in pools.items()}
        self._decoders = {path: msgspec.json.Decoder(kind) for path, kind in _KINDS.items()}

    def read(self, path: str, headers: Mapping[bytes, bytes], body: bytes) -> Turn:
        """Return the turn that a request with this body asks for; ``path`` is one of ``PATHS``.

        Names of ``headers`` are lower case.  A prompt that cannot be found in the body is
        unhashable, which is no error; so is one of very many tiny values.  Raises
        InvalidRequest, whose ``details`` have the ``param`` at fault, and UnknownModel.
        """
        try:
            fields = self._fields(path, body)
            pool = self._pool(fields.model)
            key = self._key(pool, headers, fields)
            prompt = self._prompts[pool.config.name].prompt(path, fields, len(body), key)
        except (msgspec.DecodeError, RecursionError, InvalidTokens, InvalidTokenType) as error:
            raise _invalid(error, body) from error
        return Turn(key, prompt, pool.config.name, str(fields.model), needs_url=True)

    def leaving(self, path: str, body: bytes, turn: Turn, decision: Decision) -> Leaving | None:
        """Where the turn that was read from ``body`` leaves what is held of it; None: nowhere."""
        fields = self._fields(path, body)
        return self._prompts[turn.pool].leaving(decision, turn.prompt, fields)

    def learn(self, turn: Turn, prompt_tokens: int) -> None:
        """Take the engine's count of a turn's prompt: the estimates of its pool get better."""
        self._prompts[turn.pool].learn(turn.prompt, prompt_tokens)

    def _fields(self, path: str, body: bytes) -> Body:
        return (self._decoders[path] if _is_readable(body) else _unread).decode(body)

    def _key(
        self, pool: Pool, headers: Mapping[bytes, bytes], body: Body
    ) -> ConversationKey | None:
        """The key of the conversation: one that goes on in two pools has a home in each."""
        key = conversation_key(headers, body, self._tenant_header)
        return key and self._in_pool(pool.config.name, key)

    def _in_pool(self, pool: str, key: ConversationKey) -> ConversationKey:
        if len(self._pools) == 1:
            return key
        return ConversationKey(key.tenant, f"{pool}:{key.conversation}")

    def next_key(self, turn: Turn, answer: bytes) -> ConversationKey | None:
        """The key of a turn that goes on from the response whose answer to ``turn`` begins so.

        None where there is no id of a response, or nobody to tell whose it is.
        """
        found = _RESPONSE_ID.search(answer, 0, _RESPONSE_ID_WITHIN)
        if found is None or turn.conversation is None:
            return None
        name = response_name(found[1].decode())
        return self._in_pool(turn.pool, ConversationKey(turn.conversation.tenant, name))

    @property
    def not_tokenized(self) -> int:
        """Prompts known by their text only, of pools that have a tokenizer."""
        return sum(prompts.not_tokenized for prompts in self._prompts.values())

    def _pool(self, model: object) -> Pool:
        """The pool that serves a model: by its config, else by what its engines say.

        Of several, it is the first that has a node ready for it.
        """
        if not isinstance(model, str) or not model:
            raise InvalidRequest(f"model is {model!r}, expected a name", param="model")
        serving = None
        for serves in (_lists, _says_it_serves, _may_serve):
            for pool in self._pools.values():
                if serves(pool, model):
                    if _is_ready_for(pool, model):
                        return pool
                    serving = serving or pool
            if serves is _says_it_serves and serving is not None:
                return serving
        if serving is None:
            raise UnknownModel(f"the model {model!r} is not served here", model=model)
        return serving


def _lists(pool: Pool, model: str) -> bool:
    return model in pool.config.models


def _says_it_serves(pool: Pool, model: str) -> bool:
    return not pool.config.models and any(model in node.models for node in pool.nodes.values())


def _may_serve(pool: Pool, model: str) -> bool:
    """Whether none of its engines has said its models yet, or one that is ready says none."""
    nodes = pool.nodes.values()
    return not pool.config.models and (
        not any(node.models for node in nodes) or _is_ready_for(pool, model)
    )


def _is_ready_for(pool: Pool, model: str) -> bool:
    for node in pool.nodes.values():
        if node.state is _READY and (not node.models or model in node.models):
            return True
    return False


def _is_readable(body: bytes) -> bool:
    if len(body) <= _READABLE_BYTES:
        return True
    return body.count(b"{") + body.count(b"[") <= _READABLE_VALUES


def _invalid(error: Exception, body: bytes) -> InvalidRequest:
    if isinstance(error, RecursionError):
        return InvalidRequest("the body is nested too deeply", param="")
    if isinstance(error, InvalidTokens | InvalidTokenType):
        return InvalidRequest(f"prompt: {error}", param="prompt")
    if _LONE_SURROGATE.search(body):
        why = "the body is no request: a string in it has half of a surrogate pair"
        return InvalidRequest(why, param="")
    place = _PLACE.search(str(error))
    return InvalidRequest(f"the body is no request: {error}", param=place[1] if place else "")
