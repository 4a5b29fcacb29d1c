"""Regression gate and trend: runs read as dated measurements and judged; their tables, JSON and CSV."""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from frontier.decide import gate as judging
from frontier.decide.compare import ORDER
from frontier.decide.gate import CAUGHT, MISS, AtProven, Change, Gate, Measured, Rules, family_size, judged_metrics
from frontier.decide.trend import LEAST, Trend, date_text, trend
from frontier.decide.wording import bound_words, clean, clean_name, count, limit_text, setting, value_text
from frontier.errors import UsageError
from frontier.metrics import metric
from frontier.model import Estimate, Limit, Phase, Series
from frontier.report.comparison import STYLES, two_deployments
from frontier.report.json_out import Tree, number, tree_of
from frontier.report.tables import Cell, Column, fitted_table, text_grid, to_text
from frontier.run import Run
from frontier.stats import window
from frontier.stats.estimate import estimate
from frontier.stats.window import WindowData
from frontier.store.journal import servers
from frontier.store.run_dir import RunDirectory
from frontier.units import format_share

if TYPE_CHECKING:
    import pandas as pd

GATE_SCHEMA, TREND_SCHEMA = "frontier.gate/1", "frontier.trend/1"
_SHORT_NOTE = "caught: the smallest change for the worse that would raise an alarm in 90% of cases"
Histories = Mapping[Series, list[Measured]]


# --- runs as dated measurements


def measured(runs: Iterable[Run], limits: Sequence[Limit]) -> dict[Series, list[Measured]]:
    """Each run as one dated measurement per series. Runs are used one at a time, as many do not fit into memory."""
    histories: dict[Series, list[Measured]] = {}
    for run in runs:
        points = run.points(limits)
        proven = {d.series: d.concurrency for d in run.solve(limits)} if limits and run.histories else {}
        for series in dict.fromkeys(p.series for p in points):
            mine = [p for p in points if p.series == series]
            one = Measured(
                clean(str(run.path), 120), _begun(run, run.samples(series).values()), _key(run, series.deployment),
                {p.concurrency: p.metrics for p in mine if p.valid},
                frozenset(p.concurrency for p in mine if not p.valid), proven.get(series),
            )  # fmt: skip
            histories.setdefault(series, []).append(one)
    return histories


def _begun(run: Run, samples: Iterable[WindowData]) -> float:
    """Unix time of its first window; of an import, or a run in virtual time, that of the run directory."""
    first = min((float(sample.starts.min()) for sample in samples), default=0.0)
    return first if first > 1e8 else float(run.manifest.get("created", 0.0))


def _key(run: Run, deployment: str) -> dict[str, str]:
    """What was measured, as far as the run knows it."""
    mine = next((d for d in run.config.deployments if d.name == deployment), None)
    if mine is None:
        return {}
    hardware = mine.hardware.name if mine.hardware else None
    device = f"{mine.gpus or 1} × {hardware}" if hardware else run.manifest.get("client") if mine.is_simulator else None
    server = servers(RunDirectory.read(run.path).journal_lines()).get(deployment)
    body = " ".join(f"{name}={value}" for name, value in {**(mine.simulator or {}), **mine.extra_body}.items())
    load = run.config.load()
    key = {
        "device": device, "engine": server, "flags": " ".join(filter(None, (mine.start, body))), "model": mine.model,
        "load": f"prompts={load['prompts']} ignore_eos={load['ignore_eos']}",
    }  # fmt: skip
    return {name: clean(str(text), 4_000) for name, text in key.items() if text is not None}


def _repeats(run: Run, series: Series) -> dict[int, Measured]:
    """Each repeat of a run's grid as a measurement of its own; of the settings that are usable in the whole run."""
    usable = {p.concurrency for p in run.points() if p.series == series and p.valid}
    bad = frozenset(p.concurrency for p in run.points() if p.series == series and not p.valid)
    repeats: dict[int, dict[int, WindowData]] = {}
    for trial, sample in run.histories[series]:
        if trial.phase is Phase.GRID and trial.concurrency in usable:
            repeats.setdefault(trial.repeat, {})[trial.concurrency] = sample
    names = ("output_throughput", "p50_ttft", "p50_tpot", "p50_e2e")
    return {
        number: Measured(
            f"repeat {number}", min(float(s.starts.min()) for s in samples.values()), _key(run, series.deployment),
            {c: {n: e for n in names if (e := estimate(s, n)) is not None} for c, s in samples.items()}, bad,
        )
        for number, samples in sorted(repeats.items())
    }  # fmt: skip


# --- the gate


