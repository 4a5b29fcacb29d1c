"""Results put together: what may stand twice, names, shapes, and what follows from figures."""

from collections.abc import Sequence
from pathlib import Path

import moocore
import numpy as np
import pytest
from scipy import stats

from frontier import import_files
from frontier.config import parse_sla
from frontier.core.claim.solver import solve
from frontier.core.model.decisions import Verdict
from frontier.core.model.points import Point
from frontier.core.model.shapes import Lengths, Shape
from frontier.core.model.trials import Phase, Trial
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import Assembled, assemble
from frontier.extras.exchange.results import ImportedFile
from frontier.read_run import load
from frontier.store.documents import ForeignFileError
from frontier.store.records import decode_imported, encode_imported
from tests.extras.exchange.test_imported_requests import N, requests
from tests.kit.golden import assert_golden_row
from tests.kit.peer_files import guidellm, said, vllm, vllm_detailed

HEAD = "concurrency,isl,osl,n,output_throughput"


def table(head: str, *rows: str) -> ImportedFile:
    return formats.read_results("t.csv", "\n".join([head, *rows]).encode())


def point(found: ImportedFile) -> Point:
    (made,) = assemble([found]).points
    return made


@pytest.mark.parametrize(
    ("heads", "names"),
    [
        ("p99_ttft_ms,p99_ttft_s", ("'p99_ttft_ms'", "'p99_ttft_s'")),
        ("p99_ttft,P99 TTFT (ms)", ("'p99_ttft'", "'P99 TTFT (ms)'")),
        ("p99_ttft,p99.0_ttft", ("'p99_ttft'", "'p99.0_ttft'")),
        ("error_rate,error_rate_pct", ("'error_rate'", "'error_rate_pct'")),
    ],
)
def test_two_columns_of_one_metric_are_refused(heads: str, names: tuple[str, str]) -> None:
    with pytest.raises(ForeignFileError) as raised:
        table(f"{HEAD},{heads}", "8,64,8,100,900,0.1,0.1")
    assert [] == [name for name in names if name not in str(raised.value)]
    assert_golden_row("messages", str(raised.value))


@pytest.mark.parametrize(
    ("head", "row", "what"),
    [
        ("failed,p99_ttft", "101,0.1", "101 of 100"),
        ("error_rate,p99_ttft", "5,0.1", "error_rate_pct"),
    ],
)
def test_counts_that_cannot_be_are_refused(head: str, row: str, what: str) -> None:
    with pytest.raises(ForeignFileError, match=what) as raised:
        table(f"{HEAD},{head}", "", f"8,64,8,100,900,{row}")
    assert str(raised.value).startswith("t.csv: line 3: ")
    assert_golden_row("messages", str(raised.value))


def test_a_latency_of_zero_was_not_measured_in_a_table_either() -> None:
    assert "p99_ttft" not in point(table(f"{HEAD},p99_ttft_ms", "8,64,8,100,900,0")).metrics


def test_a_row_that_is_torn_off_is_refused() -> None:
    with pytest.raises(ForeignFileError, match=r"^t\.csv: line 3 ") as raised:
        table(f"{HEAD},p99_ttft", "8,64,8,100,900,0.1", "16,64,8,100,90")
    assert_golden_row("messages", str(raised.value))


def test_two_heads_of_one_column_are_refused() -> None:
    with pytest.raises(ForeignFileError, match="'concurrency' and 'Concurrency'"):
        table("concurrency,Concurrency,isl,osl,p99_ttft", "8,16,64,8,0.1")


def test_columns_that_are_not_read_are_named() -> None:
    (note,) = (n for n in table(f"{HEAD},p99_ttft,precision", "8,64,8,100,900,0.1,fp8").notes if "precision" in n)
    assert_golden_row("answers", note)


def test_seconds_beside_the_same_milliseconds_are_no_contradiction() -> None:
    assert 0.080 == point(said(vllm(p99_ttft=0.08))).metrics["p99_ttft"].value


@pytest.mark.parametrize(("values", "middle"), [((900, 1000), 950), ((900, 1000, 940), 940)])
def test_results_of_a_setting_are_repeats_and_their_median_counts(values: tuple[int, ...], middle: int) -> None:
    """vllm-project/perf-eval#59, ai-dynamo/aiperf#623, sgl-project/sglang#10625."""
    found = point(table(f"{HEAD},p99_ttft", *(f"8,64,8,100,{value},0.1" for value in values)))
    assert (len(values), 100 * len(values)) == (found.repeats, found.n)
    assert middle == found.metrics["output_throughput"].value
    estimate = found.metrics["output_throughput"]
    low, high = (min(values), max(values)) if len(values) == 2 else t_interval(values)
    assert (low, high) == pytest.approx((estimate.low, estimate.high))
    assert not estimate.has_bound
    assert not found.metrics["p99_ttft"].has_interval  # runs that are all alike do not show how they differ
    assert f"{len(values)} runs" in found.notes[0]
    assert "not a proof" in found.notes[0]


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """The interval of a mean by Student's t, as scipy has it."""
    ends = stats.t.interval(0.95, len(values) - 1, float(np.mean(values)), stats.sem(values))
    return float(ends[0]), float(ends[1])


