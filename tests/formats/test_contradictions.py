"""What a file says twice: refused with both places where it differs, taken once where it agrees."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from frontier import import_files
from frontier.formats import importing
from frontier.formats.assemble import Assembled, assemble
from frontier.formats.documents import ForeignFileError
from frontier.formats.results import ImportedFile
from frontier.model import Lengths, Phase, Point, Shape, Trial
from frontier.run import load
from tests.formats.peer_files import aiperf, aiperf_lines, genai_bench, guidellm, said, vllm, vllm_detailed
from tests.formats.test_imported_requests import N, requests
from tests.golden import assert_golden_row

HEAD = "concurrency,isl,osl,n,output_throughput"


def table(head: str, *rows: str) -> ImportedFile:
    found = importing.read_results("t.csv", "\n".join([head, *rows]).encode())
    assert found is not None
    return found


def point(found: ImportedFile) -> Point:
    (made,) = assemble([found]).points
    return made


TWICE = [
    ("p99_ttft_ms,p99_ttft_s", "950,0.130", ("p99_ttft_ms", "950 ms", "p99_ttft_s", "130 ms")),
    ("p99_ttft,p99_ttft_us", "0.95,130000", ("p99_ttft", "950 ms", "p99_ttft_us", "130 ms")),
    ("p99_ttft,P99 TTFT (ms)", "0.95,130", ("p99_ttft", "950 ms", "P99 TTFT (ms)", "130 ms")),
    ("p99_ttft,p99.0_ttft", "0.95,0.13", ("p99_ttft", "950 ms", "p99.0_ttft", "130 ms")),
    ("p99_ttft,p99_ttft_ms", "inf,130", ("p99_ttft", "p99_ttft_ms", "130 ms")),
    ("p99_ttft_ms,p99_ttft_s", "130,0.2", ("p99_ttft_ms", "130 ms", "p99_ttft_s", "200 ms")),
    ("error_rate,error_rate_pct", "0.01,5", ("error_rate", "error_rate_pct")),
    ("failed,error_rate,p99_ttft", "5,0.1,0.1", ("error_rate", "10.00%", "failed", "5 of 100")),
    ("failed,p99_ttft", "101,0.1", ("101 of 100",)),
    ("error_rate,p99_ttft", "5,0.1", ("error_rate", "5", "error_rate_pct")),
    ("shape,p99_ttft", "1024/256,0.1", ("shape", "1024/256", "isl", "64")),
]


@pytest.mark.parametrize(("head", "row", "places"), TWICE, ids=[f"{head}: {row}" for head, row, _ in TWICE])
def test_a_row_that_says_one_thing_twice_names_both_columns(head: str, row: str, places: tuple[str, ...]) -> None:
    with pytest.raises(ForeignFileError) as raised:
        table(f"{HEAD},{head}", "", f"8,64,8,100,900,{row}")
    said = str(raised.value)
    assert said.startswith("t.csv: line 3: ")
    assert [] == [place for place in places if place not in said]
    assert_golden_row("messages", said)


@pytest.mark.parametrize(
    ("head", "row", "value"),
    [
        ("p99_ttft_ms,p99_ttft_s", "130,0.130", 0.130),
        ("p99_ttft_ms,p99_ttft_s", "130.4,0.13", 0.1304),
        ("p99_ttft_s,p99_ttft_ms", "0.13,", 0.13),
        ("p99_ttft,p99_ttft_ms", "inf,inf", float("inf")),
    ],
)
def test_what_agrees_within_its_rounding_is_taken_once_and_finely(head: str, row: str, value: float) -> None:
    assert value == pytest.approx(point(table(f"{HEAD},{head}", f"8,64,8,100,900,{row}")).metrics["p99_ttft"].value)


def test_a_latency_of_zero_was_not_measured_in_a_table_either() -> None:
    assert "p99_ttft" not in point(table(f"{HEAD},p99_ttft_ms", "8,64,8,100,900,0")).metrics


def test_a_row_that_is_torn_off_is_refused() -> None:
    with pytest.raises(ForeignFileError, match=r"^t\.csv: line 3 has 5 .* 6 ") as raised:
        table(f"{HEAD},p99_ttft", "8,64,8,100,900,0.1", "16,64,8,100,90")
    assert_golden_row("messages", str(raised.value))


def test_two_heads_of_one_column_are_refused() -> None:
    with pytest.raises(ForeignFileError, match="'concurrency' and 'Concurrency'"):
        table("concurrency,Concurrency,isl,osl,p99_ttft", "8,16,64,8,0.1")


def test_columns_that_are_not_read_are_named() -> None:
    (note,) = (n for n in table(f"{HEAD},p99_ttft,precision", "8,64,8,100,900,0.1,fp8").notes if "precision" in n)
    assert_golden_row("answers", note)


NAMED_TWICE: dict[str, tuple[Any, tuple[str, ...]]] = {
    "p99_ttft": (vllm(p99_ttft=0.13), ("p99_ttft_ms", "p99_ttft")),
    "p50_ttft_ms": (vllm(p50_ttft_ms=90.0), ("median_ttft_ms", "p50_ttft_ms")),
    "mean_e2e_latency_ms": (vllm(mean_e2e_latency_ms=20.0), ("mean_e2el_ms", "mean_e2e_latency_ms")),
    "total_throughput": (vllm(total_throughput=1.0), ("total_token_throughput", "total_throughput")),
    "concurrency": (aiperf(run_info={"variation_values": {"phases.0.concurrency": 32}}), ("concurrency", "4", "32")),
    "requests_per_minute": (genai_bench(requests_per_minute=6000.0), ("requests_per_second", "requests_per_minute")),
}


@pytest.mark.parametrize("name", NAMED_TWICE)
def test_a_result_with_two_names_for_one_figure_names_both(name: str) -> None:
    tree, places = NAMED_TWICE[name]
    with pytest.raises(ForeignFileError) as raised:
        said(tree)
    assert str(raised.value).startswith("file.json: ")
    assert [] == [place for place in places if not re.search(rf"\b{re.escape(place)}\b", str(raised.value))]
    assert_golden_row("messages", str(raised.value))


def test_seconds_beside_the_same_milliseconds_are_no_contradiction() -> None:
    assert 0.080 == point(said(vllm(p99_ttft=0.08))).metrics["p99_ttft"].value


KEYS_TWICE = {
    "in a result": (json.dumps(vllm())[:-1] + ', "p99_ttft_ms": 5}', "'p99_ttft_ms'"),
    "within": ('{"a": {"b": 1, "b": 2}}', "'b'"),
    "in a second line": (json.dumps(vllm()) + "\n" + json.dumps(vllm())[:-1] + ', "completed": 1}', "'completed'"),
    "beside NaN": ('{"a": NaN, "a": 1}', "'a'"),
    "in YAML": ("version: '0.2'\nresults:\n  a: 1\n  a: 2\n", "line 4: 'a'"),
}


@pytest.mark.parametrize("where", KEYS_TWICE)
def test_a_key_that_is_given_twice_is_named(where: str) -> None:
    data, key = KEYS_TWICE[where]
    with pytest.raises(ForeignFileError) as raised:
        importing.read_results("file", data.encode())
    assert key in str(raised.value)
    assert_golden_row("messages", str(raised.value))


def test_a_summary_that_is_not_of_its_requests_is_refused() -> None:
    records, fine = requests(), vllm_detailed(requests(), N)
    assert assemble([said(fine)]).trials
    for key in ("mean_ttft_ms", "p99_ttft_ms", "mean_e2el_ms"):
        with pytest.raises(ForeignFileError, match="in the summary"):
            assemble([said(vllm_detailed(records, N, **{key: 7 * fine[key]}))])


def test_an_aggregate_that_is_not_of_the_requests_beside_it_is_noted() -> None:
    records = requests()
    lines = importing.read_results("profile_export.jsonl", aiperf_lines(records))
    assert lines is not None
    phases = {"phases": [{"kind": "profiling", "concurrency": N}], "models": {"items": []}}
    made = assemble([lines, said(aiperf(input_config=phases))], shape=Shape.of(128, 32))
    notes = [note for note in made.notes if "c=8" in note]
    assert notes
    assert_golden_row("answers", "\n".join(notes))


def test_repeats_that_are_far_apart_are_flagged_and_those_that_agree_are_not() -> None:
    far = point(table(f"{HEAD},p99_ttft", "8,64,8,100,900,0.1", "8,64,8,100,900,0.9"))
    near = point(table(f"{HEAD},p99_ttft", "8,64,8,100,900,0.1", "8,64,8,100,900,0.11"))
    assert [("repeats_differ", False)] == [(flag.name, flag.fatal) for flag in far.flags]
    assert not near.flags


def test_one_shape_for_results_of_several_is_refused_and_another_is_said() -> None:
    found = table(f"{HEAD},p99_ttft", "8,64,8,100,900,0.1", "8,512,8,100,900,0.9")
    with pytest.raises(ForeignFileError, match=r"line 3: --shape 64/8.* 64/8 .* 512/8") as raised:
        assemble([found], shape=Shape.of(64, 8))
    assert_golden_row("messages", str(raised.value))
    one = assemble([table(f"{HEAD},p99_ttft", "8,64,8,100,900,0.1")], shape=Shape.of(512, 8))
    (note,) = (note for note in one.notes if "--shape 512/8" in note)
    assert "64/8" in note
    assert_golden_row("answers", note)


# --- names


def deployments(*names: str) -> Assembled:
    rows = [f"{c},64,8,100,{900 + 100 * i},0.1,{name}" for i, name in enumerate(names) for c in (8, 16)]
    return assemble([table(f"{HEAD},p99_ttft,deployment", *rows)])


@pytest.mark.parametrize("alike", [59, 60, 79, 80, 200, 5000])
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


def test_other_numbers_of_gpus_are_other_deployments() -> None:
    made = assemble([table(f"{HEAD},p99_ttft,gpus", "8,64,8,100,900,0.1,1", "8,64,8,100,6900,0.1,8")])
    assert ["gpus1", "gpus8"] == [d.name for d in made.deployments]
    assert [1, 8] == [d.gpus for d in made.deployments]


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
        ("total_throughput,p99_ttft", "900,1", {}),
    ],
)
def test_sums_that_follow_are_formed_and_said(head: str, row: str, made: dict[str, float]) -> None:
    found = point(table(f"concurrency,isl,osl,n,{head}", f"8,64,8,100,{row}"))
    assert {*head.split(","), *made} == {*found.metrics} - {"error_rate"}
    assert made == {name: found.metrics[name].value for name in made}
    assert bool(made) == any(note.startswith("computed: ") for note in found.notes)


def test_rates_follow_from_the_observed_length_only_and_mean_tpot_from_one_length() -> None:
    bare = {k: v for k, v in vllm(total_output_tokens=6400).items() if "tpot" not in k and k != "request_throughput"}
    one = point(said(bare | {"random_input_len": 128, "random_output_len": 64}))
    assert 640.0 / 64 == one.metrics["request_throughput"].value
    assert (0.7997 - 0.050) / 63 == pytest.approx(one.metrics["mean_tpot"].value)
    assert "mean_tpot" not in point(said(bare)).metrics, "lengths may have varied around their mean"


def test_a_total_that_is_no_sum_is_flagged() -> None:
    assert ["sum"] == [f.name for f in point(said(vllm(input_throughput=9000.0))).flags if f.fatal]
    assert not point(said(vllm(input_throughput=1280.0))).flags


# --- what is missing


def test_a_point_without_an_axis_says_which_and_where_from(tmp_path: Path) -> None:
    rows = ["8,64,8,100,900,0.1", "16,64,8,100,1500,"]
    (tmp_path / "t.csv").write_text("\n".join([f"{HEAD},p99_ttft", *rows]))
    run = import_files([tmp_path / "t.csv"], tmp_path / "run")
    whole, without = load(run.path).points()
    assert [("missing_metric", False)] == [(f.name, f.fatal) for f in without.flags]
    assert_golden_row("flags", without.flags[0].measured)
    assert not whole.flags


def test_guidellms_benchmarks_are_named_by_their_place() -> None:
    tree = guidellm()
    del tree["config"]["spec"]["data"], tree["benchmarks"][0]["metrics"]["prompt_token_count"]
    with pytest.raises(ForeignFileError, match=r"^file\.json: benchmarks\[0\]: ") as raised:
        assemble([said(tree)])
    assert_golden_row("messages", str(raised.value))
