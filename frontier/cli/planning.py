"""What `frontier sweep --dry-run` says: the plan, and what of it fits the budget. Sends nothing."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontier.cli.common import answer, answer_json, in_colour, width
from frontier.errors import ExitCode

if TYPE_CHECKING:
    from frontier.budget import Forecast
    from frontier.config import Config
    from frontier.model import Trial
    from frontier.plan import Plan
    from frontier.sweep.ledger import Ledger


def dry_run(config: "Config", plan: "Plan", run: Path | None, as_json: bool) -> int:
    """Print the plan; `run` is the run directory that would be resumed, if there is one."""
    from frontier.placement import misplaced
    from frontier.present.plans import plan_table
    from frontier.sweep.timing import Timing
    from frontier.units import format_elapsed

    ledger, todo = standing(config, plan, run)
    expected = Timing(config).left(todo, ledger.pace)
    forecast = _forecast(config, plan, ledger, todo) if config.budget.limited else None
    if as_json:
        tree: dict[str, Any] = {"schema": "frontier.plan/1", **plan.summary(), "finished": len(plan.trials) - len(todo),
                                "expected_seconds": expected, "advice": misplaced(config)}  # fmt: skip
        answer_json(tree if forecast is None else {**tree, "budget": _tree(ledger, forecast)})
        return ExitCode.YES
    answer(plan_table(config, plan, width=width(), colour=in_colour()))
    if expected is not None:
        by = "what was measured" if ledger.pace.seen else "the engine model, nothing being measured yet"
        answer(f"about {format_elapsed(expected)} expected, by {by}")
    for advice in misplaced(config):
        answer(advice)
    if run is not None:
        answer(f"{run} holds {len(plan.trials) - len(todo)} of them, finished before")
    if forecast is not None:
        answer("\n".join(_lines(config, plan, ledger, forecast, len(todo))))
    return ExitCode.YES


def standing(config: "Config", plan: "Plan", run: Path | None) -> "tuple[Ledger, Sequence[Trial]]":
    """The account so far, and the trials that are left."""
    from frontier.store import RunDirectory
    from frontier.sweep.ledger import Ledger

    ledger = Ledger(config.budget, lambda: 0.0, time.time)
    ledger.charge(sum(d.price or 0.0 for d in config.deployments))
    if run is None:
        return ledger, plan.trials
    there = RunDirectory.read(run)
    finished = {key: found.trial for key, found in there.finished().items()}
    ledger.recall(there.journal_lines(), finished)
    return ledger, [t for t in plan.trials if t.key not in finished or finished[t.key].fingerprint != t.fingerprint]


def _forecast(config: "Config", plan: "Plan", ledger: "Ledger", todo: "Sequence[Trial]") -> "Forecast":
    """What of these fits: deployments that are started in turn share what is left, as they will when it is run."""
    from frontier.budget import Forecast, forecast
    from frontier.plan import in_turn

    now, spent = time.time(), ledger.spent()
    found, at = Forecast((), (), (), bounded=False, spent=spent), now
    turns = [
        (group, trials)
        for group in in_turn(config, plan)
        if (trials := [t for t in todo if t.deployment in {d.name for d in group}])
    ]
    for i, (group, trials) in enumerate(turns):
        parts = sum(len(later) for later, _ in turns[i:]) / len(group)
        rate = sum(d.price or 0.0 for d in group) / 3600
        caps = ledger.whole.share(found.spent, at, parts)
        found += forecast(trials, caps, ledger.pace, now=at, spent=found.spent, rate=rate)
        at = now + found.spent.seconds - spent.seconds
    return found


def _tree(ledger: "Ledger", forecast: "Forecast") -> dict[str, Any]:
    return {
        "limits": dict(ledger.whole.words),
        "spent": ledger.spent().tree(),
        "fits": len(forecast.fits),
        "dropped": [trial.key for trial in forecast.dropped],
        "by": list(forecast.by),
        "at_longest": forecast.bounded,
    }


def _lines(config: "Config", plan: "Plan", ledger: "Ledger", forecast: "Forecast", left: int) -> list[str]:
    from frontier.budget import described_trials
    from frontier.units import format_elapsed

    caps, spent = ledger.whole, ledger.spent()
    limits = ", ".join(f"{name} {said}" for name, said in caps.words.items())
    if caps.until is not None:
        limits += f" (in {format_elapsed(max(0.0, caps.until - time.time()))})"
    if spent.seconds:
        limits += f"; {format_elapsed(spent.seconds)} and {spent.requests:,.0f} requests of it are spent"
    lines = [f"budget  {limits}"]
    longest = forecast.bounded and not {"time", "until", "cost"}.isdisjoint(caps.words)
    if not forecast.dropped:
        lines.append("        all of it fits" + (", even if every trial takes its longest" if longest else ""))
        return lines
    named = f"{described_trials(forecast.dropped)} ({', '.join(forecast.by)})"
    if longest:
        lines.append(f"        {len(forecast.fits)} of {left} trials fit if each takes its longest; the others as")
        lines.append(f"        there is room, or they are dropped: {named}")
    else:
        lines.append(f"        {len(forecast.fits)} of {left} trials are expected to fit; dropped: {named}")
    then = [f"{f'repeats 2 to {config.repeats}' if config.repeats > 2 else 'repeat 2'}"] if config.repeats > 1 else []
    middle = (
        [f"the refinement (at most {format_elapsed(plan.refine_longest)})"] if config.refine and config.limits else []
    )
    order = ["the lowest concurrency of each shape", "every setting once", *middle, *then]
    lines.append(f"        in the order of worth: {', '.join(order)}")
    return lines
