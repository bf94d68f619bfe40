"""The router of ``prefix-cache top``: its nodes as it sees them, and what was lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from rich.table import Table
from rich.text import Text

from prefix_cache.cli.terminal.printable import printable
from prefix_cache.cli.terminal.shares import percent

_TIMEOUT = aiohttp.ClientTimeout(total=5.0)

_LOSSES = {
    "unhashable": "unhashable",
    "held_by_nobody": "held by nobody",
    "routed_elsewhere": "routed elsewhere",
    "not_delivered": "not delivered",
}

_STYLES = {"READY": "green", "FAILED": "red", "DRAINING": "yellow", "JOINING": "dim"}


class _Node(msgspec.Struct):
    name: str
    state: str
    in_flight: int
    queued_prefill: int
    conversations: int
    turns: int
    hit_rate: float | None
    told_tokens: int
    cached_tokens: int
    failures: int


class _Sums(msgspec.Struct):
    prompt_tokens: int
    told_tokens: int
    hit_rate: float | None
    unhashable: int
    held_by_nobody: int
    routed_elsewhere: int
    not_delivered: int


class _Workers(msgspec.Struct):
    count: int
    answered: int


class _Document(msgspec.Struct):
    """What a router tells, among others."""

    nodes: list[_Node]
    sums: _Sums
    workers: _Workers


@asynccontextmanager
async def router_view(url: str) -> AsyncIterator[RouterView]:
    """Look at the router whose proxy is at ``url`` while the context is open."""
    if "://" not in url:
        url = f"http://{url}"
    async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
        yield RouterView(session, url.rstrip("/"))


class RouterView:
    """What ``GET /nodes`` answers, now and before."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url
        self._now: dict[str, Any] | None = None
        self._before: dict[str, Any] | None = None
        self._error = ""

    async def look(self) -> bool:
        """Ask the router; whether it answered."""
        self._before, self._now, self._error = self._now, None, ""
        try:
            url = f"{self._url}/nodes"
            async with self._session.get(url, allow_redirects=False) as answer:
                answer.raise_for_status()
                document = msgspec.json.decode(await answer.read())
            msgspec.convert(document, _Document)
            self._now = document
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._error = _not_a_router("another document")
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
            self._error = "malformed address, expected HOST:PORT or http://HOST:PORT"
        except aiohttp.ClientResponseError as error:
            # Without headers it was no HTTP, and the message is what was sent instead.
            self._error = _not_a_router(
                "no HTTP" if error.headers is None else f"status {error.status}"
            )
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            self._error = str(error) or "no answer in time"
        return self._now is not None

    def document(self) -> dict[str, Any]:
        """What it answered, with each node's share of hits since the look before."""
        if self._now is None:
            return {"router": self._url, "error": self._error}
        before = _by_name(self._before)
        nodes = [
            node | {"hit_rate_now": hit_rate_now(node, before.get(node["name"]))}
            for node in self._now["nodes"]
        ]
        return self._now | {"router": self._url, "nodes": nodes}

    def table(self) -> Table:
        """One row for each node, and what was lost below."""
        result = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, caption_justify="left")
        if self._now is None:
            result.add_column(self._url)
            result.caption = Text(f"no answer: {printable(self._error)}")
            return result
        result.add_column("node", no_wrap=True)
        result.add_column("state")
        for name in ("in flight", "queued", "conversations", "turns", "hits", "now", "failures"):
            result.add_column(name, justify="right")
        for node in self.document()["nodes"]:
            result.add_row(
                printable(node["name"]),
                Text(node["state"].lower(), _STYLES.get(node["state"], "")),
                f"{node['in_flight']:,}",
                f"{node['queued_prefill']:,}",
                f"{node['conversations']:,}",
                f"{node['turns']:,}",
                percent(node["hit_rate"]),
                percent(node["hit_rate_now"]),
                f"{node['failures']:,}",
            )
        captions = (losses_in_words(self._now["sums"]), silent_workers(self._now["workers"]))
        result.caption = Text("\n".join(filter(None, captions)))
        return result


def hit_rate_now(now: Mapping[str, Any], before: Mapping[str, Any] | None) -> float | None:
    """Share of a node's prompt tokens that were cached, of those since the look before."""
    if before is None:
        return None
    told = now["told_tokens"] - before["told_tokens"]
    cached = now["cached_tokens"] - before["cached_tokens"]
    # Counters that went back are those of a router that began anew.
    return cached / told if told > 0 and cached >= 0 else None


def losses_in_words(sums: Mapping[str, Any]) -> str:
    """Say what became of all prompt tokens."""
    prompt = sums["prompt_tokens"]
    if not prompt:
        return "no prompt was served yet"
    lost = ", ".join(f"{name} {percent(sums[key] / prompt)}" for key, name in _LOSSES.items())
    return (
        f"{prompt:,} prompt tokens; of {sums['told_tokens']:,} the engines said what was cached: "
        f"{percent(sums['hit_rate'])}\nnot cached: {lost}"
    )


def silent_workers(workers: Mapping[str, Any]) -> str:
    """Say whose counts are missing, if any are."""
    count, answered = workers["count"], workers["answered"]
    return "" if answered == count else f"counts are those of {answered} of {count} workers"


def _not_a_router(said: str) -> str:
    return f"{said}, expected the address of a router's proxy (router --http)"


def _by_name(document: Mapping[str, Any] | None) -> dict[str, Mapping[str, Any]]:
    return {} if document is None else {node["name"]: node for node in document["nodes"]}
