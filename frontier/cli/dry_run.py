"""What a sweep's budget has room for, as `--dry-run` says it with the plan, and the larger one that would do."""

import math
import shlex
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontier.cli.common import answer, answer_json, answer_prose, in_colour, width
from frontier.errors import ExitCode

if TYPE_CHECKING:
    from frontier.budget import Amount, BudgetFit
    from frontier.config import Config
    from frontier.config.schema import BudgetConfig
    from frontier.model import Trial
    from frontier.plan import Plan
    from frontier.sweep.ledger import Ledger

ENOUGH = 1.25
"""A larger budget has this many times what the rest is expected to take: warm-ups send more than was planned."""


def dry_run(config: "Config", plan: "Plan", run: Path | None, as_json: bool) -> int:
    """Print the plan; `run` is the run directory that would be resumed, if there is one."""
    from frontier.budget import TimeEstimator
    from frontier.decide.prediction import grid_advice
    from frontier.report.tables import plan_table
    from frontier.units import format_elapsed

    ledger, todo = remaining(config, plan, run)
    expected = TimeEstimator(config).left(todo, ledger.times)
    forecast = _fit(config, plan, ledger, todo, 0.0) if config.budget.limited else None
    if as_json:
        tree: dict[str, Any] = {"schema": "frontier.plan/1", **plan.summary(), "finished": len(plan.trials) - len(todo),
                                "expected_seconds": expected, "advice": grid_advice(config)}  # fmt: skip
        worst = _worst(config, plan, ledger, todo)
        answer_json(tree if forecast is None else {**tree, "budget": _tree(ledger, forecast, worst)})
        return ExitCode.YES
    answer(plan_table(config, plan, width=width(), colour=in_colour()))
    if expected is not None:
        by = "what was measured" if ledger.times.taken else "the engine model, nothing being measured yet"
        without = ", without the refinement" if plan.refine else ""
        answer_prose(f"about {format_elapsed(expected)} expected{without}, by {by}")
    for advice in grid_advice(config):
        answer_prose(advice)
    if run is not None:
        answer(f"{run} holds {len(plan.trials) - len(todo)} of them, finished before")
    if forecast is not None:
        worst = _worst(config, plan, ledger, todo)
        answer_prose("\n".join(_lines(config, plan, ledger, forecast, worst, todo)))
    return ExitCode.YES


def remaining(config: "Config", plan: "Plan", run: Path | None) -> "tuple[Ledger, Sequence[Trial]]":
    """The account so far, and the trials that are left."""
    from frontier.store.run_dir import RunDirectory
    from frontier.sweep.ledger import Ledger

    ledger = Ledger(config.budget, lambda: 0.0, time.time)
    ledger.begin_turn(config.deployments)
    if run is None:
        return ledger, plan.trials
    there = RunDirectory.read(run)
    finished = {key: found.trial for key, found in there.finished().items()}
    ledger.recall(there.journal_lines(), finished)
    return ledger, [t for t in plan.trials if t.key not in finished or finished[t.key].fingerprint != t.fingerprint]


def _fit(
    config: "Config", plan: "Plan", ledger: "Ledger", todo: "Sequence[Trial]", refine_seconds: float
) -> "BudgetFit":
    """What of these fits when the refinement takes so many seconds."""
    from frontier.budget import fit_budget, turns_of

    turns = turns_of((d for d in config.deployments if d.name in plan.deployments), todo)
    each = refine_seconds / len(plan.deployments)
    return fit_budget(turns, ledger.whole, ledger.times, now=time.time(), spent=ledger.spent(), refine_seconds=each)


@dataclass(frozen=True, slots=True)
class Worst:
    """What has room when the refinement, which comes before the other repeats, takes its longest too: every setting
    once, and all there is. `left` are the seconds after every setting once, None where no time is limited.
    """

    once: bool
    all: bool
    left: float | None


def _worst(config: "Config", plan: "Plan", ledger: "Ledger", todo: "Sequence[Trial]") -> Worst:
    """With the refinement at its longest. How many requests and tokens it takes is not known before."""
    words = ledger.whole.words
    fit = _fit(config, plan, ledger, todo, plan.refine_longest)
    known = not plan.refine or {"requests", "tokens"}.isdisjoint(words)
    timed = not {"time", "until"}.isdisjoint(words)
    return Worst(fit.once, known and fit.whole, fit.spare if timed else None)


def _tree(ledger: "Ledger", forecast: "BudgetFit", worst: Worst) -> dict[str, Any]:
    return {
        "limits": dict(ledger.whole.words),
        "spent": ledger.spent().tree(),
        "fits": len(forecast.fits),
        "dropped": [trial.key for trial in forecast.dropped],
        "by": list(forecast.by),
        "at_longest": forecast.bounded,
        "all_fits_with_refinement": worst.all,
    }


