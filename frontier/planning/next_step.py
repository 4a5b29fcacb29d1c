"""Next step of a decision: the command that would decide an unproven setting, and its time.

Pure. The command goes on with the run that was measured. An import cannot be gone on with: there
the command is a sweep of its own.
"""

import math
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from frontier.config import Config
from frontier.core.claim.changes import History
from frontier.core.claim.proof import WINDOWS, violation
from frontier.core.claim.solver import solve
from frontier.core.model.decisions import Cause, Decision, Explanation, Limit, NextStep, Reason, Verdict
from frontier.core.model.loads import Load
from frontier.core.model.metrics import Unit, claim_floor
from frontier.core.model.points import Point
from frontier.core.model.series import Series
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase
from frontier.planning.alike import may_vary
from frontier.planning.budget import TrialTimes, price_of, raised
from frontier.planning.plan import highest_tried, make_plan, make_trial
from frontier.planning.sla_result import SlaResult
from frontier.planning.time_left import outlook
from frontier.search.auto import no_more_throughput
from frontier.search.complete import USUAL_PROOF, window_of_proof
from frontier.search.curves import RUN_TO_RUN
from frontier.search.options import full_at
from frontier.search.series_history import SeriesHistory
from frontier.store.journal import Amount

ENOUGH, ENOUGH_FOR_GRID, ENOUGH_FOR_PROOFS = 2.0, 1.25, 4.0
"""A budget that is too small is raised to this many times the expected need: of a proof, of the
rest of a sweep, and of the rest while proofs go on. Warm-ups send more than planned, and of proofs
that go on only the least need is known."""


@dataclass(frozen=True, slots=True)
class SweepAgain:
    """The sweep of a run once more, as the `command` of its last session. `times` are what its
    trials took, `spent` what all of its sessions spent; `free` is a name for a run beside it.
    """

    config: Config
    command: str
    times: TrialTimes
    spent: Amount
    free: str

    def to_prove(
        self, concurrency: Load, limits: Sequence[Limit], needs: Mapping[Series, int], enough: float
    ) -> tuple[str, Amount | None]:
        """The command that proves a setting in the series of `needs`, which are requests, with a
        budget of `enough` times their need; and that need, None where it is not known.
        """
        known = [self._need(series, concurrency, requests) for series, requests in needs.items()]
        need = sum((each for each in known if each is not None), Amount()) if None not in known else None
        more = [*_only(self.config, needs), "--prove", str(concurrency), *_sla(self.config, limits)]
        total = (need or Amount()) * enough + self.spent
        return with_budget(f"{self.command} {shlex.join(more)}", self.config, total), need

    def beside(self, decisions: Sequence[Decision]) -> "SweepAgain":
        """The same with room in its budget for the next steps of other decisions of one answer,
        whose commands may be run before: a budget counts all that was spent on a run.
        """
        steps = [(d.series, d.next_step) for d in decisions if d.next_step is not None]
        needs = [
            self._need(series, step.load, step.requests)
            for series, step in steps
            if step.requests is not None and not step.load.is_open
        ]
        return replace(self, spent=sum((need for need in needs if need is not None), self.spent))

    def elsewhere(self, concurrency: Load, decision: Decision) -> str:
        """The command that proves a setting of a decision in a run of its own."""
        needs = {decision.series: least_to_prove(decision.limits)}
        return self.fresh().to_prove(concurrency, decision.limits, needs, ENOUGH_FOR_PROOFS)[0]

    def fresh(self) -> "SweepAgain":
        """The whole sweep in a run of its own, of which nothing is spent."""
        return replace(self, command=self._with({"-o": self.free}), spent=Amount())

    def in_varied_lengths(self, shape: Shape) -> str | None:
        """The command of the sweep of a shape in a run of its own, its outputs up to a quarter
        shorter or longer; None for a shape whose output has no one length.
        """
        if shape.name is not None or shape.kind != "shape" or shape.osl.kind != "fixed" or shape.osl.low < _VARIED:
            return None
        part = shape.osl.low // _VARIED
        varied = f"{shape.isl}/{shape.osl.low - part}-{shape.osl.low + part}"
        if "--shape" in shlex.split(self.command):
            return self._with({"-o": self.free, "--shape": varied})
        return f"{self._with({'-o': self.free})} --set {shlex.quote(f'shapes=[{varied}]')}"

    def _with(self, options: Mapping[str, str]) -> str:
        """The command with other values of some options that it has."""
        words = shlex.split(self.command)
        words = [options.get(words[i - 1], word) for i, word in enumerate(words)]
        return " ".join("&&" if word == "&&" else shlex.quote(word) for word in words)

    def _need(self, series: Series, concurrency: int, requests: int) -> Amount | None:
        """What so many requests take, by the trials of the same series; None where there are none
        to go by.
        """
        deployment = next((d for d in self.config.deployments if d.name == series.deployment), None)
        if deployment is None:
            return None
        trial = make_trial(self.config, deployment, series.shape, concurrency, Phase.PROVE, 1, requests)
        # A proof takes as many trials as it needs, so that neither the least nor the most time of
        # one trial bounds it; and a trial that was cut short took its time for what it sent, not
        # for what it was to send.
        sent = tuple((replace(t, requests=max(1, round(took.requests))), took) for t, took in self.times.taken)
        times = replace(self.times, taken=sent)
        trial = replace(trial, min_time=0.0, max_time=math.inf)
        rate = (deployment.price or 0.0) / 3600
        return None if times.seconds(trial) is None else times.need(trial, rate)


