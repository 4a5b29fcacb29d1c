"""`frontier tune`: which flags should the server run with?"""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import (
    FILE_PATH,
    RunOptions,
    answer,
    layout,
    note,
    read_run,
    run_options,
    say,
    subcommand,
)
from frontier.cli.consent import consent_to_sweep
from frontier.core.errors import ExitCode, UsageError
from frontier.core.units import count
from frontier.show.verbosity import Detail

if TYPE_CHECKING:
    from frontier.cli.sweep_request import SweepRequest
    from frontier.extras.tune.race import Race
    from frontier.extras.tune.variants import Variant
    from frontier.sweep.conductor import SweepEnd

OBJECTIVES = ("output_throughput", "goodput", "cost", "energy")
_LIKE_THIS = "write  vary: {seqs: [64, 128]}  into a deployment, and  {seqs}  into its  start:"
_CODES = {"better": ExitCode.YES, "only": ExitCode.YES, "no better": ExitCode.NO, "none": ExitCode.NO}


@subcommand("tune")
@click.argument("config_file", metavar="CONFIG", type=FILE_PATH)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The run directory; default: under runs/.")
@click.option("--dry-run", is_flag=True, help="Show the variants and how often servers are started; measure nothing.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Another value for a key, as sla.p99_ttft.")
@click.option(
    "--objective", type=click.Choice(OBJECTIVES), default=OBJECTIVES[0], help="What is looked for inside the SLA."
)
@run_options("detail", "as_json")
def command(
    options: RunOptions,
    config_file: Path,
    output: Path | None,
    dry_run: bool,
    settings: tuple[str, ...],
    objective: str,
) -> int:
    """Race the variants of a deployment in CONFIG: which flags should its server run with? The same
    command again resumes.

    \b
      deployments:
        - name: vllm
          start: vllm serve MODEL --port 8000 --max-num-seqs {seqs}
          endpoint: http://localhost:8000/v1
          vary: {seqs: [64, 128, 256]}     the first is what runs today

    Looks of seconds drop what is surely worse. The best that is left and what runs today are then
    started anew in turn until their difference is known. Exit code 0: a variant is shown to be
    better; 3: none is; 4: not decided.

    \b
    Examples:
      frontier tune tune.yaml --dry-run
      frontier tune tune.yaml -o runs/tune
    """
    from frontier.cli.sweep import measure
    from frontier.cli.sweep_request import read_request
    from frontier.config.config_file import open_run
    from frontier.extras.tune.course import RaceCourse, rules_of
    from frontier.extras.tune.tune_text import race_json, race_text
    from frontier.extras.tune.variants import variants_of
    from frontier.planning.plan import NO_PROOFS, make_plan

    request = read_request(config_file, output, settings, None, NO_PROOFS)
    variants = variants_of(request.text, str(config_file))
    _require_race(request, variants)
    if dry_run:
        return _print_plan(request, variants, options.as_json)
    consent_to_sweep(config_file, request.config)
    path, rules = request.directory(), rules_of(request.config, objective)
    with open_run(path, request.config, request.text, {"config_file": str(config_file)}) as run:
        note(f"run  {run.path}")
        note(_plan_text(request, variants))
        quiet, plan = options.detail is Detail.ANSWER, make_plan(request.config)
        end = measure(request.config, plan, run, {}, request.facts, quiet=quiet, course=RaceCourse(variants, rules))
    race = _race(path, variants, objective)
    if any(runner.history for runner in race.runners):
        text = functools.partial(race_text, detail=options.detail, **layout())
        answer(race_json(race, variants) if options.as_json else text(race, variants))
    return _conclude(request, path, race, end, options)


