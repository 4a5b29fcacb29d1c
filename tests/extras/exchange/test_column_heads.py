"""Tables as people and tools write them: heads, cells, and what is between them."""

import codecs

import pytest

from frontier.core.model.loads import Rate
from frontier.core.model.points import Point
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble
from frontier.extras.exchange.column_heads import read_head
from frontier.store.documents import ForeignFileError


def points(text: str | bytes) -> tuple[Point, ...]:
    data = text.encode() if isinstance(text, str) else text
    return assemble([formats.read_results("t.csv", data)]).points


def values(text: str | bytes) -> dict[str, float]:
    (found,) = points(text)
    return {name: estimate.value for name, estimate in found.metrics.items()}


PLAIN = "concurrency,isl,osl,n,output_throughput,p99_ttft_ms\n16,256,128,640,1283.2,216.5\n"
TRUE = {"output_throughput": 1283.2, "p99_ttft": 0.2165}


@pytest.mark.parametrize(
    "heads",
    [
        "Concurrency,ISL,OSL,Requests,Output Throughput (tok/s),P99 TTFT (ms)",
        "max_concurrency,input_tokens,output_tokens,n,Tput (tok/s),TTFT p99 (ms)",
        "conc,isl,osl,N Req,tput,ttft_p99_ms",
        "users,prompt_len,output_len,num_requests,output_tps,Time to first token p99 [ms]",
        "users,isl,osl,n,output_tokens_per_second,ttft_ms_p99",
        "users,isl,osl,n,Tokens per sec,TTFT (p99) (ms)",
    ],
)
def test_heads_that_others_write_are_read(heads: str) -> None:
    """aieev/vllm-bench and nirjhar17/guidellm-pd-disaggregation write such heads."""
    assert TRUE == pytest.approx(values(PLAIN.replace(PLAIN.split("\n")[0], heads)))


@pytest.mark.parametrize(
    "text",
    [
        PLAIN.replace(",", ";"),
        PLAIN.replace(",", ";").replace(".", ","),
        PLAIN.replace(",", ";").replace("1283.2", "1.283,2").replace("216.5", "216,5"),
        PLAIN.replace(",", "\t"),
        PLAIN.replace("1283.2", '"1,283.2 tok/s"'),
        PLAIN.replace("1283.2", "1283.2 ± 3").replace("216.5", "216.5 (+/- 0.4)").replace("16,", "c=16,", 1),
        PLAIN.replace("ttft_ms", "ttft").replace("216.5", "216.5 ± 0.4 ms").replace("16,", "16 users,", 1),
        PLAIN.replace(",", ";").replace("1283.2", "1 283,2 ± 3,5").replace("216.5", "216,5 ms"),
        PLAIN.replace(",", ";").replace("1283.2", "1'283.2").replace("216.5", "216.5"),
        PLAIN.replace("ttft_ms", "ttft").replace("216.5", "216.5ms"),
        "| " + PLAIN.replace(",", " | ").replace("\n", " |\n|---|--:|---|---|---|---|\n| ", 1).strip() + " |\n",
        codecs.BOM_UTF16_LE + PLAIN.replace(",", "\t").encode("utf-16-le"),
        codecs.BOM_UTF16_LE + PLAIN.replace(",", "\t").replace(".", ",").encode("utf-16-le"),
        codecs.BOM_UTF16_LE + PLAIN.replace(",", "\t").replace("1283.2", "1,283.2").encode("utf-16-le"),
        '[{"concurrency":16,"isl":256,"osl":128,"n":640,"output_throughput":1283.2,"p99_ttft_ms":216.5}]',
        '{"users":16,"shape":"256/128","note":null,"tput":1283.2,"p99_ttft_ms":216.5}\n',
        codecs.BOM_UTF16_BE + PLAIN.encode("utf-16-be"),
        "Monday\n" + PLAIN,
        "Prose, 1\n\n| "
        + PLAIN.replace(",", " | ").replace("\n", " |\n|-|-|-|-|-|-|\n| ", 1).strip()
        + " |\n\nMore, 2\n",
        PLAIN.replace("isl,osl", "ISL/OSL").replace("256,128", "256x128"),
        PLAIN.replace("1283.2", "1.2832k"),
        ",,,,throughput,throughput,ttft (ms)\n"
        + PLAIN.replace("p99_ttft_ms", "total,p99").replace("_throughput", "").replace("216.5", ",216.5"),
        "concurrency,shape,metric,stat,unit,value\n16,256/128,ttft,p99,ms,216.5\n16,256/128,output_throughput,,tok/s,1283.2\n",
        '{"isl":256,"osl":128,"rows":[{"concurrency":16,"ttft_ms":{"p99":216.5},"throughput":{"output":1283.2}}]}',
        '{"concurrency":[16],"shape":["256/128"],"tput":[1283.2],"p99_ttft_ms":[216.5]}',
        '{"concurrency":{"0":16},"shape":{"0":"256/128"},"tput":{"0":1283.2},"p99_ttft_ms":{"0":216.5}}',
        '{"first":{"concurrency":16,"shape":"256/128","tput":1283.2,"p99_ttft_ms":216.5}}',
    ],
)
def test_what_is_between_the_cells_and_how_they_are_written_is_recognised(text: str | bytes) -> None:
    assert TRUE == pytest.approx(values(text))


