"""The page: everything it must say, in both dresses, and nothing hostile in either."""

import base64
import dataclasses
import hashlib
import html
import itertools
import math
import re
from functools import cache
from html.parser import HTMLParser

import pytest

from frontier.core.claim.solver import solve_all
from frontier.core.model.decisions import Cause, Judgement, Limit, Verdict
from frontier.core.model.loads import Concurrency, Rate
from frontier.core.model.points import Distance, Estimate, Flag
from frontier.core.model.shapes import Shape
from frontier.extras.present.evidence_tables import evidence_tables, time_tables
from frontier.extras.present.neighbours import neighbours
from frontier.extras.present.page import LONGEST_MARKDOWN, escape_markdown, report_html, report_markdown
from frontier.extras.present.report import LIMIT_AT, NOT_SAID, Report, bar_ends, page_of
from frontier.show.picture import draw as draw_module
from frontier.show.picture.frontier_picture import small_multiples
from frontier.show.view.figures import Figure
from frontier.show.view.series_view import DrawnRoofline, changed, series_view
from frontier.show.view.wording import RUN_HERE, Provenance
from tests.extras.present.test_series_figures import SAMPLES
from tests.kit.golden import assert_golden, assert_golden_row
from tests.kit.toy import LIMIT, SHAPE, roofline, stairs, toy_decision, toy_frontier, toy_point, toy_points, with_times

LIMITS = (LIMIT, Limit("p99_tpot", 0.03))
HOSTILE = "<script>alert(1)</script>\x1b[31m|`*_\u202e[x](http://evil) <b>"


@cache
def usual() -> Report:
    points = toy_points()
    points[-1] = toy_point(128, flags=(Flag("errors", "4.2%", "1%", "lower the concurrency"),))
    view = series_view(points, toy_frontier(points), toy_decision(points, LIMITS), LIMITS, gpus=1)
    return Report(
        [view],
        Provenance(run="7f3a91", model="model-x", server="vllm 0.33"),
        "endpoint: http://x/v1\nsla:\n  p99_ttft: 500ms\n",
        ("frontier sweep sweep.yaml",),
    )


def viewed(report: Report, **changes: object) -> Report:
    """The report with changes to its one view."""
    return dataclasses.replace(report, views=[changed(report.views[0], **changes)])  # type: ignore[arg-type]


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


def test_the_page_says_where_the_time_goes() -> None:
    points = with_times(toy_points((1, 8, 64)), missing=("queue",))
    assert points[0].time is not None
    refused = dataclasses.replace(points[0].time, parts={}, refused="others too")
    points[0] = dataclasses.replace(points[0], time=refused)
    report = viewed(usual(), points=points, frontier=toy_frontier(points), decision=toy_decision(points, LIMITS))
    (section,) = page_of(report)["sections"]
    (grid,) = [grid for grid in section["evidence"] if "prefill" in grid.heads]
    (line,) = [text for _, text in section["more"] if "prefill" in text]
    assert "c=64" in line
    rows = grid.as_json()
    assert ["c=1", "c=8", "c=64"] == [row["concurrency"] for row in rows]
    assert [("–", "–", "others too"), ("–", "40.0 ms", "")] == [
        (row["queue"], row["prefill"], row["remark"]) for row in rows[:2]
    ]
    assert_golden_row("pages", f"{grid.caption}\n{line}")


@pytest.mark.parametrize("dress", ["html", "markdown"])
def test_the_page_says_everything_it_must(dress: str) -> None:
    text = read(page_html(usual)).text if dress == "html" else report_markdown(usual())
    page, (flag,) = page_of(usual()), usual().views[0].points[-1].flags
    wanted = (
        page["title"],
        *page["health"],
        *usual().commands,
        flag.advice[1:],
        flag.measured,
        "7f3a91",
        "model-x",
        "p99_ttft: 500ms",
        NOT_SAID[0][:40],
    )

    for phrase in wanted:
        assert phrase in text, phrase


