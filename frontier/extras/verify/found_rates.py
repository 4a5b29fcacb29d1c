"""The highest rates that a search found: their trials as a run keeps them, and the answers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from frontier.client.ask.same_server import compared
from frontier.config import Config
from frontier.core.claim.changes import History
from frontier.core.claim.proof import claim_point
from frontier.core.model.decisions import Decision, Limit
from frontier.core.model.loads import Concurrency, Rate
from frontier.core.model.metrics import DEFAULT_METRICS
from frontier.core.model.points import Point
from frontier.core.model.trials import Measurement, Phase, Trial
from frontier.core.window.from_records import window_data
from frontier.core.window.window import WindowData, join
from frontier.extras.verify.open_loop_check import Search, open_loop_trial, searches
from frontier.run import Run
from frontier.search.highest_rate import candidates_at, next_ask
from frontier.search.next_trial import Ask, Done
from frontier.search.rate_policy import RatePolicy, invalid_because, rate_of
from frontier.store.run_dir import RunDirectory


@dataclass(frozen=True, slots=True)
class FoundRate:
    """The answer for one operating point: the highest rate found below its closed loop's rate
    (`policy.top`), with the trials that it stands on. `point` is the point of the proven rate, its
    limited metrics with the bounds that the proof needed.
    """

    decision: Decision
    policy: RatePolicy
    done: Done
    point: Point | None
    history: History

    @property
    def proven(self) -> float | None:
        """The highest rate proven, in requests/s; None without one."""
        return None if self.done.proven is None else rate_of(self.done.proven).per_second

    @property
    def loss(self) -> float | None:
        """The share of the closed loop's rate that is lost; None where no rate is proven."""
        return None if self.proven is None else 1 - self.proven / self.policy.top


def found_rate(decision: Decision, policy: RatePolicy, done: Done, history: History) -> FoundRate:
    """The answer, with the point of the rate that was proven."""
    candidate = None if done.proven is None else candidates_at(history, decision.limits)[rate_of(done.proven)]
    point = None
    if candidate is not None:
        data = [data for trial, data in history if trial.phase is Phase.PROVE and trial.load == done.proven]
        point = claim_point(join(data), decision.limits, candidate.alpha, names=DEFAULT_METRICS)
    return FoundRate(decision, policy, done, point, tuple(history))


def rates_found(run: Run, limits: Sequence[Limit]) -> list[FoundRate]:
    """The results of a run's finished searches, read back; nothing is sent. Empty for an import;
    without sessions and mixes, for which verify searches no rate.
    """
    store = RunDirectory.read_checks(run.path)
    answers = []
    searched = not run.is_imported and all(shape.kind == "shape" for shape in run.config.shapes)
    for search in searches(run, limits) if searched else ():
        history = restored(run, search, store)
        done = next_ask(search.policy, search.decision.limits, history)
        if isinstance(done, Done):
            answers.append(found_rate(search.decision, search.policy, done, history))
    return answers


# --- the trials of a search


def rate_trial(config: Config, search: Search, ask: Ask, repeat: int) -> Trial:
    """The trial that a search asks for. Its fingerprint includes the SLA: another SLA has trials of
    its own.
    """
    decision, cap = search.decision, search.policy.in_flight
    shape, sla = decision.shape, " ".join(map(str, decision.limits))
    load = f"{rate_of(ask.load).per_second!r} {ask.phase} {ask.requests} {ask.warmup:.3g}"
    where = f"{decision.deployment} {shape.isl}/{shape.osl} {shape.prefix} {cap}"
    return open_loop_trial(config, decision, cap, ask, repeat, f"find {config.seed} {where} {sla} {load} {repeat}")


def restored(run: Run, search: Search, store: RunDirectory) -> list[tuple[Trial, WindowData]]:
    """The finished trials of a search, oldest first. Invalid ones are left out and measured
    again.
    """
    history = []
    for measurement in store.finished().values():
        trial = measurement.trial
        if (rate := trial.load.per_second) is None:
            continue
        ask = Ask(Rate.of(rate), trial.phase, trial.requests, "", warmup=trial.warmup)
        if trial.fingerprint == rate_trial(run.config, search, ask, trial.repeat).fingerprint:
            history.append(searched(run, measurement, store))
    return [(trial, data) for trial, data in history if not invalid_because(data, search.decision.limits)]


def searched(run: Run, measurement: Measurement, store: RunDirectory) -> tuple[Trial, WindowData]:
    """A finished trial as the search reads it: its load is its rate."""
    trial = measurement.trial
    rate = trial.load.per_second
    assert rate is not None
    data = compared(run.identities, window_data(measurement, store.records(trial.key)))
    return replace(trial, load=Rate.of(rate)), replace(data, load=Concurrency(trial.load))
