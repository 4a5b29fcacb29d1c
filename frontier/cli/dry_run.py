"""`frontier sweep --dry-run`: the plan, the time it takes, what fits into the budget, and the budget that would do."""

import math
import shlex
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontier.cli.common import answer, answer_json, answer_prose, layout
from frontier.errors import ExitCode

if TYPE_CHECKING:
    from frontier.budget import Amount, BudgetFit
    from frontier.config import BudgetConfig, Config
    from frontier.model import Trial
    from frontier.plan import Plan
    from frontier.sweep.ledger import Ledger

ENOUGH = 1.25
"""A larger budget has this many times what the rest is expected to take: warm-ups send more than was planned."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What fits into the budget. `grid` is the planned trials at their expected time, without the refinement.

    The other two count the refinement, which comes before the repeats, at its longest: is there room for `all`, and
    how many seconds are `left` after each setting once (None: time is not limited).
    """

    grid: "BudgetFit"
    all: bool
    left: float | None


def print_plan(config: "Config", plan: "Plan", run: Path | None, as_json: bool) -> int:
    """Print the plan; `run` is the run directory that would be resumed, if there is one."""
    from frontier.budget import TimeEstimator
    from frontier.decide.prediction import grid_advice
    from frontier.report.tables import plan_table
    from frontier.units import format_elapsed

    ledger, todo = remaining(config, plan, run)
    expected = TimeEstimator(config).left(todo, ledger.times)
    outlook = _outlook(config, plan, ledger, todo) if config.budget.limited else None
    finished = len(plan.trials) - len(todo)
    if as_json:
        tree: dict[str, Any] = {"schema": "frontier.plan/1", **plan.summary(), "finished": finished,
                                "expected_seconds": expected, "advice": grid_advice(config)}  # fmt: skip
        answer_json(tree if outlook is None else {**tree, "budget": _budget_json(ledger, outlook)})
        return ExitCode.YES
    answer(plan_table(config, plan, **layout()))
    if expected is not None:
        by = "what was measured" if ledger.times.taken else "the engine model, nothing being measured yet"
        without = ", without the refinement" if plan.refine else ""
        answer_prose(f"about {format_elapsed(expected)} expected{without}, by {by}")
    for advice in grid_advice(config):
        answer_prose(advice)
    if run is not None:
        answer(f"{run} holds {finished} of them, finished before")
    if outlook is not None:
        answer_prose("\n".join(_budget_lines(config, plan, ledger, outlook, todo)))
    return ExitCode.YES


def remaining(config: "Config", plan: "Plan", run: Path | None) -> "tuple[Ledger, Sequence[Trial]]":
    """What the sweep has spent so far, and the trials that are left."""
    from frontier.store.run_dir import RunDirectory
    from frontier.sweep.ledger import Ledger

    ledger = Ledger(config.budget, lambda: 0.0, time.time)
    ledger.begin_turn(config.deployments)
    if run is None:
        return ledger, plan.trials
    directory = RunDirectory.read(run)
    finished = {key: measurement.trial for key, measurement in directory.finished().items()}
    ledger.recall(directory.journal_lines(), finished)
    return ledger, [t for t in plan.trials if t.key not in finished or finished[t.key].fingerprint != t.fingerprint]


def _outlook(config: "Config", plan: "Plan", ledger: "Ledger", todo: "Sequence[Trial]") -> Outlook:
    """What fits when the trials are run, without the refinement and with it at its longest."""
    from frontier.budget import fit_budget, turns_of

    turns = turns_of((d for d in config.deployments if d.name in plan.deployments), todo)
    grid, whole = (
        fit_budget(turns, ledger.whole, ledger.times, now=time.time(), spent=ledger.spent(), refine_seconds=seconds)
        for seconds in (0.0, plan.refine_longest / len(plan.deployments))
    )
    words = ledger.whole.words
    # The requests and tokens of the refinement are not known beforehand, so within such a budget nothing is certain.
    known = not plan.refine or {"requests", "tokens"}.isdisjoint(words)
    timed = not {"time", "until"}.isdisjoint(words)
    return Outlook(grid, known and whole.whole, whole.spare if timed else None)


def _budget_json(ledger: "Ledger", outlook: Outlook) -> dict[str, Any]:
    return {
        "limits": dict(ledger.whole.words),
        "spent": ledger.spent().tree(),
        "fits": len(outlook.grid.fits),
        "dropped": [trial.key for trial in outlook.grid.dropped],
        "by": list(outlook.grid.by),
        "at_longest": outlook.grid.bounded,
        "all_fits_with_refinement": outlook.all,
    }


