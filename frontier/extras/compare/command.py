"""`frontier compare`: two runs against each other, with a verdict a CI job can act on."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frontier.cli import common, completion
from frontier.core.model.errors import UsageError, exit_code
from frontier.core.model.text import some_of
from frontier.core.model.units import parse_share
from frontier.store.run_dir import RunDirectory, last_measured, runs_under

if TYPE_CHECKING:
    from frontier.core.stats.difference import ComparisonVerdict
    from frontier.extras.compare.contest import Comparison
    from frontier.run import Run
    from frontier.show.view.comparison_view import ComparisonView


@common.subcommand("compare")
@click.argument("a", type=common.RUN_PATH, shell_complete=completion.complete_run)
@click.argument("b", required=False, type=common.RUN_PATH, shell_complete=completion.complete_run)
@click.option("--within", metavar="5%", help="Exit 0 also when B is proven to lose no more than this share.")
@click.option("--gate", is_flag=True, help="Only ask whether B is worse, with stated error rates: see docs/compare.md.")
@click.option("--allow", metavar="5%", help="With --gate: the share that B may lose; default 5%.")
@click.option("--spread", metavar="1%", help="With --gate: by how much runs of one unchanged server differ (sd).")
@click.option("--set-a", "settings_a", multiple=True, metavar="KEY=VALUE", help="As --set, for run A alone.")
@click.option("--set-b", "settings_b", multiple=True, metavar="KEY=VALUE", help="As --set, for run B alone.")
@common.run_options("deployments", "shapes", "sla", "objectives", "settings", "point_estimates", "detail", "as_json")
def command(  # noqa: PLR0913
    options: common.RunOptions,
    a: Path,
    b: Path | None,
    within: str | None,
    gate: bool,
    allow: str | None,
    spread: str | None,
    settings_a: tuple[str, ...],
    settings_b: tuple[str, ...],
) -> int:
    """Compare two runs: is B's frontier better than A's, by how much, and how sure is that?

    With one run, its deployment B is compared with its deployment A, named in that order. What both
    serve within the SLA is compared (default: A's SLA), each at its operating point; where that
    shows nothing, the settings that both measured.

    Exit codes: 0 better (or, with --within, proven no worse), 3 worse, 4 not resolved, 5 no usable
    measurement. Two runs of one server on two days differ by some percent: sweep A and B in turn,
    not a week apart. Runs with different numbers of GPUs are compared per GPU, when both numbers
    are known.

    --gate judges throughput, median latencies, and the SLA at the concurrency that A proved, with
    one family-wise error: 0 no loss larger than allowed, 3 a regression, 4 cannot tell. A and B may
    be folders of runs: measured in turn they are judged in pairs. Else nothing tells what a
    difference means: state it with --spread, by what your runs of one server differed (standard
    deviation). Sweep B with --prove A, so that both measure the setting that A proved.

    \b
    Examples:
      frontier compare runs/before runs/after
      frontier compare runs/night --deployment bf16 --deployment fp8
      frontier compare runs/main runs/pull-request --within 5% --json
      frontier compare runs/h100 runs/b200 --set-a gpus=8 --set-b gpus=4
      frontier compare --gate runs/ci --deployment base --deployment new
      frontier compare --gate runs/main runs/pull-request --spread 1% --allow 10%
    """
    from frontier.extras.compare.comparison_tables import COMPARE_SCHEMA, compare_runs, comparison_views

    if gate:
        return _gate(options, a, b, allow, spread, given=bool(within or settings_a or settings_b))
    _require_no_gate(allow, spread)
    share = None if within is None else common.parsed("--within", within, parse_share)
    runs = _two_runs(options, a, b, settings_a, settings_b)
    limits = None if options.sla is None else options.limits(runs[0])
    names = None if b is None or a.name == b.name else (a.name, b.name)
    asked = functools.partial(compare_runs, within=share, point_estimates=options.point_estimates)
    comparisons = asked(*runs, objectives=options.axes, limits=limits, names=names)
    _say_left_out(runs, comparisons)
    unfinished = {"unfinished": [common.unfinished_json(run) for run in runs]}
    verdicts = [comparison.verdict for comparison in comparisons]
    _answer(options, COMPARE_SCHEMA, comparison_views(comparisons), verdicts, unfinished)
    return exit_code(comparison.verdict for comparison in comparisons)


def _answer(
    options: common.RunOptions,
    schema: str,
    views: "Sequence[ComparisonView]",
    verdicts: "Sequence[ComparisonVerdict]",
    more: Mapping[str, Any],
) -> None:
    """Print comparisons as text, or as JSON with `more`."""
    from frontier.extras.compare.comparison_text import comparisons_json, comparisons_text
    from frontier.extras.compare.contest import overall

    common.answer(
        comparisons_json(schema, overall(verdicts), views, **more)
        if options.as_json
        else comparisons_text(views, detail=options.detail, **common.layout())
    )


def _require_no_gate(allow: str | None, spread: str | None) -> None:
    """UsageError for an option that only --gate has."""
    if allow is not None:
        raise UsageError("--allow is for --gate", "without it the share that may be lost is  --within 5%")
    if spread is not None:
        raise UsageError("--spread is for --gate", "add  --gate")


def _gate(
    options: common.RunOptions, a: Path, b: Path | None, allow: str | None, spread: str | None, *, given: bool
) -> int:
    """Judge B against A, each a run or a folder of runs, or one run's second deployment against its
    first.
    """
    from frontier.extras.compare.gate import ALARM, MISS
    from frontier.extras.compare.regression import GATE_SCHEMA, gate_deployments, gate_runs, gate_views
    from frontier.show.view.selection import narrowed

    if given or options.objectives or options.point_estimates:
        raise UsageError(
            "--gate takes none of --within, --set-a, --set-b, --objectives and --point-estimates",
            "what it judges is fixed; the share that may be lost is  --allow 5%",
        )
    share = common.parsed("--allow", allow or "5%", parse_share)
    differ = None if spread is None else common.parsed("--spread", spread, parse_share)
    if b is None and differ is not None:
        raise UsageError("--spread is for two runs", "repeats of one sweep show by how much they differ")
    parts = options.deployments if b is not None else ()

    def read(path: Path) -> "Run":
        return narrowed(common.read_run(path, options.settings), parts, options.shapes)

    if b is None:
        run = read(a)
        gates = gate_deployments(run, options.deployments, allow=share, limits=options.limits(run))
    else:
        fresh = runs_in([b])
        old = [path for path in runs_in([a]) if path.resolve() not in {new.resolve() for new in fresh}]
        old = without_copies(old, beside=fresh)
        if not old:
            raise UsageError(f"{a} holds no run but those of {b}", "name a baseline that was measured before")
        new = [read(path) for path in fresh]
        names = (a.name, b.name) if a.name != b.name else (str(a), str(b))
        limits = options.limits(new[-1])
        gates = gate_runs(map(read, old), new, allow=share, limits=limits, names=names, spread=differ)
    rates = {"allow": share, "alarm_error": ALARM, "pass_error": MISS}
    _answer(options, GATE_SCHEMA, gate_views(gates, share), [one.verdict for one in gates], rates)
    return exit_code(one.verdict for one in gates)


def runs_in(paths: Sequence[Path]) -> list[Path]:
    """The runs named, and those in folders that are named, oldest first; of copies of a run the one
    that holds most (of equal ones the first begun). The other copies are named, and so are those in
    a folder that hold no finished trial. UsageError for a folder without any.
    """
    found: list[Path] = []
    for path in paths:
        inside = [] if (path / "manifest.json").exists() else runs_under(path)
        if not inside and not (path / "manifest.json").exists():
            raise UsageError(f"{path} is neither a run nor a folder of runs", "name a run directory, or one of runs")
        measured = [run for run in inside if last_measured(run) is not None]
        if measured and (empty := [str(run) for run in inside if run not in measured]):
            common.say(f"left out, as no trial was finished: {some_of(empty, 3)}")
        found += measured or inside or [path]
    return without_copies(sorted(dict.fromkeys(found), key=lambda path: last_measured(path) or 0.0))


def without_copies(paths: Sequence[Path], beside: Sequence[Path] = ()) -> list[Path]:
    """The runs without copies of each other, or of a run in `beside`. Copies are named on standard
    error: the same trials are one measurement, however often they are there.
    """
    runs = {path: RunDirectory.read(path) for path in (*beside, *paths)}
    hashes = {path: run.record_hashes() for path, run in runs.items()}
    begun = {path: float(run.manifest.get("created", 0.0)) for path, run in runs.items()}
    holders = {digest: path for path in beside for digest in hashes[path]}
    kept = set()
    for path in sorted(paths, key=lambda path: (-len(hashes[path]), begun[path], str(path))):
        original = next((holders[digest] for digest in sorted(hashes[path]) if digest in holders), None)
        if original is None:
            kept.add(path)
            holders |= dict.fromkeys(hashes[path], path)
        else:
            common.say(f"{path} holds the same trials as {original}: a copy, counted once")
    return [path for path in paths if path in kept]


def _two_runs(
    options: common.RunOptions, a: Path, b: Path | None, settings_a: tuple[str, ...], settings_b: tuple[str, ...]
) -> "tuple[Run, Run]":
    """Both sides: two runs, or one run narrowed to one deployment and to the other."""
    from frontier.extras.compare.comparison_tables import two_deployments
    from frontier.show.view.selection import narrowed

    whole = replace(options, deployments=(), shapes=())
    sides = [
        replace(whole, run=path, settings=(*options.settings, *settings)).read()
        for path, settings in ((a, settings_a), (b or a, settings_b))
    ]
    pair = two_deployments(sides[0], options.deployments) if b is None else None
    parts = [options.deployments] * 2 if pair is None else [pair[:1], pair[1:]]
    first, second = (narrowed(run, part, options.shapes) for run, part in zip(sides, parts, strict=True))
    for run in {run.path: run for run in (first, second) if run.unfinished}.values():
        common.note(run.unfinished if b is None else f"{run.path} is {run.unfinished}")
    return first, second


def _say_left_out(runs: "tuple[Run, Run]", comparisons: "Sequence[Comparison]") -> None:
    """Say which settings only one of the runs measured."""
    for i, run in enumerate(runs):
        compared = {(c.deployments[i], c.shape) for c in comparisons}
        measured = dict.fromkeys([*run.histories, *((p.deployment, p.shape) for p in run.imported)])
        alone = [f"{deployment} {shape.label}" for deployment, shape in measured if (deployment, shape) not in compared]
        if alone:
            common.note(f"left out, as only {run.path} measured it: {', '.join(alone)}")
