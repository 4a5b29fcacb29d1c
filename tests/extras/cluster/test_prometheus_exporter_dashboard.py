"""The Grafana dashboard: Grafana's own model of one reads it whole, and Prometheus answers all that
it asks."""

import json
import math
import re
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import promql_parser
import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import prometheus, stat, timeseries
from grafana_foundation_sdk.models.dashboard import Dashboard, Panel
from prometheus_client.parser import text_string_to_metric_families

from frontier.config import load_config
from frontier.core.model.decisions import Decision, Verdict
from frontier.core.model.loads import Concurrency
from frontier.core.model.points import Estimate
from frontier.extras.cluster.prometheus_exporter import Telemetry
from frontier.planning.plan import make_plan
from tests.kit.commands import http_sweep, start, until_said
from tests.kit.places import ROOT
from tests.kit.sweeps import Told

BOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana-sweep.json").read_text())
TARGETS: list[dict[str, Any]] = [target for panel in BOARD["panels"] for target in panel["targets"]]
SWEEP = http_sweep("[1, 2, 3]", requests=100_000, shape="32/4", more="max_time: 5s\n")


def lost_or_changed(before: Any, after: Any, at: str = "") -> Iterator[str]:
    """Where `after` does not hold what `before` does; what is added to it are defaults."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            yield from lost_or_changed(value, after[key], f"{at}/{key}") if key in after else [f"{at}/{key} is lost"]
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for i, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from lost_or_changed(one, other, f"{at}[{i}]")
    elif before != after:
        yield f"{at}: {before!r} became {after!r}"


def test_grafanas_own_model_of_a_dashboard_reads_all_of_it_and_knows_every_key() -> None:
    plugins.register_default_plugins()
    board = Dashboard.from_json(BOARD)
    assert [] == list(lost_or_changed(BOARD, json.loads(JSONEncoder().encode(board))))
    options = {"stat": stat.Options, "timeseries": timeseries.Options}
    for panel in board.panels or []:
        assert isinstance(panel, Panel)
        assert isinstance(panel.options, options[panel.type_val])
        assert panel.targets
        assert all(isinstance(target, prometheus.Dataquery) for target in panel.targets)


def test_a_key_that_grafana_does_not_know_would_be_seen() -> None:
    plugins.register_default_plugins()
    mistyped = {**BOARD, "schemaVersoin": 39}
    after = json.loads(JSONEncoder().encode(Dashboard.from_json(mistyped)))
    assert ["/schemaVersoin is lost"] == list(lost_or_changed(mistyped, after))


def test_panels_have_names_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    cells: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        at = panel["gridPos"]
        mine = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & mine, panel["title"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        cells |= mine


def exported() -> dict[str, list[dict[str, str]]]:
    """Every metric with its labels, of a sweep whose first trial is finished and whose second is
    running.
    """
    trials = make_plan(load_config(SWEEP, "s")).trials
    config = load_config(SWEEP, "s")
    telemetry = Telemetry(Told(), config.limits)
    telemetry.plan(3, 0)
    telemetry.note("a line")
    telemetry.trial_started(trials[0])
    figures = {"p50_ttft": 0.1, "p99_ttft": 0.2, "p99_tpot": 0.01, "output_throughput": 50.0, "error_rate": 0.0}
    telemetry.trial_finished(trials[0], {**figures, "p90_ttft": 0.1})
    known = {"p90_ttft": Estimate(0.1, 0.09, 0.2, 50)}
    telemetry.announced(
        Decision("default", trials[0].shape, config.limits, Verdict.MEETS, Concurrency(1), "p90_ttft", known, ()),
        9.0,
        None,
    )
    telemetry.trial_started(trials[1])
    telemetry.tick(
        SimpleNamespace(
            stage="window", elapsed=3.0, in_flight=2, window_sent=70, failed=2, rate=9.0, p50_ttft=0.1, p99_ttft=0.2
        )
    )
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(telemetry.text().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append(sample.labels)
    return found


def selectors(node: Any) -> Iterator[promql_parser.VectorSelector]:
    """The metrics that a query reads."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for part in ("lhs", "rhs", "expr", "vector_selector"):
        if hasattr(node, part):
            yield from selectors(getattr(node, part))
    for argument in getattr(node, "args", ()):
        yield from selectors(argument)


def test_every_query_reads_metrics_that_are_exported_by_labels_they_have() -> None:
    known = exported()
    assert len(TARGETS) >= 8
    for target in TARGETS:
        read = list(selectors(promql_parser.parse(target["expr"])))
        assert read, f"{target['expr']} shows nothing of ours"
        for selector in read:
            assert selector.name in known, f"{target['expr']} asks for what is not exported"
            wanted = {m.name: m.value for m in selector.matchers.matchers}
            matching = [
                labels
                for labels in known[selector.name]
                if all(re.fullmatch(value, labels.get(name, "")) for name, value in wanted.items())
            ]
            assert matching, f"{target['expr']} matches nothing"
            legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert legend <= matching[0].keys(), f"{target['legendFormat']} of {target['expr']}"


def answered(address: str, query: str) -> list[dict[str, Any]]:
    """The series Prometheus has for a query now, with a value that is a number."""
    with urllib.request.urlopen(f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=5) as r:
        series = json.load(r)["data"]["result"]
    return [one for one in series if math.isfinite(float(one["value"][1]))]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus is installed here")
def test_a_prometheus_that_scrapes_a_sweep_answers_every_query(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    sweep = start("sweep", "sweep.yaml", "--prometheus", "0", cwd=tmp_path)
    scraper = None
    try:
        ours = until_said(sweep, r"http://(127\.0\.0\.1:\d+)/metrics")[1]
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 500ms}\n"
            f"scrape_configs: [{{job_name: frontier, static_configs: [{{targets: ['{ours}']}}]}}]\n"
        )
        scraper = subprocess.Popen(
            [
                "prometheus",
                "--config.file=prometheus.yml",
                "--web.listen-address=127.0.0.1:0",
                "--storage.tsdb.path=data",
            ],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        theirs = f"http://{until_said(scraper, r'Listening on.*?(127[.]0[.]0[.]1:[0-9]+)')[1]}"
        left, deadline = {target["expr"] for target in TARGETS}, time.monotonic() + 60
        while left and time.monotonic() < deadline:
            time.sleep(0.3)
            left -= {query for query in left if answered(theirs, query)}
        assert set() == left, "these queries had no answer while the sweep ran"
    finally:
        for process in (sweep, scraper):
            if process is not None:
                process.send_signal(signal.SIGKILL)
                process.communicate()