def _conclude(request: "SweepRequest", path: Path, race: "Race", end: "SweepEnd", options: RunOptions) -> int:
    """Say what goes with an answer, and how a race that ended early goes on; the exit code."""
    from frontier.extras.tune.tune_text import outcome_of

    if end == "interrupted":
        say(f"stopped; go on with\n  {request.again}")
        return ExitCode.INTERRUPTED
    for runner in race.runners:
        if runner.gone is not None and "\n" in runner.gone:
            say(f"{runner.series.deployment}: {runner.gone}")
    if all(runner.gone is not None for runner in race.runners):
        return ExitCode.FAILED
    if end == "budget":
        say(f"the budget ended the race; with a larger one it goes on:\n  {request.again} --set budget.time=TIME")
    _draw(path, race, options.as_json)
    return _CODES.get(outcome_of(race), ExitCode.NOT_PROVEN)


def _require_race(request: "SweepRequest", variants: "tuple[Variant, ...]") -> None:
    """UsageError where the config has no race in it."""
    config = request.config
    if not variants:
        raise UsageError(f"{request.file} varies nothing", _LIKE_THIS)
    if not config.limits:
        raise UsageError("a race needs an SLA to keep", "name limits, as  sla: {p99_ttft: 500ms}")
    if len(config.shapes) > 1:
        what = f"a race is about one workload, and there are {len(config.shapes)} shapes"
        raise UsageError(what, "keep one of them, or mix them with  traffic:")
    if config.open_loop:
        raise UsageError("a race is about requests in flight, and the config has rates", "leave out  rate:")


def _plan_text(request: "SweepRequest", variants: "tuple[Variant, ...]") -> str:
    """What will be done."""
    starts = len(variants) + 2 * 3
    ends = request.config.budget.time
    until = f"; it ends after {ends / 60:.0f} min at the latest" if ends is not None else ""
    return (
        f"Plan: short trials of {count(len(variants), 'variant')}, then the best against {variants[0].name}, what "
        "runs today, in turn.\n"
        f"At least {starts} starts of a server. How long they take is known after the first{until}."
    )


def _print_plan(request: "SweepRequest", variants: "tuple[Variant, ...]", as_json: bool) -> int:
    """Print the variants, with the command of each."""
    if as_json:
        tree = [
            {"name": v.name, "values": {k: list(w) for k, w in v.values.items()}, "start": v.start} for v in variants
        ]
        answer({"schema": "frontier.tune-plan/1", "variants": tree, "starts_at_least": len(variants) + 6})
        return ExitCode.YES
    for variant in variants:
        answer(f"{variant.name}\n  {variant.start or variant.settings}")
    answer(_plan_text(request, variants))
    return ExitCode.YES


def _race(path: Path, variants: "tuple[Variant, ...]", objective: str) -> "Race":
    """The race as its run directory shows it."""
    from frontier.extras.tune.course import race_of, rules_of
    from frontier.store.run_dir import RunDirectory

    run = read_run(path, allow_empty=True)
    lines = RunDirectory.read(path).journal_lines()
    return race_of(run.config, variants, rules_of(run.config, objective), run.histories, lines)


def _draw(path: Path, race: "Race", as_json: bool) -> None:
    """Draw the frontier of what runs today with that of the best other variant, and name what shows
    more.
    """
    from dataclasses import replace

    from frontier import registry
    from frontier.cli.plot import beside_an_answer, picture_files, save_pictures
    from frontier.extras.tune.tune_text import answer_text
    from frontier.show.picture.selection import narrowed

    together, run = registry.optional(registry.SEVERAL), read_run(path)
    rivals = [r for r in (race.baseline, race.finalist) if r is not None and r.reach(0.0).edge is not None]
    if together is None or not rivals:
        return
    with beside_an_answer():
        run, files = narrowed(run, [r.series.deployment for r in rivals], ()), picture_files(run, "frontier")
        picture = together([run], run.limits(), None)
        save_pictures([replace(picture, title=answer_text(race).splitlines()[0])], files, quiet=True)
        if not as_json:
            note(f"Picture          {files[0]}")
            note(f"Next             frontier report {path} -o page.html")
