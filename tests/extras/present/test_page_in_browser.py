"""The page in a real browser: it asks for nothing, complains of nothing, sorts, links, prints,
reads without script."""

import dataclasses
import itertools
import re
from functools import cache
from pathlib import Path

import pytest

from frontier.core.model.shapes import Shape
from frontier.extras.compare.multi_run import grouped, together
from frontier.extras.present.page import draw_figures, report_html
from frontier.extras.present.report import Report, page_of
from frontier.show.picture.frontier_picture import small_multiples
from frontier.show.view.series_view import series_view
from tests.extras.present.test_report import LIMITS, large, usual
from tests.extras.present.test_series_figures import SAMPLES
from tests.kit.browser import Tab, chromium, in_browser
from tests.kit.toy import SHAPE, toy_decision, toy_frontier, toy_points

pytestmark = pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine")


@cache
def report() -> Report:
    """Two shapes, one with samples, one point flagged."""
    other = Shape.of(8192, 512)
    more = toy_points((1, 8, 64), shape=other)
    first = usual()
    second = series_view(more, toy_frontier(more), toy_decision(more, LIMITS), LIMITS, gpus=1)
    axes = ("output_throughput", "p99_tpot")
    views = [*first.views, second]
    others = [dataclasses.replace(v, frontier=dataclasses.replace(v.frontier, objectives=axes)) for v in views]
    pictures = [small_multiples(each, footer=first.provenance) for each in (views, others)]
    return dataclasses.replace(first, views=views, samples={("default", SHAPE): SAMPLES}, pictures=pictures)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "review.html"
    file.write_text(report_html(report(), draw_figures(report())))
    assert file.stat().st_size < 2_000_000
    return file


FIRST = "table.points"
COLUMN = f"[...document.querySelector('{FIRST}').tBodies[0].rows].map(r => r.cells[%d].dataset.v)"


@pytest.mark.smoke
def test_a_reader_with_scripts(page: Path) -> None:
    async def visit(tab: Tab) -> None:
        await tab.open(page)
        assert [page.resolve().as_uri()] == tab.asked_for()
        assert [] == tab.complaints()

        await tab.unfold()
        # Sorting: by throughput, upward and downward; then by the keyboard, back by concurrency.
        rising = sorted((await tab.look(COLUMN % 2)), key=float)
        await tab.click(f"{FIRST} th:nth-child(3) button")
        assert rising == await tab.look(COLUMN % 2)
        assert "ascending" == await tab.look(f"document.querySelector('{FIRST} th:nth-child(3)').ariaSort")
        await tab.click(f"{FIRST} th:nth-child(3) button")
        assert rising[::-1] == await tab.look(COLUMN % 2)
        await tab.look(f"document.querySelector('{FIRST} th:nth-child(1) button').focus()")
        await tab.press("Enter")
        settings = [float(v) for v in await tab.look(COLUMN % 0)]
        assert sorted(settings) == settings
        assert 1 == await tab.look(f"document.querySelectorAll('{FIRST} th[aria-sort]').length")

        # The link between a row and its mark, both ways, and by focus; in the second table as well.
        for panel, c in ((0, 64), (0, 128), (1, 8)):
            row, mark = f'tr[data-mark="mark-{panel}_0-{c}"]', f"#a-mark-{panel}_0-{c}"
            lit = f"['{row}', '{mark}'].map(s => document.querySelector(s).classList.contains('lit'))"
            await tab.hover(f"{row} td")
            assert [True, True] == await tab.look(lit), c
            await tab.hover("h1")
            assert [False, False] == await tab.look(lit), c
            await tab.hover(f"{mark} use")
            assert [True, True] == await tab.look(lit), c
            await tab.hover("h1")
            await tab.click(f"{mark} use")
            assert await tab.look(f"document.activeElement === document.querySelector('{row}')")
            await tab.hover("h1")
        assert [] == tab.complaints()

        # A mark says what it is at once, and its native title does not come on top.
        tip = "[document.querySelector('#tip').hidden, document.querySelector('#tip').textContent]"
        titles = "document.querySelectorAll('.picture title').length"
        before = await tab.look(titles)
        for _ in range(2):  # the first may scroll there, which hides it
            await tab.hover("#a-mark-0_0-64 use")
        hidden, text = await tab.look(tip)
        assert not hidden
        assert text.startswith("c=64")
        assert "limit" in text
        assert before - 1 == await tab.look(titles)
        await tab.hover("h1")
        assert (await tab.look(tip))[0]
        assert before == await tab.look(titles)

        # The other axes are behind a radio; a legend's entry hides its line, and shows it again.
        shown = "[...document.querySelectorAll('.wide')].map(e => e.checkVisibility())"
        assert [True, False] == await tab.look(shown)
        await tab.click("#axes-1")
        assert [False, True] == await tab.look(shown)
        await tab.click("#axes-0")
        gone = "document.querySelectorAll('.hidden-line').length"
        for pressed in (True, False):
            await tab.click(".line[data-colour]")
            assert pressed == (await tab.look(gone) > 0)

        # What is not the page's own script is not run.
        await tab.look(
            "{const s = document.createElement('script'); s.textContent = 'window.owned = 1';document.body.append(s);}"
        )
        assert await tab.look("window.owned") is None
        assert any("Content Security Policy" in text for text in tab.complaints())
        assert [page.resolve().as_uri()] == tab.asked_for()

    in_browser(visit)


