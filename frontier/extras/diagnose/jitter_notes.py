"""Notes on jitter: why tokens come late at the operating point and the first violation, with
remedies.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from frontier.client.engines import engine_of
from frontier.client.engines.base import EngineSetting
from frontier.core.claim.changes import History
from frontier.core.model.decisions import Decision
from frontier.core.model.errors import StoreError
from frontier.core.model.loads import Load
from frontier.core.model.points import Point
from frontier.core.model.series import HasSeries, by_series
from frontier.core.model.shapes import Shape
from frontier.core.window.histogram import LogHistogram
from frontier.core.window.window import WindowData
from frontier.extras.diagnose.jitter import LEAST_LONG, LONG, GapCause, Jitter, jitter_of, jitter_sentence
from frontier.extras.diagnose.remedies import on_engine
from frontier.run import Run
from frontier.show.view.notes import Noted
from frontier.store.run_dir import RunDirectory

LEADS = 0.3
"""The share of the long gaps from which a cause gets advice: a smaller one would hardly move the
tail."""
_ADVICE: Mapping[GapCause, tuple[str, EngineSetting | None]] = {
    GapCause.PREFILL: (
        "chunked prefill with a smaller token budget of a step ({flag}): shorter pauses, a longer TTFT",
        EngineSetting.STEP_BUDGET,
    ),
    GapCause.PREEMPTION: (
        "a smaller KV cache entry ({flag}), or fewer requests at once: what fits is not preempted",
        EngineSetting.SMALLER_KV,
    ),
    GapCause.STALL: (
        (
            "a look at the server's host (other processes, garbage collection, clocks) and at load that is not "
            "this client's"
        ),
        None,
    ),
    GapCause.CLIENT: (
        "an idle machine or more client processes (workers: in the config), and a proxy that does not buffer",
        None,
    ),
}


@dataclass(frozen=True, slots=True)
class SettingJitter:
    """The long gaps of one setting, and the advice; '' where no cause leads."""

    load: Load
    roles: tuple[str, ...]
    jitter: Jitter
    advice: str = ""


@dataclass(frozen=True, slots=True)
class SeriesJitter(HasSeries):
    """The long gaps of a series at the settings that matter to its decision."""

    deployment: str
    shape: Shape
    settings: tuple[SettingJitter, ...]


def notes(run: Run, points: Sequence[Point], decisions: Sequence[Decision]) -> Noted:
    """Why gaps are long in each series that was measured here, for tables, the page and JSON."""
    decided = {decision.series: decision for decision in decisions}
    trees, lines = [], {}
    for key, mine in by_series(points).items():
        roles = _roles(mine, decided.get(key))
        if settings := tuple(_settings(run, run.histories.get(key, []), roles)):
            trees.append(SeriesJitter(*key, settings))
            lines[key] = [(f"{s.load.label}, {' and '.join(s.roles)}", _text(s)) for s in settings]
    return Noted("Jitter", "why gaps between tokens are long", lines, trees, figure="jitter")


def _roles(points: Sequence[Point], decision: Decision | None) -> dict[Load, tuple[str, ...]]:
    """The settings to look at; without an operating point and a violation, the highest."""
    named = {"operating point": decision.load, "first violation": decision.first_fail} if decision else {}
    valid = [p.load for p in points if p.valid]
    if not any(named.values()) and valid:
        named = {"highest setting": max(valid)}
    settings = sorted({c for c in named.values() if c is not None})
    return {c: tuple(role for role, at in named.items() if at == c) for c in settings}


def _settings(run: Run, history: History, roles: Mapping[Load, tuple[str, ...]]) -> Iterator[SettingJitter]:
    """The note on each setting whose gaps have a long tail, by its last trial."""
    engine = engine_of(name for _, sample in history for name in sample.server_identities if name)
    for concurrency, named in roles.items():
        last = next(((t, s) for t, s in reversed(history) if t.load == concurrency), None)
        if last is None or not _has_tail(last[1]):
            continue
        try:
            directory, key = RunDirectory.read(run.path), last[0].key
            of = directory.evidence(key).measurement
            jitter = jitter_of(directory.records(key), of.window, of.server.get("num_preemptions_total"))
        except StoreError:  # the records were changed or removed since; the point says so
            continue
        if jitter is not None:
            yield SettingJitter(concurrency, named, jitter, _advice(jitter, engine))


def _has_tail(sample: WindowData) -> bool:
    """Whether enough gaps are long; for most trials the records need not be read."""
    gaps = LogHistogram.merged(sample.block_itl)
    enough = gaps.count > LEAST_LONG
    return enough and gaps.quantile(1 - LEAST_LONG / gaps.count) > LONG * gaps.quantile(0.5) > 0


def _advice(jitter: Jitter, engine: str | None) -> str:
    """What to change for the causes that lead."""
    leading = sorted((c for c in _ADVICE if jitter.shares.get(c, 0.0) >= LEADS), key=lambda c: -jitter.shares[c])
    return "; or ".join(on_engine(*_ADVICE[cause], engine) for cause in leading)


def _text(found: SettingJitter) -> str:
    sentence = jitter_sentence(found.jitter)
    return f"{sentence} Try {found.advice}." if found.advice else sentence
