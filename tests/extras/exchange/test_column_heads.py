"""Tables as people and tools write them: heads, cells, and what is between them."""

import codecs

import pytest

from frontier.core.model.loads import Rate
from frontier.core.model.points import Point
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble
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
        PLAIN.replace("ttft_ms", "ttft").replace("216.5", "216.5ms"),
        "| " + PLAIN.replace(",", " | ").replace("\n", " |\n|---|--:|---|---|---|---|\n| ", 1).strip() + " |\n",
        codecs.BOM_UTF16_LE + PLAIN.replace(",", "\t").encode("utf-16-le"),
        codecs.BOM_UTF16_BE + PLAIN.encode("utf-16-be"),
    ],
)
def test_what_is_between_the_cells_and_how_they_are_written_is_recognised(text: str | bytes) -> None:
    assert TRUE == pytest.approx(values(text))


def test_a_rate_per_gpu_is_multiplied_by_its_gpus() -> None:
    head = PLAIN.replace("output_throughput", "output_throughput_per_gpu")
    with pytest.raises(ForeignFileError, match="gpus"):
        points(head)
    assert 4 * 1283.2 == values(head.replace("isl", "gpus,isl").replace("16,", "16,4,"))["output_throughput"]


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
    assert [Rate.of(0.8), Rate.of(16)] == [point.concurrency for point in found]


@pytest.mark.parametrize(("column", "cells"), [("precision", ("fp8", "bf16")), ("TP", ("1", "2"))])
def test_a_column_of_flags_names_the_deployments(column: str, cells: tuple[str, str]) -> None:
    head, row, _ = PLAIN.split("\n")
    found = points("\n".join([f"{head},{column}", *(f"{row},{cell}" for cell in cells)]))
    assert 2 == len({point.deployment for point in found})


def test_a_table_without_a_throughput_says_so() -> None:
    read = formats.read_results("t.csv", b"concurrency,isl,osl,n,p99_ttft_ms,ttft\n8,256,128,800,90,1\n")
    assert any("throughput" in note for note in read.notes)
