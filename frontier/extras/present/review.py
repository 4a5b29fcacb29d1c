"""Review: what was measured, what the answer gives, what would make it false, and who signs."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frontier import registry
from frontier.client.engines import ENGINES
from frontier.config.connection import names_server
from frontier.config.deployment import DeploymentConfig
from frontier.core.model.loads import listed
from frontier.core.model.series import Series
from frontier.core.model.text import capital, clean
from frontier.core.model.units import count, format_elapsed, format_number, trimmed
from frontier.planning.sla_result import ArrivalRate
from frontier.run import Run
from frontier.show.picture.labels import panel_names
from frontier.show.table import Table
from frontier.show.view.series_view import SeriesView
from frontier.show.view.wording import flag_kinds, value_text
from frontier.store.journal import VIRTUAL
from frontier.store.run_dir import RunDirectory

SIMULATED = "simulated in virtual time: the numbers of a server will differ"
_PARALLEL = re.compile(r"(?:tensor|pipeline|data|expert)_parallel(?:_size)?|[tpd]p(?:_size)?|max_model_len")
_MATTER = {
    name
    for engine in ENGINES.values()
    for of in (engine.setting_names.cap, engine.setting_names.weights, engine.setting_names.kv)
    for name in of
} | {name for engine in ENGINES.values() for name in engine.setting_names.prefix_cache}
THINK = 45.0
"""Seconds that people of the first screen take between an answer and the next question."""
_MOST = 6
"""The most warnings of the first screen."""


@dataclass(frozen=True, slots=True)
class Review:
    """The part of a page for a reviewer.

    - `measured`: a line for each deployment.
    - `per`: what each series gives per second, GPU, user and dollar, at the setting shown.
    - `counted`: how the people in it were counted.
    - `doubts`: what would make the answer false.
    - `compared`: where deployments are, what the values of a knob show, or whether the quality of
      their answers is known; '' otherwise.
    - `signed`: names and texts beside the provenance.
    """

    measured: tuple[str, ...] = ()
    per: Table | None = None
    counted: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    compared: str = ""
    signed: tuple[tuple[str, str], ...] = ()


def review_of(
    run: Run, views: Sequence[SeriesView], rates: Mapping[Series, ArrivalRate], remark: str = "", knob: str = ""
) -> Review:
    """The review of a run; `rates` are those of independent users at its operating points, `remark`
    says where it comes from if it was not measured here, `knob` what its values show.
    """
    shown = {view.frontier.deployment for view in views}
    lines = [] if run.is_imported else RunDirectory.read(run.path).journal_lines()
    servers = {str(line["deployment"]): line for line in lines if line["event"] == "server"}
    deployments = [d for d in run.config.deployments if d.name in shown]
    several = len(deployments) > 1
    people = _people(run, views)
    return Review(
        tuple(
            (f"{clean(d.name, 60)}: " if several else "")
            + _measured(d, servers.get(d.name, {}), run.server_settings.get(d.name, {}), remark)
            for d in deployments
        ),
        _per(views, rates, {series: number for series, (number, _) in people.items()}),
        tuple(dict.fromkeys(how for _, how in people.values())),
        tuple(_doubts(views, imported=run.is_imported)),
        knob or (_quality(deployments, views) if several else ""),
        tuple(_signed(run, virtual=any(line.get("identity") == VIRTUAL for line in servers.values()))),
    )


def _measured(deployment: DeploymentConfig, server: Mapping[str, Any], told: Mapping[str, str], remark: str) -> str:
    """'Llama-3.1-8B in fp8 · vLLM 0.32 · 2 × h200 · max_num_seqs 256'."""
    hardware = deployment.hardware
    precision = hardware.precision if hardware is not None else None
    model = str(server.get("model") or deployment.model or "")
    known = [f"{name} {value}" for name, value in sorted(told.items()) if name in _MATTER or _PARALLEL.fullmatch(name)]
    identity = str(server.get("identity") or "")
    parts = [
        f"{model} in {precision}" if model and precision else model,
        SIMULATED if identity == VIRTUAL else identity,
        deployment.devices or (count(deployment.gpus, "GPU") if deployment.gpus else ""),
        ", ".join(known),
        deployment.start or "",
        remark,
    ]
    return clean(" · ".join(part for part in parts if part) or "nothing is known of its server", 600)


_PER = {
    "request_throughput": "requests/s",
    "output_throughput": "output tok/s",
    "per_gpu": "tok/s per GPU",
    "p50_interactivity": "tok/s per user (p50)",
    "cost": "$ per million output tokens",
    "energy": "J per output token",
    "users": "requests/s of independent users (estimate)",
    "people": f"people who ask again {THINK:g} s after an answer",
}


def _people(run: Run, views: Sequence[SeriesView]) -> dict[Series, tuple[str, str]]:
    """The people that each operating point serves, and how they were counted."""
    counted, proven = registry.PEOPLE.find(), [v.decision for v in views if v.decision and v.decision.load is not None]
    words = {decision.series: counted(run, decision, THINK) for decision in proven if counted is not None}
    return {series: each for series, each in words.items() if each is not None}


def _per(
    views: Sequence[SeriesView], rates: Mapping[Series, ArrivalRate], people: Mapping[Series, str]
) -> Table | None:
    """The figures of each series at its answer, or at the setting that is shown."""
    rows = [(name, *_figures(view, rates, people)) for name, view in zip(panel_names(views), views, strict=True)]
    named = [name for name in _PER if any(name in known for _, _, known in rows)]
    if not named:
        return None
    cells = [
        (f"{series}, {where}" if len(views) > 1 else where, *(known.get(name, "–") for name in named))
        for series, where, known in rows
        if where
    ]
    return Table.of(("at", *map(_PER.__getitem__, named)), cells, "What the setting gives") if cells else None


def _figures(
    view: SeriesView, rates: Mapping[Series, ArrivalRate], people: Mapping[Series, str]
) -> tuple[str, dict[str, str]]:
    shown = view.answer.shown if view.answer is not None else None
    point = next((each.point for each in view.settings if each.load == shown), None)
    if point is None:
        return "", {}
    metrics, rate = point.metrics, rates.get(view.series)
    known = {name: _number(name, metrics[name].value) for name in _PER if name in metrics}
    if view.gpus and (made := metrics.get("output_throughput")) is not None:
        known["per_gpu"] = format_number(made.value / view.gpus)
    if rate is not None and not point.load.is_open:  # whose rate was offered, not estimated
        known["users"] = f"about {trimmed(format_number(rate.rate))}"
    if view.series in people:
        known["people"] = people[view.series]
    return point.load.label, known


def _number(name: str, value: float) -> str:
    return value_text(name, value).partition(" ")[0].partition("/")[0]


def _doubts(views: Sequence[SeriesView], *, imported: bool = False) -> Iterable[str]:
    """What excluded settings, and the warnings on those that answer."""
    if imported:
        yield "The figures are another tool's: what it did not state could not be checked, such as its client."
    heads = [f"{name}: " for name in panel_names(views)] if len(views) > 1 else [""]
    lines = [head + line for head, view in zip(heads, views, strict=False) for line in _doubts_of(view)]
    yield from lines[:_MOST]
    if lines[_MOST:]:
        yield f"{count(len(lines) - _MOST, 'more warning')}: see Quality of the data."
    if not lines and not imported:
        claimed = any(view.decision is not None and view.decision.claim is not None for view in views)
        missed = " What may have been missed is under Confidence." if claimed else ""
        yield f"No warning excluded a setting or concerns the answer.{missed}"


def _doubts_of(view: SeriesView) -> Iterable[str]:
    shown = view.answer.shown if view.answer is not None else None
    for kind in flag_kinds(view.points):
        limit = f", limit {kind.limit}" if kind.limit else ""
        at_answer = next((figure for c, figure in kind.where if c == shown), None)
        if kind.fatal:
            loads = listed(c for c, _ in kind.where)
            lowest, figure = kind.where[0]
            at = f"at {lowest.label} " if len({each for _, each in kind.where}) > 1 else ""
            yield f"{loads} excluded, {kind.name}: {at}{figure}{limit}."
        elif at_answer is not None and shown is not None:
            yield f"{capital(kind.name)} at {shown.label}: {at_answer}{limit} (warning, the point is kept)."


def _quality(deployments: Sequence[DeploymentConfig], views: Sequence[SeriesView]) -> str:
    """Whether the quality of the answers was measured, stated or not looked at."""
    with_quality = {p.deployment for view in views for p in view.points if "quality" in p.metrics}
    stated = {d.name for d in deployments if d.stated_quality is not None}
    names = {d.name for d in deployments}
    if not with_quality:
        return (
            "The quality of the answers was not looked at: whether they are equally good is open (frontier verify "
            "--quality)."
        )
    unknown = ", ".join(sorted(clean(name, 60) for name in names - with_quality))
    how = "stated in the config" if stated == with_quality else "in part stated, in part measured"
    how = how if stated & with_quality else "measured"
    return f"The quality of the answers is {how}{f', and not known of {unknown}' if unknown else ''}."


def _signed(run: Run, *, virtual: bool) -> Iterable[tuple[str, str]]:
    """What stands beside the provenance: who measured, with what, for how long."""
    manifest, spent = run.manifest, run.spent
    if identity := str(manifest.get("identity", "")):
        yield "config", f"sha256 {identity[:12]}"
    if client := manifest.get("client"):
        yield "client", clean(f"{client}, Python {manifest.get('python', '')}", 200)
    if spent.requests:
        windows = sum(len(history) for history in run.histories.values())
        sent = f"{count(round(spent.requests), 'request')} in {count(windows, 'trial')}"
        yield "effort", f"{sent}, {'simulated in ' if virtual else ''}{format_elapsed(spent.seconds)}"


def made_by(run: Run, server: str | None) -> str:
    """The command that made a run, without paths of its author."""
    where, file = portable(run.path), str(run.manifest.get("config_file", "sweep.yaml"))
    if server == VIRTUAL:
        call = f"frontier.run_sweep({json.dumps(unowned(file))}, {json.dumps(where)}, virtual=True)"
        return shlex.join(["python", "-c", f"import frontier; {call}"])
    if names_server(file) and run.standing is not None:
        words = shlex.split(run.standing.again.rpartition(" && ")[2])
        return shlex.join(where if word == str(run.path) else word for word in words)
    return shlex.join(["frontier", run.config.measured_by, unowned(file), "-o", where])


def unowned(word: str) -> str:
    """A word of a command, a file without folders that are its author's."""
    path = Path(word)
    if not path.is_absolute():
        return word
    return path.name if path.suffix else portable(path)


def portable(path: Path) -> str:
    """A run's path without what is its author's: 'runs/night' of an absolute path."""
    return f"runs/{path.name}" if path.is_absolute() else str(path)
