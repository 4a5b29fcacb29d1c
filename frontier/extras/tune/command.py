"""`frontier tune`: which flags should the server run with?"""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import (
    FILE_PATH,
    RunOptions,
    answer,
    given_options,
    layout,
    note,
    read_run,
    run_options,
    say,
    subcommand,
)
from frontier.cli.consent import consent_to_sweep
from frontier.core.model.errors import ExitCode, UsageError
from frontier.core.model.metrics import metric
from frontier.core.model.units import count
from frontier.show.verbosity import Detail
from frontier.store.files import free_beside

if TYPE_CHECKING:
    from frontier.cli.sweep_request import SweepRequest
    from frontier.config import Config
    from frontier.extras.tune.race import Race
    from frontier.extras.tune.variants import Variant
    from frontier.sweep.conductor import SweepEnd

OBJECTIVES = ("output_throughput", "goodput", "cost", "energy")
_LIKE_THIS = "write  vary: {seqs: [64, 128]}  into a deployment, and  {seqs}  into its  start:"


@subcommand("tune")
@click.argument("config_file", metavar="CONFIG", type=FILE_PATH)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The run directory; default: under runs/.")
@click.option("--dry-run", is_flag=True, help="Show the variants and how often servers are started; measure nothing.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Another value for a key, as sla.p99_ttft.")
@click.option(
    "--objective",
    type=click.Choice(OBJECTIVES),
    help=f"What is looked for within the SLA; default: {OBJECTIVES[0]}.",
)
@click.option(
    "--only", metavar="NAME", multiple=True, help="Race only these variants, the first as the baseline; repeatable."
)
@run_options("detail", "as_json", more="Also how each variant is started.")
def command(
    options: RunOptions,
    config_file: Path,
    output: Path | None,
    dry_run: bool,
    settings: tuple[str, ...],
    objective: str | None,
    only: tuple[str, ...],
) -> int:
    """Race the variants of a deployment in CONFIG: which flags should its server run with? The same
    command again resumes.

    \b
      deployments:
        - name: vllm
          start: vllm serve MODEL --port 8000 --max-num-seqs {seqs}
          endpoint: http://localhost:8000/v1
          vary: {seqs: [64, 128, 256]}     the first is the baseline

    Quick looks of some seconds drop the variants that are significantly worse. The best of the
    others and the baseline are then started anew in turn until their difference is known.

    \b
    Exit codes: 0 a variant is shown to be better · 3 none is
                4 not decided · 5 could not be measured

    \b
    Examples:
      frontier tune tune.yaml --dry-run
      frontier tune tune.yaml -o runs/tune
    """
    from frontier.cli.measuring import measure
    from frontier.cli.sweep_request import read_request
    from frontier.config import Setting
    from frontier.config.config_file import open_run
    from frontier.extras.tune.course import RaceCourse, rules_of
    from frontier.extras.tune.variants import ONLY, variants_of
    from frontier.planning.plan import NO_PROOFS, make_plan

    said = " ".join(f"--only {name}" for name in only)
    some = [Setting(said, f"deployments.0.{ONLY}", json.dumps(only))] if only else []
    request = read_request(str(config_file), output, settings, None, NO_PROOFS, some)
    variants = variants_of(request.text, str(config_file))
    objective = objective or OBJECTIVES[0]
    _require_race(request, variants, objective)
    if dry_run:
        return _print_plan(request, variants, options.as_json)
    consent_to_sweep(config_file, request.config)
    path, rules = request.directory(), rules_of(request.config, objective)
    with open_run(path, request.config, request.text, {"config_file": str(config_file)}) as run:
        note(f"run  {run.path}")
        note(_plan_text(request, variants))
        quiet, plan = options.detail is Detail.ANSWER, make_plan(request.config)
        end = measure(request.config, plan, run, {}, request.facts, quiet=quiet, course=RaceCourse(variants, rules))
    return _conclude(request, variants, path, end, _race(path, variants, objective), options)


def _conclude(
    request: "SweepRequest",
    variants: "tuple[Variant, ...]",
    path: Path,
    end: "SweepEnd",
    race: "Race",
    options: RunOptions,
) -> int:
    """Print what the race shows, however it ended; the exit code."""
    from frontier.extras.tune.race_text import race_text
    from frontier.extras.tune.tune_text import exit_code, left_open, outcome_of, race_view, unmeasured

    view = race_view(race, variants, _to_decide(request, race))
    if end != "interrupted" or any(runner.history for runner in race.runners):
        answer(dict(view.tree) if options.as_json else race_text(view, detail=options.detail, **layout()))
    if end == "interrupted":
        say(f"stopped; go on with\n  {request.again}")
        return ExitCode.INTERRUPTED
    for runner in race.runners:
        if runner.gone is not None and "\n" in runner.gone:
            say(f"{runner.series.deployment}: {runner.gone}")
    if end == "budget":
        say(f"the budget ended the race; with a larger one it goes on:\n  {request.again}{raised(request.config)}")
    busy = (open_ := left_open(race)) is not None and open_.is_spoilt
    outcome = outcome_of(race)
    if outcome in ("not proven", "not compared", "not measured") and (unmeasured(race) or busy):
        say(f"what failed is tried again by\n  {request.again}")
    elif outcome in ("not proven", "not measured"):
        again = request.command(free_beside(path))
        none_left = all(runner.gone is not None for runner in race.runners)
        where = (
            "once they can be measured" if none_left else "where this machine and the server have nothing else to do"
        )
        say(f"to race anew, {where}:\n  {again}")
    if outcome != "not measured":
        _draw(path, race, view.title, options.as_json)
    return exit_code(race)


