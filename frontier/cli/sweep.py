"""`frontier sweep`: run a config, or resume it; then print the table and the operating point, and
draw the picture.

The story of a sweep: read the request (`sweep_request`), plan, check time, disk and memory, ask for
consent to a foreign config, measure (`measuring`), answer (`_conclude`), notify (`on_finish`).
"""

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from frontier import registry
from frontier.cli import common, completion
from frontier.cli.consent import consent_to_sweep, needs_consent
from frontier.cli.measuring import measure
from frontier.core.model.errors import ExitCode, FrontierError, MemoryShortError, UsageError, WriteError
from frontier.core.model.loads import Load, listed, load_of
from frontier.core.model.trials import Phase
from frontier.core.model.units import count, format_bytes, whole_numbers
from frontier.show.verbosity import Detail
from frontier.store.files import free_beside, free_bytes
from frontier.store.journal import last_session
from frontier.store.run_dir import AnotherSweepError, RunDirectory
from frontier.world import world

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from frontier.cli.sweep_request import SweepRequest
    from frontier.core.model.decisions import Decision
    from frontier.planning.plan import Plan, ToProve
    from frontier.sweep.conductor import SweepEnd


def _to_prove(value: str | None) -> "ToProve":
    """The concurrencies of '32,48', or the ones that a run proved."""
    from frontier.config.load_keys import MAX_CONCURRENCY
    from frontier.core.model.loads import Concurrency
    from frontier.planning.plan import NO_PROOFS, ToProve

    if value is None:
        return NO_PROOFS
    if value and (Path(value) / "manifest.json").exists():
        decisions = common.read_run(Path(value)).solve()
        proven = {d.series: () if d.load is None else (d.load,) for d in decisions}
        if not any(proven.values()):
            raise UsageError(f"--prove {value}: that run proved no concurrency", "name one, as  --prove 32")
        return ToProve.of_run(value, proven)
    named = whole_numbers(value, 1, MAX_CONCURRENCY)
    if named is None:
        raise UsageError(f"--prove {value}: write concurrencies, or a run", "as  --prove 32,48  or  --prove runs/base")
    return ToProve(tuple(map(Concurrency, named)), value)


@common.subcommand("sweep")
@click.argument("source", metavar="CONFIG|URL", type=click.Path(dir_okay=False))
@click.argument("others", metavar="", nargs=-1)
@click.option("-o", "--output", type=common.RUN_PATH, help="The run directory.")
@click.option(
    "--shape", "shapes", metavar="ISL/OSL", multiple=True, help="Of a URL: the shape, as 1024/256; repeatable."
)
@click.option(
    "--sla",
    metavar="LIMITS",
    shell_complete=completion.complete_limits,
    help="Of a URL: the limits, as 'p99_ttft<=500ms, p99_tpot<=30ms', or a preset, as chat.",
)
@click.option("--budget", metavar="TIME", help="Of a URL: the longest it may take, as 30min.")
@click.option("--dry-run", is_flag=True, help="Print the plan, its time, disk and budget; send nothing.")
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=completion.complete_keys,
    help="Another value for a key, as sla.p99_ttft.",
)
@click.option(
    "--only",
    metavar="NAME",
    multiple=True,
    shell_complete=completion.complete_parts,
    help="Run only this shape (or deployment) now; repeatable.",
)
@click.option(
    "--prove",
    metavar="N,N|RUN",
    help="Prove only these concurrencies, or the ones that RUN proved; they need not be in CONFIG.",
)
@click.option("--until", metavar="TIME", help="Finish by this time (e.g. 07:00); lowest-priority trials are dropped.")
@common.with_extra(registry.SWEEP_OPTION)
@click.option("--measure", "measured", is_flag=True, help="With --dry-run: measure a minute to know it; keep nothing.")
@common.run_options("detail", "as_json")
def command(
    options: common.RunOptions,
    source: str,
    output: Path | None,
    dry_run: bool,
    settings: tuple[str, ...],
    only: tuple[str, ...],
    prove: str | None,
    until: str | None,
    **given: Any,
) -> int:
    """Find and prove the operating point of CONFIG, then measure its frontier; the same command
    again resumes.

    A URL with its shape and SLA stands for a config, which the run then holds. Finished trials stay
    finished. Ctrl-C keeps them, prints the answer so far and how to go on.

    \b
    Examples:
      frontier sweep http://localhost:8000/v1 --shape 1024/256 --sla chat
      frontier sweep sweep.yaml --dry-run --measure
      frontier sweep sweep.yaml -o runs/llama8b --until 07:00
      frontier sweep sweep.yaml -o runs/llama8b --prove 48 --set sla.p99_ttft=1s
    """
    from frontier.cli.dry_run import print_plan, require_context
    from frontier.cli.one_line import line_settings
    from frontier.cli.sweep_request import read_request
    from frontier.config.config_file import open_run, require_sweep
    from frontier.planning.plan import make_plan, proofs_of
    from frontier.sweep.given_files import begun_with

    if others := given["others"]:
        raise UsageError(f"{shlex.join([source, *others])} names {1 + len(others)} sweeps", "give one file, or one URL")
    to_prove = _to_prove(prove)
    of_line = line_settings(source, given["shapes"], given["sla"], given["budget"])
    request = read_request(source, output, settings, until, to_prove, line=of_line)
    require_sweep(request.config, source)
    to_prove = proofs_of(request.config, to_prove)
    if to_prove and not request.config.limits:
        raise UsageError("--prove needs an SLA to prove", "name one, as  --set sla.p99_ttft=500ms")
    for warning in request.config.warnings:
        common.say(f"warning: {warning.where or f'{source}:{warning.line}'}: {warning.what}\n  {warning.hint}")
    plan = make_plan(request.config, only)
    _require_time(request, plan)
    path, facts = request.directory(), begun_with(request.source, request.config.prompts_file)
    _require_run(request, path, facts)
    _require_room(path, plan)
    if given["measured"]:
        from frontier.cli.dry_run_measure import print_measured

        return print_measured(options, request, plan, facts, whole=dry_run and not prove)
    if dry_run:
        if not needs_consent(Path(source)):
            require_context(request.config)
        return print_plan(request.config, plan, request.run, options, to_prove)
    consent_to_sweep(Path(source), request.config)
    run = open_run(path, request.config, request.text, facts)
    return _sweep(request, plan, run, to_prove, given, options)


