"""`frontier sweep --dry-run`: what will be done, the time it takes, what fits into the budget, and
a larger budget."""

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from frontier.cli.common import answer, answer_prose, layout
from frontier.errors import ExitCode
from frontier.model import Phase, load_of, setting
from frontier.store.journal import last_session
from frontier.store.run_dir import RunDirectory
from frontier.text import clean
from frontier.units import format_elapsed, format_number, format_rough

if TYPE_CHECKING:
    from frontier.budget import BudgetFit
    from frontier.config import Config
    from frontier.forecast import Ahead, Expected, Part, TimeEstimator
    from frontier.model import Series, Trace, Trial
    from frontier.plan import Plan, ToProve
    from frontier.run import History
    from frontier.sweep.ledger import Ledger

FAST = 200.0
"""Output tokens per second of one stream of a fast server: whether it is worth while to measure the
client."""
ENOUGH = 1.25
"""A larger budget has this many times what the rest is expected to take: warm-ups send more than
was planned."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is left of a sweep and how long it takes: per series and in all, `by` what that is
    known.

    `fit` is what the budget has room for when the proofs take what is expected, None without a
    budget; `fits_longest` whether it has room for all of it when they take their longest.
    """

    ledger: "Ledger"
    finished: int
    aheads: "Mapping[Series, Ahead]"
    times: "Mapping[Series, Expected]"
    total: "Expected"
    by: str
    fit: "BudgetFit | None" = None
    fits_longest: bool = True


def look_ahead(config: "Config", plan: "Plan", run: Path | None, prove: "ToProve") -> Outlook:
    """What is left of the plan, after what is in `run`; with `prove` the proofs of these settings
    alone.
    """
    from frontier.forecast import Expected, TimeEstimator, outlook
    from frontier.run import load

    ledger, todo = remaining(config, plan, run)
    histories = {} if run is None else load(run).histories
    aheads = outlook(config, plan, histories, prove)
    estimator = TimeEstimator(config)
    times = {series: estimator.expected(ahead, ledger.times, histories) for series, ahead in aheads.items()}
    by = estimator.basis(ledger.times)
    found = Outlook(ledger, len(plan.trials) - len(todo), aheads, times, sum(times.values(), Expected()), by)
    if not config.budget.limited:
        return found
    fit, longest = (_fit(config, plan, found, todo, estimator, histories, most=most) for most in (False, True))
    return replace(found, fit=fit, fits_longest=longest.whole)


def _fit(
    config: "Config",
    plan: "Plan",
    found: Outlook,
    todo: "Sequence[Trial]",
    estimator: "TimeEstimator",
    histories: "Mapping[Series, History]",
    *,
    most: bool,
) -> "BudgetFit":
    """What the budget has room for, proofs and visits being as many as expected or, with `most`, as
    many as may be.
    """
    from frontier.budget import Amount, fit_budget, turns_of

    def need(parts: "Iterable[Part]") -> Amount:
        total = Amount()
        for part in parts:
            if part.trial.phase is not Phase.GRID:
                count = part.most if most else part.expected
                one = found.ledger.times.need(part.trial)  # at no price: its dollars follow from the turn's seconds
                seconds = estimator.seconds(part.trial, found.ledger.times, histories)
                total += replace(one, seconds=seconds) * count
        return total

    beyond: dict[str, tuple[Amount, Amount]] = {}
    for series, ahead in found.aheads.items():
        answer, rest = beyond.get(series.deployment, (Amount(), Amount()))
        beyond[series.deployment] = answer + need((*ahead.looks, *ahead.proofs)), rest + need(ahead.rest)
    deployments = (d for d in config.deployments if d.name in plan.deployments)
    return fit_budget(
        turns_of(deployments, todo),
        found.ledger.whole,
        found.ledger.times,
        now=time.time(),
        spent=found.ledger.spent(),
        beyond=beyond,
        grid_first=config.requests is not None,
    )


