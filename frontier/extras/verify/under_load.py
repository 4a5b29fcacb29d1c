"""Quality under load: a deployment's greedy answers among the sweep's own load, beside those that
it gives alone.

At c in flight, c - 1 streams send the shape's requests as the sweep did, and one more sends the
prompts of the check, one after another. The load is not recorded: nothing of it counts in a latency
or a throughput. At c=1 the prompts are sent alone, and these answers are the reference; its two
passes say how much the deployment differs from itself.

`extras.verify.answers` asks, `extras.verify.agreement` compares. What is claimed of an agreement is
also held to what so many prompts could show: with n prompts, and no difference in any, the share of
prompts that differ may still be as high as 1 - 0.05^(1/n).
"""

import asyncio
import contextlib
import functools
import math
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

from frontier.core.model.decisions import Limit
from frontier.core.model.errors import MeasurementError, UsageError
from frontier.core.model.groups import by_key
from frontier.core.model.loads import Concurrency, Load
from frontier.core.model.points import Estimate
from frontier.core.model.series import Series
from frontier.core.model.trials import Measurement, Outcome, Phase, Record
from frontier.extras.verify.agreement import ERROR, Agreement, beside
from frontier.extras.verify.answers import MOST_FAILED, PASSES, Scorer, ask, asked_mark, given_prompts
from frontier.extras.verify.open_loop_check import Sender
from frontier.extras.verify.replies import GreedyReplies
from frontier.planning.plan import make_trial
from frontier.run import Run
from frontier.store.run_dir import RunDirectory
from frontier.sweep.held_load import ENDLESS, held_load

PROMPTS = 200
"""With so many, a loss of two points in tokens is found in 95 of 100 checks."""


@dataclass(frozen=True, slots=True)
class LoadedCheck:
    """The settings of one series at which `prompts` are asked, ascending from c=1, and about how
    many seconds that takes; None where the run does not tell.
    """

    series: Series
    settings: tuple[int, ...]
    prompts: int
    seconds: float | None


def prompts_needed(share: float) -> int:
    """The fewest prompts that can prove an agreement of at least `share`: with no difference in any
    of them.

    >>> prompts_needed(0.98)
    149
    """
    return math.ceil(math.log(ERROR) / math.log(share)) if 0 < share < 1 else 1


def loaded_checks(run: Run, limits: Sequence[Limit], settings: Sequence[int], prompts: int | None) -> list[LoadedCheck]:
    """What is asked of each series: at the `settings`; by default at the operating point and its
    two measured neighbours. UsageError where that cannot be.
    """
    if run.is_imported:
        raise UsageError(f"{run.path} was imported: there is no server to send to", "sweep it:  frontier init URL")
    if others := [shape for shape in run.config.shapes if shape.kind != "shape"]:
        what = f"{others[0].label} is a {others[0].kind}; answers are compared of single requests"
        raise UsageError(what, "measure the quality with a config of single requests of one shape")
    if run.config.open_loop:
        raise UsageError("this run was measured at rates; answers are compared at a concurrency", "sweep concurrencies")
    chosen = {} if settings else _operating_points(run, limits)
    points, number, wanted = run.points(limits), prompts or PROMPTS, []
    for series in run.histories:
        mine = [point for point in points if point.series == series and "mean_e2e" in point.metrics]
        e2e = {point.load: point.metrics["mean_e2e"].value for point in mine}
        asked = tuple(sorted({1, *(settings or _with_neighbours(chosen[series], sorted(e2e)))}))
        near = [min(e2e, key=functools.partial(_apart, c)) for c in asked if e2e]
        seconds = sum(PASSES * number * e2e[c] for c in near)
        wanted.append(LoadedCheck(series, asked, number, seconds if seconds and math.isfinite(seconds) else None))
    return wanted


def _apart(one: int, other: int) -> int:
    return abs(one - other)


def _operating_points(run: Run, limits: Sequence[Limit]) -> dict[Series, Load]:
    """The operating point of each series. UsageError where one has none."""
    decisions = run.solve([limit for limit in limits if limit.metric != "agreement"])
    found = {d.series: d.load for d in decisions if d.load is not None}
    if missing := [d.series.label(keep_shape=True) for d in decisions if d.series not in found]:
        what = f"{missing[0]} has no operating point to check it at"
        raise UsageError(what, "name settings:  --under-load 8,16;  or see why with  frontier solve")
    return found