def gate_runs(
    base: Iterable[Run], new: Sequence[Run], *, allow: float, limits: Sequence[Limit], names: tuple[str, str]
) -> list[Gate]:
    """NEW against BASE for each series that both measured. Where the runs of both alternate in time they are judged in
    pairs; else BASE is a history, of which only what differs from day to day tells how sure a difference is.
    """
    old, fresh = measured(base, limits), measured(new, limits)
    matched = [(a, b) for b in fresh if (a := _partner(b, old, fresh)) is not None]
    if not matched:
        raise UsageError(f"{names[1]} and {names[0]} measured nothing in common", "sweep the same shapes on both sides")
    rules = Rules(judged_metrics(limits), allow, family_size(len(matched), limits))
    gates = []
    for a, b in matched:
        pairs = judging.in_turn(old[a], fresh[b])
        left = old[a] if pairs is None else [pair[0] for pair in pairs]
        right = fresh[b] if pairs is None else [pair[1] for pair in pairs]
        # The least that BASE proved on any day: the best of several would be a lucky pick.
        proven = min((one.proven or 0 for one in left), default=0) or None
        result = judging.gate(
            left,
            right,
            rules,
            shape=b.shape,
            names=names,
            design="history" if pairs is None else "in turn",
            proven=proven,
            samples=_joined(new, b),
            limits=limits,
        )
        gates.append(result)
    return gates


def gate_deployments(run: Run, named: Sequence[str], *, allow: float, limits: Sequence[Limit]) -> list[Gate]:
    """The second of two deployments of one run against the first, in pairs of repeats."""
    a, b = two_deployments(run, named)
    shapes = [shape for deployment, shape in run.histories if deployment == b and Series(a, shape) in run.histories]
    decided = {d.series: d.concurrency for d in run.solve(limits)} if limits else {}
    rules = Rules(judged_metrics(limits), allow, family_size(len(shapes), limits))
    gates = []
    for shape in shapes:
        old, new = (_repeats(run, Series(name, shape)) for name in (a, b))
        numbers = sorted(old.keys() & new.keys())
        if not numbers:
            what = f"{run.path} has no repeat of the grid that both deployments finished"
            raise UsageError(what, "add  repeats: 10  to its config")
        left, right = ([side[number] for number in numbers] for side in (old, new))
        times = [[one.at for one in side] for side in (left, right)]
        if len(numbers) > 1 and (max(times[0]) < min(times[1]) or max(times[1]) < min(times[0])):
            raise UsageError(
                f"{run.path} measured {a} and {b} one after the other, not in turn",
                "sweep each into runs of its own, in turn, and name two folders of runs",
            )
        result = judging.gate(
            left,
            right,
            rules,
            shape=shape,
            names=(a, b),
            design="repeats",
            proven=decided.get(Series(a, shape)),
            samples=_joined([run], Series(b, shape)),
            limits=limits,
        )
        gates.append(result)
    return gates


def _partner(series: Series, old: Histories, fresh: Histories) -> Series | None:
    """BASE's series of the same name; any of the same shape where each side has one deployment."""
    single = all(len({s.deployment for s in side}) == 1 for side in (old, fresh))
    return next((s for s in old if s.shape == series.shape and (single or s.deployment == series.deployment)), None)


def _joined(runs: Sequence[Run], series: Series) -> dict[int, WindowData]:
    """The usable window data of several runs by concurrency."""
    parts: dict[int, list[WindowData]] = {}
    for run in runs:
        usable = {p.concurrency for p in run.points() if p.series == series and p.valid}
        for c, sample in run.samples(series).items():
            if c in usable:
                parts.setdefault(c, []).append(sample)
    return {c: window.join(samples) for c, samples in parts.items()}


def gate_table(gates: Sequence[Gate], allow: float, *, width: int = 80, colour: bool = False) -> str:
    """Of each series the verdict, what it stands on, and a line for everything that was judged."""
    blocks: list[RenderableType] = []
    for one in gates:
        blocks += [Text("")] if blocks else []
        blocks.append(Text.assemble(
            (one.verdict, f"bold {STYLES[one.verdict]}"), "   ", (f"{one.b} against {one.a}", "bold"),
            f"   {clean_name(one.shape.label)}",
        ))  # fmt: skip
        rows = [_change_row(change, allow, one.confidence) for change in one.changes]
        rows += [_proven_row(one.at_proven, allow)] if one.at_proven else []
        lines: list[RenderableType] = [Text(_evidence(one)), *([text_grid(rows)] if rows else [])]
        lines += [Text(clean(note, 600), style="dim") for note in (*one.notes, *_advice(one, allow))]
        blocks += [Padding(line, (0, 0, 0, 2)) for line in lines]
    return to_text(*blocks, width=width, colour=colour)