def _require_time(request: "SweepRequest", plan: "Plan") -> None:
    """UsageError when the time of --until is past and something is left to do."""
    from frontier.cli.dry_run import remaining
    from frontier.sweep.ledger import deadline

    until = request.config.budget.until
    if until is None or deadline(until, now := world().wall()) > now:
        return
    if remaining(request.config, plan, request.run)[1]:
        name = "--until" if "--until" in request.options else "budget.until"
        raise UsageError(f"{name} {until}: that is past, and no trial would be run", "name a later time, as 07:00")


def _require_room(path: Path, plan: "Plan") -> None:
    """UsageError when disk or memory is too small for what the plan may write and hold."""
    from frontier.sweep.ledger import require_free

    if plan.expected_bytes > (free := free_bytes(path)):
        needed = format_bytes(plan.expected_bytes)
        raise UsageError(
            f"the records may take {needed}, and where {path} lies {format_bytes(free)} are free",
            "make room, or choose another place with  -o DIR",
        )
    require_free(plan.expected_memory)


def _require_run(request: "SweepRequest", path: Path, facts: "Mapping[str, str]") -> None:
    """Raise the errors that opening the run would raise, but for the lock, and those of the
    prompts' file or of a missing Ray. Nothing is written. Where the directory holds another sweep,
    the message says what differs.
    """
    from frontier.config import describe_difference
    from frontier.sweep.given_files import read_prompts

    if request.config.ray is not None:
        registry.EXECUTOR.require("workers: ray").require_ray()
    if request.config.prompts_file is not None:
        read_prompts(Path(request.config.prompts_file))
    try:
        identity, canonical = request.config.identity(), request.config.canonical()
        RunDirectory.require_sweep(path, identity=identity, canonical=canonical, facts=facts, extend=True)
    except AnotherSweepError as error:
        theirs, ours = error.theirs, error.ours
        if request.config.open_loop:
            theirs, ours = (
                {**one, "concurrency": None, "rate": [c / 1000 for c in one["concurrency"]]} for one in (theirs, ours)
            )
        difference, hint = describe_difference(theirs, ours), request.command(free_beside(path))
        finished = "1 finished trial is" if error.finished == 1 else f"{error.finished:,} finished trials are"
        raise UsageError(f"{path} holds another sweep: {difference}; its {finished} untouched", hint) from error