def remaining(config: "Config", plan: "Plan", run: Path | None) -> "tuple[Ledger, Sequence[Trial]]":
    """What the sweep has spent so far, and the trials of the grid that are left."""
    from frontier.sweep.ledger import Ledger

    ledger = Ledger(config.budget, lambda: 0.0, time.time)
    ledger.begin_turn(config.deployments)
    if run is None:
        return ledger, plan.trials
    directory = RunDirectory.read(run)
    finished = {key: measurement.trial for key, measurement in directory.finished().items()}
    ledger.recall(directory.journal_lines(), finished)
    return ledger, plan.left(finished)


# ---- printing


def print_plan(config: "Config", plan: "Plan", run: Path | None, as_json: bool, prove: "ToProve") -> int:
    """Print the plan; `run` is the run directory that would be resumed, if there is one."""
    from frontier.decide.prediction import grid_advice
    from frontier.report.tables import plan_table

    found = look_ahead(config, plan, run, prove)
    advice = [*grid_advice(config), *_too_short(config, found)]
    # What another machine carries is not known here; a rate is sent by one process.
    client = client_plan(config) if config.ray is None and not config.open_loop else None
    if as_json:
        tree: dict[str, Any] = {
            "schema": "frontier.plan/1",
            **plan.summary(),
            "refine": {"settings_per_shape": plan.refine, "longest_seconds": found.total.answer_longest},
            "finished": found.finished,
            "expected_seconds": found.total.seconds,
            "expected": {
                "answer_seconds": found.total.answer,
                "frontier_seconds": found.total.rest,
                "longest_seconds": found.total.longest,
                "by": found.by,
            },
            "client": client,
            "advice": advice,
        }
        if (trace := _trace_of(config)) is not None:
            tree["trace"] = trace_facts(trace)
        answer(tree if found.fit is None else {**tree, "budget": _budget_json(found, found.fit)})
        return ExitCode.YES
    answer(plan_table(config, plan, **layout()))
    why = [client["why"]] if client is not None and client["matters"] else []
    answer_prose("\n".join([*plan_lines(config, found, prove), *why, *advice]))
    if run is not None:
        answer(f"{run} holds {found.finished} of them, finished before")
    if found.fit is not None:
        answer_prose("\n".join(_budget_lines(found, found.fit)))
    return ExitCode.YES


def client_plan(config: "Config") -> dict[str, Any]:
    """How many client processes will send the load, and why, for JSON. What one carries is measured
    where it `matters`: where several are asked for, or the highest concurrency may need a second
    one.
    """
    from frontier.client.processes import EVENTS_PER_WORKER, AutoWorkers

    streams, stated = max(config.concurrency), config.workers
    matters = (stated or 1) > 1 or streams * FAST > EVENTS_PER_WORKER / 2
    auto = AutoWorkers.of_this_machine(measure=matters)
    pace = auto.events_per_second * (stated or 1) / streams
    limit = f"{pace:,.0f} tokens/s a stream"
    if stated is None and auto.most > 1:
        load = f"c={streams} takes a second one above {limit}"
    else:
        load = f"{'one is' if (stated or 1) == 1 else f'{stated} are'} enough for c={streams} up to {limit}"
    why = f"Client: {auto.carries()}; {load}" + (f"; {auto.chooses()}." if stated is None else ".")
    return {"workers": stated or "auto", **asdict(auto), "tokens_per_second": pace, "matters": matters, "why": why}


