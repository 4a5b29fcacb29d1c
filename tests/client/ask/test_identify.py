"""A trial has one server: what it lists and calls itself is the same after the last request as
before the first, and its answers name one model."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from frontier.client.ask.identify import Served
from frontier.client.ask.target import Target
from frontier.client.load.pipeline import MOST_NAMED, Named, named_together
from frontier.core.flags.flags import flags
from frontier.core.window.from_records import window_data
from frontier.core.window.window import join
from frontier.read_run import load
from tests.client.load.test_loop import go, target, trial
from tests.client.load.test_shard import go as go_sharded
from tests.kit.commands import frontier
from tests.kit.engine import Engine
from tests.kit.golden import assert_golden_row
from tests.kit.hostile import Call, Hostile


@dataclass
class Deployed(Engine):
    """An engine in whose place another is deployed after so many requests: `later` are the answers
    of its routes from then on.
    """

    after: int = 20
    later: dict[str, Any] | None = None

    async def answer(self, call: Call) -> None:
        said = (self.later or {}).get(call.path.removeprefix(f"/{self.name}"))
        if said is not None and self.served >= self.after:
            await call.json("200 OK", said)
        else:
            await super().answer(call)


LISTS = {"/v1/models": {"data": [{"id": "m"}, {"id": "lora"}]}}
VERSION = {"/version": {"version": "0.12.0"}}


@pytest.fixture(scope="module")
def server() -> Iterator[Hostile]:
    with Hostile() as running:
        yield running


@pytest.mark.process
@pytest.mark.parametrize(
    ("later", "changes"),
    [
        (None, False),
        (LISTS, True),
        ({"/v1/models": {"data": []}}, True),
        (VERSION, True),
        (LISTS | VERSION, True),
        ({"/v1/models": "a page"}, False),
    ],
    ids=["nothing", "another model", "no model", "version", "both", "a page"],
)
def test_what_a_server_says_otherwise_after_the_trial_excludes_it(
    server: Hostile, later: dict[str, Any] | None, changes: bool
) -> None:
    engine = Deployed("deployed", later=later).install()
    measurement, records = go(trial(4, 40), target(server, engine))
    assert (measurement.changed is not None) is changes
    raised = {flag.name: flag for flag in flags(window_data(measurement, records))}
    assert ("server_changed" in raised) is changes
    if changes:
        assert raised["server_changed"].fatal
        assert_golden_row("flags", raised["server_changed"].measured)


@pytest.mark.process
@pytest.mark.parametrize(("budget", "code"), [("{requests: 135}", 5), ("{requests: 1500}", 0)])
def test_the_last_trial_of_a_sweep_is_compared_too(server: Hostile, tmp_path: Path, budget: str, code: int) -> None:
    """It ended in "meets" before: only the next trial would have asked. Where there is room it is
    measured again, and the answer is about the server as it is then.
    """
    engine = Deployed(f"last{code}", after=60, later=LISTS).install()
    (tmp_path / "sweep.yaml").write_text(
        f"endpoint: {server.url(engine.name)}/v1\nmodel: m\nshapes: [40/8]\nconcurrency: [2]\n"
        f"requests: 120\nrepeats: 1\nwarmup: 200ms\nsla: {{p50_e2e: 10s}}\nbudget: {budget}\n"
    )
    assert frontier("sweep", "sweep.yaml", "-o", "run", cwd=tmp_path).code == code
    assert engine.served > 60
    assert frontier("solve", "run", cwd=tmp_path).code == code


@dataclass
class Gateway(Engine):
    """A gateway whose answers name one model, and another as soon as more requests are in flight
    than so many.
    """

    most: int = 2

    async def speak(self, call: Call, api: str, tokens: int, prompt_tokens: int) -> None:
        self.names = {"model": "m" if self.running <= self.most else "tiny"}
        await super().speak(call, api, tokens, prompt_tokens)


@pytest.mark.process
@pytest.mark.parametrize(("most", "code", "changed"), [(99, 0, []), (2, 0, [5, 6])], ids=["one model", "falls back"])
def test_a_later_setting_that_another_model_answered_does_not_count(
    server: Hostile, tmp_path: Path, most: int, code: int, changed: list[int]
) -> None:
    """The smaller model made the higher setting meet the SLA."""
    engine = Gateway(f"gateway{most}", most=most).install()
    (tmp_path / "sweep.yaml").write_text(
        f"endpoint: {server.url(engine.name)}/v1\nmodel: m\nshapes: [40/8]\nconcurrency: [2, 5, 6]\nrefine: 0\n"
        "requests: 60\nrepeats: 1\nwarmup: 200ms\nsla: {p50_e2e: 10s}\nbudget: {requests: 900}\n"
    )
    assert frontier("sweep", "sweep.yaml", "-o", "run", cwd=tmp_path).code == code
    run = load(tmp_path / "run")
    excluded = [point.load for point in run.points() if "server_changed" in {f.name for f in point.fatal}]
    assert changed == excluded
    (decision,) = run.solve()
    assert (decision.load or 0) > 2 if not changed else decision.load == 2


@pytest.mark.process
def test_models_that_answers_name_are_counted_over_client_processes(server: Hostile) -> None:
    engine = Engine("counted", names={"model": "m"}).install()
    measurement, records = go_sharded(trial(4, 30), target(server, engine), 2)
    assert measurement.named["asked"] == {"m": 0}
    answered = sum(r.events > 0 for r in records)
    assert 0 < sum(measurement.named["model"].values()) <= answered
    assert ["m"] == list(measurement.named["model"])


@pytest.mark.process
def test_one_name_in_one_window_and_another_in_the_next_are_two_servers(server: Hostile) -> None:
    engine = Engine("one_name").install()
    measurement, records = go(trial(4, 20), target(server, engine))
    one = window_data(replace(measurement, named={"model": {"m": 20}}), records)
    other = window_data(replace(measurement, named={"model": {"n": 9}}), records)
    assert "server_changed" not in {flag.name for flag in flags(join([one, one]))}
    (flag,) = [flag for flag in flags(join([one, other])) if flag.name == "server_changed"]
    assert "n (9)" in flag.measured


def test_names_are_cleaned_and_bounded() -> None:
    named = Named(Target("http://127.0.0.1:1", "m", api_key="sk-secret-value-1234567890"))
    assert {} == named.counts()
    for i in range(3 * MOST_NAMED):
        named.add([("model", f"\x1b[31mm{i}"), ("system_fingerprint", "sk-secret-value-1234567890")])
    counts = named.counts()
    assert len(counts["model"]) == MOST_NAMED + 1
    assert sum(counts["model"].values()) == 3 * MOST_NAMED
    assert "\x1b" not in str(counts)
    assert "sk-secret" not in str(counts)
    assert named_together([counts, counts])["model"]["others"] == 2 * 2 * MOST_NAMED


def test_a_server_that_does_not_say_is_not_compared() -> None:
    silent = Served(None, None)
    assert silent.differences(Served(frozenset({"m"}), "1")) is None
    assert Served(frozenset({"m"}), "1").differences(silent) is None
    many = Served(frozenset(f"m{i}" for i in range(9)), None)
    assert "and 4 more" in (Served(frozenset(), None).differences(many) or "")
