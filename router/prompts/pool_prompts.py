"""The prompts of one pool: their text, and where the pool's tokenizer is known their tokens."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import msgspec
import xxhash

from prefix_cache.errors import InvalidArgument
from prefix_cache.index.identity import Identity
from prefix_cache.index.tokens import TOKEN_BYTES
from router.claims.node_claims import block_size_of
from router.fleet import Pool
from router.leaving import where_left
from router.picker import Decision
from router.prompts.bodies import Body, Place
from router.prompts.rendering import Rendering, load_rendering
from router.prompts.token_chain import TokenChains
from router.prompts.token_estimate import TokenEstimate
from router.turn import ConversationKey, Prompt

# Of the text of a prompt, what stands before the client's.
_IDENTITY_BYTES = 16
# Of an identity whose digest is remembered, in characters.
_REMEMBERED_LENGTH = 4096

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Leaving:
    """What a prompt has in common with what ``node`` is believed to hold ends at ``position``.

    ``unit`` is ``token``, of the first block that is not held, or ``byte``, the very one of the
    text.  ``differs``: something else was sent there instead; None where that cannot be known.
    """

    node: str
    unit: Literal["token", "byte"]
    position: int
    differs: bool | None
    place: Place | None
    """What of the body it is in, or its block ends in; None where that is not known."""


class PoolPrompts:
    """Makes the prompts of one pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._estimate = TokenEstimate()
        self._rendering = load_rendering(pool.config.tokenizer, pool.config.chat_template)
        self._chains = TokenChains(1)
        self.not_tokenized = 0
        """Prompts that were known by their text only, although there is a tokenizer."""

    def prompt(
        self, path: str, body: Body, body_bytes: int, conversation: ConversationKey | None
    ) -> Prompt:
        """Return the prompt of a body of ``body_bytes``; one that is not found is unhashable."""
        ids = body.tokens()
        text = (ids,) if ids else body.text()
        if not text:
            return Prompt(self._estimate.tokens(body_bytes))
        form = "ids" if ids else path
        identity = _identity_digest(form, str(body.model), _salt(body), body.options())
        identified = b"".join((identity, *text))  # once: it may be long
        estimated = self._estimate.tokens(len(identified) - _IDENTITY_BYTES)
        if self._rendering is None:
            return Prompt(len(ids) // TOKEN_BYTES or estimated, identified)
        tokens = self._tokens(self._rendering, body)
        if not tokens:
            return Prompt(estimated, identified)
        num_tokens = len(tokens) // TOKEN_BYTES
        block_size = block_size_of(node.claims for node in self._pool.nodes.values())
        if not block_size:
            return Prompt(num_tokens, identified)
        if block_size != self._chains.block_size:
            self._chains = TokenChains(block_size)
        hashes = self._chains.hashes(conversation, self._identity(body), tokens)
        return Prompt(num_tokens, identified, hashes, block_size)

    def leaving(self, decision: Decision, prompt: Prompt, body: Body) -> Leaving | None:
        """Where the ``prompt`` of ``body`` leaves what any candidate is believed to hold of it.

        None where none holds anything that begins like it.
        """
        found = where_left(decision, prompt)
        if found is None:
            return None
        node, left = found
        if left.is_token:
            block_end = min(left.position + prompt.block_size, prompt.num_tokens)
            place = self._place(body, block_end - 1)
            return Leaving(node, "token", left.position, left.differs, place)
        if not _IDENTITY_BYTES < left.position < len(prompt.text):
            return None
        position = left.position - _IDENTITY_BYTES
        if body.tokens():
            return Leaving(node, "token", position // TOKEN_BYTES, left.differs, None)
        return Leaving(node, "byte", position, left.differs, body.place(position))

    def _place(self, body: Body, token: int) -> Place | None:
        try:
            return self._rendering.place(body, token) if self._rendering else None
        except InvalidArgument:  # of a template that takes no chat without its last messages
            return None

    def learn(self, prompt: Prompt, prompt_tokens: int) -> None:
        """Take an engine's count of a prompt: estimates get better."""
        if prompt.text and not prompt.block_hashes:
            self._estimate.learn(len(prompt.text), prompt_tokens)

    def _tokens(self, rendering: Rendering, body: Body) -> bytes:
        """The engine's tokens of the prompt; empty where they cannot be made."""
        try:
            if option := body.unrendered():
                tokens, why = b"", f"it has {option}"
            else:
                tokens, why = rendering.tokens(body), "it is of a form that is not rendered"
        except (InvalidArgument, msgspec.DecodeError, RecursionError) as error:
            tokens, why = b"", str(error)
        if not tokens:
            self.not_tokenized += 1
            level = logging.WARNING if self.not_tokenized == 1 else logging.DEBUG
            name = self._pool.config.name
            log.log(level, "pool %s: a prompt is known by its text only: %s", name, why)
        return tokens

    def _identity(self, body: Body) -> Identity:
        config = self._pool.config
        return Identity(
            model=config.model_identity or str(body.model),
            revision=config.revision,
            kv_dtype=config.kv_dtype,
            salt=_salt(body),
        )


def _identity_digest(form: str, model: str, salt: str, options: tuple[bytes, ...]) -> bytes:
    """16 bytes that keep apart what an engine keeps apart although the text is the same.

    ``form`` says what the text is: of which kind of body, or token ids.
    """
    if len(model) + len(salt) + sum(map(len, options)) > _REMEMBERED_LENGTH:
        return _digest(form, model, salt, options)
    return _remembered_digest(form, model, salt, options)


def _digest(form: str, model: str, salt: str, options: tuple[bytes, ...]) -> bytes:
    parts = (form.encode(), model.encode(), salt.encode(), *options)
    return xxhash.xxh3_128_digest(b"".join(b"%d:%b" % (len(part), part) for part in parts))


# Few differ, and each comes very often.
_remembered_digest = lru_cache(maxsize=1024)(_digest)


def _salt(body: Body) -> str:
    return body.cache_salt if isinstance(body.cache_salt, str) else ""
