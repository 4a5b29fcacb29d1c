"""A whole sweep of one deployment in virtual time: it asks for trials and ends as `frontier sweep`
does."""

import math
from dataclasses import dataclass, replace

from benchmarks.calibration.rules import GRID, Answer, _around, search_names
from benchmarks.calibration.servers import Server
from frontier.config import Config, load_config
from frontier.core.claim import solver
from frontier.core.claim.changes import History
from frontier.core.claim.claim import claim_of, proof_windows
from frontier.core.claim.claimed import claim_points
from frontier.core.claim.proof import pilot_point
from frontier.core.model.decisions import Decision
from frontier.core.model.series import Series
from frontier.core.model.trials import Phase, Trial
from frontier.planning.budget import Amount, TrialTimes
from frontier.planning.plan import Plan, grid_size, make_plan, make_trial, search_policy
from frontier.planning.time_left import TimeLeft, to_come
from frontier.search import auto as automatic
from frontier.search import complete, scan
from frontier.search.next_trial import Ask, Done

MOST = 400
"""Trials of a sweep at most, as eight candidates may take 36 windows each; one that is not over by
then is a defect of what asks for them."""


@dataclass(frozen=True, slots=True)
class Step:
    """Before a trial: when, how many are finished, and what the search and the completion ask
    for.
    """

    at: float
    trials: int
    ask: Ask | Done
    later: Ask | Done


def config_of(server: Server, settings: str) -> Config:
    """The config that a user of this deployment would write, with all sizes left to the sweep where
    the deployment states none; `settings` are its concurrencies.
    """
    promises = (
        limit.promise if limit.metric == "error_rate" else f"{1e3 * limit.promise:.4f}ms" for limit in server.limits
    )
    sla = ", ".join(f"{limit.metric}: {promise}" for limit, promise in zip(server.limits, promises, strict=True))
    lines = (
        "endpoint: http://localhost:8000/v1",
        "model: m",
        f"shapes: [{server.shape.label}]",
        f"concurrency: {settings}",
        f"sla: {{{sla}}}",
        *([] if server.requests is None else [f"requests: {server.requests}"]),
    )
    return load_config("\n".join(lines), "calibration")


class Sweep:
    """One sweep of a deployment, as far as it went."""

    def __init__(self, server: Server, seed: int, settings: str = str(list(GRID))) -> None:
        self.server, self.seed = server, seed
        self.config = config_of(server, settings)
        self.plan: Plan = make_plan(self.config)
        self.deployment = self.config.deployments[0]
        self.shape = self.config.shapes[0]
        self.series = Series(self.deployment.name, self.shape)
        self.policy = search_policy(self.config, automatic.MOST)
        self.history: History = []
        self.taken: list[tuple[Trial, Amount]] = []
        self.clock = 0.0
        self.first = 0

    def run(self, budget: float = math.inf) -> list[Step]:
        """What was asked for before each trial, and when. A trial that would end after the `budget`
        in seconds is dropped, and with it all that is asked for from then on.
        """
        steps: list[Step] = []
        self._first_trials()
        while len(self.taken) < MOST:
            within = budget - self.clock
            ask = scan.next_ask(self.policy, self.shape, self.config.tiers, self.history, within=within)
            later = self._completion(within) if isinstance(ask, Done) else ask
            if isinstance(later, Done):
                return steps
            steps.append(Step(self.clock, len(self.history), ask, later))
            self._measure(later)
            if self.clock > budget:
                self.history, self.taken = self.history[:-1], self.taken[:-1]
                return steps
        raise RuntimeError(f"{self.server.family}: {MOST} trials, and no end")

    def _first_trials(self) -> None:
        """Each setting of the grid once, where the config states the size of its trials."""
        for trial in self.plan.trials if self.plan.sized else ():
            if complete.skip_reason(trial.load, self.config.tiers, self.history) is None:
                self._run(trial)
        self.first = len(self.history)

    def time_left(self, step: Step) -> TimeLeft | None:
        """The time left as the sweep says it before this trial."""
        history, times = self.history[: step.trials], TrialTimes(tuple(self.taken[: step.trials]))
        policy, planned = self.policy, self.plan.trials
        return to_come(self.config, self.series, planned, history, policy, step.ask, step.later).seconds(times)

    def decision(self, trials: int | None = None) -> Decision:
        """What may be claimed after so many trials, all by default."""
        limits, history = self.server.limits, self.history[:trials]
        points = claim_points(history, limits, names=search_names(self.server))
        return solver.solve(points or [pilot_point(s, limits) for _, s in history[:1]], limits, history=history)

    def _completion(self, within: float) -> Ask | Done:
        return complete.next_ask(self.policy, self.shape, self.config.tiers, self.history, within=within)

    def _trial(self, ask: Ask) -> Trial:
        repeat = 1 + sum((t.load, t.phase) == (ask.load, ask.phase) for t, _ in self.history)
        size = ask.requests, ask.seconds
        if ask.phase is Phase.GRID and self.plan.sized:
            size = grid_size(self.config, ask.load)
        return make_trial(self.config, self.deployment, self.shape, ask.load, ask.phase, repeat, *size)

    def _measure(self, ask: Ask) -> None:
        self._run(self._trial(ask))

    def _run(self, trial: Trial) -> None:
        c = trial.load
        sample = self.server.trial(trial, 100_000 * self.seed + len(self.taken), self.clock)
        sample = replace(sample, deployment=self.deployment.name)
        took = _around(c, sample.n, float((sample.ends - sample.starts).sum()), trial.phase)
        self.history = [*self.history, (trial, sample)]
        self.taken.append((trial, Amount(took, sample.n + 3 * c, float(sample.completion_tokens.sum()))))
        self.clock += took


def answer_first(server: Server, seed: int) -> Answer:
    """What `frontier sweep` announces, and what it names when its frontier is complete."""
    return _answered(Sweep(server, seed))


def auto(server: Server, _: int) -> Answer:
    """The answer of a sweep that finds its settings. It draws by the seed of the first rule, so the
    two agree up to the first trial in which they differ.
    """
    return _answered(Sweep(server, 1, "auto"))


def _answered(sweep: Sweep) -> Answer:
    server = sweep.server
    sweep.run()
    early: tuple[int, float] | None = None
    for k, (trial, _) in enumerate(sweep.history, 1):
        announces = trial.phase is Phase.PROVE or k == sweep.first
        if announces and (c := sweep.decision(k).load) is not None:
            early = c, sum(amount.seconds for _, amount in sweep.taken[:k])
            break
    decision = sweep.decision()
    c = decision.load
    claim = None if c is None else claim_of(proof_windows(sweep.history, c, server.limits), server.limits)
    return Answer(
        c,
        decision.verdict.value,
        sum(s.n for _, s in sweep.history),
        sweep.clock,
        len({t.load for t, _ in sweep.history}),
        early_concurrency=early[0] if early else None,
        early_seconds=early[1] if early else sweep.clock,
        trace=tuple(f"{t.phase.value} c={t.load} n={s.n}" for t, s in sweep.history),
        claim_stage=claim.stage if claim else "",
        turns=claim.turns if claim else 0,
    )
