"""Relations: what must stay as it is when something is changed that does not matter.

Of the same data the answer is asked for again, in this process, with the data in another order,
under other names, in other units, or without what cannot count. Of a server without noise a second
sweep is run, in another order or after an interruption.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from scipy.stats import binomtest

from benchmarks.nights.draw import SWEEP, Command, Damage, Night, draw
from benchmarks.nights.play import Told, play, playing
from benchmarks.nights.server import Course, Law
from benchmarks.nights.virtual_time import EPOCH
from frontier import read_run
from frontier.core.claim import solver
from frontier.core.claim.changes import History, unchanged
from frontier.core.model.decisions import Decision, Limit, Verdict
from frontier.core.model.errors import FrontierError
from frontier.core.model.metrics import metric
from frontier.core.model.series import Series
from frontier.core.model.trials import Measurement, Phase, Record, Trial, Window
from frontier.core.window.from_records import window_data
from frontier.core.window.window import Episodes, WindowData
from frontier.run import Run
from frontier.store.run_dir import RunDirectory

Answer = Mapping[tuple[str, str], tuple[Any, ...]]
"""By deployment and shape: the verdict, the setting, and each judged setting's verdict."""
OTHER = "-elsewhere"
"""What a renamed deployment's name ends with."""


def _answer(decisions: tuple[Decision, ...]) -> Answer:
    return {
        (d.deployment.removesuffix(OTHER), d.shape.label): (
            d.verdict.value,
            d.load,
            tuple(sorted((j.load, j.verdict.value) for j in d.judgements)),
        )
        for d in decisions
    }


def _run(told: Told) -> Run | None:
    """The night's run as it stands at its end; None where it has no answer."""
    if any(isinstance(step, Damage) for step in told.night.steps):
        return None
    try:
        run = read_run.load(told.run)
        return run if run.limits() and run.histories and run.solve() else None
    except FrontierError:  # an invariant of its own looks at what commands say then
        return None


def _differences(before: Answer, after: Answer, what: str) -> Iterator[str]:
    for one in before.keys() | after.keys():
        if before.get(one) != after.get(one):
            yield f"{one}: {before.get(one)}, and {what} {after.get(one)}"


def order_does_not_matter(told: Told) -> Iterator[str]:
    """Series and points in another order: the same answer."""
    if (run := _run(told)) is None:
        return
    before, limits = _answer(run.solve()), run.limits()
    backwards: dict[Series, History] = {series: run.histories[series] for series in list(run.histories)[::-1]}
    yield from _differences(before, _answer(replace(run, histories=backwards).solve()), "the series backwards")
    points, scanned = run._decidable(limits)
    end = None if run.standing is None else run.standing.ended(run.config)
    solved = solver.solve_all(
        points[::-1],
        limits[::-1],
        scanned=scanned[::-1],
        histories=backwards,
        end=end,
        marginal_gain=run.config.marginal_gain,
    )
    yield from _differences(before, _answer(solved), "points and limits backwards")


def names_do_not_matter(told: Told) -> Iterator[str]:
    """The deployments under other names: the same answer."""
    if told.night.seed % 4 != 1 or (run := _run(told)) is None:
        return

    def renamed(history: History) -> list[tuple[Trial, WindowData]]:
        return [
            (replace(t, deployment=t.deployment + OTHER), replace(s, deployment=s.deployment + OTHER))
            for t, s in history
        ]

    histories = {_elsewhere(series): renamed(history) for series, history in run.histories.items()}
    deployments = [d.model_copy(update={"name": d.name + OTHER}) for d in run.config.deployments]
    config = run.config.model_copy(update={"deployments": tuple(deployments)})
    settings = {_place(trial): _place(renamed([(trial, s)])[0][0]) for h in run.histories.values() for trial, s in h}
    standing = run.standing
    if standing is not None:  # what the budget cut short has the deployment's name too
        places = {key: key.rsplit("-", 2) for key in standing.given_up}
        given_up = {"-".join([settings.get(p[0], p[0]), *p[1:]]): standing.given_up[key] for key, p in places.items()}
        standing = replace(standing, given_up=given_up)
    other = replace(run, histories=histories, config=config, standing=standing)
    yield from _differences(_answer(run.solve()), _answer(other.solve()), "under other names")