def raised(config: "Config") -> str:
    """The options that raise each limit of a budget: ' --set budget.requests=REQUESTS'."""
    parts = (part for part, value in config.budget.model_dump().items() if value is not None)
    return "".join(f" --set budget.{part}={part.upper()}" for part in parts)


def _require_race(request: "SweepRequest", variants: "tuple[Variant, ...]", objective: str) -> None:
    """UsageError where the config has no race, or none for the objective in it."""
    from frontier.extras.tune.same_launch import same_server

    config = request.config
    if any(deployment.apply is not None for deployment in config.deployments):
        what = f"{request.source} turns a knob of a running server, which is no race"
        raise UsageError(what, f"sweep it:  frontier sweep {request.source}")
    if not variants:
        raise UsageError(f"{request.source} varies nothing", _LIKE_THIS)
    if not config.limits:
        raise UsageError("a race needs an SLA to keep", "name limits, as  sla: {p99_ttft: 500ms}")
    if len(config.shapes) > 1 and config.background is not None:
        what = f"a race is about one workload, and there are {len(config.shapes)} amounts of the background"
        raise UsageError(what, "keep one of them")
    if len(config.shapes) > 1:
        what = f"a race is about one workload, and there are {len(config.shapes)} shapes"
        raise UsageError(what, "keep one of them, or mix them with  traffic:")
    if config.open_loop:
        raise UsageError("a race is about requests in flight, and the config has rates", "leave out  rate:")
    if (same := same_server(config)) is not None:
        raise UsageError(f"{same[0]} and {same[1]} are the same server", "remove one of them: a race compares servers")
    if metric(objective).needs == "price" and config.deployments[0].price is None:
        raise UsageError(f"the objective {objective} needs a price", "write  price: $12/h  for the whole deployment")


def _plan_text(request: "SweepRequest", variants: "tuple[Variant, ...]") -> str:
    """The plan of the race in words."""
    starts = len(variants) + 2 * 3
    ends = request.config.budget.time
    until = f"; it ends after {ends / 60:.0f} min at the latest" if ends is not None else ""
    return (
        f"Plan: quick looks of {count(len(variants), 'variant')}, then the best of them and the baseline, "
        f"{variants[0].name}, in turn.\n"
        f"At least {starts} starts of a server. How long they take is known after the first{until}."
    )


def _print_plan(request: "SweepRequest", variants: "tuple[Variant, ...]", as_json: bool) -> int:
    """Print the variants, with the command of each."""
    from frontier.show.view.json_out import tree_of

    if as_json:
        plan = {"variants": tree_of(variants), "starts_at_least": len(variants) + 6}
        answer({"schema": "frontier.tune-plan/1", **plan})
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


def _to_decide(request: "SweepRequest", race: "Race") -> str:
    """The command that races the variant that may be better against the chosen one; '' where there
    is no such variant.
    """
    from frontier.extras.tune.tune_text import higher_of

    higher = higher_of(race)
    if higher is None:
        return ""
    where = None if request.output is None else free_beside(request.output)
    options = given_options("output", "only")
    only = [word for runner in reversed(higher) for word in ("--only", runner.series.deployment)]
    return replace(request, options=(*options, *only)).command(where)


def _draw(path: Path, race: "Race", title: str, as_json: bool) -> None:
    """Draw the frontiers of the baseline and of the best other variant, and name the commands that
    show more.
    """
    from frontier import registry
    from frontier.cli.plot import beside_an_answer, picture_files, save_pictures
    from frontier.show.view.selection import narrowed

    together, run = registry.TOGETHER.find(), read_run(path)
    rivals = [r for r in (race.baseline, race.finalist) if r is not None and r.reach(0.0).edge is not None]
    if together is None or not rivals:
        return
    with beside_an_answer():
        run, files = narrowed(run, [r.series.deployment for r in rivals], ()), picture_files(run, "frontier")
        picture = together([run], run.limits(), None)
        save_pictures([replace(picture, title=title)], files, quiet=True)
        if not as_json:
            note(f"Picture          {files[0]}")
            note(f"Next             frontier report {path} -o page.html")
