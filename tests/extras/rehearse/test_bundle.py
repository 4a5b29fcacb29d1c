"""The files of an exported rehearsal, held against the checker of MLPerf Endpoints itself."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from frontier.extras.rehearse.bundle import bundle
from frontier.extras.rehearse.endpoints_rules import CHECKER, NOTICE
from frontier.extras.rehearse.regions import Regions
from frontier.extras.rehearse.rehearsal import Rehearsal, rehearse
from frontier.extras.rehearse.steady import STEADY, Steady
from frontier.read_run import load
from tests.extras.rehearse.submission import ACCURACY, changed, check, submit
from tests.kit.sweeps import sweep_in_virtual_time

SETTINGS = (1, 4, 8, 16, 24, 32, 64)
SWEPT = f"""\
endpoint: simulator
simulator: {{step_base: 5ms, per_decode: 60us, per_prefill_token: 20us, noise: 0.05}}
shapes: [64/16]
concurrency: {list(SETTINGS)}
requests: 300
repeats: 1
refine: 0
"""
WINDOW = Steady("windowable", STEADY, 5, 13_368, 1, 4, 1919.0)
Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    run = tmp_path_factory.mktemp("rehearse") / "run"
    sweep_in_virtual_time(run, SWEPT)
    found = rehearse(load(run), "llama3_1-8b")
    return replace(found, points=tuple(replace(point, steady=WINDOW) for point in found.points))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python of its own with the checker; skipped where it cannot be installed."""
    home = tmp_path_factory.mktemp("checker")
    subprocess.run([sys.executable, "-m", "venv", home], check=True, timeout=300)
    install = [home / "bin" / "python", "-m", "pip", "install", "-q", f"endpoints-submission-cli=={CHECKER}"]
    done = subprocess.run(install, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        pytest.skip(f"the checker {CHECKER} cannot be installed: {done.stderr[-300:]}")
    return home / "bin" / "python"


def point(c: int, **values: Any) -> Change:
    """A change of the description of a point; 'a__b' stands for b in a."""

    def change(curve: Path) -> None:
        def put(tree: dict[str, Any]) -> None:
            for name, value in values.items():
                *outer, last = name.split("__")
                holder = tree
                for part in outer:
                    holder = holder[part]
                if value is None:
                    del holder[last]
                else:
                    holder[last] = value

        changed(curve / f"r{c}" / "point.yaml", put)

    return change


def summary(c: int, **values: Any) -> Change:
    return lambda curve: changed(curve / f"r{c}" / "result_summary.json", lambda tree: tree.update(values))


def moved(c: int, to: int) -> Change:
    def change(curve: Path) -> None:
        (curve / f"r{c}").rename(curve / f"r{to}")
        point(to, concurrency=to)(curve)

    return change


def removed(c: int, file: str = "") -> Change:
    return lambda curve: shutil.rmtree(curve / f"r{c}") if not file else (curve / f"r{c}" / file).unlink()


def score(c: int, value: str) -> Change:
    entry = {"num_samples": 13_368, "score": {"rouge1": value}}
    return lambda curve: changed_or_new(curve / f"r{c}" / "accuracy_results.json", dict.fromkeys(ACCURACY, entry))


def changed_or_new(file: Path, tree: dict[str, Any]) -> None:
    file.write_text("{}")
    changed(file, lambda given: given.update(tree))


def small(curve: Path) -> None:
    for folder in curve.iterdir():
        changed(folder / "system_desc.json", lambda tree: tree.update(max_supported_concurrency=32))


BROKEN: dict[str, tuple[str, tuple[Change, ...]]] = {
    "no Offline point": ("offline-point-present", (point(64, offline="none"),)),
    "elected below the highest": ("offline-point-present", (point(64, offline="none"), point(32, offline="elected"))),
    "six points": ("point-count", (removed(24),)),
    "the highest is 32": ("region-computation", (small,)),
    "a region without a point": ("low-concurrency-coverage", (removed(4),)),
    "above the margin": ("concurrency-in-range", (moved(24, 80),)),
    "three super-passes": ("steady-state-consistency", (point(8, steady_state__window__super_pass_end=3),)),
    "a drifting window": ("steady-state-consistency", (point(8, steady_state__state__tpot_p90="Drifting Up"),)),
    "another throughput": ("metric-consistency-system-tps", (summary(8, system_tps=1.0),)),
    "another speed of a user": ("metric-consistency-tps-per-user", (summary(8, tps_per_user=1.0),)),
    "no P90 of TPOT": ("metric-consistency-tpot-p90", (summary(8, tpot={"percentiles": {"50": 1e7}}),)),
    "requests that are lost": ("metric-consistency-accounting", (summary(8, n_samples_issued=70_000),)),
    "fewer requests than prompts": (
        "min-query-count",
        (summary(8, n_samples_issued=13_000, n_samples_completed=13_000),),
    ),
    "another dataset": ("config-consistency-dataset", (point(8, dataset="other"),)),
    "another model": ("config-consistency-model", (point(8, model_name="deepseek-r1"),)),
    "another spelling": ("model-name-valid", (point(8, model_name="llama3.1-8b"),)),
    "Poisson": ("load-pattern", (point(8, runtime_settings__load_pattern="poisson"),)),
    "another seed": ("seed-runtime-match", (point(8, runtime_settings__runtime__model_seed=1),)),
    "a late cohort": (
        "seed-set-adoption",
        tuple(point(c, target_cohort="2027-01-C0") for c in SETTINGS),
    ),
    "no config": ("config-file-present", (removed(8, "config.yaml"),)),
    "no warm-up": ("warmup-present", (point(8, warmup=None),)),
    "no accuracy in a region": ("accuracy-coverage", (removed(16, "accuracy_results.json"),)),
    "accuracy twice in a region": ("accuracy-coverage", (score(8, "38.9"),)),
    "accuracy below the target": ("accuracy-gate", (score(16, "30.0"),)),
    "a blank": ("point-config-valid", (point(8, runtime_settings__runtime__model_seed="<model_seed>"),)),
}


@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_the_checker_finds_no_error_in_a_filled_export_and_each_fault_in_a_broken_copy(
    made: Rehearsal, python: Path, tmp_path: Path
) -> None:
    whole = submit(made, tmp_path / "whole")
    assert [finding for finding in check(python, tmp_path / "whole") if finding[0] == "error"] == []
    assert NOTICE in (whole / "r8" / "point.yaml").read_text()
    missed = {}
    for name, (rule, changes) in BROKEN.items():
        copy = tmp_path / name.replace(" ", "-")
        shutil.copytree(tmp_path / "whole", copy)
        for change in changes:
            change(copy / "results" / "toy" / "llama3_1-8b")
        rules = {found for severity, found, _ in check(python, copy) if severity == "error"}
        if rule not in rules:
            missed[name] = rule, sorted(rules)
    assert missed == {}


def test_what_only_the_submitter_knows_is_a_named_blank_and_nothing_else_is(made: Rehearsal) -> None:
    files = dict(bundle(made))
    assert {Path(f"r{c}") for c in SETTINGS} == {path.parent for path in files}
    tree = yaml.safe_load(files[Path("r8/point.yaml")])
    known = ("notice", "concurrency", "region", "offline", "dataset", "model_name", "steady_state")
    assert [] == [name for name in known if "<" in str(tree[name])]
    for name in ("division", "model_precision", "dataset_link", "shared_src", "seed_set", "target_cohort"):
        assert tree[name].startswith(f"<{name}")
    assert all(NOTICE in data.decode() for data in files.values())


def test_the_numbers_of_a_point_are_those_of_the_table(made: Rehearsal) -> None:
    for point in made.points:
        tree = json.loads(dict(bundle(made))[Path(f"r{point.concurrency}/result_summary.json")])
        tps = tree["output_sequence_lengths"]["total"] / tree["duration_ns"] * 1e9
        assert point.system_tps == pytest.approx(tps, rel=0.01)
        assert point.tps_per_user == pytest.approx(1e9 / tree["tpot"]["percentiles"]["90"], rel=0.01)
        assert tree["n_samples_issued"] == tree["n_samples_completed"] + tree["n_samples_failed"]


SAME = """
import sys
from submission_checker.models import compute_regions
for low, high in [(1, 33), (32, 33), (32, 35), *((low, high) for low in (1, 4, 16, 32) for high in range(34, 5000, 7))]:
    r = compute_regions(high, low)
    spans = r.low_concurrency, r.med_concurrency, r.high_concurrency
    print(low, high, *(n for span in spans for n in (span.start, span.end)), r.margin.end)
"""


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_regions_are_those_of_the_checker(python: Path) -> None:
    done = subprocess.run([python, "-c", SAME], capture_output=True, text=True, timeout=120, check=True)
    rows = [[int(number) for number in line.split()] for line in done.stdout.splitlines()]
    assert len(rows) > 2000
    for low, high, *theirs in rows:
        regions = Regions.of(low, high)
        assert [*(n for span in list(regions.spans.values())[1:] for n in span), regions.margin] == theirs