def _budget_lines(
    config: "Config", plan: "Plan", ledger: "Ledger", outlook: Outlook, todo: "Sequence[Trial]"
) -> list[str]:
    """The limits of the budget, and what of the plan fits into them."""
    from frontier.budget import described_trials
    from frontier.units import format_elapsed

    caps, spent, grid = ledger.whole, ledger.spent(), outlook.grid
    limits = ", ".join(f"{name} {limit}" for name, limit in caps.words.items())
    if caps.until is not None:
        limits += f" (in {format_elapsed(max(0.0, caps.until - time.time()))})"
    if spent.seconds:
        limits += f"; {format_elapsed(spent.seconds)} and {spent.requests:,.0f} requests of it are spent"
    longest = grid.bounded and not {"time", "until", "cost"}.isdisjoint(caps.words)
    if not grid.dropped:
        lines = _all_fit(plan, outlook, todo, longest=longest)
    else:
        without = ", without the refinement" if plan.refine else ""
        dropped = f"{described_trials(grid.dropped)} ({', '.join(grid.by)})"
        verdict = (
            f"fit if each takes its whole max_time{without}; the others as there is room, or they are dropped:"
            if longest else f"are expected to fit{without}; dropped:"
        )  # fmt: skip
        order = ["the lowest concurrency of each shape", "every setting once"]
        order += [f"the refinement (at most {format_elapsed(plan.refine_longest)})"] if plan.refine else []
        order += [f"repeats 2 to {config.repeats}" if config.repeats > 2 else "repeat 2"] if config.repeats > 1 else []
        lines = [f"{len(grid.fits)} of {len(todo)} trials {verdict} {dropped}",
                 f"in the order of worth: {', '.join(order)}"]  # fmt: skip
    return [f"budget  {limits}", *(f"        {line}" for line in lines)]


def _all_fit(plan: "Plan", outlook: Outlook, todo: "Sequence[Trial]", *, longest: bool) -> list[str]:
    """That the grid fits, and whether the refinement does, which comes before the repeats."""
    from frontier.units import format_elapsed

    repeats = any(t.repeat > 1 for t in todo)
    if not todo:
        grid = "all trials of the grid are finished"
    else:
        what = "every setting once" if repeats and not outlook.all else f"all of the grid ({len(todo)} trials)"
        grid = f"{what} fits" if longest else f"{what} is expected to fit"
    surely = ", even if each trial takes its whole max_time" if longest else ""
    if not plan.refine:
        return [f"{grid}{surely}"]
    refinement = f"the refinement (at most {format_elapsed(plan.refine_longest)})"
    if outlook.all:
        return [f"{grid}, and so does {refinement}{surely}"]
    later = " and after it the other repeats" if repeats else ""
    room = "" if outlook.left is None else f", for which {format_elapsed(outlook.left)} or more will be left"
    return [f"{grid}{surely}", f"then comes {refinement}{later}{room}; what of this has no room is dropped"]


def larger_budget(config: "Config", run: Path, again: str) -> str:
    """The budget that would finish a sweep that ran out of it, and the command with it, `again` being the last one.

    The same command would drop the same trials again, unless a time of day ended it: that comes again tomorrow.
    """
    from frontier.budget import Amount
    from frontier.plan import make_plan
    from frontier.store.run_dir import RunDirectory

    lines = RunDirectory.read(run).journal_lines()
    began = max((i for i, line in enumerate(lines) if line["event"] in ("created", "resumed")), default=0)
    dropped = [key for line in lines[began:] if line["event"] == "dropped" for key in line["trials"]]
    ledger, todo = remaining(config, make_plan(config), run)
    rate = sum(d.price or 0.0 for d in config.deployments) / 3600
    needed = [ledger.times.need(trial, rate) for trial in todo if trial.key in dropped]
    # Trials of the refinement are sized by what was measured, which is not known here: each counts with its longest.
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
    needs = " and ".join(f"{value}{units.get(name, '')}" for name, value in more)
    return f"the budget had no room for {left_out}; one of about {needs} in all would finish it:\n  {command}"


def _raised(budget: "BudgetConfig", total: "Amount") -> list[tuple[str, str]]:
    """The limits of a budget that are too small for so much, each with a value that is enough."""

    def up(number: float) -> int:
        scale: int = 10 ** max(0, len(str(math.ceil(number))) - 2)
        return math.ceil(number / scale) * scale

    raised = []
    if budget.time is not None and total.seconds > budget.time:
        raised.append(("budget.time", f"{math.ceil(total.seconds / 60)}min"))
    for name in ("requests", "tokens"):
        cap, needed = getattr(budget, name), getattr(total, name)
        if cap is not None and needed > cap:
            raised.append((f"budget.{name}", str(up(needed))))
    if budget.cost is not None and total.dollars > budget.cost:
        raised.append(("budget.cost", f"${math.ceil(total.dollars * 100) / 100:.2f}"))
    return raised