def test_the_whole_text_of_the_page_and_its_markdown() -> None:
    """A first screen with sentence, figures, why not more or less, production; the rest below it;
    definitions.
    """
    points = [toy_point(c, n=1200) for c in (1, 8, 32, 56, 64, 80)]
    points.append(toy_point(96, n=1200, flags=(Flag("lockstep", "8.1", "2", "stagger the starts"),)))
    (decision,) = solve_all(points, LIMITS)
    report = viewed(usual(), points=points, frontier=toy_frontier(points), decision=decision)
    drawn = r"<(style|svg|script)\b.*?</\1>|<details>\n<summary>Detail figures.*?</details>"
    visible = re.sub(drawn, "", report_html(report), flags=re.DOTALL)
    cells = re.sub(r"</t[hd]>", " | ", re.sub(r"\n", "", re.sub(r"<br>", " ", visible)))
    lines = re.sub(r"<[^>]*>", "", re.sub(r"</(tr|p|h\d|dd|li|summary|caption|title|pre|ul)>|<dd>", "\n", cells))
    assert_golden("page.txt", html.unescape("\n".join(line.strip() for line in lines.splitlines() if line.strip())))
    assert_golden("report.md", report_markdown(report))


def test_each_limited_number_has_a_bar_with_its_value_its_bound_and_the_limit() -> None:
    (section,) = page_of(usual())["sections"]
    assert section["figures"] is not None
    bars = dict(zip([row[0] for row in section["figures"].texts], section["bars"], strict=True))
    chosen = usual().views[0].decision.metrics  # type: ignore[union-attr]

    assert bars["output throughput"] is None
    for limit in LIMITS:
        e = chosen[limit.metric]
        ends = tuple(round(LIMIT_AT * end / limit.promise) for end in (e.value, e.upper))
        assert ends == bars[f"✓ {limit.of.label}"]
    widths = re.findall(r'class="bar".*?width: (\d+)%.*?width: (\d+)%', page_html(usual))
    assert [(str(high), str(low)) for low, high in filter(None, bars.values())] == widths


@pytest.mark.parametrize(
    ("value", "bound", "ends"),
    [(0.25, math.inf, (40, 100)), (0.75, 0.625, (100, 100)), (0.53, 0.51, (82, 85)), (math.inf, math.inf, (100, 100))],
    ids=["without a bound", "far beyond the limit", "beyond the limit", "too many failed"],
)
def test_a_bar_ends_where_it_is_known_to(value: float, bound: float, ends: tuple[int, int]) -> None:
    lower, upper = (bound, math.inf) if value > LIMIT.promise else (0.0, bound)
    measured = Estimate(value, 0.0, math.inf, 900, lower=lower, upper=upper)

    assert ends == bar_ends(Figure(LIMIT.metric, measured, LIMIT))


def test_a_bar_of_a_minimum_grows_as_its_value_falls() -> None:
    limit = Limit("p50_interactivity", 40.0)
    measured = Estimate(80.0, 60.0, 100.0, 900, lower=64.0, upper=96.0)

    assert bar_ends(Figure(limit.metric, measured, limit)) == (40, 50)


@cache
def large() -> Report:
    """Two deployments and four shapes, all with evidence: more than a comment on GitHub holds."""
    views, samples = [], {}
    for deployment, isl in itertools.product(("bf16", "fp8"), (256, 512, 1024, 2048)):
        shape = Shape.of(isl, 64)
        points = with_times(toy_points(shape=shape, deployment=deployment))
        views.append(series_view(points, toy_frontier(points), toy_decision(points, LIMITS), LIMITS, gpus=1))
        samples[deployment, shape] = {p.load: SAMPLES[64] for p in points}
    return dataclasses.replace(usual(), views=views, samples=samples)


def test_of_several_series_the_answers_come_first() -> None:
    page = page_of(large())
    assert page["answers"] is not None
    rows = page["answers"].as_json()
    text = report_markdown(large())

    assert len(page["sections"]) == len(rows)
    assert ["run at c=64"] * 8 == [row["answer"] for row in rows]
    assert text.index("| workload | answer |") < text.index("## bf16")
    assert page_of(usual())["answers"] is None


