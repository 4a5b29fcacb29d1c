"""MLPerf's summary of the Server scenario, with figures of a public submission."""

import pytest

from frontier.core.model.loads import Rate
from frontier.core.model.shapes import Shape
from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble
from frontier.extras.exchange.results import ImportedFile
from frontier.store.documents import ForeignFileError

SUMMARY = """================================================
MLPerf Results Summary
================================================
SUT name : llama2-70b-Server-SUT
Scenario : Server
Mode     : PerformanceOnly
Completed samples per second    : 103.37
Completed tokens per second: 30068.50
Result is : VALID
  Performance constraints satisfied : Yes
  Min duration satisfied : Yes
Mean First Token latency (ns)               : 963332124
99.00 percentile first token latency (ns)   : 1760966679
99.00 percentile time to output token (ns)   : 164964162
target_qps : 104
ttft_latency (ns): 2000000000
"""


def read(text: str) -> ImportedFile:
    return formats.read_results("mlperf_log_summary.txt", text.encode())


def test_the_server_scenario_is_a_point_at_its_rate() -> None:
    (point,) = assemble([read(SUMMARY)], shape=Shape.of(300, 291)).points
    assert Rate.of(104) == point.load
    assert (1.760966679, 30068.5) == pytest.approx((point.value("p99_ttft"), point.value("output_throughput")))
    assert 0.164964162 == pytest.approx(point.value("p99_tpot"))
    assert point.valid


def test_a_run_that_is_not_valid_says_why() -> None:
    text = SUMMARY.replace("VALID", "INVALID").replace("duration satisfied : Yes", "duration satisfied : NO")
    (point,) = assemble([read(text)], shape=Shape.of(300, 291)).points
    assert ["Min duration satisfied"] == [flag.measured for flag in point.fatal]


def test_what_it_does_not_hold_is_asked_for() -> None:
    with pytest.raises(ForeignFileError) as raised:
        assemble([read(SUMMARY)])
    assert "--shape" in (raised.value.hint or "")
    with pytest.raises(ForeignFileError):
        read(SUMMARY.replace("Server\n", "Offline\n"))
