"""`frontier verify --quality` and `--scorer`: answers beside those of a reference."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from frontier.cli.common import RunOptions, answer, note
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import ExitCode, UsageError
from frontier.core.model.loads import NO_LOAD, Concurrency
from frontier.core.model.units import format_elapsed
from frontier.extras.verify.command_send import Tick, consent, send, stopped
from frontier.run import Run

if TYPE_CHECKING:
    from frontier.extras.verify.answers import Scorer

MOST_STREAMS = 100_000
"""The most requests in flight at which answers may be asked for."""


def run(options: RunOptions, scorer: str | None, *, asked: bool, sized: bool, others: Sequence[str]) -> int:
    """Run `--quality` (`asked`), with a scorer. Returns the exit code. UsageError for a scorer
    alone, where the load was given (`sized`), or where `others` of the questions are asked too.
    """
    if asked and sized:
        raise UsageError("--quality sends its own requests", "leave out --load and --requests")
    if not asked and scorer is None:
        what = "--under-load says at which settings the prompts of --quality are asked"
        raise UsageError(what, "write  --quality --under-load 8,16")
    if asked:
        _one_question(others)
    if scorer is not None and not (asked and scorer.strip()):
        what = "--scorer is a command that scores the answers of --quality"
        raise UsageError(what, "write  --quality --scorer 'python3 score.py'")
    loaded = options.read()
    return _quality(loaded, options.limits(loaded), scorer, options.as_json)


def run_under_load(
    options: RunOptions, scorer: str | None, settings: str, prompts: int | None, *, others: Sequence[str]
) -> int:
    """Run `--quality --under-load`, at the `settings` of this text ('8,16'; '' for the default
    ones). Returns the exit code.
    """
    from frontier.extras.verify.quality_tables import under_load_json, under_load_text
    from frontier.extras.verify.under_load import beside_alone, check_under_load, loaded_checks, prompts_needed
    from frontier.store.run_dir import RunDirectory

    _one_question(others)
    loaded = options.read()
    limits = options.limits(loaded)
    wanted = loaded_checks(loaded, limits, _settings(settings), prompts)
    consent(loaded)
    for check in wanted:
        where, at = check.series.label(keep_shape=True), ", ".join(Concurrency(c).label for c in check.settings)
        time = "" if check.seconds is None else f"; about {format_elapsed(check.seconds)}"
        note(f"{where}  {check.prompts:,} prompts in two passes, greedily, among the load of {at}{time}")
    for limit in limits:
        if limit.metric == "agreement" and (need := prompts_needed(limit.promise)) > wanted[0].prompts:
            note(f"{limit} takes at least {need:,} prompts without a difference:  --requests {need}")
    scored = None if scorer is None else _scorer(loaded, scorer)
    done, total = send(loaded, Tick(), lambda sender: check_under_load(sender, wanted, scored))
    compared = beside_alone(RunDirectory.read_checks(loaded.path))
    answer(under_load_json(compared) if options.as_json else under_load_text(compared))
    return stopped("what was asked is kept; the same command goes on") if done < total else ExitCode.YES


def _settings(text: str) -> tuple[int, ...]:
    """The concurrencies of '8,16'. UsageError for anything else."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() and 1 <= int(part) <= MOST_STREAMS for part in parts):
        raise UsageError(f"--under-load {text!r} is no list of concurrencies", "write it as  --under-load 8,16")
    return tuple(int(part) for part in parts)


def _one_question(others: Sequence[str]) -> None:
    if others:
        raise UsageError(f"{others[0]} and --quality are two questions", "ask one of them")


def _scorer(run: Run, command: str) -> "Scorer":
    """The scorer of a command line. It gets no key that the config names."""
    from frontier.extras.verify.answers import Scorer
    from frontier.sweep.secrets_of_config import secrets_of

    keys = {name for d in run.config.deployments for name in d.secret_variables()}
    environ = {name: value for name, value in os.environ.items() if name not in keys}
    return Scorer(command, environ, secrets_of(run.config, os.environ))


def _quality(run: Run, limits: Sequence[Limit], scorer_command: str | None, as_json: bool) -> int:
    """Ask the deployments and their references at their operating points, and answer. Returns the
    exit code.
    """
    from frontier.extras.verify.agreement import of_run
    from frontier.extras.verify.answers import check_quality, quality_checks
    from frontier.extras.verify.quality_tables import quality_json, quality_text
    from frontier.store.run_dir import RunDirectory

    wanted = quality_checks(run, limits)
    consent(run)
    for decision, prompts in wanted:
        where = decision.series.label(keep_shape=True)
        note(f"{where}  {prompts:,} prompts in two passes, greedily, at {(decision.load or NO_LOAD).label}")
    scorer = None if scorer_command is None else _scorer(run, scorer_command)
    done = send(run, Tick(), lambda sender: check_quality(sender, wanted, scorer))
    compared = of_run(run.config, RunDirectory.read_checks(run.path))
    answer(quality_json(compared) if as_json else quality_text(compared))
    return stopped() if done < len(wanted) else ExitCode.YES