_VARIED = 4
"""Outputs that vary by one part in so many end that requests come in waves."""
RAMP_SHARE = 1.1
"""What a tool is asked to send, over what must count."""


def least_to_prove(limits: Sequence[Limit]) -> int:
    """The fewest requests that may prove these limits."""
    return max((claim_floor(limit.of.p) for limit in limits if limit.of.p is not None), default=1)


def with_command(
    decision: Decision, again: SweepAgain | None, tool: str | None = None, history: History = ()
) -> NextStep | None:
    """The next step of a decision with its command and its time. `again` is None for an import;
    `tool` is then the command of the tool that sent its requests, if known. Where no measured
    setting may be a better answer, one between those of the `history` may be.
    """
    step, spoilt = decision.next_step, spoilt_settings(decision)
    if spoilt and again is not None:
        first = step or NextStep(spoilt[0].settings[0])
        return replace(first, requests=None, widened=(), command=again.fresh().command)
    if step is None and again is not None and again.config.marginal_gain:
        step = between_measured(decision, history)
    if step is None:
        return step
    if again is None and tool is not None and step.requests is not None:
        return replace(step, command=_with_places(tool, step.load, step.requests))
    if step.load.is_open:
        return step
    if again is None:
        return replace(step, requests=None, command=_own_sweep(decision, step))
    if step.requests is None:
        # More of what a busy client measured, or of waves, decides nothing: only a new run does.
        if may_vary(decision, step.load):
            return replace(step, command=again.in_varied_lengths(decision.shape))
        return replace(step, command=again.elsewhere(step.load, decision) if step.widened else None)
    needs = {decision.series: step.requests}
    command, need = again.to_prove(step.load, decision.limits, needs, ENOUGH)
    return replace(step, seconds=None if need is None else need.seconds, command=command)


def spoilt_settings(decision: Decision) -> tuple[Reason, ...]:
    """The settings that a busy client excluded, if there is no answer and they are at least half of
    the possible ones; else ().
    """
    if decision.load is not None or decision.verdict is Verdict.VIOLATES:
        return ()
    could, spoilt = _could_be(decision), busy_settings(decision)
    return spoilt if 2 * len(spoilt) >= len(could) else ()


def needs_an_idle_machine(decision: Decision) -> bool:
    """Whether a busy client is why there is no answer: to go on there would end the same."""
    step = decision.next_step
    return bool(spoilt_settings(decision)) or (decision.load is None and step is not None and bool(step.widened))


def busy_settings(decision: Decision) -> tuple[Reason, ...]:
    """The settings that a busy client excluded and that could be a better answer, or the first."""
    could, why = _could_be(decision), decision.explanation.reasons
    busy = [r for r in why if r.cause is Cause.EXCLUDED and any(flag.name == "client_bound" for flag in r.flags)]
    spoilt = {c: replace(reason, settings=(c,)) for reason in busy for c in reason.settings if c in could}
    return tuple(spoilt[c] for c in sorted(spoilt))