def test_a_rate_per_gpu_is_multiplied_by_its_gpus() -> None:
    head = PLAIN.replace("output_throughput", "output_throughput_per_gpu")
    with pytest.raises(ForeignFileError, match="gpus"):
        points(head)
    for column in ("gpus", "TP"):
        assert 4 * 1283.2 == values(head.replace("isl", f"{column},isl").replace("16,", "16,4,"))["output_throughput"]


def test_milliseconds_under_a_head_without_a_unit_are_asked_about() -> None:
    head = PLAIN.replace("p99_ttft_ms", "p99_tpot").replace("216.5", "16.8")
    with pytest.raises(ForeignFileError, match="p99_tpot_ms"):
        points(head)
    assert 0.0168 == values(head.replace("16.8", "0.0168"))["p99_tpot"]


def test_percent_and_nothing_are_cells() -> None:
    text = PLAIN.replace("n,", "n,error_rate,p99_tpot_ms,").replace("640,", "640,12%,N/A,")
    (found,) = points(text)
    assert ["errors"] == [flag.name for flag in found.fatal]
    assert "p99_tpot" not in found.metrics


def test_a_rate_is_a_load() -> None:
    head, row, _ = PLAIN.replace("concurrency", "rate").split("\n")
    found = points("\n".join([head, row, row.replace("16,", "0.8,", 1)]))
    assert [Rate.of(0.8), Rate.of(16)] == [point.load for point in found]


@pytest.mark.parametrize(("column", "cells"), [("precision", ("fp8", "bf16")), ("TP", ("1", "2"))])
def test_a_column_of_flags_names_the_deployments(column: str, cells: tuple[str, str]) -> None:
    head, row, _ = PLAIN.split("\n")
    found = points("\n".join([f"{head},{column}", *(f"{row},{cell}" for cell in cells)]))
    assert 2 == len({point.deployment for point in found})


def test_a_table_without_a_throughput_says_so() -> None:
    read = formats.read_results("t.csv", b"concurrency,isl,osl,n,p99_ttft_ms,ttft\n8,256,128,800,90,1\n")
    assert any("throughput" in note for note in assemble([read]).notes)


LYING = """,1,2,4
concurrency,1.0,2.0,4.0
mean_input_token_length,550.0,550.0,550.0
mean_output_token_length,177.4,176.7,177.0
first-time-to-token_mean_in_ms_(ttft),137.3,150.7,171.4
throughput_token_per_s_(token/sec),31.9,59.2,110.9
latency_ms_per_token_(inter_token_latency),30.7,32.8,33.9
requests_per_minute_(qpm),10.8,20.1,37.6
"""
"""A table as LLMPerf publishes it: its inter-token latency folds TTFT in, and is no TPOT."""


