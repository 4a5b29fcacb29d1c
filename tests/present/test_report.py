"""The page: everything it must say, in both dresses, and nothing hostile in either."""

import dataclasses
import re
from functools import cache
from html.parser import HTMLParser

import pytest
from toy import LIMIT, SHAPE, toy_decision, toy_frontier, toy_point, toy_points

from frontier.model import Distance, Estimate, Flag, Limit, Shape
from frontier.present.companions import latency_panels
from frontier.present.page import report_html
from frontier.present.picture import Light, small_multiples
from frontier.present.report import NOT_SAID, Report, escape_markdown, page_of, report_markdown
from frontier.present.wording import Provenance

LIMITS = (LIMIT, Limit("p99_tpot", 0.03))
HOSTILE = "<script>alert(1)</script>\x1b[31m|`*_\u202e[x](http://evil) <b>"


@cache
def usual() -> Report:
    points = toy_points()
    points[-1] = toy_point(128, flags=(Flag("errors", "4.2%", "1%", "lower the concurrency"),))
    return Report(
        points, [toy_frontier(points)], [toy_decision(points, LIMITS, notes=("a note",))], LIMITS,
        Provenance(run="7f3a91", model="model-x", server="vllm 0.33"), 1,
        "endpoint: http://x/v1\nsla:\n  p99_ttft: 500ms\n", ("frontier sweep sweep.yaml",),
    )  # fmt: skip


page_html = cache(lambda which: report_html(which()))