def _with_neighbours(chosen: int, known: Sequence[int]) -> tuple[int, ...]:
    """A setting, and the nearest measured ones below and above it."""
    return (*[c for c in known if c < chosen][-1:], chosen, *[c for c in known if c > chosen][:1])


async def check_under_load(
    sender: Sender, wanted: Sequence[LoadedCheck], scorer: Scorer | None = None
) -> tuple[int, int]:
    """Ask at each setting that the same check, stopped before, has not asked at; keep the answers.
    Returns how many settings have answers, and of how many.
    """
    total, done = sum(len(check.settings) for check in wanted), 0
    earlier = sender.store.answers(GreedyReplies, under_load=True)
    kept = {(each.deployment, each.shape, each.concurrency): each.asked for each in earlier}
    for check in wanted:
        series, shape = check.series, check.series.shape
        await sender.prepare(series.deployment)
        given, _ = given_prompts(shape, sender.run.config, check.prompts)
        mark = asked_mark(given, shape, scorer)
        have = {c for c in check.settings if kept.get((series.deployment, shape.label, c)) == mark}
        have = set() if have == set(check.settings) else have  # a whole check is made anew
        done += len(have)
        for c in (c for c in check.settings if c not in have):
            async with _load(sender, series, c - 1):
                answers = await ask(sender, series, c, check.prompts, scorer, alone=False)
            if answers is None:
                return done, total
            sender.store.write_answers(series.deployment, shape.label, answers, under=c)
            done += 1
    return done, total


@contextlib.asynccontextmanager
async def _load(sender: Sender, series: Series, streams: int) -> AsyncIterator[None]:
    """So many streams of the sweep's requests, warm when it begins and until it ends.
    MeasurementError where they end by themselves.
    """
    if not streams:
        yield
        return
    config = sender.run.config
    deployment = config.deployment(series.deployment)
    trial = make_trial(config, deployment, series.shape, streams, Phase.VISIT, 1, ENDLESS)

    def check(loading: "asyncio.Future[Measurement]") -> None:
        where, again = (
            f"the load of {Concurrency(streams + 1).label}",
            "what was asked is kept, and the same command goes on",
        )
        if loading.done() and not sender.stop.is_set():
            raise MeasurementError(f"{where} ended by itself ({loading.result().ended})", again)
        if failed and failed.total() > MOST_FAILED * ended[0]:
            ((why, _),) = failed.most_common(1)
            raise MeasurementError(f"{failed.total():,} of {ended[0]:,} requests of {where} failed: {why}", again)

    failed, ended = Counter[str](), [0]

    def record(each: Record) -> None:
        ended[0] += 1
        if each.outcome not in (Outcome.OK, Outcome.CANCELLED):
            failed[each.error or each.outcome.value] += 1

    async with held_load(sender.backend, trial, sender.stop, on_record=record, on_tick=sender.on_tick) as loading:
        check(loading)
        yield
        check(loading)


def beside_alone(checks: RunDirectory) -> dict[tuple[str, str], dict[int, Agreement]]:
    """The answers of each deployment and shape at each setting beside those that it gave alone, by
    concurrency; the first is the deployment alone, beside itself. A loss is claimed at 95% over all
    settings of a series together.
    """
    kept = checks.answers(GreedyReplies, under_load=True)
    groups = by_key(((each.deployment, each.shape), (each.concurrency, each)) for each in kept)
    compared = {}
    for names, by_setting in ((names, dict(asked)) for names, asked in groups.items()):
        alone, several = by_setting.get(1), max(1, len(by_setting) - 1)
        if alone is None:
            continue
        found = {c: beside(by_setting[c], alone, several) for c in sorted(by_setting)}
        compared[names] = {c: _held(each) for c, each in found.items() if each is not None}
    return compared


def _held(each: Agreement) -> Agreement:
    """The agreement with no more claimed of it than so many prompts could show."""
    share = each.agreement
    return replace(each, agreement=replace(share, lower=min(share.lower, ERROR ** (1 / each.prompts))))


def agreements(checks: RunDirectory) -> Mapping[tuple[str, str, int], Estimate]:
    """The agreement of each deployment, shape and concurrency with its answers alone."""
    return {(*names, c): each.agreement for names, found in beside_alone(checks).items() for c, each in found.items()}