def test_a_table_on_its_side_is_set_upright() -> None:
    rows = points(LYING)
    assert [(1, "550/177"), (2, "550/177"), (4, "550/177")] == [(p.load, p.shape.label) for p in rows]
    true = {"mean_ttft": 0.1373, "output_throughput": 31.9, "request_throughput": 0.18}
    assert true == pytest.approx({name: e.value for name, e in rows[0].metrics.items()})


@pytest.mark.parametrize(
    ("text", "loads"),
    [
        ("concurrency,1,4\noutput_throughput,118,430\np99_ttft_ms,126,144\nisl,256,256\nosl,128,128\n", [1, 4]),
        (
            "metric,unit,a,b\nconcurrency,,1,4\ntput,tok/s,118,430\np99 ttft,ms,126,144\nshape,,2/8,2/8\n",
            [1, 4],
        ),
    ],
)
def test_the_load_of_a_table_on_its_side_is_its_head_or_a_row(text: str, loads: list[int]) -> None:
    rows = points(text)
    assert loads == [point.load for point in rows]
    assert {"output_throughput": 118.0, "p99_ttft": 0.126} == {name: e.value for name, e in rows[0].metrics.items()}


def test_heads_of_a_table_on_its_side_may_name_the_load() -> None:
    rows = points("metric,c=1,c=4\noutput_throughput,118,430\np99_ttft_ms,126,144\nshape,2/8,2/8\n")
    assert [1, 4] == [point.load for point in rows]


def test_a_table_on_its_side_without_a_load_asks_for_it() -> None:
    with pytest.raises(ForeignFileError, match="a row concurrency"):
        points("metric,1,4\noutput_throughput,118,430\np99_ttft_ms,126,144\n")


def test_a_mean_in_flight_is_no_setting_where_a_rate_was_asked_for() -> None:
    """nirjhar17/guidellm-pd-disaggregation, reports/all-benchmarks.csv."""
    heads = "profile,rate,total_requests,concurrency_mean,prompt_tokens_mean,output_tokens_mean,rps_mean,ttft_mean_ms\n"
    cells = ["concurrent,-,259,16.00,264,121,4.3,84.6", "constant,5.0,281,17.89,264,120,4.68,80.5"]
    cells += ["poisson,5.0,335,21.84,264,126,5.58,94.1", "throughput,-,758,63.96,263,118,12.63,154.7"]
    found = {(p.load, p.shape.arrivals and p.shape.arrivals.cv): p.n for p in points(heads + "\n".join(cells))}
    assert {(16, None): 259, (Rate.of(5), 0.0): 281, (Rate.of(5), 1.0): 335, (64, None): 758} == found


@pytest.mark.parametrize("more", ["Success Rate (%),95", "failed,32", "successful requests,608", "success_rate,0.95"])
def test_failures_follow_from_the_successes(more: str) -> None:
    head, _, cell = more.partition(",")
    (found,) = points(PLAIN.replace("n,", f"n,{head},").replace("640,", f"640,{cell},"))
    assert 0.05 == found.metrics["error_rate"].value


@pytest.mark.parametrize(
    ("head", "cell"), [("Total tok/s", 3849.6), ("req/s", 10.025), ("tokens/min", 76992), ("tok/s", 1283.2)]
)
def test_the_output_throughput_follows_from_another_and_the_lengths(head: str, cell: float) -> None:
    found = values(PLAIN.replace("output_throughput", head).replace("1283.2", str(cell)))
    assert 1283.2 == pytest.approx(found["output_throughput"])


def test_a_first_token_after_the_last_is_a_contradiction() -> None:
    (found,) = points(PLAIN.replace("ttft_ms", "ttft_ms,p99_e2e_ms").replace("216.5", "216.5,200"))
    assert "identity" in {flag.name for flag in found.fatal}