def _sweep(
    request: "SweepRequest",
    plan: "Plan",
    run: RunDirectory,
    prove: "ToProve",
    given: "Mapping[str, Any]",
    shown: common.RunOptions,
) -> int:
    """Measure, answer, and notify however it ended. Returns the exit code."""
    from frontier.cli.dry_run import look_ahead, plan_lines

    # What on_finish hears if anything below raises what is not expected: the sweep failed by an
    # internal error.
    end, reason, code = "failed", "", int(ExitCode.INTERNAL_ERROR)
    decisions: Sequence[Decision] = ()
    try:
        with run:
            quiet = shown.detail is Detail.ANSWER
            if not quiet:
                common.say(request.where(run.path))
                ahead = look_ahead(request.config, plan, run.path, prove)
                common.say("\n".join(plan_lines(request.config, ahead, prove, settings=False)))
            facts = request.facts | prove.facts
            end = measure(request.config, plan, run, given, facts, quiet=quiet, prove=prove)
        cut = _unfinished_proofs(run.path) if prove else []
        if cut:
            told = common.say if shown.as_json else common.answer_prose
            told(_not_proven(request, run.path, cut, end))
        if cut and end == "budget":
            shown = replace(shown, detail=Detail.ANSWER)
        code, decisions = _conclude(run.path, end, request.again, shown, cut)
        if cut and code == ExitCode.YES:
            code = ExitCode.NOT_PROVEN
        return code
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
        raise
    except FrontierError as error:
        reason, code = error.what, error.exit_code
        if unmeasured := _not_begun(run.path, prove):
            common.say(f"not measured: {listed(unmeasured)}")
        if isinstance(error, WriteError | MemoryShortError):
            raise type(error)(error.what, f"{error.hint}\n  {request.again}") from error
        raise
    finally:
        if request.config.on_finish is not None:
            from frontier.show.view.sentences import decision_sentence
            from frontier.sweep.on_finish import tell

            answers = [(decision, decision_sentence(decision)) for decision in decisions]
            if (failure := tell(request.config, run.path, end, code, answers, reason, os.environ)) is not None:
                common.say(f"warning: {failure}")


# ---- the end
# --------------------------------------------------------------------------------------------------


def _conclude(
    path: Path, end: "SweepEnd", again: str, shown: common.RunOptions, cut: "Sequence[str]"
) -> "tuple[int, Sequence[Decision]]":
    """Print what the sweep measured, however it ended. Returns the exit code and the decisions.

    After an interrupt before anything was proven, only the command that goes on is printed.
    `cut` are the settings that were to be proven and are not, which has been printed already.
    """
    from frontier.cli.sweep_answer import print_answer
    from frontier.core.claim.solver import exit_code
    from frontier.planning.standing import lost_server

    run = common.read_run(path, allow_empty=True)
    decisions: Sequence[Decision] = ()
    if run.histories:
        decisions = print_answer(run, shown, ended=end in ("finished", "budget") and not cut, cut=cut)
    if end == "interrupted":
        finished = sum(len(history) for history in run.histories.values())
        verb = "is" if finished == 1 else "are"
        common.say(f"stopped; {count(finished, 'finished trial')} {verb} in {path}; go on with\n  {again}")
        return ExitCode.INTERRUPTED, decisions
    if not run.histories:
        common.say(f"no trial was finished; {path} holds the journal")
    if end == "server_lost":
        why = lost_server(RunDirectory.read(path).journal_lines())
        common.say(f"{why}\nfinished trials are kept; go on with\n  {again}")
    if end == "server_lost" or not run.histories:
        return ExitCode.FAILED, decisions
    if decisions:
        return exit_code(decisions), decisions
    return ExitCode.YES if any(p.valid for p in run.points()) else ExitCode.FAILED, ()


def _unfinished_proofs(path: Path) -> list[str]:
    """The settings whose proof the last sweep asked for but did not measure, because the budget had
    no room or the server was lost. The answer is then the one from before.
    """
    lines = last_session(RunDirectory.read(path).journal_lines())
    done = {line["trial"] for line in lines if line["event"] == "trial_done"}
    asked = [line for line in lines if line["event"] == "asked" and line["phase"] == Phase.PROVE.value]
    return list(dict.fromkeys(load_of(line).label for line in asked if line["trial"] not in done))


def _not_begun(path: Path, prove: "ToProve") -> "list[Load]":
    """The settings to prove of which the last session finished no trial; none where the run cannot
    be read, as the error that ends the sweep may be that.
    """
    try:
        lines = last_session(RunDirectory.read(path).journal_lines())
    except FrontierError:
        return []
    done = " ".join(line["trial"] for line in lines if line["event"] == "trial_done")
    return [c for c in prove.everywhere if f"-{c.file_label}-" not in done]


def _not_proven(request: "SweepRequest", path: Path, cut: "Sequence[str]", end: "SweepEnd") -> str:
    """The settings to prove that are not, and the command that has room for them where the budget
    had none.
    """
    from frontier.planning.next_step import ENOUGH_FOR_PROOFS, with_budget
    from frontier.store.journal import Amount

    what = f"not proven: {', '.join(cut)}"
    how = {"interrupted": "it was interrupted", "server_lost": "the server was lost"}.get(end, "no trial of it counts")
    if end != "budget":
        return f"{what}; {how}. The answer without it:"
    lines = last_session(RunDirectory.read(path).journal_lines())
    need = sum((Amount(**line["need"]) for line in lines if line["event"] == "dropped" and "need" in line), Amount())
    spent = common.read_run(path, allow_empty=True).spent
    command = with_budget(request.again, request.config, need * ENOUGH_FOR_PROOFS + spent)
    return f"{what}; the budget of this run is spent. To prove it:\n  {command}\nThe answer without it:"