@pytest.mark.parametrize(
    ("lines", "kept"), [(0, ["## bf16", "Glossary"]), (20_000, ["workload", "Glossary"])], ids=["large", "long config"]
)
def test_a_report_as_markdown_is_never_longer_than_a_comment_may_be(lines: int, kept: list[str]) -> None:
    report = dataclasses.replace(large(), config_text="key: value\n" * lines)
    text = report_markdown(report)

    assert 9_000 < len(text) <= LONGEST_MARKDOWN
    assert [True, True] == [part in text for part in kept]
    assert "their length: evidence" in text
    assert "Left out" not in report_markdown(usual())


def test_on_paper_are_the_points_of_a_single_series_and_where_they_come_from() -> None:
    printed = [
        re.findall(r'<details[^>]*class="printed">\n<summary>(?:<h2>)?(\w+)', page_html(of)) for of in (usual, two)
    ]

    assert [["Every", "Quality", "What", "Provenance"], ["Quality", "What", "Provenance"]] == printed


def two() -> Report:
    """The usual report with a second view."""
    return dataclasses.replace(usual(), views=[*usual().views, *large().views[:1]])


def test_the_page_is_one_file_with_one_known_script_and_nothing_from_elsewhere() -> None:
    html = page_html(usual)
    reader = read(html)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

    assert 1 == html.count(f"script-src 'sha256-{allowed}'")
    assert "default-src 'none'" in html
    assert 1 == reader.tags.count("script")
    assert "svg" in reader.tags
    assert not [value for name, value in reader.attributes if name == "src" or name.startswith("on")]
    links = [value or "" for name, value in reader.attributes if name in ("href", "xlink:href")]
    assert links
    assert [] == [link for link in links if not link.startswith("#")]


def test_tables_have_captions_and_heads_with_a_scope_and_pictures_have_words() -> None:
    html = page_html(usual)

    assert html.count("<table") == html.count("<caption>") >= 2
    assert not re.findall(r"<th(?!ead)(?![^>]*\bscope=)[^>]*>", html)
    labels = re.findall(r'role="img" aria-label="([^"]*)"', html)
    assert "" not in labels
    assert html.count("<figure") == html.count('role="img"') == len(labels) >= 1


def test_every_row_names_the_mark_it_is_linked_to() -> None:
    html = page_html(usual)
    wanted = re.findall(r'data-mark="([^"]+)"', html)

    assert len(usual().views[0].points) == len(wanted)
    ids = [f'id="{of}-{mark}"' for mark in wanted for of in "an"]  # in the wide picture and in the narrow one
    assert [] == [name for name in ids if name not in html]


def test_the_neighbours_say_why_they_were_not_taken() -> None:
    (decision,) = [view.decision for view in usual().views]
    assert decision is not None
    causes = {reason.settings[0]: reason.cause for reason in decision.explanation.settings}
    assert (Cause.CHOSEN, Cause.VIOLATES, Cause.MEETS) == (causes[64], causes[80], causes[56])
    (section,) = page_of(usual())["sections"]
    assert section["neighbours"] is not None
    for text in (read(page_html(usual)).text, report_markdown(usual())):
        assert [] == [cell for row in section["neighbours"].texts for cell in row if cell not in text]
    assert_golden_row("pages", "\n".join(" | ".join(row) for row in section["neighbours"].texts))


def test_a_page_has_one_verdict_for_a_setting() -> None:
    """Also where nothing, or not enough, was measured: in the table of all points as in that of the
    settings around the answer.
    """
    points = toy_points((1, 8, 56, 60, 64, 80, 96))
    wide, over = (Estimate(x, x - 0.1, x + 0.1, 600, x - 0.1, x + 0.1) for x in (0.45, 0.55))
    for at, estimate in ((1, wide), (2, over)):
        points[at] = dataclasses.replace(points[at], metrics={**points[at].metrics, LIMIT.metric: estimate})
    points[5] = dataclasses.replace(points[5], flags=(Flag("lockstep", "8.1", "2", ""),))
    (decision,) = solve_all([p for p in points if p.load != 60], (LIMIT,), scanned=[points[3]])
    (section,) = page_of(Report([series_view(points, toy_frontier(points), decision, (LIMIT,))]))["sections"]
    verdicts = {row[0].removeprefix("c="): row[1] for row in section["neighbours"].texts}
    table = {row[0]: row[1].removesuffix(RUN_HERE) for row in section["points"].texts}
    assert {c: table[c] for c in verdicts} == verdicts
    words = {re.match(r"not proven|\w+", text)[0] for text in table.values()}
    assert words <= {"meets", "not proven", "violates", "excluded", "over"}
    assert {"not proven", "violates", "excluded"} <= words