def test_values_of_several_runs_decide_by_their_worse_end() -> None:
    """Inside by the median and outside by the worse end: neither yes nor no."""
    rows = [f"{c},64,8,100,{100 * c},{t}" for c, by in ((8, 1), (16, 2)) for t in (0.09 * by, 0.1 * by, 0.11 * by)]
    points = assemble([table(f"{HEAD},p99_ttft", *rows)]).points
    again = [decode_imported(encode_imported(each)) for each in points]
    assert [p.metrics["p99_ttft"] for p in points] == [p.metrics["p99_ttft"] for p in again]
    for limit, alone, verdict in (
        (0.3, 16, Verdict.MEETS),
        (0.21, 8, Verdict.MEETS),
        (0.11, None, Verdict.MARGINAL),
        (0.05, None, Verdict.VIOLATES),
    ):
        limits = parse_sla(f"p99_ttft<={limit}s")
        decision = solve(again, limits, point_estimates=True)
        assert (alone, verdict) == (decision.load, decision.verdict), limit
        assert solve(again, limits).load is None


def test_a_lower_setting_that_lacks_throughput_does_not_hide_a_marginal_one() -> None:
    rows = [f"{c},64,8,100,{100 * c},{t}" for c in (4, 16, 32) for t in (0.009 * c, 0.01 * c, 0.011 * c)]
    points = assemble([table(f"{HEAD},p99_ttft", *rows)]).points
    found = solve(points, parse_sla("p99_ttft<=170ms, output_throughput>=1000"), point_estimates=True)
    assert (Verdict.MARGINAL, 16) == (found.verdict, found.candidate)


def test_a_repeat_that_is_excluded_leaves_the_others() -> None:
    rows = "8,64,8,100,900,0.1,0", "8,64,8,100,100,0.1,90", "8,64,8,100,920,0.1,0"
    found = point(table(f"{HEAD},p99_ttft,failed", *rows))
    assert (2, 910, True) == (found.repeats, found.metrics["output_throughput"].value, found.valid)
    assert any("of 3" in note for note in found.notes)


def test_the_requests_of_a_setting_count_and_not_the_aggregate_beside_them() -> None:
    summary, detailed = vllm_detailed(requests(), N), vllm_detailed(requests(), N)
    for key in ("start_times", "ttfts", "itls"):
        del summary[key]
    made = assemble([said(summary, "a.json"), said(detailed, "b.json")])
    assert (0, 1, 1) == (len(made.points), len(made.trials), len(made.notes))


def test_requests_of_one_setting_are_repeats() -> None:
    both = assemble([said(vllm_detailed(requests(count), N), f"{count}.json") for count in (1400, 1500)])
    assert [1, 2] == [measurement.trial.repeat for measurement, _ in both.trials]


def test_a_wanted_shape_is_that_of_lengths_that_are_alike_or_not_there() -> None:
    both = [table("concurrency,p99_ttft", "16,0.1"), said(vllm())]
    assert ["130/65", "130/65"] == [p.shape.label for p in assemble(both, shape=Shape.of(130, 65)).points]
    assert {"10/20", "128/64"} == {p.shape.label for p in assemble(both, shape=Shape.of(10, 20)).points}


# --- names


def deployments(*names: str) -> Assembled:
    rows = [f"{c},64,8,100,{900 + 100 * i},0.1,{name}" for i, name in enumerate(names) for c in (8, 16)]
    return assemble([table(f"{HEAD},p99_ttft,deployment", *rows)])


@pytest.mark.parametrize("alike", [59, 60, 79, 80, 200, 399])
def test_names_that_begin_alike_stay_apart_however_long(alike: int) -> None:
    made = deployments("a" * alike + "x", "a" * alike + "y")
    assert 4 == len(made.points)
    assert 2 == len({d.name for d in made.deployments}) == len({p.deployment for p in made.points})
    assert max(len(d.name) for d in made.deployments) <= 60


def test_a_long_name_is_the_same_whatever_is_beside_it() -> None:
    """So that two imports can be compared by it."""
    long = "a" * 90
    alone, beside = deployments(long + "y", "b"), deployments(long + "x", long + "y")
    assert alone.deployments[0].name == beside.deployments[1].name


def test_models_that_begin_alike_stay_apart() -> None:
    names = ["org/" + "m" * 100 + end for end in "xy"]
    made = assemble([said(vllm(model_id=name), f"{name[-1]}.json") for name in names])
    assert 2 == len(made.deployments)