def plan_lines(config: "Config", found: Outlook, prove: "ToProve") -> list[str]:
    """'Plan: find and prove the operating point (about 10 min), then complete the frontier (about
    40 min more).', each series' own times where there are several, and the sum with its bound.
    """
    several = len(found.times) > 1
    points, frontiers = ("operating points", "frontiers") if several else ("operating point", "frontier")
    total, everything = found.total, format_rough(found.total.seconds)
    if not total.seconds:
        return ["Plan: nothing is left to measure."]
    if prove:
        first = f"prove {', '.join(f'c={c}' for c in prove.everywhere)} (about {format_rough(total.answer)})"
    elif not config.limits:
        first = f"complete the {frontiers} (about {everything}); without an SLA there is nothing to prove"
    elif not config.searches:
        first = f"measure the listed settings (about {everything}); refine: 0 proves nothing beyond them"
    elif not total.answer:
        first = f"the {points} were searched for before; complete the {frontiers} (about {format_rough(total.rest)})"
    else:
        first = f"find and prove the {points} (about {format_rough(total.answer)})"
        first += f", then complete the {frontiers} (about {format_rough(total.rest)} more)" if total.rest else ""
    lines = [f"Plan: {first}.", *rate_lines(config, found)]
    if config.ray is not None:
        count = config.workers or "one on each node"
        lines.append(f"The load is sent from Ray ({config.ray.ray}); client processes: {count}.")
    elif config.workers is not None and config.workers > 1:
        lines.append(f"The load is sent by {config.workers} client processes.")
    lines += [*_session_files(config), *_session_rates(config)]
    for series, times in found.times.items() if several else ():
        answered, rest = (times.answer, times.rest) if config.searches else (0.0, times.seconds)
        parts = [f"{format_rough(answered)} to the answer"] if answered else []
        parts += [f"{format_rough(rest)} for the frontier"] if rest else []
        name = series.label(list(found.times), keep_shape=True)
        lines.append(f"  {name}: {', '.join(parts) or 'nothing is left'}")
    lines.append(f"About {everything} in all, at most {format_rough(total.longest)}; by {found.by}.")
    left = found.ledger.seconds_left()
    if left is not None and left < total.longest:
        lines.append(f"The budget ends it after {format_elapsed(left)}.")
    return lines


def _session_files(config: "Config") -> list[str]:
    """'agent: 120 sessions with 960 requests of agent.jsonl (Bailian); 4 begin anew as their
    history was cut.'
    """
    lines = []
    for shape in config.given_shapes:
        if shape.session is None or (file := shape.session.file) is None:
            continue
        first, added, osl = (f"{side.mean:,.0f}" for side in (shape.session.first, shape.session.added, shape.osl))
        later = f"{added}/{osl} after {shape.session.think:.3g} s"
        odd = {
            "begin anew as their history was cut": file.cut,
            "begin with a history that is not in it": file.begun,
            "rows without tokens are left out": file.left_out,
        }
        notes = [f"{number:,} {what}" for what, number in odd.items() if number]
        lines.append(
            f"{shape.label}: {file.sessions:,} sessions with {file.requests:,} requests of {clean(file.path)} "
            f"({file.tool}); first prompts of {first} tokens, later turns {later}"
            f" on average{'; ' if notes else ''}{', '.join(notes)}."
        )
    return lines


def _session_rates(config: "Config") -> list[str]:
    """'1 session/s of agent is 8 requests/s.', where a rate counts sessions."""
    sessions = [shape for shape in config.shapes if config.open_loop and shape.has_sessions]
    if not sessions:
        return []
    each = ", ".join(f"of {shape.label} brings {shape.requests:.4g} requests/s" for shape in sessions)
    return [f"Rates count the sessions that begin per second; 1 session/s {each}."]


def rate_lines(config: "Config", found: Outlook) -> list[str]:
    """How the requests of a sweep at rates come, where they are those of a trace; and the rate that
    a search which is told none is planned for.
    """
    if not config.open_loop:
        return []
    from frontier.forecast import expected_rates

    trace = _trace_of(config)
    planned = [expected_rates(config, series) for series, ahead in found.aheads.items() if ahead.looks]
    lines = []
    if not config.rate:
        known = dict.fromkeys(f"{one.usual}, {one.by}" for one in planned)
        lines = [f"Planned for {'; '.join(known)}."] if known else []
    if trace is None:
        return lines
    rates = config.concurrency if config.rate else [one.usual for one in planned]
    return [*lines, *trace_lines(trace, [rate / 1000 for rate in rates])]