def _could_be(decision: Decision) -> set[Load]:
    """The settings that could be a better answer: above the answer and below every violation."""
    below = math.inf if decision.first_fail is None else decision.first_fail
    settings = [reason.settings[0] for reason in decision.explanation.settings]
    return {c for c in settings if c < below and (decision.load is None or c > decision.load)}


def between_measured(decision: Decision, history: History) -> NextStep | None:
    """A setting that was not measured and may be a better answer; None without one.

    The next measured setting above the operating point gives more throughput, by more than differs
    from run to run, with so much longer a tail that the answer is the lower one. The server may be
    full in between. Where the next one is outside the SLA none is named.

    A forecast that names what to measure, and no claim.
    """
    c = decision.load
    if c is None or c.is_open or not history:
        return None
    known = SeriesHistory.of(decision.limits, history)
    rates = {k: p.value("output_throughput") for k, p in known.points.items() if p.value("output_throughput") > 0}
    higher = min((k for k in known.points if k > c), default=c)
    pair = [known.points[k] for k in (c, higher) if k in rates]
    full = full_at(rates, c, higher) if len(pair) == 2 and math.log(rates[higher] / rates[c]) > RUN_TO_RUN else None
    if full is None or solve(pair, decision.limits, point_estimates=True).load != c:
        return None
    over = violation(pair[-1], decision.limits)
    if over is None or over > 0:
        return None
    requests = math.ceil(USUAL_PROOF * WINDOWS * window_of_proof(full, known).requests)
    return NextStep(full, rates[higher] / rates[c] - 1, requests=requests)


def with_top(decision: Decision, config: Config, history: History, connections: int) -> Explanation:
    """The explanation of a decision with the reason why no setting above the highest was tried: the
    config lists no other, the sweep ended before, or found none where it chose its settings itself.
    The client can hold `connections` at once.
    """
    explained, top = decision.explanation, max(config.loads)
    points = SeriesHistory.of(decision.limits, history).points if config.auto else {}

    def cause_at(c: Load) -> Cause:
        if not config.auto:
            return Cause.SCAN_CUT if c < top else Cause.HIGHEST_MEASURED
        return _found_top(c, points, *highest_tried(config.deployment(decision.deployment), connections))

    reasons = (
        replace(reason, cause=cause_at(reason.settings[0])) if reason.cause is Cause.HIGHEST_MEASURED else reason
        for reason in explained.reasons
    )
    return replace(explained, reasons=tuple(reasons))


def _found_top(c: Load, points: Mapping[Load, Point], top: int, why: Cause) -> Cause:
    """Why a sweep that finds its settings itself tried none above c; `why` where that is `top`."""
    if c == top:  # a run may be read where fewer connections are allowed than it was made with
        return why
    if any(flag.name == "client_bound" for k, point in points.items() if k > c for flag in point.fatal):
        return Cause.CLIENT_CAPACITY
    return Cause.NO_MORE_THROUGHPUT if no_more_throughput(points) else Cause.SCAN_CUT


def shared_commands(answer: SlaResult, again: SweepAgain | None) -> dict[str, str]:
    """For each deployment without a concurrency proven in every shape: the command that would prove
    the lowest of its operating points in all shapes. A deployment is left out where a shape has no
    operating point.
    """
    commands = {}
    for name, c in answer.common.items() if again is not None else ():
        mine = [d for d in answer.decisions if d.deployment == name]
        known = [d.load for d in mine if d.load is not None]
        if again is not None and c is None and len(known) == len(mine):
            needs = dict.fromkeys((d.series for d in mine), least_to_prove(answer.limits))
            commands[name], _ = again.to_prove(min(known), answer.limits, needs, ENOUGH_FOR_PROOFS)
    return commands


def go_on(again: SweepAgain, histories: Mapping[Series, History], connections: int) -> str:
    """The sweep `again` with a budget that has room for all that is left. The same budget would
    drop the same trials again, unless a time of day ended it: that comes again tomorrow.
    """
    config, times = again.config, again.times
    coming = outlook(config, make_plan(config), histories, connections)
    price = price_of(config.deployments)
    parts = [part for each in coming.values() for part in (*each.answer, *each.rest)]
    known = [(trial, count) for trial, count in parts if times.seconds(trial) is not None]
    left = sum((times.need(trial, price) * count for trial, count in known), Amount())
    enough = ENOUGH_FOR_PROOFS if any(each.open for each in coming.values()) else ENOUGH_FOR_GRID
    return with_budget(again.command, config, left * enough + again.spent)