def _evidence(one: Gate) -> str:
    """What the verdict stands on."""
    if one.breaks:
        return f"A break, not a regression: {'; '.join(one.breaks)}."
    if not one.changes:
        return "No usable setting in common."
    what = (
        count(one.units, "pair") + " measured in turn"
        if one.design == "in turn"
        else f"{count(one.units, 'day')} of {one.a}"
    )
    return f"{what}, at {', '.join(map(setting, one.settings))}"


def _change_row(change: Change, allow: float, confidence: float) -> tuple[str, ...]:
    of = metric(change.metric)
    moved = -change.value if of.higher_is_better else change.value
    if change.verdict == "worse":
        bound = f"worse by at least {_percent(change.at_least)} ({confidence:.1%})"
    elif math.isinf(change.at_most):
        bound = "not known how sure"
    elif change.at_most <= 0:
        bound = f"not worse ({1 - MISS:.0%})"
    else:
        bound = f"worse by at most {_percent(change.at_most)} ({1 - MISS:.0%}), allowed {_percent(allow)}"
    caught = "" if math.isinf(change.smallest) else f"caught {_percent(change.smallest)}"
    return of.label, f"{moved:+.1%}", bound, caught


def _proven_row(check: AtProven, allow: float) -> tuple[str, ...]:
    label = f"SLA at {setting(check.proven)}"
    if check.measured is None:
        return label, "", "not measured there, nor at a setting that would tell", ""
    at = "" if check.measured == check.proven else f" at {setting(check.measured)}"
    word = {"no worse": "kept", "worse": "broken"}.get(check.verdict, "not proven")
    if check.limit is None or check.estimate is None:
        return label, word, f"not known{at}", ""
    value = f"{check.limit.of.label} {value_text(check.limit.metric, check.estimate.value)}{at}"
    wanted = (
        f"limit {limit_text(check.limit)} + {_percent(allow)}" if check.verdict != "worse" else limit_text(check.limit)
    )
    return label, word, f"{value}, {bound_words(check.estimate, check.limit)}, {wanted}", ""


def _advice(one: Gate, allow: float) -> list[str]:
    """What would tell more, where it cannot be told."""
    if not one.changes:
        return [
            "Sweep both in turn to compare them." if one.breaks else "See which settings are excluded:  frontier show"
        ]
    if one.units < 2:
        unit = "pair" if one.design != "history" else f"day of {one.a}"
        return [f"One {unit} says nothing of how sure a difference is: add more, or measure both in turn."]
    lines = [_SHORT_NOTE + "."]
    if one.verdict == "not resolved":
        widest = max(change.smallest for change in one.changes)
        if one.design != "history" and allow < widest < math.inf:
            lines.append(f"About {math.ceil(one.units * (widest / allow) ** 2)} pairs would tell {_percent(allow)}.")
        elif allow < widest:
            lines.append(
                f"Days of {one.a} differ too much to tell {_percent(allow)}: measure both in turn, or allow more."
            )
    return lines


def _percent(share: float) -> str:
    return format_share(share) if abs(share) >= 1 else f"{share:.1%}"


def gate_json(gates: Sequence[Gate], allow: float) -> Tree:
    """The answer of `frontier compare --gate --json`."""
    return {
        "schema": GATE_SCHEMA, "verdict": overall(gates), "allow": allow, "alarm_error": judging.ALARM,
        "pass_error": MISS, "caught": CAUGHT, "shapes": [tree_of(one) for one in gates],
    }  # fmt: skip


def overall(judged: Sequence[Gate] | Sequence[Trend]) -> str:
    """The worst verdict; "invalid" without any."""
    return max((one.verdict for one in judged), key=ORDER.index, default="invalid")


# --- the trend


def trends_of(runs: Iterable[Run], limits: Sequence[Limit]) -> list[Trend]:
    """The trend of each series over dated runs."""
    histories = measured(runs, limits)
    names = judged_metrics(limits)
    return [
        trend(mine, names, len(names) * len(histories), deployment=series.deployment, shape=series.shape)
        for series, mine in histories.items()
    ]


def trend_table(trends: Sequence[Trend], *, width: int = 80, colour: bool = False) -> str:
    """Of each series the verdict, its changes and breaks in words, and a row per run."""
    blocks: list[RenderableType] = []
    for one in trends:
        blocks += [Text("")] if blocks else []
        blocks.append(Text.assemble(
            (TREND_WORDS[one.verdict], f"bold {STYLES[one.verdict]}"), "   ", (one.series.label(), "bold"),
            f"   {count(len(one.runs), 'run')}",
        ))  # fmt: skip
        blocks += [Padding(Text(clean(line, 600)), (0, 0, 0, 2)) for line in trend_notes(one)]
        if one.runs:
            table, _ = fitted_table(_columns(one), width)
            blocks.append(table)
    return to_text(*blocks, width=width, colour=colour) if blocks else "no run"