def test_a_setting_that_is_not_judged_is_said_to_be_so() -> None:
    points = toy_points((1, 8, 56, 60, 64, 96))
    judged = tuple(j for j in toy_decision(points).judgements if j.load != 60)
    rows = neighbours(series_view(points, toy_frontier(points), toy_decision(points, judgements=judged)))

    assert [True] == ["quick look" in verdict for c, verdict, *_ in rows if c == "c=60"]
    assert ["c=56", "c=60", "c=64", "c=96"] == [row[0] for row in rows]


@pytest.mark.parametrize(
    ("estimate", "cause"),
    [
        (Estimate(0.2, 0.19, 0.21, 601, lower=0.19), Cause.TOO_FEW),
        (Estimate(0.2, 0.19, math.inf, 601, lower=0.19), Cause.TOO_FEW),
        (Estimate.without_interval(0.2, 0), Cause.NO_INTERVAL),
    ],
)
def test_a_neighbour_that_is_not_proven_says_why(estimate: Estimate, cause: Cause) -> None:
    points = [dataclasses.replace(p, metrics={**p.metrics, "p99_ttft": estimate}) for p in toy_points((1, 8))]
    need = 1280 if estimate.n else None
    judgements = tuple(Judgement(p.load, Verdict.UNPROVEN, {}, "p99_ttft", need=need) for p in points)
    decision = toy_decision(points, verdict=Verdict.UNPROVEN, load=None, candidate=8, judgements=judgements)
    rows = neighbours(series_view(points, toy_frontier(points), decision))

    assert_golden_row("pages", " | ".join(rows[-1]))
    assert {cause} == {reason.cause for reason in decision.explanation.settings}


def test_what_a_claim_stands_on_is_said_where_the_interval_crosses_the_limit() -> None:
    one_sided = Estimate(0.4, 0.38, math.inf, 1100, lower=0.385, upper=0.48)
    points = [dataclasses.replace(p, metrics={**p.metrics, "p99_ttft": one_sided}) for p in toy_points((1, 8))]
    report = Report([series_view(points, toy_frontier(points), toy_decision(points), (LIMIT,))])

    for text in (read(report_html(report)).text, report_markdown(report)):
        assert "at most 480 ms (95%)" in text
        assert "∞" not in text


def test_what_client_and_server_showed_is_on_the_page() -> None:
    report = dataclasses.replace(usual(), samples={("default", SHAPE): SAMPLES})
    for text in (read(report_html(report)).text, report_markdown(report)):
        assert "event loop late, p99" in text
        assert "400 µs" in text
        assert "preemptions" in text
        assert "cache in use" not in text  # nobody measured it


def test_counts_on_the_page_have_no_decimals() -> None:
    few = [
        dataclasses.replace(p, time=dataclasses.replace(p.time, requests=19))
        for p in with_times([toy_point(8)])
        if p.time
    ]
    (times,) = time_tables(few)
    _, server = evidence_tables(
        {Concurrency(8): dataclasses.replace(SAMPLES[8], server=({"num_preemptions_total": 3.0},))}
    )
    assert ["19", "3"] == [times.as_json()[0]["requests"], server.as_json()[0]["preemptions"]]


def test_companions_beyond_the_room_of_a_page_are_named_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    draw = draw_module.render
    monkeypatch.setattr(draw_module, "render", lambda *given, **how: drawn.append(given) or draw(*given, **how))
    report = dataclasses.replace(usual(), samples={("default", SHAPE): SAMPLES})
    report_html(report)
    every = len(drawn)
    monkeypatch.setattr("frontier.extras.present.page.ROOM", 100_000)
    html = report_html(report)

    assert 0 < len(drawn) - every < every, "what has no room is not drawn"
    assert "frontier plot --figure tails" in html
    assert len(html) < 250_000


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

    assert 1 == reader.tags.count("script")
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
    rows = [line for line in prose.splitlines() if re.match(r"\| (\*\*)?(1|8|64|96)(\*\*)? \|", line)]
    assert [11] * 4 == [row.count("|") - row.count(r"\|") for row in rows]