def _place(trial: Trial) -> str:
    """The deployment, shape and load of a trial, as its files are named."""
    return trial.key.rsplit("-", 2)[0]


def _elsewhere(series: Series) -> Series:
    """The series of a renamed deployment."""
    return Series(series.deployment + OTHER, series.shape)


def time_has_no_unit(told: Told) -> Iterator[str]:
    """All times and limits twice as long: the same verdicts, where no flag of the client is
    raised.
    """
    if told.night.seed % 4 != 2 or told.night.kind == "rate" or told.night.kind == "sessions":
        return
    if (run := _run(told)) is None:
        return
    limits = tuple(_doubled_limit(limit) for limit in run.limits())
    directory = RunDirectory.read(told.run)
    histories: dict[Series, list[tuple[Trial, WindowData]]] = {}
    for key, evidence in directory.evidences().items():
        trial = evidence.measurement.trial
        records = [_doubled_record(record) for record in directory.records(key, evidence)]
        sample = window_data(_doubled(evidence.measurement), records)
        histories.setdefault(trial.series, []).append((trial, sample))
    other = replace(run, histories=histories)
    points = [*run.points(), *other.points(limits)]
    if any(flag.name in ("client_bound", "client_failures") for point in points for flag in point.flags):
        return
    yield from _differences(_answer(run.solve()), _answer(other.solve(limits)), "in twice the time")


def _doubled_limit(limit: Limit) -> Limit:
    if metric(limit.metric).quantity is None:
        return limit
    return replace(limit, promise=2 * limit.promise, comfort=None if limit.comfort is None else 2 * limit.comfort)


def _doubled(measurement: Measurement) -> Measurement:
    window = Window(2 * measurement.window.start, 2 * measurement.window.end)
    return replace(measurement, epoch=EPOCH + 2 * (measurement.epoch - EPOCH), window=window)


_TIMES = ("sent", "end", "first", "visible", "last", "scheduled", "first_text")


def _doubled_record(record: Record) -> Record:
    times = {name: 2 * value for name in _TIMES if (value := getattr(record, name)) is not None}
    return replace(record, **times, connect=2 * record.connect, gaps=tuple(2 * gap for gap in record.gaps))


def what_is_above_a_violation_counts_for_nothing(told: Told) -> Iterator[str]:
    """A setting above the lowest violation, of which nothing was proven or tried to, removed: the
    same answer, unless it is what shows that the server is slower now and then.
    """
    if (run := _run(told)) is None:
        return
    before = {(d.deployment, d.shape): d for d in run.solve()}
    for series, history in run.histories.items():
        decision = before.get((series.deployment, series.shape))
        if decision is None or unchanged(history, run.limits()).changes:
            continue
        over = [j.load for j in decision.judgements if j.verdict is Verdict.VIOLATES]
        proved = {trial.load for trial, _ in history if trial.phase in (Phase.PROVE, Phase.VISIT)}
        above = [
            j.load
            for j in decision.judgements
            if over and j.load > min(over) and j.verdict is not Verdict.INVALID and j.load not in proved
        ]
        if not above or decision.load in above:
            continue
        kept = [(trial, sample) for trial, sample in history if trial.load != max(above)]
        if _of_the_server(kept, run.limits()) != _of_the_server(history, run.limits()):
            continue
        (after,) = replace(run, histories={series: kept}).solve()
        if (after.verdict, after.load) != (decision.verdict, decision.load):
            yield (
                f"{series.deployment} {series.shape.label}: {decision.verdict.value} c={decision.load}, and "
                f"without c={max(above)} {after.verdict.value} c={after.load}"
            )


def _of_the_server(history: History, limits: tuple[Limit, ...]) -> set[tuple[int, Episodes | None]]:
    """What a series shows of its server, which counts at each of its settings."""
    return {(sample.runs, sample.episodes) for _, sample in unchanged(history, limits)}


RELATIONS: tuple[Callable[[Told], Iterator[str]], ...] = (
    order_does_not_matter,
    names_do_not_matter,
    time_has_no_unit,
    what_is_above_a_violation_counts_for_nothing,
)


# --- relations of sweeps