def with_budget(command: str, config: Config, total: Amount) -> str:
    """The command with larger limits where the config's budget has no room for `total`; they
    replace those of the command.
    """
    more = raised(config.budget, total)
    if not more:
        return command
    head, joined, last = command.rpartition(" && ")
    words = shlex.split(last)
    for name, value in more:
        words = _with_set(words, name, value)
    return head + joined + shlex.join(words)


def _with_set(words: Sequence[str], name: str, value: str) -> list[str]:
    """The words of a command with `--set name=value`: in the place of the last option that sets the
    key, also one that sets its whole section: 'budget={time: 90s}'.
    """
    section, _, key = name.partition(".")
    among = re.compile(rf"(?<=[{{, ]){key}: *[^,}}]+")
    for i in reversed(range(1, len(words))):
        if words[i - 1] == "--set" and words[i].startswith(f"{name}="):
            return [*words[:i], f"{name}={value}", *words[i + 1 :]]
        if words[i - 1] == "--set" and words[i].startswith(f"{section}={{") and among.search(words[i]):
            return [*words[:i], among.sub(f"{key}: {value}", words[i]), *words[i + 1 :]]
    return [*words, "--set", f"{name}={value}"]


def _only(config: Config, series: Collection[Series]) -> list[str]:
    """The options that limit a sweep to these series, where the config has more."""
    shapes, deployments = ({one.shape.label for one in series}, {one.deployment for one in series})
    names = [one.label for one in config.shapes if one.label in shapes] if len(config.shapes) > len(shapes) else []
    if len(config.deployments) > len(deployments):
        names += [one.name for one in config.deployments if one.name in deployments]
    return [word for name in names for word in ("--only", name)]


def _sla(config: Config, limits: Sequence[Limit]) -> list[str]:
    """The options that ask for these limits; none where a tier of the config has them. The SLA is
    written as a whole, since one that is a preset's name, a text or a named tier has no key to set.
    """
    asked = tuple(limits)
    return [] if asked in [tuple(tier) for _, tier in config.tiers] else ["--set", _whole(asked)]


def _whole(limits: Sequence[Limit]) -> str:
    """An SLA in one option: 'sla={p99_ttft: 200ms, error_rate: 1%}'."""
    return f"sla={{{', '.join(f'{limit.metric}: {_written(limit)}' for limit in limits)}}}"


def _written(limit: Limit) -> str:
    """A limit as a config has it, in full: '200ms', '[150ms, 200ms]', '1%'."""

    def text(value: float) -> str:
        if limit.of.unit is Unit.SECONDS:
            return f"{value:.12g}s" if value >= 1 else f"{value * 1000:.12g}ms"
        return f"{value * 100:.12g}%" if limit.of.unit is Unit.SHARE else f"{value:.12g}"

    return text(limit.promise) if limit.comfort is None else f"[{text(limit.comfort)}, {text(limit.promise)}]"


def _own_sweep(decision: Decision, step: NextStep) -> str:
    """The sweep that would decide a setting of an import; the user knows the URL of the server."""
    words = ["--set", f"shapes=[{decision.shape.isl}/{decision.shape.osl}]", "--set", _whole(decision.limits)]
    words += ["--prove", str(step.load)]
    return f"frontier init URL > sweep.yaml && frontier sweep sweep.yaml {shlex.join(words)}"


def _with_places(tool: str, load: Load, requests: int) -> str:
    """The command of a tool with its load, of which it holds a part in brackets for either kind.
    Ramp and drain take a wave each of what it sends, and a part of the requests was outside the
    window before.
    """
    kind, waves = load.kind, load.turns(2)
    chosen = _OF_KIND.sub(lambda part: part[1].format(**{kind: load.bare}) if part[2] == kind else "", tool)
    return chosen.replace("{requests}", str(math.ceil(RAMP_SHARE * requests) + waves))


_OF_KIND = re.compile(r"\[([^\[\]{}]*\{(concurrency|rate)\})\]")
"""The part of a tool's command that gives its load: '[--max-concurrency {concurrency}]'."""
