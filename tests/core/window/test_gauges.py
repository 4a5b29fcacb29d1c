"""Gauges of requests against what was in flight: series that are one number are not added up into
signs, those of ranks are."""

import math

import numpy as np
import pytest

from frontier.client.ask.evidence import parse_metrics
from frontier.client.ask.facts import Readings, window_facts
from frontier.client.ask.metrics_notes import contradiction, notes
from frontier.core.estimates.estimate import point
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Measurement, Outcome, Phase, Record, Trial, Window
from frontier.core.window.from_records import window_data
from frontier.core.window.gauges import held_against
from frontier.core.window.time_breakdown import time_breakdown
from frontier.core.window.window import WindowData
from frontier.extras.diagnose.diagnosis import diagnose, diagnosis_lines
from frontier.extras.diagnose.signs import signs_of

SHAPE = Shape.of(64, 10)
N, E2E, SLOTS, UNTIL = 8, 0.5, 4, 20.0
"""Eight streams of requests of half a second, of which four run and four wait, for so many
seconds."""


def records() -> list[Record]:
    """A closed loop."""
    made = []
    for stream in range(N):
        for i in range(int(UNTIL / E2E)):
            sent = i * E2E + stream * E2E / N
            first, last = sent + 0.2, sent + E2E - 0.001
            made.append(
                Record(
                    len(made), stream, sent, Outcome.OK, last, 64, 10, first=first, last=last, prompt_tokens=64,
                    completion_tokens=10, events=10, gaps=(33222,) * 9,
                )
            )  # fmt: skip
    return made


class Server:
    """What /metrics says at each second: series of running, waiting and finished requests, by a
    text of labels, each so many times the truth.
    """

    def __init__(self, series: dict[str, float], engine: str = "vllm", finished: float | None = 1.0) -> None:
        self.series, self.engine, self.finished = series, engine, finished

    def text(self, at: float) -> bytes:
        running, waiting = ("num_running_reqs", "num_queue_reqs") if self.engine.startswith("sglang") else (
            "num_requests_running", "num_requests_waiting",
        )  # fmt: skip
        mark = "" if self.engine.endswith("_") else ":"
        done = N * at / E2E
        lines = []
        for labels, times in self.series.items():
            labels = labels.partition("#")[0]
            lines += [f"{self.engine}{mark}{running}{{{labels}}} {SLOTS * times}"]
            lines += [f"{self.engine}{mark}{waiting}{{{labels}}} {(N - SLOTS) * times}"]
            if self.finished is not None:
                name = f"{self.engine}{mark}e2e_request_latency_seconds"
                lines += [f"{name}_count{{{labels}}} {done * times * self.finished}"]
                lines += [f"{name}_sum{{{labels}}} {done * times * E2E * self.finished}"]
        return "\n".join(lines).encode() + b"\n"


def window(server: Server) -> WindowData:
    readings = Readings("metrics")
    for second in range(2, 19):
        readings.add(parse_metrics(server.text(float(second))), float(second))
    trial = Trial("d", SHAPE, N, 1, Phase.GRID, 100, 1, 0.0, 0.0, 60.0, "f")
    kept = readings.stored()
    measured = Measurement(trial, 1.7e9, Window(2.0, 18.0), "requests", server=window_facts(kept), readings=kept)
    return window_data(measured, records())


RANKS = {f'engine="{i}"': 0.25 for i in range(4)}
WHOLE = {f'tp_rank="{i}"': 1.0 for i in range(8)}
PRIORITIES = {'priority=""': 1.0, 'priority="0"': 0.75, 'priority="5"': 0.25}
TWICE = {'model_name="m"': 1.0, 'model_name="m"#again': 1.0}
JOINED = {'exporter="a"': 1.0, 'exporter="b"': 1.0}
RANKS_TWICE = {f'engine="{i}",exporter="{e}"': 0.25 for i in range(4) for e in "ab"}


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (Server({'model_name="m"': 1.0}), None),
        (Server(RANKS), None),
        (Server({"": 1.0}, engine="sglang_"), None),
        (Server(WHOLE, engine="sglang", finished=1 / 8), 64),
        (Server(WHOLE, engine="sglang", finished=None), 64),
        (Server(PRIORITIES, engine="sglang"), 16),
        (Server(PRIORITIES, engine="sglang_", finished=None), 16),
        (Server(TWICE), 16),
        (Server(JOINED), 16),
        (Server(RANKS_TWICE), 16),
    ],
)
def test_one_number_several_times_is_no_sign_and_ranks_are(server: Server, said: float | None) -> None:
    sample = window(server)
    (facts,) = sample.server
    wrong = contradiction(sample.server)
    if said is None:
        assert (SLOTS, N - SLOTS, "") == (facts["num_requests_running"], facts["num_requests_waiting"], wrong)
        assert signs_of(point(sample), sample).running == SLOTS
        return
    assert "num_requests_running" not in facts
    assert "num_requests_waiting_max" not in facts
    assert f" {said} requests " in wrong
    assert "8 were in flight" in wrong
    assert "one number" in wrong
    assert any(wrong in note for note in notes(sample.server))
    found = diagnose([point(sample)], {N: sample}, None)
    text = "" if found is None else " ".join(line for _, line in diagnosis_lines(found))
    assert "%" not in text


def test_what_others_have_in_flight_is_others_not_a_number_twice() -> None:
    wrong = contradiction(window(Server({'model_name="m"': 3.0})).server)
    assert "others use it" in wrong
    assert "one number" not in wrong
    ranks = {f'engine="{i}"': 0.625 for i in range(4)}  # of 2.5 times as many
    assert "others use it" in contradiction(window(Server(ranks)).server)


def test_requests_that_were_counted_twice_are_not_others() -> None:
    twice = time_breakdown(window(Server(JOINED)).server)
    assert twice is not None
    assert "2 times" in twice.refused
    assert "512" in twice.refused
    assert "256" in twice.refused
    others = time_breakdown(window(Server({"": 2.0})).server)
    assert others is not None
    assert "others used it" in others.refused
    assert "times" not in others.refused


READINGS = Readings("metrics")
for _second in range(1, 12):
    READINGS.add({("vllm:num_requests_running", ()): 1.0}, float(_second))


@pytest.mark.parametrize(
    ("held", "said", "kept"),
    [(1, 1.0, True), (1, 2.0, False), (8, 9.0, True), (8, 16.0, False), (64, 70.0, True), (64, 128.0, False)],
)
def test_a_step_of_lag_is_allowed_and_a_second_count_is_not(held: int, said: float, kept: bool) -> None:
    sent, end = np.zeros(held), np.full(held, 20.0)
    facts = held_against({"num_requests_running": said}, READINGS.stored(), sent, end)
    assert kept is ("num_requests_running" in facts)
    if not kept:
        assert (said, held) == (facts["gauges_said"], facts["gauges_held"])


def test_what_the_client_gave_up_may_still_run_and_old_runs_have_no_readings() -> None:
    sent, end = np.zeros(8), np.array([math.inf] * 4 + [0.5] * 4)
    assert "num_requests_running" in held_against({"num_requests_running": 4.0}, READINGS.stored(), sent, end)
    assert {"num_requests_running": 99.0} == held_against({"num_requests_running": 99.0}, (), sent, end)


@pytest.mark.parametrize(("most", "kept"), [(1.0, True), (0.4, True), (40.0, False)])
def test_a_share_of_the_cache_in_percent_is_none(most: float, kept: bool) -> None:
    facts = held_against({"kv_cache_usage_perc": most / 2, "kv_cache_usage_perc_max": most}, (), *[np.empty(0)] * 2)
    assert kept is bool(facts)
