"""``prefix-cache watch``: print a node's events as they come."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from prefix_cache.cli.common_options import json_lines_option
from prefix_cache.cli.serving import log_to_stderr
from prefix_cache.cli.signals import run_stoppable
from prefix_cache.cli.terminal.printable import printable

if TYPE_CHECKING:
    from prefix_cache.client import NodeEvent


class _Position(click.ParamType[tuple[int, int]]):
    """``INCARNATION:NUMBER``."""

    name = "position"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        incarnation, _, number = str(value).partition(":")
        if not incarnation.isdecimal() or not number.isdecimal():
            self.fail(f"{value!r} is no INCARNATION:NUMBER such as 81234:17", param, ctx)
        return int(incarnation), int(number)


@click.command(
    short_help="Print the changes of a node's cached blocks as they come.",
    epilog="\b\nExamples:\n"
    "  prefix-cache watch --node 127.0.0.1:50051\n"
    "  prefix-cache watch --node 127.0.0.1:50051 --json --tokens --from 81234:17",
)
@click.option("--node", "address", required=True, metavar="ADDRESS", help="Node to watch.")
@click.option(
    "--from",
    "position",
    type=_Position(),
    default="0:0",
    show_default="a snapshot",
    metavar="INCARNATION:NUMBER",
    help="Go on after this event, if the node still knows what followed.",
)
@click.option("--tokens", "with_tokens", is_flag=True, help="Print token ids, too.")
@json_lines_option
def watch(address: str, position: tuple[int, int], with_tokens: bool, as_json: bool) -> None:
    """Print every change of the blocks that a node has cached, one a line, until Ctrl-C.

    It begins with a snapshot of what is cached.  When the node goes away it waits for it, and goes
    on after the last event, or with a snapshot where the node has begun another life.
    """
    log_to_stderr()
    run_stoppable(_watch(address, position, with_tokens, as_json))


async def _watch(address: str, position: tuple[int, int], with_tokens: bool, as_json: bool) -> None:
    from prefix_cache.client import AsyncNodeClient

    async with AsyncNodeClient(address) as node:
        await node.info()  # an address where nobody is fails at once
        async for event in node.follow(*position, include_tokens=with_tokens):
            click.echo(json.dumps(_as_json(event)) if as_json else _as_text(event))


def _as_json(node_event: NodeEvent) -> dict[str, Any]:
    from prefix_cache.index import BlocksRemoved, BlocksStored

    line: dict[str, Any] = {
        "incarnation": node_event.incarnation,
        "number": node_event.number,
        "event": _name(node_event),
    }
    match node_event.event:
        case BlocksStored() as stored:
            parent = stored.parent_block_hash
            line |= {
                "block_hashes": _hexes(stored.block_hashes),
                "parent_block_hash": None if parent is None else parent.hex(),
                "block_size": stored.block_size,
                "identity": asdict(stored.identity),
            }
            if stored.token_ids:
                line["tokens"] = _token_ids(stored.token_ids)
                line["extra_keys"] = _hexes(stored.extra_keys)
        case BlocksRemoved(block_hashes):
            line["block_hashes"] = _hexes(block_hashes)
    return line


def _as_text(node_event: NodeEvent) -> str:
    from prefix_cache.index import BlocksRemoved, BlocksStored

    text = f"{node_event.incarnation}:{node_event.number} {_name(node_event)}"
    match node_event.event:
        case BlocksStored() as stored:
            parent = stored.parent_block_hash
            text += f" {' '.join(_hexes(stored.block_hashes))}"
            text += f" after {parent.hex()}" if parent else ""
            fields = {name: value for name, value in asdict(stored.identity).items() if value}
            text += "".join(f" {name}={printable(value)}" for name, value in fields.items())
            if stored.token_ids:
                text += f" tokens={','.join(map(str, _token_ids(stored.token_ids)))}"
        case BlocksRemoved(block_hashes):
            text += f" {' '.join(_hexes(block_hashes))}"
    return text


def _name(node_event: NodeEvent) -> str:
    from prefix_cache.client import SnapshotEnded, SnapshotStarted
    from prefix_cache.index import BlocksRemoved, BlocksStored, Cleared

    return {
        BlocksStored: "stored",
        BlocksRemoved: "removed",
        Cleared: "cleared",
        SnapshotStarted: "snapshot_started",
        SnapshotEnded: "snapshot_ended",
    }[type(node_event.event)]


def _hexes(values: Sequence[bytes]) -> list[str]:
    return [value.hex() for value in values]


def _token_ids(data: bytes) -> list[int]:
    import numpy as np

    ids: list[int] = np.frombuffer(data, dtype="<u4").tolist()
    return ids