def trend_title(one: Trend) -> str:
    """'1024/256: regression, 30 runs'."""
    return f"{one.series.label()}: {TREND_WORDS[one.verdict]}, {count(len(one.runs), 'run')}"


TREND_WORDS = {"worse": "regression", "no worse": "no regression", "not resolved": "too few runs"}


def trend_notes(one: Trend) -> list[str]:
    """The changes, the breaks, what the numbers are of, and what is left out."""
    lines = [
        f"{date_text(one.runs[step.at].at)}  {metric(step.metric).label} {step.text}, "
        f"{'worse' if step.change > 0 else 'better'} from {one.runs[step.at].name} on" for step in one.steps
    ]  # fmt: skip
    lines += [f"{date_text(one.runs[at].at)}  break at {one.runs[at].name}: {text}" for at, text in one.breaks]
    if one.settings:
        lines.append(f"Geometric means over {', '.join(map(setting, one.settings))}.")
    else:
        lines.append("No setting is usable in nearly all runs: name runs of one config.")
    if one.verdict == "not resolved" and one.runs:
        last = len(one.stretches[-1])
        since = " since the last break" if one.breaks else ""
        lines.append(
            f"A change shows with {2 * LEAST} runs at the earliest; there {'is' if last == 1 else 'are'} {last}{since}."
        )
    if one.left_out:
        shown = ", ".join(one.left_out[:6]) + (f" and {len(one.left_out) - 6} more" if len(one.left_out) > 6 else "")
        lines.append(f"Left out, without all of these settings: {shown}.")
    return lines


def _columns(one: Trend) -> list[Column]:
    marks = [" ".join(dict.fromkeys(_marks(one, i))) for i in range(len(one.runs))]
    columns = [
        Column("date", tuple(Cell(date_text(run.at)) for run in one.runs), left=True),
        Column("run", tuple(Cell(run.name) for run in one.runs), 2, left=True),
    ]
    for rank, name in enumerate(one.metrics, 1):
        known = [run.mean(name, one.settings) for run in one.runs]
        cells = tuple(Cell(value_text(name, e.value), _ends(name, e)) for e in known)
        columns.append(Column(metric(name).label, cells, rank, interval_rank=10 + rank))
    if any(run.proven is not None for run in one.runs):
        columns.append(Column("proven", tuple(Cell(setting(r.proven) if r.proven else "–") for r in one.runs), 5))
    return [*columns, Column("", tuple(Cell(mark) for mark in marks), 1, left=True)]


def _ends(name: str, e: Estimate) -> str:
    return f"{value_text(name, e.low)} to {value_text(name, e.high)}" if e.has_interval else ""


def _marks(one: Trend, i: int) -> list[str]:
    """What happened before run number i."""
    steps = ["worse" if step.change > 0 else "better" for step in one.steps if step.at == i]
    return [*(["break"] if any(at == i for at, _ in one.breaks) else []), *steps]


def trend_frame(trends: Sequence[Trend]) -> "pd.DataFrame":
    """One row per run and series: date, key, NAME with NAME_low and NAME_high in SI units, NAME_change before it."""
    import pandas as pd

    return pd.DataFrame([row for one in trends for row in _rows(one)])


def _rows(one: Trend) -> list[Tree]:
    rows = []
    for i, run in enumerate(one.runs):
        row: Tree = {
            "date": datetime.fromtimestamp(run.at, UTC).isoformat(), "run": run.name, "deployment": one.deployment,
            "shape": one.shape.label, "stretch": sum(at <= i for at, _ in one.breaks) + 1, **run.key,
            "proven": run.proven,
        }  # fmt: skip
        for name in one.metrics:
            e = run.mean(name, one.settings)
            row |= {name: e.value, f"{name}_low": number(e.low), f"{name}_high": number(e.high)}
            row[f"{name}_change"] = next((s.change for s in one.steps if (s.at, s.metric) == (i, name)), None)
        rows.append(row)
    return rows


def trends_json(trends: Sequence[Trend]) -> Tree:
    """The answer of `frontier trend --json`: per series the verdict, and the rows of the table."""
    shapes = [
        {"shape": one.shape.label, "deployment": one.deployment, "verdict": one.verdict,
         "settings": list(one.settings), "runs": _rows(one), "left_out": list(one.left_out),
         "breaks": [{"run": one.runs[at].name, "changed": text} for at, text in one.breaks],
         "changes": [{"run": one.runs[s.at].name, "metric": s.metric, "change": s.change} for s in one.steps]}
        for one in trends
    ]  # fmt: skip
    return {"schema": TREND_SCHEMA, "verdict": overall(trends), "shapes": shapes}
