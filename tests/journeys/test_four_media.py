"""Terminal, page, JSON and Prometheus of one run, each read as its readers do: they have the same
numbers."""

import asyncio
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.nights.outputs import VALUE, as_shown, number, tables
from frontier.config import load_config
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.extras.cluster.prometheus_exporter import Telemetry
from frontier.planning.plan import make_plan
from frontier.store.run_dir import RunDirectory
from frontier.sweep.conductor import Conductor, SweepEnd
from tests.kit.commands import frontier
from tests.kit.sweeps import ENGINES, Told, config_text, no_fsync, open_run

SLAS = {
    "an answer": "{p95_ttft: 50ms, p99_tpot: 8ms, error_rate: 1%}",
    "violated": "{p95_ttft: 1ms, p99_tpot: 8ms}",
    "not proven": "{p95_ttft: 50ms, p99.9_tpot: 9ms}",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A limited metric as a medium shows it."""

    value: float
    bound: float | None
    limit: float
    headroom: float | None = None


@dataclass(slots=True)
class Media:
    """What each medium has: limited metrics by name, the setting that they are of, and whether that
    is the answer; the throughput there; and the verdict and throughput of each point."""

    figures: dict[str, Shown] = field(default_factory=dict)
    setting: int | None = None
    answer: bool = False
    throughput: float | None = None
    points: dict[int, tuple[str, float]] = field(default_factory=dict)
    requests: dict[int, int] = field(default_factory=dict)


def swept(path: Path, sla: str) -> str:
    """Sweep in virtual time; what Prometheus reads at the end."""
    text = re.sub(r"concurrency: .*", "concurrency: [2, 8, 32]", config_text(ENGINES["smooth"], sla=sla, repeats=1))
    config = load_config(text, "sweep.yaml")
    telemetry = Telemetry(Told(), config.limits)

    async def go(run: RunDirectory) -> SweepEnd:
        backend = VirtualBackend({d.name: d.engine_spec() for d in config.deployments})
        return await Conductor(config, make_plan(config), run, backend, telemetry, asyncio.Event()).conduct()

    with no_fsync(), open_run(path, config, text) as run:
        assert "finished" == asyncio.run(go(run))
    return telemetry.text().decode()


# --- how each is read


def figure(cells: list[str]) -> tuple[str, Shown]:
    """'✓ p95 TTFT', '37 ms', 'at most 38 ms (98%)', 'limit 150 ms', '75% headroom' as numbers."""
    name = re.sub(r"^[✓✗?] +", "", cells[0]).lower().replace(" ", "_")
    value, bound, limit = (VALUE.search(cell) for cell in cells[1:4])
    left = re.match(r"([\d.]+)% headroom", cells[4] if len(cells) > 4 else "")
    assert value is not None
    assert limit is not None, cells
    return name, Shown(
        number(*value.groups()),
        None if bound is None else number(*bound.groups()),
        number(*limit.groups()),
        None if left is None else float(left[1]) / 100,
    )


def of_terminal(text: str) -> Media:
    found = Media()
    rows = [re.split(r" {2,}", line.strip()) for line in text.splitlines() if re.match(r"  [✓✗?] ", line)]
    joined = [[f"{mark} {name}", *rest] if len(mark) == 1 else [mark, name, *rest] for mark, name, *rest in rows]
    found.figures = dict(map(figure, joined))
    head = re.search(r"concurrency (\d+)[:,] ([\d,]+)\s+tok/s", text)
    nearest = re.search(r"nearest:\s+c=(\d+)", text)
    found.answer = head is not None
    setting = head or nearest
    found.setting = None if setting is None else int(setting[1])
    speed = head[2] if head else next(iter(re.findall(r"output throughput +([\d,]+) tok/s", text)), None)
    found.throughput = None if speed is None else float(speed.replace(",", ""))
    return found


def with_points(found: Media, text: str) -> Media:
    """The points of `show`'s table beside the answer."""
    for row in (row for table in tables(text) for row in table):
        assert row.throughput is not None
        found.points[row.setting] = (row.verdict.removesuffix("<- run here").strip(), row.throughput)
        found.requests[row.setting] = row.n
    return found


def of_json(solved: Mapping[str, Any], shown: Mapping[str, Any]) -> Media:
    (shape,) = solved["shapes"]
    found = Media(setting=shape["concurrency"] or shape["candidate"], answer=shape["concurrency"] is not None)
    metrics = shape["metrics"]
    for limit in shape["limits"]:
        of = metrics[limit["metric"]]
        found.figures[limit["metric"]] = Shown(of["value"], of["bound"], limit["promise"], of["headroom"])
    found.throughput = metrics["output_throughput"]["value"]
    for point in shown["points"]:
        found.points[point["concurrency"]] = (point["verdict"], point["metrics"]["output_throughput"]["value"])
        found.requests[point["concurrency"]] = point["n"]
    return found


class Page(HTMLParser):
    """The cards of the answer and the rows of every point, cell by cell."""

    def __init__(self) -> None:
        super().__init__()
        self.cards, self.heads, self.rows = list[list[str]](), list[str](), list[list[str]]()
        self.title = ""
        self._open, self._into = list[tuple[str, str]](), None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("meta", "input", "br"):  # these have no end
            return
        kind = dict(attrs).get("class") or ""
        inside = [of for _, of in self._open]
        if tag == "div" and inside[-1:] == ["numbers"]:
            self.cards.append([])
        if tag == "tr" and "points" in inside:
            self.rows.append([])
        if tag in ("th", "td") and "points" in inside:
            self.rows[-1].append("")
        if tag in ("span", "strong") and "numbers" in inside and "bar" not in kind.split():
            self.cards[-1].append("")
        self._open.append((tag, kind))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        kinds, (tag, kind) = [of for _, of in self._open], (self._open or [("", "")])[-1]
        if tag == "h1":
            self.title += data
        if "numbers" in kinds and tag in ("span", "strong"):
            self.cards[-1][-1] += data
        if "points" in kinds and tag in ("th", "td", "button", "span") and self.rows and kind != "ci":
            self.rows[-1][-1] += data


def of_page(text: str) -> Media:
    page, found = Page(), Media()
    page.feed(text)
    cards = [[cell for cell in card if cell.strip()] for card in page.cards]
    found.figures = dict(figure(card) for card in cards if any(cell.startswith("limit ") for cell in card))
    (speed,) = (card[1] for card in cards if card[0] == "output throughput")
    found.throughput = float(speed.removesuffix(" tok/s").replace(",", ""))
    named = re.search(r"concurrency (\d+)[:,]|nearest: c=(\d+)", page.title)
    assert named is not None, page.title
    found.setting, found.answer = int(named[1] or named[2]), named[1] is not None
    heads, *rows = page.rows
    where = {head: heads.index(head) for head in ("tok/s", "requests", "verdict")}
    for row in rows:
        c = int(re.sub(r"\D", "", row[0]))
        found.points[c] = (
            row[where["verdict"]].removesuffix("<- run here").strip(),
            float(row[where["tok/s"]].replace(",", "")),
        )
        found.requests[c] = int(row[where["requests"]].replace(",", ""))
    return found


def of_prometheus(text: str) -> Media:
    found, values = Media(), dict[str, dict[str, float]]()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            values.setdefault(sample.name, {})[sample.labels.get("metric", "")] = sample.value
    point = values.get("frontier_operating_point", {}).get("")
    found.answer, found.setting = point is not None, None if point is None else int(point)
    shown, bounds = (values.get(f"frontier_operating_point_{of}", {}) for of in ("value", "bound"))
    limits = values["frontier_sla_limit"]
    for name, limit in limits.items():
        found.figures[name] = Shown(shown.get(name, math.nan), bounds.get(name), limit)
    found.throughput = shown.get("output_throughput")
    return found


# --- the comparison


@pytest.fixture(scope="module", params=SLAS)
def media(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Media]:
    where = tmp_path_factory.mktemp("media")
    run = where / "run"
    said = swept(run, SLAS[request.param])
    solved = frontier("solve", run, cwd=where).out
    page = where / "page.html"
    assert 0 == frontier("report", run, "-o", page, cwd=where).code
    return {
        "terminal": with_points(of_terminal(solved), frontier("show", run, cwd=where).out),
        "page": of_page(page.read_text()),
        "json": of_json(*(json.loads(frontier(of, run, "--json", cwd=where).out) for of in ("solve", "show"))),
        "prometheus": of_prometheus(said),
    }


def same(shown: float | None, known: float | None) -> bool:
    return shown is None or (known is not None and as_shown(shown, known))


def test_every_medium_has_the_numbers_of_the_json(media: dict[str, Media]) -> None:
    known = media["json"]
    assert known.figures
    for name in ("terminal", "page"):
        other = media[name]
        assert (known.answer, known.setting) == (other.answer, other.setting), name
        assert same(other.throughput, known.throughput), name
        assert known.figures.keys() == other.figures.keys(), name
        for metric, mine in known.figures.items():
            theirs = other.figures[metric]
            assert as_shown(theirs.value, mine.value), (name, metric)
            assert (theirs.bound is None) == (mine.bound is None), (name, metric)
            assert same(theirs.bound, mine.bound), (name, metric)
            assert as_shown(theirs.limit, mine.limit), (name, metric)
            if theirs.headroom is not None:
                assert theirs.headroom == pytest.approx(mine.headroom, abs=0.0051), (name, metric)
        assert known.requests == other.requests, name
        assert known.points.keys() == other.points.keys(), name
        for c, (verdict, speed) in known.points.items():
            words, theirs_speed = other.points[c]
            assert as_shown(theirs_speed, speed), (name, c)
            said = {"marginal": "not proven", "unproven": "not proven", "invalid": "excluded"}.get(verdict, verdict)
            over_by_value = verdict != "violates" and words.startswith("over ")
            assert words.startswith(said) or over_by_value, (name, c, verdict, words)
    terminal, page = ({c: words for c, (words, _) in media[of].points.items()} for of in ("terminal", "page"))
    assert terminal == page


def test_prometheus_has_the_operating_point_as_it_stands_at_the_end(media: dict[str, Media]) -> None:
    known, other = media["json"], media["prometheus"]
    assert known.answer == other.answer
    assert {name: of.limit for name, of in known.figures.items()} == {n: of.limit for n, of in other.figures.items()}
    if known.answer:
        assert (known.setting, known.throughput) == (other.setting, other.throughput)
        for metric, mine in known.figures.items():
            assert (mine.value, mine.bound) == (other.figures[metric].value, other.figures[metric].bound), metric
    else:
        assert all(math.isnan(of.value) and of.bound is None for of in other.figures.values())
