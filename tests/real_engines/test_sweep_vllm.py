"""The whole tool against a real engine: vLLM on the CPU, swept by the real command, judged by what
the engine says."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from frontier.core.model.trials import Measurement, Outcome, Record
from frontier.read_run import load
from frontier.store.run_dir import RunDirectory
from tests.kit.commands import Said, frontier
from tests.real_engines.vllm_cpu import MODEL

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

ISL, OSL = 64, 16
CONCURRENCY = (1, 4, 16)
LOOSE, IMPOSSIBLE = "p90_e2e<=60s, error_rate<=50%", "p90_ttft<=0.1ms"
BUSY = {"client_bound", "non_stationary", "under_concurrency", "buffered_stream", "lockstep"}
"""Flags that a machine busy with other work may earn: rightly, so they fail no test of what the
engine did."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The engine's address, what the sweep said, and its run directory."""

    url: str
    said: Said
    run: RunDirectory

    def trials(self) -> Iterator[tuple[Measurement, list[Record]]]:
        """Every trial with the requests that count: sent in its window."""
        for key, measurement in self.run.finished().items():
            window = measurement.window
            yield measurement, [r for r in self.run.records(key) if window.start <= r.sent < window.end]

    def points(self) -> list[dict[str, Any]]:
        shown = frontier("show", self.run.path, "--json", cwd=self.run.path.parent)
        return list(json.loads(shown.out)["points"])

    def solve(self, sla: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the one decision."""
        said = frontier("solve", self.run.path, "--sla", sla, "--json", cwd=self.run.path.parent)
        return said.code, json.loads(said.out)["shapes"][0]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, vllm: str) -> Swept:
    here = tmp_path_factory.mktemp("engine")
    (here / "sweep.yaml").write_text(f"""\
endpoint: {vllm}/v1
shapes: [{{isl: {ISL}, osl: {{uniform: [{OSL - 4}, {OSL + 4}]}}}}]
concurrency: {list(CONCURRENCY)}
requests: 300
repeats: 1
max_time: 10s
refine: 0
sla: {{p90_e2e: 60s, error_rate: 50%}}
""")
    said = frontier("sweep", "sweep.yaml", "-o", "run", cwd=here, timeout=180)
    return Swept(vllm, said, RunDirectory.read(here / "run"))


def quiet_point(swept: Swept) -> dict[str, Any]:
    """A point this machine could measure; the test is skipped when other work left none."""
    points = swept.points()
    assert not {flag for p in points if not p["valid"] for flag in p["flags"]} - BUSY - {"too_few_samples"}
    good = [p for p in points if p["valid"] and "too_few_samples" not in p["flags"]]
    if not good:
        pytest.skip(f"this machine is too busy to measure on: {[(p['concurrency'], p['flags']) for p in points]}")
    return dict(max(good, key=lambda p: p["concurrency"]))


def test_every_setting_is_measured_and_the_command_ends_in_its_verdict(swept: Swept) -> None:
    assert set(CONCURRENCY) == {p["concurrency"] for p in swept.points()}
    code, decision = swept.solve(LOOSE)
    assert code == swept.said.code, swept.said.err
    assert {0: "meets", 4: "unproven", 5: "invalid"}[code] == decision["verdict"]
    assert (swept.run.path / "derived" / "frontier.png").stat().st_size > 10_000


def test_every_request_is_answered_with_the_tokens_asked_for(swept: Swept) -> None:
    seen = [r for _, records in swept.trials() for r in records]
    assert len(seen) > 50
    assert {Outcome.OK} == {r.outcome for r in seen}
    assert [r.asked_osl for r in seen] == [r.completion_tokens for r in seen]
    assert {OSL - 4, OSL + 4} <= {r.asked_osl for r in seen}


def test_prompts_have_the_asked_length_as_the_engine_counts_and_none_was_seen_before(swept: Swept) -> None:
    for measurement, records in swept.trials():
        counted = [r.prompt_tokens for r in records if r.prompt_tokens is not None]
        assert len(records) == len(counted)
        assert sum(counted) / len(counted) == pytest.approx(ISL, rel=0.01)
        assert measurement.server["prefix_cache_queries_total"] > 0
        assert measurement.server["prefix_cache_hits_total"] < 0.02 * measurement.server["prefix_cache_queries_total"]
    assert not [p for p in swept.points() if "cache_contaminated" in p["flags"] or "wrong_input_length" in p["flags"]]


def test_the_engine_itself_saw_the_requests_in_flight(swept: Swept) -> None:
    """Never more than asked. As many as asked where the machine had time for the client: between an
    answer and the next request a stream has none at the engine, for a fiftieth of requests as short
    as these where the client waits for a processor.
    """
    quiet = {p["concurrency"] for p in swept.points() if not BUSY & set(p["flags"])}
    for measurement, _ in swept.trials():
        asked = measurement.trial.load
        assert measurement.server["num_requests_running_max"] <= asked
        at_work = measurement.server["num_requests_running"] + measurement.server["num_requests_waiting"]
        # The mean of a handful of readings a second apart, each of them between two steps of the
        # engine, where requests that have just ended are gone and those that follow have not come:
        # it is at least half, and never more.
        assert (asked / 2 if asked in quiet else 0) - 0.5 <= at_work <= asked + 0.5
        assert measurement.server_identity is not None
        assert "vllm" in measurement.server_identity
    for (_, shape), history in load(swept.run.path).histories.items():
        for trial, sample in history:
            held = float(sample.in_flight.mean()) / trial.load
            assert (0.98 if trial.load in quiet else 0.5) <= held <= 1.02, shape.label


def test_the_engine_counts_the_tokens_that_the_window_counted(swept: Swept) -> None:
    for history in load(swept.run.path).histories.values():
        for trial, sample in history:
            measurement = swept.run.finished()[trial.key]
            # The engine's counters are read beside the window's edges, up to a step of every stream
            # and a second away.
            assert measurement.server["generation_tokens_total"] == pytest.approx(
                float(sample.block_output_tokens.sum()), rel=0.15
            )


def test_the_engines_histograms_explain_where_the_time_goes(swept: Swept) -> None:
    for point in swept.points():
        time = point["time"]
        assert time["refused"] == ""
        assert time["missing"] == []
        assert abs(time["rest"]) < 0.03 * time["e2e"], point["concurrency"]
    told = next(swept.trials())[0].server_settings
    assert {"block_size", "gpu_memory_utilization", "num_gpu_blocks"} <= set(told)


def test_a_loose_sla_is_met_and_an_impossible_one_is_not(swept: Swept) -> None:
    """Proven on a p90; where a busy machine spoilt the lowest setting, "no" cannot be said of
    it.
    """
    best, lowest = quiet_point(swept), swept.points()[0]
    code, decision = swept.solve(LOOSE)
    assert (0, "meets") == (code, decision["verdict"])
    assert 0 < decision["metrics"]["p90_e2e"]["value"] < 60
    assert decision["concurrency"] <= best["concurrency"]
    code, decision = swept.solve(IMPOSSIBLE)
    assert ((3, "violates") if lowest["valid"] else (5, "invalid")) == (code, decision["verdict"])
    assert decision["concurrency"] is None


def test_probe_finds_nothing_to_complain_of(swept: Swept) -> None:
    said = frontier("probe", f"{swept.url}/v1", "--json", cwd=swept.run.path)
    checks = json.loads(said.out)["checks"]
    assert 0 == said.code
    assert [] == [c for c in checks if c["state"] in ("warn", "fail")]
    assert any("vllm" in c["detail"] for c in checks)


def test_a_model_the_engine_does_not_serve_is_refused_with_the_one_it_does(swept: Swept) -> None:
    probed = frontier("probe", f"{swept.url}/v1", "--model", "huge", cwd=swept.run.path)
    assert 5 == probed.code
    assert MODEL in probed.out
    (swept.run.path.parent / "wrong.yaml").write_text(f"endpoint: {swept.url}/v1\nmodel: huge\nshapes: [64/16]\n")
    said = frontier("sweep", "wrong.yaml", "-o", "wrong", cwd=swept.run.path.parent)
    assert 5 == said.code
    assert "huge" in said.err
    assert MODEL in said.err
