"""``deploy/compose.yaml``: what can be known of it without containers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import aiohttp
import click
import pytest

from prefix_cache.cli.commands import commands
from tests.deploy.compose import DEPLOY, Loopback, ours, running_services, services
from tests.redis_servers import redis_server

DEADLINE_S = 20.0


@pytest.mark.parametrize("service", sorted(ours()))
def test_every_command_is_one_of_ours(service: str) -> None:
    name, *arguments = ours()[service]["command"]
    command = commands.commands[name]
    # The file that is mounted there is not here.
    here = [argument for argument in arguments if not argument.startswith("--config=")]
    assert isinstance(command.make_context(name, here), click.Context)


def test_services_that_are_waited_for_can_tell_that_they_are_well() -> None:
    everything = services()
    waited_for = {
        name
        for service in everything.values()
        for name, how in _dependencies(service).items()
        if how == "service_healthy"
    }
    assert waited_for == {"redis"}
    assert "healthcheck" in everything["redis"]


def _dependencies(service: dict[str, Any]) -> dict[str, str]:
    found = service.get("depends_on", [])
    if isinstance(found, list):
        return dict.fromkeys(found, "service_started")
    return {name: each["condition"] for name, each in found.items()}


def test_our_services_run_without_privileges() -> None:
    for service in ours().values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_image_of_all_our_services_is_built_once_and_never_pulled() -> None:
    """A service with a ``build`` of its own would build the same image again."""
    assert [name for name, service in ours().items() if "build" in service] == ["router"]
    assert {service["pull_policy"] for service in ours().values()} == {"never"}


def test_files_that_are_mounted_exist() -> None:
    for service in ours().values():
        for volume in service.get("volumes", ()):
            assert (DEPLOY / volume.split(":")[0]).is_file()


async def test_the_services_find_each_other_and_a_conversation_stays_at_home() -> None:
    """As processes on this machine: the nodes announce themselves, the router takes them."""
    question = {"role": "user", "content": "Why does the kettle sing before the water boils?"}
    with redis_server() as redis:
        loopback = Loopback({"redis:6379": redis.port})
        with running_services(loopback):
            url = "http://" + loopback.here("router:8080")
            async with aiohttp.ClientSession(url, raise_for_status=True) as http:
                await _until(lambda: _ready_nodes(http), 2)
                first, head = await _chat(http, [question])
                answer = first["choices"][0]["message"]
                chat = [question, answer, {"role": "user", "content": "And then?"}]
                # What the engine told its node reaches the router as an event.
                await _until(lambda: _promised(http, chat), 80)
                second, later_head = await _chat(http, chat)
    assert head["x-prefix-cache-reason"] == "new"
    assert later_head["x-prefix-cache-reason"] == "pinned"
    assert later_head["x-prefix-cache-node"] == head["x-prefix-cache-node"]
    assert head["x-prefix-cache-node"] in ("a", "b")
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 80


async def _ready_nodes(http: aiohttp.ClientSession) -> int:
    async with http.get("/nodes") as answer:
        return [node["state"] for node in (await answer.json())["nodes"]].count("READY")


async def _promised(http: aiohttp.ClientSession, messages: list[Any]) -> int:
    """Tokens of a chat that the router expects to be cached."""
    async with http.post("/explain", json={"model": "test", "messages": messages}) as answer:
        promised: int = (await answer.json())["promised_tokens"]
    return promised


async def _until(ask: Callable[[], Awaitable[int]], expected: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (found := await ask()) != expected:
        assert time.monotonic() < deadline, f"{found}, not {expected}"
        await asyncio.sleep(0.05)


async def _chat(http: aiohttp.ClientSession, messages: list[Any]) -> tuple[Any, Mapping[str, str]]:
    body = {"model": "test", "messages": messages}
    async with http.post("/v1/chat/completions", json=body) as answer:
        return await answer.json(), answer.headers