def _trace_of(config: "Config") -> "Trace | None":
    arrivals = config.shapes[0].arrivals
    return None if arrivals is None else arrivals.trace


def trace_facts(trace: "Trace") -> dict[str, Any]:
    """What is known of the arrivals of a trace, as they were recorded, for JSON."""
    from frontier.stats.dispersion import gap_cv, index_of_dispersion

    index = {str(s): index_of_dispersion(trace.times, trace.seconds, s) for s in (1, 10, 60)}
    facts = {"name": trace.name, "digest": trace.digest, "arrivals": trace.count, "seconds": trace.seconds}
    return facts | {"gap_cv": gap_cv(trace.times), "index_of_dispersion": index, "placed_within": trace.grid}


def trace_lines(trace: "Trace", rates: "Sequence[float]") -> list[str]:
    """'Arrivals of azure.csv: 19,366 in 58 min, 5.53/s; gap CV 1.09; ...', and how fast they are
    played.
    """
    facts = trace_facts(trace)
    known = {f"{s} s": value for s, value in facts["index_of_dispersion"].items() if value is not None}
    index = ", ".join(f"{format_number(value)} in {window}" for window, value in known.items()) or "not known"
    times = f"{trace.count:,} in {format_elapsed(trace.seconds)}, {format_number(trace.rate)}/s"
    spread = f"gap CV {facts['gap_cv']:.3g}; index of dispersion of counts {index} (Poisson: 1)"
    lines = [f"Arrivals of {trace.name}: {times}; {spread}."]
    if trace.grid is not None:
        lines.append(f"Its stamps lie on a grid of {trace.grid:g} s: each arrival is placed at random within its step.")
    factors = [f"{rate / trace.rate:.3g}" for rate in rates]
    if factors:
        speeds = factors[0] if len(factors) == 1 else f"{factors[0]} to {factors[-1]}"
        at = " to ".join(dict.fromkeys(f"{rate:g}" for rate in (rates[0], rates[-1])))
        least = f"a window of a claim has at least {trace.long_enough:,} arrivals"
        lines.append(f"At {at} req/s it is played {speeds} times as fast; {least}, so that its parts are alike.")
    return lines


def _too_short(config: "Config", found: Outlook) -> list[str]:
    """Where a stated `max_time` cuts a proof short, as far as it is known how long a request
    takes.
    """
    from frontier.forecast import TimeEstimator, proof

    if config.max_time is None or not config.searches or config.open_loop:
        return []
    free = config.model_copy(update={"max_time": None})
    estimator, lines = TimeEstimator(free), []
    for series in found.aheads if estimator.knows(found.ledger.times) else ():
        needed = {c: estimator.seconds(proof(free, series, c), found.ledger.times, {}) for c in config.concurrency}
        short = {c: seconds for c, seconds in needed.items() if seconds > config.max_time}
        if short:
            listed = ", ".join(map(str, short))
            lines.append(
                f"max_time {format_elapsed(config.max_time)} is too short to prove c={listed} of "
                f"{series.label(list(found.aheads))} in one trial (c={min(short)} takes about "
                f"{format_rough(short[min(short)])}): leave max_time out"
            )
    return lines


def _budget_json(found: Outlook, fit: "BudgetFit") -> dict[str, Any]:
    return {
        "limits": dict(found.ledger.whole.words),
        "spent": found.ledger.spent().tree(),
        "fits": len(fit.fits),
        "dropped": [trial.key for trial in fit.dropped],
        "by": list(fit.by),
        "at_longest": fit.bounded,
        "answer_fits": fit.answer,
        "all_fits": fit.whole,
        "all_fits_with_refinement": found.fits_longest,
    }