def key(shape: Shape, deployment: str = "d") -> str:
    return Trial(deployment, shape, 8, 0, Phase.GRID, 1, 0, 0.0, 0.0, 1.0, "").key


def test_no_two_shapes_or_deployments_share_a_file() -> None:
    names = ["a/b", "axb", "a b", "a_b", "a\tb", "é", "e", "n" * 300, "n" * 299 + "m", "..", "."]
    keys = [key(Shape(Lengths.fixed(8), Lengths.fixed(8), name)) for name in names]
    assert len(names) == len(set(keys))
    assert max(len(f"{k}.jsonl".encode()) for k in keys) <= 255
    assert [] == [k for k in keys if "/" in k or k.startswith("..")]
    assert key(Shape.of(8, 8), "a/b") != key(Shape.of(8, 8), "axb")


def test_names_of_old_runs_keep_their_files() -> None:
    assert "d-1024x256-c0008-grid-r0" == key(Shape.of(1024, 256))
    assert "d-chat_v1.2-c0008-grid-r0" == key(Shape(Lengths.fixed(8), Lengths.fixed(8), "chat_v1.2"))
    assert "d-512-4096x900~300-c0008-grid-r0" == key(Shape(Lengths.uniform(512, 4096), Lengths.normal(900, 300)))


# --- what follows exactly


@pytest.mark.parametrize(
    ("head", "row", "made"),
    [
        ("output_throughput,input_throughput", "900,100", {"total_throughput": 1000.0}),
        ("output_throughput,total_throughput", "900,1000", {"input_throughput": 100.0}),
        ("input_throughput,total_throughput", "100,1000", {"output_throughput": 900.0}),
        ("output_throughput,p99_ttft", "900,1", {}),
        ("total_throughput,p99_ttft", "900,1", {"output_throughput": 100.0}),
    ],
)
def test_sums_that_follow_are_formed_and_said(head: str, row: str, made: dict[str, float]) -> None:
    found = point(table(f"concurrency,isl,osl,n,{head}", f"8,64,8,100,{row}"))
    assert {*head.split(","), *made} == {*found.metrics} - {"error_rate"}
    assert made == {name: found.metrics[name].value for name in made}
    assert bool(made) == any(note.startswith("computed: ") for note in found.notes)


# --- what is missing


def test_a_point_without_an_axis_is_shown_and_not_on_the_frontier(tmp_path: Path) -> None:
    rows = ["8,64,8,100,900,0.1", "16,64,8,100,1500,"]
    (tmp_path / "t.csv").write_text("\n".join([f"{HEAD},p99_ttft", *rows]))
    run = load(import_files([tmp_path / "t.csv"], tmp_path / "run").path)
    assert [8, 16] == [point.load for point in run.points()]
    (frontier,) = run.frontiers(run.points())
    assert (8,) == frontier.members
    assert "p99_ttft" in frontier.excluded[16]


def test_guidellms_benchmarks_are_named_by_their_place() -> None:
    tree = guidellm()
    del tree["config"]["spec"]["data"], tree["benchmarks"][0]["metrics"]["prompt_token_count"]
    with pytest.raises(ForeignFileError, match=r"^file\.json: benchmarks\[0\]: ") as raised:
        assemble([said(tree)])
    assert_golden_row("messages", str(raised.value))


@pytest.mark.parametrize("seed", range(5))
def test_frontiers_of_imports_are_those_of_moocore(seed: int, tmp_path: Path) -> None:
    """Ties, missing figures and several deployments, per GPU where the file has them."""
    rng = np.random.default_rng(seed)
    rows = []
    for deployment, gpus in (("tp1", 1), ("tp4", 4)):
        for c in (1, 2, 4, 8, 16, 32):
            rate, wait = int(rng.integers(1, 6)) * 100 * c * gpus, int(rng.integers(1, 9)) * 10
            rows.append(f"{c},256,128,{deployment},{gpus},{rate},{wait if c != 4 else ''}")
    (tmp_path / "t.csv").write_text(
        "\n".join(["conc,isl,osl,deployment,gpus,output_throughput,p99_ttft_ms", *rows, *rows[:1]])
    )
    run = import_files([tmp_path / "t.csv"], tmp_path / "r")
    for frontier in run.frontiers(run.points()):
        mine = [p for p in run.points() if p.deployment == frontier.deployment and p.valid and "p99_ttft" in p.metrics]
        costs = np.array([(-p.value("output_throughput"), p.value("p99_ttft")) for p in mine])
        kept = moocore.is_nondominated(costs, keep_weakly=True)
        assert [p.load for p, keep in zip(mine, kept, strict=True) if keep] == sorted(frontier.members)
