"""A page as a file: what it says, and what it never does with text of others."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from prefix_cache.errors import InvalidArgument, MissingExtra
from prefix_cache.html_report import BarPlot, Line, LinePlot, Page
from tests.html_report.pages import full_page

HOSTILE = '<script>alert(1)</script> & "quotes" $x^2$'


def written(page: Page, tmp_path: Path) -> str:
    path = tmp_path / "page.html"
    page.write(path)
    return path.read_text("utf-8")


def test_equal_pages_are_equal_byte_for_byte(tmp_path: Path) -> None:
    assert written(full_page(), tmp_path) == written(full_page(), tmp_path)


def test_a_page_stands_alone(tmp_path: Path) -> None:
    html = written(full_page(), tmp_path)
    assert "<script" not in html
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', html) == []
    assert "@import" not in html
    assert "url(http" not in html


def test_ids_are_unique_so_that_drawings_do_not_borrow_from_each_other(tmp_path: Path) -> None:
    ids = re.findall(r'\bid="([^"]+)"', written(full_page(), tmp_path))
    assert ids
    assert len(ids) == len(set(ids))


def test_text_of_others_is_shown_and_never_interpreted(tmp_path: Path) -> None:
    page = Page(HOSTILE, HOSTILE)
    page.heading(HOSTILE)
    page.text(HOSTILE)
    page.facts([(HOSTILE, HOSTILE)])
    page.table([HOSTILE], [[HOSTILE]], caption=HOSTILE)
    page.plot(
        LinePlot(
            HOSTILE, HOSTILE, HOSTILE, [Line(HOSTILE, [1], [1])] * 2, verticals=[(1, HOSTILE)]
        ),
        caption=HOSTILE,
    )
    page.plot(BarPlot(HOSTILE, HOSTILE, [HOSTILE], {HOSTILE: [1.0]}))
    html = written(page, tmp_path)
    assert "<script" not in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt; &amp;") >= 15
    assert html.count("$x^2$") >= 15


def test_numbers_stand_right_with_separators_and_what_is_unknown_is_a_dash(tmp_path: Path) -> None:
    page = Page("t")
    page.table(["name", "count", "rate"], [["a", 1_234_567, 0.123456], ["b", None, 12345.6]])
    html = written(page, tmp_path)
    assert '<td class="number">1,234,567</td><td class="number">0.1235</td>' in html
    assert '<td>b</td><td class="number">–</td><td class="number">1.235e+04</td>' in html


def test_the_caller_may_align_columns(tmp_path: Path) -> None:
    page = Page("t")
    page.table(["a", "b"], [[1, "4 to 5"]], align="lr")
    assert '<td>1</td><td class="number">4 to 5</td>' in written(page, tmp_path)


def test_signs_that_the_drawing_font_lacks_are_left_to_the_browser(tmp_path: Path) -> None:
    page = Page("t")
    page.plot(BarPlot("t", "y", ["模型"], {"量": [1.0]}))
    assert "模型" in written(page, tmp_path)


def test_a_drawing_has_its_title_for_those_who_do_not_see_it(tmp_path: Path) -> None:
    page = Page("t")
    page.plot(BarPlot("KV & more", "y", ["a"], {"p": [1.0]}))
    assert written(page, tmp_path).count('<svg role="img" aria-label="KV &amp; more"') == 2


def test_one_line_needs_no_legend_and_two_do(tmp_path: Path) -> None:
    line = Line("only", [1, 2], [1, 2])
    one, two = Page("t"), Page("t")
    one.plot(LinePlot("p", "x", "y", [line]))
    two.plot(LinePlot("p", "x", "y", [line, Line("other", [1, 2], [2, 1], "--")]))
    assert '<ul class="legend">' not in written(one, tmp_path)
    assert '<i class="dashed" style="color: var(--series-1)"></i>other' in written(two, tmp_path)


def test_what_does_not_fit_together_is_refused() -> None:
    page = Page("t")
    with pytest.raises(InvalidArgument, match="row 1 has 1 cells: expected 2"):
        page.table(["a", "b"], [[1, 2], [1]])
    with pytest.raises(InvalidArgument, match="align 'lx': expected 2 letters"):
        page.table(["a", "b"], [[1, 2]], align="lx")
    with pytest.raises(InvalidArgument, match="line 'l' has 2 x and 1 y"):
        Line("l", [1, 2], [1])
    with pytest.raises(InvalidArgument, match="part 'p' has 1 values: expected 2"):
        BarPlot("t", "y", ["a", "b"], {"p": [1]})


def test_without_matplotlib_a_page_is_not_even_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"prefix-cache\[report\]"):
        Page("t")


def test_a_vertical_beyond_the_lines_is_left_out(tmp_path: Path) -> None:
    page = Page("Sizes")
    verticals = [(0.001, "below"), (5, "between"), (1e9, "above")]
    page.plot(
        LinePlot("p", "x", "y", [Line("l", [1, 10], [0, 1])], log_x=True, verticals=verticals)
    )

    html = written(page, tmp_path)

    assert "between" in html
    assert "below" not in html
    assert "above" not in html
