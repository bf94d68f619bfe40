"""A page as a real browser shows it: headless Chromium, told what to do over its own protocol."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_DEADLINE = 30


@dataclass
class Tab:
    """One tab; ``requests`` and ``complaints`` are what its page loaded and logged."""

    _socket: aiohttp.ClientWebSocketResponse
    _session: str = ""
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    async def show(self, page: Path, width: int, colours: str) -> None:
        """Load a page in a window of this width, for a reader who prefers light or dark."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 640,
        )
        await self.call(
            "Emulation.setEmulatedMedia",
            features=[{"name": "prefers-color-scheme", "value": colours}],
        )
        self.requests.clear()
        self.complaints.clear()
        await self.call("Page.navigate", url=page.as_uri())
        while (await self._message())["method"] != "Page.loadEventFired":
            pass

    async def value(self, expression: str) -> Any:
        """Return what an expression of JavaScript gives."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"]["value"]

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the browser's answer to one command."""
        number = next(self._numbers)
        await self._socket.send_json(
            {"id": number, "method": method, "params": parameters}
            | ({"sessionId": self._session} if self._session else {})
        )
        while True:
            message = await self._message()
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result

    async def _message(self) -> dict[str, Any]:
        message: dict[str, Any] = await self._socket.receive_json(timeout=_DEADLINE)
        if message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        if message.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.complaints.append(str(message["params"]))
        return message


@asynccontextmanager
async def browser_tab(folder: Path) -> AsyncIterator[Tab]:
    """A tab of a browser of its own, which keeps its files in ``folder``.

    Skips the test where there is no Chromium.
    """
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(_NAMES)}")
    process = await asyncio.create_subprocess_exec(
        program,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "about:blank",
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        address = await asyncio.wait_for(_address(process), _DEADLINE)
        async with aiohttp.ClientSession() as client, client.ws_connect(address) as socket:
            browser = Tab(socket)
            target = await browser.call("Target.createTarget", url="about:blank")
            attached = await browser.call(
                "Target.attachToTarget", targetId=target["targetId"], flatten=True
            )
            tab = Tab(socket, attached["sessionId"])
            for domain in ("Page", "Network", "Runtime", "Log"):
                await tab.call(f"{domain}.enable")
            yield tab
    finally:
        process.terminate()
        await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async for line in process.stderr:
        if line.startswith(b"DevTools listening on "):
            return line.split()[-1].decode()
    raise AssertionError("the browser ended before it listened")