def _lines(
    config: "Config", plan: "Plan", ledger: "Ledger", forecast: "BudgetFit", worst: Worst, todo: "Sequence[Trial]"
) -> list[str]:
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
    more = f"the refinement (at most {format_elapsed(plan.refine_longest)})"
    if not forecast.dropped:
        return [*lines, *(f"        {line}" for line in _all_fit(plan, worst, todo, longest=longest))]
    named = f"{described_trials(forecast.dropped)} ({', '.join(forecast.by)})"
    without = ", without the refinement" if plan.refine else ""
    fits = f"        {len(forecast.fits)} of {len(todo)} trials"
    if longest:
        said = f"fit if each takes its whole max_time{without}; the others as there is room, or they are dropped:"
    else:
        said = f"are expected to fit{without}; dropped:"
    lines.append(f"{fits} {said} {named}")
    then = [f"{f'repeats 2 to {config.repeats}' if config.repeats > 2 else 'repeat 2'}"] if config.repeats > 1 else []
    order = ["the lowest concurrency of each shape", "every setting once", *([more] if plan.refine else []), *then]
    lines.append(f"        in the order of worth: {', '.join(order)}")
    return lines


def _all_fit(plan: "Plan", worst: Worst, todo: "Sequence[Trial]", *, longest: bool) -> list[str]:
    """That the grid fits, and whether the refinement does, which comes before the repeats."""
    from frontier.units import format_elapsed

    if not todo:
        grid = "all trials of the grid are finished"
    else:
        repeats = any(t.repeat > 1 for t in todo)
        what = "every setting once" if repeats and not worst.all else f"all of the grid ({len(todo)} trials)"
        grid = f"{what} fits" if longest else f"{what} is expected to fit"
    surely = ", even if each trial takes its whole max_time" if longest else ""
    if not plan.refine:
        return [f"{grid}{surely}"]
    most = format_elapsed(plan.refine_longest)
    if worst.all:
        return [f"{grid}, and so does the refinement (at most {most}){surely}"]
    then = f"the refinement (at most {most})"
    if any(t.repeat > 1 for t in todo):
        then += " and after it the other repeats"
    room = "" if worst.left is None else f", for which {format_elapsed(worst.left)} or more will be left"
    return [f"{grid}{surely}", f"then comes {then}{room}; what of this has no room is dropped"]


def larger_budget(config: "Config", run: Path, again: str) -> str:
    """What a sweep that its budget ended needs to be finished, and the command for it, `again` being the last one.

    The same command would drop the same again, unless a time of day ended it: that comes again.
    """
    from frontier.budget import Amount
    from frontier.plan import make_plan
    from frontier.store.run_dir import RunDirectory

    lines = RunDirectory.read(run).journal_lines()
    began = max((i for i, one in enumerate(lines) if one["event"] in ("created", "resumed")), default=0)
    dropped = [key for one in lines[began:] if one["event"] == "dropped" for key in one["trials"]]
    ledger, todo = remaining(config, make_plan(config), run)
    rate = sum(d.price or 0.0 for d in config.deployments) / 3600
    needed = [ledger.times.need(trial, rate) for trial in todo if trial.key in dropped]
    # Trials of the refinement are sized by what was found, which is not known here: each is counted with its longest.
    unknown = config.max_time * max(0, len(dropped) - len(needed))
    total = sum(needed, Amount(unknown, dollars=unknown * rate))
    total = Amount(*(part * ENOUGH for part in astuple(total))) + ledger.spent()
    left_out = f"{len(dropped)} trial{'' if len(dropped) == 1 else 's'}"
    more = _raised(config.budget, total)
    if not more:
        return f"the budget had no room for {left_out}; go on with\n  {again}"
    words = shlex.split(again)
    keys = {name for name, _ in more}
    old = [i for i, word in enumerate(words) if words[i - 1] == "--set" and word.partition("=")[0] in keys]
    kept = [word for i, word in enumerate(words) if i not in old and i + 1 not in old]
    command = shlex.join([*kept, *(word for name, value in more for word in ("--set", f"{name}={value}"))])
    units = {"budget.requests": " requests", "budget.tokens": " tokens"}
    asked = " and ".join(f"{value}{units.get(name, '')}" for name, value in more)
    return f"the budget had no room for {left_out}; one of about {asked} in all would finish it:\n  {command}"


def _raised(budget: "BudgetConfig", total: "Amount") -> list[tuple[str, str]]:
    """The parts of a budget that are too small for so much, each with the value that is enough."""

    def up(number: float) -> int:
        scale: int = 10 ** max(0, len(str(math.ceil(number))) - 2)
        return math.ceil(number / scale) * scale

    found = []
    if budget.time is not None and total.seconds > budget.time:
        found.append(("budget.time", f"{math.ceil(total.seconds / 60)}min"))
    for name in ("requests", "tokens"):
        cap, most = getattr(budget, name), getattr(total, name)
        if cap is not None and most > cap:
            found.append((f"budget.{name}", str(up(most))))
    if budget.cost is not None and total.dollars > budget.cost:
        found.append(("budget.cost", f"${math.ceil(total.dollars * 100) / 100:.2f}"))
    return found
