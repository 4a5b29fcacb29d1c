"""The course of a race on servers. The sweep's own runner measures what `race` asks for, and
everything that decides the race is in the run directory.
"""

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from frontier.config import Config
from frontier.core.claim.changes import PROOFS, History, spoilt
from frontier.core.model.metrics import metric
from frontier.core.model.series import Series
from frontier.core.model.trials import Trial
from frontier.core.window.window import WindowData
from frontier.extras.tune.gain import RaceRules
from frontier.extras.tune.race import Race
from frontier.extras.tune.runner import Runner
from frontier.extras.tune.variants import Variant
from frontier.run import power_of
from frontier.search.auto import LOOKS_AT_MOST, MOST
from frontier.store.journal import last_session
from frontier.sweep.conductor import Conductor


def rules_of(config: Config, objective: str) -> RaceRules:
    """The rules of a config's race."""
    first = config.deployments[0]
    slots = max((d.slots or MOST for d in config.deployments), default=MOST)
    top = slots if config.auto else max(config.loads)
    return RaceRules(config.limits, objective, top, first.price)


def race_of(
    config: Config,
    variants: Iterable[Variant],
    rules: RaceRules,
    histories: Mapping[Series, History],
    lines: Sequence[Mapping[str, Any]],
    running: Series | None = None,
) -> Race:
    """The race, by the finished trials and the journal of its run."""
    now = last_session(lines)
    starts, gone = _starts(lines), _gone(now)
    runners = []
    for variant in variants:
        series = Series(variant.name, config.shapes[0])
        history = [(t, _powered(config, t, s, rules)) for t, s in histories.get(series, ())]
        runner = Runner(rules, series, history, starts, gone.get(variant.name))
        runners.append(_tried_again(runner, {line["trial"] for line in now if line["event"] == "asked"}))
    return Race(rules, tuple(runners), running)


def _tried_again(runner: Runner, now: Collection[str]) -> Runner:
    """The runner, with why no trial of its scan means anything. Where none of those trials was run
    `now`, in the last session, it is tried again without them: a machine is not always busy. So are
    proofs whose windows the client spoilt earlier.
    """
    if runner.gone is None and runner.is_spoilt and runner.unproven is not None:
        counts = [(t, s) for t, s in runner.history if t.key in now or not (t.phase in PROOFS and spoilt(s))]
        return replace(runner, history=counts)
    if runner.gone is not None or (why := _meaningless(runner)) is None:
        return runner
    later = replace(runner, history=[(t, s) for t, s in runner.history if t.key in now])
    return later if _meaningless(later) is None else replace(runner, gone=why)


def _powered(config: Config, trial: Trial, sample: WindowData, rules: RaceRules) -> WindowData:
    """The data with the rule for the power that was drawn, where the objective needs it."""
    if metric(rules.objective).needs != "power":
        return sample
    return replace(sample, power_rule=functools.partial(power_of, config, trial.deployment))


def _starts(lines: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The number of the server start in which each trial was run, by trial key. Starts are counted
    over all variants, so a later one has a higher number.
    """
    count, at, starts = 0, dict[str, int](), dict[str, int]()
    for line in lines:
        if line["event"] == "server":
            count += 1
            at[line["deployment"]] = count
        elif line["event"] == "asked":
            starts[line["trial"]] = at.get(line["deployment"], 0)
    return starts


def _gone(lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Why nothing more is run on a variant in a session, by its name: it did not start, or was lost
    too often. In the next session it is tried again.
    """
    said = {"never_came_up": "did not start: ", "lost": "was lost: "}
    given_up = (line for line in lines if line["event"] == "given_up")
    return {line["deployment"]: said.get(str(line.get("cause")), "") + line["reason"] for line in given_up}


def _meaningless(runner: Runner) -> str | None:
    """Why no trial of a variant's scan means anything; None where one does, or more may be made."""
    looks = runner.state.looks
    if len(runner.state.points) > 1 and not runner.worths and metric(runner.rules.objective).needs == "power":
        return "nothing measures its power, and the config states none (hardware: {power: 5600W})"
    tried = [c for c in looks if looks[c] >= LOOKS_AT_MOST]
    if runner.state.points or len(tried) < LOOKS_AT_MOST:
        return None
    flags = (flag for point in runner.known.points.values() for flag in point.flags if flag.fatal)
    return next((flag.measured for flag in flags), "no request succeeded")


@dataclass(slots=True)
class RaceCourse:
    """The course of a race, for the conductor of a sweep."""

    variants: tuple[Variant, ...]
    rules: RaceRules

    async def __call__(self, conductor: Conductor, /) -> None:
        running: Series | None = None
        while True:
            race = self._race(conductor, running)
            step = race.next_step()
            if step is None:
                return
            if step.anew:
                running = None
                if not await conductor.start_anew(step.series.deployment):
                    continue  # the journal says why, and the race goes on without it
                running = step.series
            done = await conductor.run_ask(step.series, step.ask)
            if done == "dropped":
                return
            if done == "lost":
                running = None

    def _race(self, conductor: Conductor, running: Series | None) -> Race:
        lines = conductor.run.journal_lines()
        return race_of(conductor.config, self.variants, self.rules, conductor.state.histories, lines, running)
