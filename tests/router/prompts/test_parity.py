"""The router's tokens of a conversation against those of an engine that runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from prefix_cache.errors import Unsupported
from prefix_cache.testing import EngineConfig, running_engine
from router.prompts.parity import first_difference
from router.prompts.rendering import Rendering, load_rendering


@pytest_asyncio.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest_asyncio.fixture
async def url() -> AsyncIterator[str]:
    async with running_engine(EngineConfig(model="m")) as engine:
        yield engine.url


def rendering(chat_template: str) -> Rendering:
    loaded = load_rendering("bytes", chat_template)
    assert loaded is not None
    return loaded


@pytest.mark.parametrize("chat_template", ["plain", ""])
async def test_the_engines_own_template_makes_the_same_tokens(
    session: aiohttp.ClientSession, url: str, chat_template: str
) -> None:
    assert await first_difference(session, url, "m", rendering(chat_template)) is None


@pytest.mark.parametrize(
    ("template", "position"),
    [
        ("<|tools|>\n{% for tool in tools %}{{ tool }}{% endfor %}", 10),
        ("{% for message in messages %}<|{{ message.role }}|>{% endfor %}", 2),
    ],
)
async def test_another_template_is_told_by_the_first_token_that_differs(
    session: aiohttp.ClientSession, url: str, tmp_path: Path, template: str, position: int
) -> None:
    pytest.importorskip("jinja2")
    (tmp_path / "chat.jinja").write_text(template)
    other = rendering(str(tmp_path / "chat.jinja"))
    assert await first_difference(session, url, "m", other) == position


async def test_an_engine_that_does_not_tokenize_cannot_be_checked(
    session: aiohttp.ClientSession, url: str
) -> None:
    with pytest.raises(Unsupported, match="answered 404"):
        await first_difference(session, url + "/nothing", "m", rendering("plain"))
    with pytest.raises(Unsupported, match="answered 404"):
        await first_difference(session, url, "another model", rendering("plain"))
    with pytest.raises(Unsupported, match="/tokenize"):
        await first_difference(session, "http://127.0.0.1:1", "m", rendering("plain"))
