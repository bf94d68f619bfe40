"""Running nodes as targets: one alone, or those behind a router."""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Self
from uuid import uuid4

from prefix_cache.client import (
    Acquire,
    AcquiredSequence,
    Append,
    Commit,
    NodeClient,
    Operation,
    Outcome,
    Release,
    RoutePrompt,
    RouterClient,
    Session,
)
from prefix_cache.errors import (
    DeadlineExceeded,
    IdentityMismatch,
    NoNodeAvailable,
    PrefixCacheError,
    PromptTooLarge,
    Unavailable,
)
from prefix_cache.index import Identity
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.formats import Request
from prefix_cache.replay.measure.targets import Served

_SEQUENCE = 1  # one at a time
_ANY_TOKEN = bytes(TOKEN_BYTES)

_HEARD_WITHIN_S = 2.0
_ASK_AGAIN_S = 0.001


class _Node:
    """A session with one node, which serves requests as an engine would."""

    def __init__(self, address: str, salt: str, stack: ExitStack) -> None:
        client = stack.enter_context(NodeClient(address))
        self.info = client.info()
        self._session: Session = stack.enter_context(client.session())
        self.identity = Identity(
            model=self.info.model or "replay",
            kv_dtype=self.info.kv_dtype or "bfloat16",
            salt=salt,
        )

    def serve(self, request: Request) -> int:
        """Return how many tokens of the prompt were cached.

        Raises PromptTooLarge before the node is asked, which would keep the prompt of an answer
        that it refuses.
        """
        tokens = _committed(request)
        blocks = -(-tokens // self.info.block_size)
        if blocks > self.info.num_blocks:
            raise PromptTooLarge(
                f"the sequence needs {blocks} blocks, the pool has {self.info.num_blocks}",
                needed=blocks,
                num_blocks=self.info.num_blocks,
            )
        operations: list[Operation] = [
            Acquire(_SEQUENCE, self.identity, request.prompt),
            Commit(_SEQUENCE, request.prompt_tokens),
        ]
        if request.answer:
            operations += [Append(_SEQUENCE, request.answer), Commit(_SEQUENCE, tokens)]
        operations.append(Release(_SEQUENCE))
        acquired, *others = self._session.step(operations)
        for result in (acquired, *others):
            if isinstance(result, PrefixCacheError):
                raise result
        assert isinstance(acquired, AcquiredSequence)
        return acquired.num_cached_tokens


def _own(salt: str | None) -> str:
    return uuid4().hex if salt is None else salt


def _committed(request: Request) -> int:
    """Tokens of prompt and answer, where the answer is known."""
    return request.prompt_tokens + len(request.answer) // TOKEN_BYTES


class RunningNode:
    """One running node; use it as a context manager.

    Prompts carry ``salt``, without one another at each run: with one that was used before, what
    is cached from then is found.  Raises Unavailable and what else the clients of nodes raise.
    """

    def __init__(self, address: str, salt: str | None = None) -> None:
        self._address = address
        self._salt = _own(salt)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._node = _Node(self._address, self._salt, stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def block_words(self) -> int:
        """Tokens of a block of the node."""
        return self._node.info.block_size

    @property
    def num_blocks(self) -> int:
        """Blocks of the node."""
        return self._node.info.num_blocks

    def serve(self, request: Request) -> Served:
        """Serve one request."""
        return Served(self._node.serve(request))


class RunningRouter:
    """The nodes behind a running router, which chooses for each turn; a context manager.

    The router is told the prompts, so that what its nodes hold of them counts, and a request waits
    until the router has heard what the one before it left.  ``salt`` goes into prompts, and
    before the names of conversations.  Without one, prompts have another at each run, but names
    begin with how many turns the router has served: equal ones it spreads over nodes alike.

    A node that fails is not tried again for the turn.  Raises NoNodeAvailable where none is left,
    and IdentityMismatch where nodes have blocks of different sizes.
    """

    def __init__(self, address: str, salt: str | None = None) -> None:
        self._address = address
        self._salt = _own(salt)
        self._run = salt
        self._stack = ExitStack()
        self._nodes: dict[str, tuple[_Node, ExitStack]] = {}
        self._left: tuple[str, bytes] | None = None
        """Where the last request was served, and its words."""
        self._is_heard = True

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._router = stack.enter_context(RouterClient(self._address))
            _, nodes = self._router.list_nodes()
            if self._run is None:
                self._run = str(sum(node.turns for node in nodes))
            self._block_size, self._identity = self._told_by([node.address for node in nodes])
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for address in list(self._nodes):
            self._close(address)
        self._stack.close()

    @property
    def block_words(self) -> int:
        """Tokens of a block of the nodes."""
        return self._block_size

    @property
    def num_blocks(self) -> None:
        """Not of interest: each node has its own."""
        return

    def serve(self, request: Request) -> Served:
        """Serve one request where the router says."""
        self._wait_until_heard()
        failed: list[str] = []
        while True:
            conversation = f"{self._run}/{request.conversation}"
            route = self._router.route(
                conversation, exclude=failed, prompt=self._prompt(request.prompt)
            )
            try:
                cached_tokens = self._node(route.address).serve(request)
            except (Unavailable, DeadlineExceeded):
                self._close(route.address)
                self._router.report(route.route_id, Outcome.NODE_FAILED)
                failed.append(route.node)
            except PrefixCacheError:
                self._close(route.address)  # what fails a step as a whole ends its session
                self._router.report(route.route_id, Outcome.NOT_SERVED)
                raise
            else:
                break
        self._router.report(
            route.route_id,
            Outcome.OK,
            cached_tokens=cached_tokens,
            committed_tokens=_committed(request),
        )
        self._left = route.node, request.prompt + request.answer
        return Served(cached_tokens, route.node)

    def _prompt(self, words: bytes) -> RoutePrompt:
        return RoutePrompt(self._identity, words, block_size=self._block_size)

    def _wait_until_heard(self) -> None:
        """Wait until events have told the router what the last request left.

        Not any more once they did not: then something else changes what the nodes hold.
        """
        deadline = time.monotonic() + _HEARD_WITHIN_S
        while self._is_heard and self._left and not self._router_knows(*self._left):
            self._is_heard = time.monotonic() < deadline
            time.sleep(_ASK_AGAIN_S)
        self._left = None

    def _router_knows(self, node: str, words: bytes) -> bool:
        size = self._block_size
        held = len(words) // TOKEN_BYTES // size * size
        try:
            # Of a prompt the last token is never held.
            explained = self._router.explain("", prompt=self._prompt(words + _ANY_TOKEN))
        except NoNodeAvailable:
            return True  # there is nothing to know any more
        return all(each.cached_tokens >= held for each in explained.candidates if each.node == node)

    def _told_by(self, addresses: Iterable[str]) -> tuple[int, Identity]:
        """Return block size and identity of the first node that answers."""
        for address in addresses:
            try:
                with ExitStack() as stack:
                    node = _Node(address, self._salt, stack)
                    return node.info.block_size, node.identity
            except (Unavailable, DeadlineExceeded):
                continue
        raise NoNodeAvailable(f"the router at {self._address} has no node that answers")

    def _node(self, address: str) -> _Node:
        if address not in self._nodes:
            with ExitStack() as stack:
                node = _Node(address, self._salt, stack)
                if node.info.block_size != self._block_size:
                    raise IdentityMismatch(
                        f"the node at {address} has blocks of {node.info.block_size} tokens, "
                        f"another one of {self._block_size}; expected one size",
                        block_size=node.info.block_size,
                    )
                self._nodes[address] = node, stack.pop_all()
        return self._nodes[address][0]

    def _close(self, address: str) -> None:
        if address in self._nodes:
            _, stack = self._nodes.pop(address)
            stack.close()