class Reader(HTMLParser):
    """Tags and visible text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data + " "


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


@pytest.mark.parametrize("dress", ["html", "markdown"])
def test_the_page_says_everything_it_must(dress: str) -> None:
    text = read(page_html(usual)).text if dress == "html" else report_markdown(usual())
    wanted = (
        "Run at concurrency 64", "2,825", "binding", "a note", "errors", "lower the concurrency", "7f3a91", "model-x",
        "frontier sweep sweep.yaml", "p99_ttft: 500ms", "What this does not say", NOT_SAID[0][:40], "95% interval",
    )  # fmt: skip

    for phrase in wanted:
        assert phrase in text, phrase


def test_the_page_is_one_file_without_scripts_or_anything_from_elsewhere() -> None:
    html = page_html(usual)
    reader = read(html)

    assert "script" not in reader.tags
    assert "svg" in reader.tags
    assert not [value for name, value in reader.attributes if name == "src" or name.startswith("on")]
    assert all((value or "").startswith("#") for name, value in reader.attributes if name in ("href", "xlink:href"))


def test_ids_are_unique_and_every_reference_finds_one() -> None:
    html = page_html(usual)
    ids = re.findall(r'\bid="([^"]*)"', html)
    used = set(re.findall(r'(?:xlink:href="#|url\(#)([^")]*)', html))

    assert len(ids) == len(set(ids))
    assert used <= set(ids)


def test_the_same_run_gives_the_same_page() -> None:
    assert page_html(usual) == report_html(usual())


def test_hostile_text_is_text_in_html() -> None:
    reader = read(page_html(hostile))

    assert "script" not in reader.tags
    assert "b" not in reader.tags
    assert "<script>alert(1)</script>" in reader.text
    assert "\x1b" not in reader.text
    assert "\u202e" not in reader.text


def test_hostile_text_is_text_in_markdown() -> None:
    text = report_markdown(hostile())
    prose = re.sub(r"(?ms)^(`{3,})\w*\n.*?^\1$", "", text)

    assert "<script" not in prose
    assert "](http://evil)" not in prose.replace(r"\](http://evil)", "")
    assert "\x1b" not in text
    assert all(line.count("|") - line.count(r"\|") == 11 for line in prose.splitlines() if line.startswith("| ●"))


@cache
def hostile() -> Report:
    shape = Shape(SHAPE.isl, SHAPE.osl, name=HOSTILE)
    points = toy_points((1, 8, 64, 96), shape=shape, flags=(Flag(HOSTILE, HOSTILE, HOSTILE, HOSTILE, fatal=False),))
    return Report(
        points, [toy_frontier(points)], [toy_decision(points, notes=(HOSTILE,))], (LIMIT,),
        Provenance(run=HOSTILE, model=HOSTILE, server=HOSTILE), None, f"# ```\nmodel: {HOSTILE}\n", (HOSTILE,),
    )  # fmt: skip


def test_markdown_escapes_what_would_be_markup() -> None:
    assert r"a \| b \*c\* \[d\] &lt;e&gt; &amp; \`f\`" == escape_markdown("a | b *c* [d] <e> & `f`")
    assert r"\# not a heading" == escape_markdown("# not a heading")
    assert "p99 TTFT (limit 500 ms)" == escape_markdown("p99 TTFT (limit 500 ms)")
    assert r"1\. not a list" == escape_markdown("1. not a list")
    assert "73.0 ms" == escape_markdown("73.0 ms")


def test_a_config_with_fences_of_its_own_stays_in_its_block() -> None:
    text = report_markdown(dataclasses.replace(usual(), config_text="a: |\n  ```\n  x\n  ````\n"))

    assert "`````yaml\na: |\n  ```\n  x\n  ````\n`````" in text


def test_the_picture_is_linked_from_markdown_when_there_is_one() -> None:
    assert "](<frontier.svg>)" in report_markdown(usual(), "frontier.svg")
    assert "![" not in report_markdown(usual())


def test_rows_are_bold_on_the_frontier_and_marked() -> None:
    (section,) = page_of(usual()).sections
    found = {int(row.cells[0].value): row for row in section.rows}

    assert ("★", True, False) == (found[64].sign, found[64].strong, found[64].flagged)
    assert ("○", False, True) == (found[128].sign, found[128].strong, found[128].flagged)
    assert "output tok/s/GPU" in section.heads


def test_without_an_sla_there_is_a_page_all_the_same() -> None:
    points = toy_points()
    page = page_of(Report(points, [toy_frontier(points)]))

    assert "Up to 3,109 tok/s at p99 TTFT 1.53 s (c=112)" == page.title
    assert page.sections[0].verdict is None
    assert "No flag was raised." in page.health


def test_companions_hold_the_measured_percentiles_and_the_limits_on_them() -> None:
    points = toy_points((1, 8))
    broken = {**points[1].metrics, "p99_ttft": Estimate(float("inf"), 1.0, float("inf"), 300)}
    points[1] = dataclasses.replace(points[1], metrics=broken)
    panels = latency_panels(points, LIMITS)

    assert ["ttft", "tpot", "e2e"] == [panel.quantity for panel in panels]
    assert [(LIMIT,), (LIMITS[1],), ()] == [panel.limits for panel in panels]
    assert [[1, 8], [1]] == [[c for c, _ in series.values] for series in panels[0].series]
    assert points[0].metrics["p99_ttft"] == panels[0].series[1].values[0][1]


def test_the_speed_of_light_and_the_band_reach_the_picture() -> None:
    key = ("default", SHAPE)
    band = ((0.05, 90.0, 110.0), (0.4, 2700.0, 2900.0))
    report = dataclasses.replace(usual(), lights={key: Light(3600, "roofline")}, bands={key: band})
    (panel,) = small_multiples(report.views()).panels

    assert {3600.0} == {y for _, y in panel.light}
    assert 3 == len(panel.stairs[0].band)


def test_the_distance_from_light_is_in_the_table_of_the_page() -> None:
    lit = Distance(2000.0, Estimate(0.42, 0.41, 0.43, 900), "KV capacity")
    report = usual()
    assert "light bound by" not in report_markdown(report)
    points = [dataclasses.replace(p, light=lit) if p.concurrency == 16 else p for p in report.points]
    page = report_markdown(dataclasses.replace(report, points=points))
    assert "| of light | MBU | MFU | light bound by |" in page
    (row,) = (line for line in page.splitlines() if line.endswith(("KV capacity** |", "KV capacity |")))
    assert "42.0%" in row
