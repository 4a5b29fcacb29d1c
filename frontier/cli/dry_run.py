"""`frontier sweep --dry-run`: what would be measured, and the time that it takes."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from frontier import registry
from frontier.cli.common import RunOptions, answer, answer_prose, layout
from frontier.core.model.errors import ExitCode, FrontierError, UsageError
from frontier.core.model.text import capital, clean
from frontier.core.model.units import format_elapsed
from frontier.show.verbosity import Detail
from frontier.show.view.rough import format_range
from frontier.store.run_dir import RunDirectory
from frontier.world import world

if TYPE_CHECKING:
    from frontier.config import Config
    from frontier.core.model.series import Series
    from frontier.core.model.trials import Trial
    from frontier.planning.plan import Plan, ToProve
    from frontier.planning.time_left import TimeLeft, ToCome
    from frontier.sweep.ledger import Ledger

FAST = 200.0
"""Output tokens per second of one stream of a fast server, by which it is decided whether the
client is worth measuring."""

SOONER = "or after a minute with  --dry-run --measure"
"""How to know the time of a sweep before it has measured anything."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is to come in each series of a sweep, and the time it takes. `left` is None while
    nothing of the sweep is measured.
    """

    ledger: "Ledger"
    finished: int
    coming: "Mapping[Series, ToCome]"
    left: "TimeLeft | None"


def look_ahead(config: "Config", plan: "Plan", run: Path | None, prove: "ToProve") -> Outlook:
    """What is left of the plan after the finished trials in `run`. With `prove`, only the proofs of
    these settings.
    """
    from frontier.client.load.health import most_connections
    from frontier.planning.time_left import of_sweep, outlook
    from frontier.read_run import load
    from frontier.search.auto import MOST

    ledger, todo = remaining(config, plan, run)
    histories = {} if run is None else load(run).histories
    coming = outlook(config, plan, histories, most_connections(MOST), prove)
    left = of_sweep({series: each.seconds(ledger.times) for series, each in coming.items()}, ledger.times)
    return Outlook(ledger, len(plan.trials) - len(todo), coming, left)


def remaining(config: "Config", plan: "Plan", run: Path | None) -> "tuple[Ledger, Sequence[Trial]]":
    """What the sweep has spent so far, and the trials of the grid that are left."""
    from frontier.sweep.ledger import Ledger

    ledger = Ledger(config.budget, lambda: 0.0, world().wall)
    ledger.begin_turn(config.deployments)
    if run is None:
        return ledger, plan.trials
    directory = RunDirectory.read(run)
    finished = {key: measurement.trial for key, measurement in directory.finished().items()}
    ledger.recall(directory.journal_lines(), finished)
    return ledger, plan.left(finished)


def require_context(config: "Config") -> None:
    """Check that every shape fits into the context length that its server reports. UsageError
    otherwise.

    Some servers are not asked: simulators, servers that the sweep itself starts, and those whose
    API key is not on this machine. A server that does not answer is passed over.
    """
    from frontier.client.ask.found_servers import told_context
    from frontier.client.http.http_client import run as run_loop
    from frontier.planning.context import over_context
    from frontier.sweep.given_files import read_key_file

    for deployment in config.deployments:
        if deployment.is_simulator or deployment.start is not None:
            continue
        try:
            key = None if deployment.api_key_file is None else read_key_file(Path(deployment.api_key_file))
            target = deployment.target(os.environ, ignore_eos=config.ignore_eos, key=key)
        except FrontierError:
            continue
        over = over_context(config.shapes, run_loop(told_context(target)), deployment.endpoint)
        if over is not None:
            raise UsageError(*over)


# ---- printing


def print_plan(
    config: "Config",
    plan: "Plan",
    run: Path | None,
    shown: RunOptions,
    prove: "ToProve",
    outlook: Outlook | None = None,
    also: Mapping[str, Any] = MappingProxyType({}),
) -> int:
    """Print the plan. `run` is the run directory that would be resumed, if there is one. `outlook`
    replaces the one that follows from the run's trials, and comes with what JSON holds `also`.
    """
    from frontier.show.tables import plan_table

    found = outlook or look_ahead(config, plan, run, prove)
    # What another machine carries is not known here; a rate is sent by one process.
    client = client_plan(config) if config.ray is None and not (config.open_loop or config.auto) else None
    if shown.as_json:
        answer({**_plan_json(config, plan, found), "client": client, **also})
        return ExitCode.YES
    if shown.detail >= Detail.USUAL:
        answer(plan_table(config, plan, sent=outlook is not None, **layout()))
    why = [client["why"]] if client is not None and (client["matters"] or shown.detail is Detail.ALL) else []
    answer_prose("\n".join([*plan_lines(config, found, prove), *why]))
    if run is not None:
        answer(f"{run} holds {found.finished:,} of them, finished before")
    if config.budget.limited:
        answer_prose(_budget_line(found))
    return ExitCode.YES


def _plan_json(config: "Config", plan: "Plan", found: Outlook) -> dict[str, Any]:
    """The plan for JSON."""
    from frontier.planning.stated_size import size_lines

    tree: dict[str, Any] = {
        "schema": "frontier.plan/1",
        **plan.summary(config),
        "refine": {"settings_per_shape": plan.refine},
        "finished": found.finished,
        "expected_seconds": None if found.left is None or found.left.open else found.left.seconds,
        "expected": None if found.left is None else found.left.tree(),
        "auto": _highest_json(config) if config.auto else None,
        "notes": size_lines(config, found.ledger.times),
    }
    if config.trace is not None:
        tree["trace"] = registry.RECORDED.load().trace_facts(config.trace)
    if config.budget.limited:
        tree["budget"] = {"limits": dict(found.ledger.whole.words), "spent": found.ledger.spent().tree()}
    return tree


def _highest_json(config: "Config") -> dict[str, dict[str, Any]]:
    """The highest concurrency that is tried on each deployment, and why it is no higher."""
    from frontier.client.load.health import most_connections
    from frontier.planning.plan import highest_tried
    from frontier.search.auto import MOST

    tried = {d.name: highest_tried(d, most_connections(MOST)) for d in config.deployments}
    return {name: {"most": most, "cause": cause.value} for name, (most, cause) in tried.items()}


def _settings_line(config: "Config") -> list[str]:
    """How the settings are found, or that the highest listed one may bind."""
    if config.open_loop or not (config.auto or config.searches):
        return []
    if not config.auto:
        top = max(config.loads)
        return [
            f"The answer is at most c={top}, the highest listed. If it meets the SLA, concurrency: auto looks higher."
        ]
    until = "a limit is broken or throughput stops growing" if config.limits else "throughput stops growing"
    words = {"stated_slots": "the slots of the deployment", "client_capacity": "as many as this client can hold"}
    several = len(config.deployments) > 1
    most = ", ".join(
        f"c={each['most']:,}{f' on {clean(name, 30)}' if several else ''}"
        + (f" ({words[each['cause']]})" if each["cause"] in words else "")
        for name, each in _highest_json(config).items()
    )
    return [f"The scan finds the settings: doublings from c=1 until {until}, at most {most}."]


def client_plan(config: "Config") -> dict[str, Any]:
    """How many client processes will send the load, and why, for JSON. `matters` is true where
    several are asked for, or the highest concurrency may need a second one.
    """
    from frontier.client.load.processes import CARRIES, EVENTS_PER_WORKER, auto_chooses, auto_facts

    streams, stated, auto = max(config.loads), config.workers, auto_facts()
    matters = (stated or 1) > 1 or streams * FAST > EVENTS_PER_WORKER
    pace = EVENTS_PER_WORKER * (stated or 1) / streams
    limit = f"{pace:,.0f} tokens/s a stream"
    if stated is None and auto["most"] > 1:
        load = f"c={streams} takes a second one above {limit}"
    else:
        load = f"{'one is' if (stated or 1) == 1 else f'{stated} are'} enough for c={streams} up to {limit}"
    why = f"Client: {CARRIES}; {load}" + (f"; {auto_chooses()}." if stated is None else ".")
    return {"workers": stated or "auto", **auto, "tokens_per_second": pace, "matters": matters, "why": why}


def plan_lines(config: "Config", found: Outlook, prove: "ToProve", *, settings: bool = True) -> list[str]:
    """The lines of a plan: 'Plan: find and prove the operating point, then complete the frontier.',
    the source of the load, and the time left where it is known. With `settings`, also how the
    settings are found.
    """
    from frontier.planning.stated_size import size_lines

    several = len(found.coming) > 1
    points, frontiers = ("operating points", "frontiers") if several else ("operating point", "frontier")
    if found.left is not None and not found.left.seconds:
        return ["Plan: nothing is left to measure."]
    if prove:
        first = f"prove {', '.join(f'c={c}' for c in prove.everywhere)}"
    elif not config.limits:
        first = f"complete the {frontiers}; without an SLA there is nothing to prove"
    elif not config.searches:
        first = "measure the listed settings; refine: 0 proves nothing beyond them"
    elif found.left is not None and not found.left.answer:
        first = f"the {points} {'were' if several else 'was'} searched for before; complete the {frontiers}"
    else:
        first = f"find and prove the {points}, then complete the {frontiers}"
    lines = [f"Plan: {first}.", *([] if prove or not settings else _settings_line(config))]
    if (recorded := registry.RECORDED.find()) is not None:
        lines += recorded.recorded_lines(config)
    if config.ray is not None:
        count = config.workers or "one on each node"
        lines.append(f"The load is sent from Ray ({config.ray.ray}); client processes: {count}.")
    elif config.workers is not None and config.workers > 1:
        lines.append(f"The load is sent by {config.workers} client processes.")
    sooner = [SOONER] if settings and not prove else []
    sizes = [] if prove else size_lines(config, found.ledger.times)
    return [*lines, *_session_rates(config), *sizes, _time_line(found, sooner)]


def _time_line(found: Outlook, sooner: Sequence[str]) -> str:
    """'20 to 58 min left.', and when the budget ends the sweep at the latest. Before anything is
    measured: how to know the time `sooner`.
    """
    limit = found.ledger.seconds_left()
    latest = "" if math.isinf(limit) else format_elapsed(max(0.0, limit))
    if found.left is None:
        known = ", ".join(["How long it takes is known after the first trial", *sooner])
        return f"{known}; it ends after {latest} at the latest." if latest else f"{known}."
    if limit <= 0:
        return "Nothing is left of the budget."
    low, high = found.left.range
    whole = format_range(low, high)
    text = f"{capital(whole)} left"
    return f"{text}; the budget ends it after {latest} at the latest." if limit < high else f"{text}."


def _session_rates(config: "Config") -> list[str]:
    """'1 session/s of agent is 8 requests/s.', where a rate counts sessions."""
    sessions = [shape for shape in config.shapes if config.open_loop and shape.has_sessions]
    if not sessions:
        return []
    each = ", ".join(f"of {shape.label} brings {shape.requests:.4g} requests/s" for shape in sessions)
    return [f"Rates count the sessions that begin per second; 1 session/s {each}."]


def _budget_line(found: Outlook) -> str:
    """The limits of the budget, and what of them is spent."""
    caps, spent = found.ledger.whole, found.ledger.spent()
    words = dict(caps.words)
    if caps.until < math.inf:
        words["until"] += f" (in {format_elapsed(max(0.0, caps.until - world().wall()))})"
    limits = ", ".join(f"{name} {limit}" for name, limit in words.items())
    if spent.seconds:
        limits += f"; {format_elapsed(spent.seconds)} and {spent.requests:,.0f} requests of it are spent"
    return f"budget  {limits}"