def _budget_lines(found: Outlook, fit: "BudgetFit") -> list[str]:
    """The limits of the budget, and what of the plan fits into them."""
    from frontier.budget import described_trials

    caps, spent = found.ledger.whole, found.ledger.spent()
    limits = ", ".join(f"{name} {limit}" for name, limit in caps.words.items())
    if caps.until is not None:
        limits += f" (in {format_elapsed(max(0.0, caps.until - time.time()))})"
    if spent.seconds:
        limits += f"; {format_elapsed(spent.seconds)} and {spent.requests:,.0f} requests of it are spent"
    longest = fit.bounded and not {"time", "until", "cost"}.isdisjoint(caps.words)
    proofs = found.total.answer_longest > 0
    if found.fits_longest:
        lines = ["all of it fits, even if each trial takes its longest" if longest else "all of it is expected to fit"]
    elif fit.whole:
        most = f" (at most {format_rough(found.total.answer_longest)})"
        lines = [f"all of it is expected to fit; what has no room because the proofs take longer{most} is dropped"]
    else:
        answered = "is expected to be proven within it; " if fit.answer else "may not be proven within it: "
        room = "fit if each takes its longest" if longest else "are expected to fit"
        first = f"the operating point {answered}" if proofs else ""
        first += f"{len(fit.fits)} of {len(fit.fits) + len(fit.dropped)} trials of the grid {room}"
        if fit.dropped:
            lines = [f"{first}; dropped:", f"{described_trials(fit.dropped)} ({', '.join(fit.by)})"]
        else:
            lines = [f"{first}, but not all that completes the frontiers beside it" if fit.answer else first]
    return [f"budget  {limits}", *(f"        {line}" for line in lines)]


# ---- a larger budget


def larger_budget(config: "Config", run: Path, again: str) -> str:
    """The budget that would finish a sweep that ran out of it, and the command with it, `again`
    being the last one.

    The same command would drop the same trials again, unless a time of day ended it: that comes
    again tomorrow.
    """
    from frontier.budget import Amount, Turn, raised
    from frontier.plan import NOTHING, make_plan
    from frontier.units import count

    lines = RunDirectory.read(run).journal_lines()
    session = last_session(lines)
    events = [line for line in session if line["event"] == "dropped"]
    dropped = {key for line in events for key in line["trials"]}
    found = look_ahead(config, make_plan(config), run, NOTHING)
    rate = Turn(config.deployments, ()).rate
    needed = sum((Amount(**line["need"]) for line in events if "need" in line), Amount())
    parts = (part for ahead in found.aheads.values() for part in ahead.parts)
    left = sum((found.ledger.times.need(part.trial, rate) * part.expected for part in parts), Amount())
    total = Amount(*map(max, astuple(left), astuple(needed))) * ENOUGH + found.ledger.spent()
    left_out = count(len(dropped), "trial")
    cut = [line for line in session if line["event"] == "asked" and line["trial"] in dropped]
    named = (f"{setting(load_of(line))} ({line['shape']})" for line in cut if line["phase"] == Phase.PROVE.value)
    proofs = ", ".join(dict.fromkeys(named))
    left_out += f", which cut the proof of {proofs} short" if proofs else ""
    more = raised(config.budget, total)
    if not more:
        return f"the budget had no room for {left_out}; go on with\n  {again}"
    words = shlex.split(again)
    keys = {name for name, _ in more}
    old = [i for i, word in enumerate(words) if words[i - 1] == "--set" and word.partition("=")[0] in keys]
    kept = [word for i, word in enumerate(words) if i not in old and i + 1 not in old]
    command = shlex.join([*kept, *(word for name, value in more for word in ("--set", f"{name}={value}"))])
    units = {"budget.requests": "requests", "budget.tokens": "tokens"}
    needs_text = " and ".join(f"{int(value):,} {units[name]}" if name in units else value for name, value in more)
    finishes = f"a budget of about {needs_text} in all would finish the sweep"
    return f"the budget had no room for {left_out}; {finishes}:\n  {command}"