@pytest.mark.process
def test_a_reader_without_scripts_a_printer_and_a_screen_reader(page: Path) -> None:
    async def visit(tab: Tab) -> None:
        await tab.open(page, scripts=False)
        folded = (await tab.ask("Accessibility.getFullAXTree"))["nodes"]
        assert 3 <= sum(n.get("role", {}).get("value") == "DisclosureTriangle" for n in folded if not n["ignored"])
        await tab.unfold()
        tree = (await tab.ask("Accessibility.getFullAXTree"))["nodes"]
        said = [(n.get("role", {}).get("value"), n.get("name", {}).get("value", "")) for n in tree if not n["ignored"]]
        names = {role: [name for r, name in said if r == role] for role, _ in said}
        assert page_of(report())["title"] in " ".join(names["heading"])
        assert "" not in names["table"]
        assert len(names["table"]) >= 6
        pictures = names.get("image", names.get("img", []))  # the role's name depends on Chromium's version
        assert pictures
        assert "" not in pictures
        assert "button" not in names  # a button that does nothing is not offered
        # The radio needs no script.
        await tab.click("#axes-1")
        assert [False, True] == await tab.look("[...document.querySelectorAll('.wide')].map(e => e.checkVisibility())")
        assert "How to reproduce" in names["heading"]
        pdf = await tab.pdf()
        assert pdf.startswith(b"%PDF")
        assert pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page /") >= 2 or len(pdf) > 50_000
        await tab.ask("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=True)
        assert [page.resolve().as_uri()] == tab.asked_for()
        assert [] == tab.complaints()

    in_browser(visit)


@pytest.mark.process
def test_a_narrow_screen_scrolls_tables_not_the_page(page: Path) -> None:
    async def visit(tab: Tab) -> None:
        await tab.open(page)
        await tab.ask("Emulation.setDeviceMetricsOverride", width=420, height=800, deviceScaleFactor=1, mobile=False)
        assert await tab.look("document.documentElement.scrollWidth") <= 420
        wide = "[...document.querySelectorAll('svg')].filter(e => e.checkVisibility()).map(e => e.clientWidth)"
        assert {True} == {300 < width <= 420 for width in await tab.look(wide)}  # nothing moved under the finger
        shown = "['.wide', '.narrow'].map(s => document.querySelector(s).checkVisibility())"
        assert [False, True] == await tab.look(shown)
        texts = "[...document.querySelectorAll('svg text')].filter(e => e.checkVisibility())"
        assert 8 <= await tab.look(f"Math.min(...{texts}.map(e => e.getBoundingClientRect().height))")
        focusable = "[...document.querySelectorAll('.scroll')].every(e => e.tabIndex === 0 && e.ariaLabel)"
        assert await tab.look(focusable)

        # Where dark is asked for, paper, text and every ink of the pictures change; in print they
        # do not.
        looks = (
            "['body', 'svg text', '[id$=mark-0_0-64] use', 'g[id*=patch_1] path']"
            ".map(s => document.querySelector(s)).map(e => e.localName + getComputedStyle(e).fill"
            " + getComputedStyle(e).backgroundColor + getComputedStyle(e).color)"
        )
        light = await tab.look(looks)
        dark_please = [{"name": "prefers-color-scheme", "value": "dark"}]
        await tab.ask("Emulation.setEmulatedMedia", features=dark_please)
        dark = await tab.look(looks)
        assert 4 == sum(a != b for a, b in zip(light, dark, strict=True)), (light, dark)
        assert "rgb(20, 23, 28)" in dark[0]
        await tab.ask("Emulation.setEmulatedMedia", media="print", features=dark_please)
        assert light == await tab.look(looks)

    in_browser(visit)


@pytest.mark.process
def test_on_paper_a_page_has_three_sheets_at_most(tmp_path: Path) -> None:
    one, several = report_html(usual()), report_html(large())
    head, quality, rest = several.partition("<h2>Quality of the data</h2></summary>\n<ul>")
    assert quality
    flag = "<li>c=1, c=2 and c=4: the speed drifted by 20% (warning, the point is kept). Let it warm up longer.</li>"
    for name, text in (("one", one), ("several", several), ("flags", head + quality + 80 * flag + rest)):
        file = tmp_path / f"{name}.html"
        file.write_text(text)

        async def visit(tab: Tab, file: Path = file) -> None:
            await tab.open(file)
            sheets = re.findall(rb"/Type ?/Page\b", await tab.pdf())
            assert 1 <= len(sheets) <= 3, file

        in_browser(visit)


def two_deployments() -> Report:
    """Two deployments of two shapes, which share the panels of their shapes."""
    views = []
    for deployment, isl in itertools.product(("bf16", "fp8"), (256, 1024)):
        points = toy_points((1, 8, 64), shape=Shape.of(isl, 64), deployment=deployment)
        views.append(series_view(points, toy_frontier(points), toy_decision(points, LIMITS), LIMITS, gpus=1))
    return dataclasses.replace(usual(), views=views, pictures=[together(grouped([("run", views)]))])


@pytest.mark.process
def test_deployments_share_a_panel_and_their_names_hide_them(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(report_html(two_deployments()))
    marks = "[...document.querySelectorAll('.wide [id*=%s]')].filter(e => getComputedStyle(e).visibility === 'visible')"

    async def visit(tab: Tab) -> None:
        await tab.open(file)
        assert ["● bf16", "■ fp8"] == await tab.look(
            "[...document.querySelectorAll('.line[data-part]')].map(e => e.textContent)"
        )
        ids = await tab.look("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(set(ids)) == len(ids)
        bf16, fp8 = [await tab.look(f"{marks % part}.length") for part in ("_0-", "_1-")]
        assert bf16 == fp8 > 10
        await tab.click(".line[data-part=_1-]")
        assert [bf16, 0] == [await tab.look(f"{marks % part}.length") for part in ("_0-", "_1-")]
        await tab.click(".line[data-part=_1-]")
        assert fp8 == await tab.look(f"{marks % '_1-'}.length")

        # The row of a setting of the second deployment's second shape lights its mark there.
        await tab.unfold()
        await tab.hover("tr[data-mark=mark-1_1-8]")
        lit = await tab.look("[...document.querySelectorAll('g.lit')].map(e => e.id)")
        assert lit
        assert all(each.endswith("mark-1_1-8") for each in lit)
        assert [] == tab.complaints()

    in_browser(visit)
