"""The page in a real browser, on a laptop and a telephone, in light and in dark."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.html_report.browser import Tab, browser_tab
from tests.html_report.pages import full_page

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    full_page().write(path)
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Tab]:
    async with browser_tab(tmp_path_factory.mktemp("browser")) as tab:
        yield tab


async def test_a_page_loads_nothing_and_nothing_in_it_fails(page: Path, tab: Tab) -> None:
    await tab.show(page, 1280, "light")
    assert [url for url in tab.requests if not url.startswith("data:")] == [page.as_uri()]
    assert tab.complaints == []
    assert await tab.value("document.querySelectorAll('h1, h2, h3, table').length") == 5


@pytest.mark.parametrize("width", [390, 700, 1280])
async def test_a_page_is_never_wider_than_its_window(page: Path, tab: Tab, width: int) -> None:
    await tab.show(page, width, "light")
    root = "document.documentElement"
    assert await tab.value("innerWidth") == width
    assert await tab.value(f"{root}.scrollWidth <= {root}.clientWidth")


async def test_a_wide_table_scrolls_inside_its_box(page: Path, tab: Tab) -> None:
    await tab.show(page, 390, "light")
    box = "document.querySelector('.scroll')"
    assert await tab.value(f"{box}.scrollWidth > {box}.clientWidth")
    await tab.show(page, 1280, "light")
    assert not await tab.value(f"{box}.scrollWidth > {box}.clientWidth")


async def test_each_width_has_its_own_drawing_with_readable_text(page: Path, tab: Tab) -> None:
    drawn = "[...document.querySelectorAll('svg')].filter(svg => svg.getClientRects().length)"
    smallest = (
        f"Math.min(...{drawn}.flatMap(svg => [...svg.querySelectorAll('text')].map(text => "
        "parseFloat(getComputedStyle(text).fontSize) * svg.getScreenCTM().a)))"
    )
    for width in (390, 1280):
        await tab.show(page, width, "light")
        assert await tab.value(f"{drawn}.length") == 2
        assert await tab.value(smallest) >= 10


async def test_a_reader_in_the_dark_gets_a_dark_page_with_light_text(page: Path, tab: Tab) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    text = "getComputedStyle(document.body).color"
    label = "getComputedStyle(document.querySelector('svg text')).fill"
    await tab.show(page, 1280, "light")
    light = [await tab.value(what) for what in (background, text, label)]
    await tab.show(page, 1280, "dark")
    dark = [await tab.value(what) for what in (background, text, label)]
    assert light == ["rgb(247, 247, 245)", "rgb(29, 33, 41)", "rgb(93, 101, 114)"]
    assert dark == ["rgb(20, 22, 26)", "rgb(232, 234, 238)", "rgb(160, 168, 181)"]