def noise_free(night: Night, **changes: Any) -> Night:
    """The night with servers whose latency is a function of the load alone, and one sweep."""
    still: dict[str, Any] = {"noise": 0.0, "first_noise": 0.0, "shared": 0.0, "rare": 0.0, "fails": 0.0, "silent": 0.0}
    laws: dict[str, Law] = {name: replace(law, **still, failing_class=None) for name, law in night.laws.items()}
    config = {key: value for key, value in night.config.items() if key not in ("budget", "max_time")}
    quiet = replace(night, laws=laws, config=config, course=Course(), steps=(Command(SWEEP),), pictures=False)
    return replace(quiet, **changes)


def _played(night: Night) -> Answer:
    """The answer at the night's end."""
    with playing(night) as (player, told):
        play(player, told, looks=())
        return _answer(read_run.load(told.run).solve())


def interrupted(night: Night) -> tuple[Command, ...]:
    """The commands with which the night begins, up to the first that nothing ended."""
    begun = []
    for step in night.steps:
        if not isinstance(step, Command):
            break
        begun.append(step)
        if not step.interrupted:
            return tuple(begun)
    return ()


def an_interruption_changes_nothing(night: Night) -> Iterator[str]:
    """Without noise: after interruptions and the same command the answer is that of one sweep."""
    commands = interrupted(night)
    if night.seed % 8 != 3 or len(commands) < 2 or not _is_settled(night):
        return
    before, after = (_played(noise_free(night, steps=steps)) for steps in (commands[-1:], commands))
    yield from _differences(_named(before), _named(after), "after an interruption")


def the_order_of_shapes_changes_nothing(night: Night) -> Iterator[str]:
    """Without noise: two shapes in another order have the same answers. Asked of nights that are
    not asked for interruptions: each takes two sweeps.
    """
    shapes = night.config["shapes"]
    if night.seed % 4 != 1 or len(shapes) < 2 or not _is_settled(night):
        return
    first, second = (replace(night, config={**night.config, "shapes": s}) for s in (shapes, shapes[::-1]))
    before, after = (_played(noise_free(one)) for one in (first, second))
    yield from _differences(_named(before), _named(after), "with the shapes in another order")


def _is_settled(night: Night) -> bool:
    """Whether nothing but the load decides a latency once there is no noise: lengths are fixed."""
    return night.kind == "closed" and bool(night.limits) and all("-" not in str(s) for s in night.config["shapes"])


def _named(answer: Answer) -> Answer:
    """The verdicts and settings of an answer alone. Which others were measured may differ."""
    return {one: found[:2] for one, found in answer.items()}


SWEPT: tuple[Callable[[Night], Iterator[str]], ...] = (
    an_interruption_changes_nothing,
    the_order_of_shapes_changes_nothing,
)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Nights that were played interrupted and not: of how many both, only one or neither proved a
    setting.
    """

    both: int = 0
    only_interrupted: int = 0
    only_plain: int = 0
    neither: int = 0

    @property
    def chance(self) -> float:
        """How likely chance makes the two differ so (McNemar's exact test)."""
        differ = self.only_interrupted + self.only_plain
        return float(binomtest(self.only_interrupted, differ, 0.5).pvalue) if differ else 1.0


def proven(seed: int) -> tuple[bool, bool] | None:
    """Whether the night of this seed proves a setting without its interruptions, and with them, on
    a server that stays as it is. None for a night without an interruption or an SLA.
    """
    night = draw(seed)
    commands = interrupted(night)
    if len(commands) < 2 or not night.limits or night.kind == "rate":
        return None
    plain = {key: value for key, value in night.config.items() if key not in ("budget", "max_time")}
    quiet = replace(night, config=plain, course=Course(), pictures=False)
    answers = [_played(replace(quiet, steps=steps)) for steps in (commands[-1:], commands)]
    before, after = (any(found[1] is not None for found in answer.values()) for answer in answers)
    return before, after


def pairs(results: Iterable[tuple[bool, bool] | None], most: int) -> Pairs:
    """The first so many of these results of `proven`, counted."""
    counts = Counter(itertools.islice((result for result in results if result is not None), most))
    return Pairs(counts[True, True], counts[False, True], counts[True, False], counts[False, False])