@pytest.mark.parametrize("row", ["216.5,9.4", "0.2165,0.0094", "216500,9400"])
def test_latencies_far_from_their_load_are_under_a_wrong_unit(row: str) -> None:
    """1,283 tok/s at 16 in flight are 12.5 ms a token."""
    (found,) = points(PLAIN.replace("ttft_ms", "ttft_ms,p99_tpot_ms").replace("216.5", row))
    assert (row != "216.5,9.4") == any(flag.name == "littles_law" for flag in found.fatal)


def test_a_throughput_of_nothing_was_not_measured() -> None:
    head, row, _ = PLAIN.split("\n")
    found = points("\n".join([head, row, row.replace("16,", "64,", 1).replace("1283.2", "0")]))
    assert [True, False] == ["output_throughput" in point.metrics for point in found]


@pytest.mark.parametrize("cells", ["Average,,,,700,200", ",Total,,,1400,", "mean,256,128,640,700,200"])
def test_a_row_that_sums_up_others_is_left_out(cells: str) -> None:
    assert 1 == len(points(PLAIN + cells + "\n"))


def test_a_latency_without_its_statistic_is_asked_about() -> None:
    notes = formats.read_results("t.csv", PLAIN.replace("p99_ttft_ms", "TTFT (ms)").encode()).notes
    assert any("mean_ttft=TTFT (ms)" in note for note in notes)


@pytest.mark.parametrize("head", ["request_rate", "Request rate (req/s)", "arrival rate", "rate_qps"])
def test_the_rate_that_was_asked_for_has_many_heads(head: str) -> None:
    (found,) = points(PLAIN.replace("concurrency", head))
    assert Rate.of(16) == found.load


def test_a_rate_per_gpu_may_have_its_gpu_behind_the_unit() -> None:
    text = PLAIN.replace("output_throughput", "output tok/s per GPU").replace("isl", "TP,isl").replace("16,", "16,4,")
    assert 4 * 1283.2 == values(text)["output_throughput"]


def test_rows_in_json_may_be_named_by_their_load() -> None:
    for named in ("", '"max_concurrency":16,'):
        (found,) = points('{"c=16":{"shape":"256/128",' + named + '"tput":1283.2,"p99_ttft_ms":216.5}}')
        assert 16 == found.load


@pytest.mark.parametrize(
    ("text", "word"), [("<html><body>404", "HTML"), (PLAIN.replace("concurrency", "x"), "concurrency=")]
)
def test_a_page_and_a_table_without_a_load_are_refused_by_name(text: str, word: str) -> None:
    with pytest.raises(ForeignFileError, match=word):
        points(text)


def test_dots_between_thousands_of_a_length_are_asked_about() -> None:
    with pytest.raises(ForeignFileError, match=r"isl is 1\.024"):
        points("concurrency;isl;osl;output_throughput;p99_ttft_ms\n16;1.024;128;1.011;200\n")


@pytest.mark.parametrize(("total", "flagged"), [(9_000.0, False), (1_000.0, True)])
def test_a_total_that_is_the_output_alone_is_a_contradiction(total: float, flagged: bool) -> None:
    text = f"concurrency,isl,osl,n,output_throughput,total_throughput,p99_ttft_ms\n16,1024,128,200,1000,{total},200\n"
    (found,) = points(text)
    assert flagged is ("identity" in {flag.name for flag in found.fatal})


@pytest.mark.parametrize(
    ("head", "name"),
    [
        *((head, "concurrency") for head in ("Number of users", "User Count", "VUs")),
        ("p99 ttft, ms", "p99_ttft"),
        ("TPOT p99 (ms/tok)", "p99_tpot"),
        ("System TPS", "output_throughput"),
    ],
)
def test_heads_of_load_generators_and_units_behind_a_comma_are_read(head: str, name: str) -> None:
    assert (read_head(head) or ("",))[0] == name
