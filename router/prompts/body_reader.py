"""Reads the body of a request: the turn it asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from prefix_cache.errors import InvalidRequest, InvalidTokens, InvalidTokenType, UnknownModel
from router.dispatcher import Pool
from router.prompts.bodies import Body, ChatBody, CompletionBody, ResponsesBody
from router.prompts.conversation_key import conversation_key
from router.prompts.pool_prompts import PoolPrompts
from router.turn import ConversationKey, Turn

_KINDS: Mapping[str, type[Body]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/responses": ResponsesBody,
    "/v1/embeddings": Body,
}
PATHS = tuple(_KINDS)

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
        unhashable, which is no error.  Raises InvalidRequest, whose ``details`` have the ``param``
        at fault, and UnknownModel.
        """
        try:
            fields = self._decoders[path].decode(body)
            pool = self._pool(fields.model)
            key = self._key(pool, headers, fields)
            prompt = self._prompts[pool.config.name].prompt(path, fields, len(body), key)
        except (msgspec.DecodeError, RecursionError, InvalidTokens, InvalidTokenType) as error:
            raise _invalid(error) from error
        return Turn(key, prompt, pool.config.name, str(fields.model), needs_url=True)

    def learn(self, turn: Turn, prompt_tokens: int) -> None:
        """Take the engine's count of a turn's prompt: the estimates of its pool get better."""
        self._prompts[turn.pool].learn(turn.prompt, prompt_tokens)

    def _key(
        self, pool: Pool, headers: Mapping[bytes, bytes], body: Body
    ) -> ConversationKey | None:
        """The key of the conversation: one that goes on in two pools has a home in each."""
        key = conversation_key(headers, body, self._tenant_header)
        if key is None or len(self._pools) == 1:
            return key
        return ConversationKey(key.tenant, f"{pool.config.name}:{key.conversation}")

    @property
    def not_tokenized(self) -> int:
        """Prompts known by their text only, of pools that have a tokenizer."""
        return sum(prompts.not_tokenized for prompts in self._prompts.values())

    def _pool(self, model: object) -> Pool:
        """The pool that serves a model: by its config, else by what its engines say."""
        if not isinstance(model, str) or not model:
            raise InvalidRequest(f"model is {model!r}, expected a name", param="model")
        for pool in self._pools.values():
            if model in pool.config.models:
                return pool
        unsure = None
        for pool in self._pools.values():
            if pool.config.models:
                continue
            is_sure = bool(pool.nodes)
            for node in pool.nodes.values():
                if model in node.models:
                    return pool
                is_sure = is_sure and bool(node.models)
            if not is_sure and unsure is None:
                unsure = pool
        if unsure is None:
            raise UnknownModel(f"the model {model!r} is not served here", model=model)
        return unsure


def _invalid(error: Exception) -> InvalidRequest:
    if isinstance(error, RecursionError):
        return InvalidRequest("the body is nested too deeply", param="")
    if isinstance(error, InvalidTokens | InvalidTokenType):
        return InvalidRequest(f"prompt: {error}", param="prompt")
    place = _PLACE.search(str(error))
    return InvalidRequest(f"the body is no request: {error}", param=place[1] if place else "")