@cache
def hostile() -> Report:
    shape = Shape(SHAPE.isl, SHAPE.osl, name=HOSTILE)
    points = toy_points((1, 8, 64, 96), shape=shape, flags=(Flag(HOSTILE, HOSTILE, HOSTILE, HOSTILE, fatal=False),))
    points = [dataclasses.replace(point, notes=(HOSTILE,)) for point in points]
    return Report(
        [series_view(points, toy_frontier(points), toy_decision(points), (LIMIT,))],
        Provenance(run=HOSTILE, model=HOSTILE, server=HOSTILE),
        f"# ```\nmodel: {HOSTILE}\n",
        (HOSTILE,),
    )


def test_markdown_escapes_what_would_be_markup() -> None:
    assert r"a \| b \*c\* \[d\] &lt;e&gt; &amp; \`f\`" == escape_markdown("a | b *c* [d] <e> & `f`")
    assert r"\# not a heading" == escape_markdown("# not a heading")
    assert "p99 TTFT (limit 500 ms)" == escape_markdown("p99 TTFT (limit 500 ms)")
    assert r"1\. not a list" == escape_markdown("1. not a list")
    assert "73.0 ms" == escape_markdown("73.0 ms")


def test_a_config_with_fences_of_its_own_stays_in_its_block() -> None:
    text = report_markdown(dataclasses.replace(usual(), config_text="a: |\n  ```\n  x\n  ````\n"))

    assert "`````yaml\na: |\n  ```\n  x\n  ````\n`````" in text


def test_each_row_has_its_role() -> None:
    (section,) = page_of(usual())["sections"]
    styles = {row[0].value: (row[0].key, row[0].style) for row in section["points"].rows}

    assert ((64, "bold"), (128, "dim"), (8, "")) == (styles["64"], styles["128"], styles["8"])
    assert ("concurrency", "verdict", "tok/s/GPU") == section["points"].heads[:3]


def test_rows_of_rates_are_sorted_by_number_and_belong_to_their_marks() -> None:
    points = [dataclasses.replace(p, load=Rate.of(p.load + 0.5)) for p in toy_points((1, 8, 64))]
    page = report_html(Report([series_view(points, toy_frontier(points))]))

    assert ["1500", "8500", "64500"] == re.findall(r'<th scope="row" data-v="([^"]*)"', page)
    assert ["mark-0_0-1500", "mark-0_0-8500", "mark-0_0-64500"] == re.findall(r'data-mark="([^"]*)"', page)


def test_without_an_sla_there_is_a_page_all_the_same() -> None:
    points = toy_points()
    page = page_of(Report([series_view(points, toy_frontier(points))]))

    assert page["sections"][0]["verdict"] is None
    assert_golden_row("pages", "\n".join([page["title"], *page["health"]]))


def test_the_speed_of_light_and_the_band_reach_the_picture() -> None:
    band = ((0.05, 90.0, 110.0), (0.4, 2700.0, 2900.0))
    (panel,) = small_multiples(viewed(usual(), roofline=DrawnRoofline(3600, "roofline"), band=band).views).panels

    assert {3600.0} == {y for _, y in roofline(panel)}
    assert 3 == len(stairs(panel)[0].band)


def test_the_distance_from_the_roofline_is_in_the_table_of_the_page() -> None:
    lit = Distance(2000.0, Estimate(0.42, 0.41, 0.43, 900), "KV capacity")
    report = usual()
    assert "KV capacity" not in report_markdown(report)
    points = [dataclasses.replace(p, roofline_distance=lit) if p.load == 16 else p for p in report.views[0].points]
    page = report_markdown(viewed(report, points=points))
    lines = page.splitlines()
    head = lines[next(i for i, line in enumerate(lines) if "KV capacity" in line and line.startswith("|")) :: -1]
    assert_golden_row("pages", next(line for line in head if "requests" in line))
    (row,) = (line for line in page.splitlines() if "| KV capacity |" in line)
    assert "42.0%" in row
