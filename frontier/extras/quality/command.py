"""`frontier verify --quality` and `--scorer`: answers beside those of a reference."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from frontier.cli.common import RunOptions, answer, note
from frontier.core.model.decisions import Limit
from frontier.core.model.errors import ExitCode, UsageError
from frontier.core.model.loads import setting
from frontier.run import Run

_HELP = """
    With --quality: how often do deployments that have  quality: {reference: NAME}  choose the same
    next token as NAME, each with as many requests in flight as at its operating point? Then it is
    their metric `quality`.

    With --scorer too: a command of yours reads a JSON object a line, {"id", "prompt", "answer",
    "reference"}, and prints a score from 0 to 1 for each. The mean score is then the quality. It
    gets no key that the config names.

    \b
    Examples:
      frontier verify runs/llama8b --quality
      frontier verify runs/llama8b --quality --scorer 'python3 score.py'
    """


def option(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the options, and their part of its help."""
    command.__doc__ = (command.__doc__ or "") + _HELP
    scorer = click.option("--scorer", metavar="COMMAND", help="With --quality: the command that scores each answer.")
    quality = click.option(
        "--quality", is_flag=True, help="Compare answers with those of the reference that the config names."
    )
    return quality(scorer(command))


def run(options: RunOptions, given: Mapping[str, Any], *, sized: bool) -> int | None:
    """The exit code of `--quality`; None where it was not asked for. `sized`: the load was
    given.
    """
    scorer = given["scorer"]
    if given["quality"] and sized:
        raise UsageError("--quality sends its own requests", "leave out --load and --requests")
    other = next((flag for name, flag in (("find", "--find"), ("duration", "--for")) if given.get(name)), None)
    if given["quality"] and other is not None:
        raise UsageError(f"{other} and --quality are two questions", "ask one of them")
    if scorer is not None and not (given["quality"] and scorer.strip()):
        what = "--scorer is a command that scores the answers of --quality"
        raise UsageError(what, "write  --quality --scorer 'python3 score.py'")
    if not given["quality"]:
        return None
    loaded = options.read()
    return _quality(loaded, options.limits(loaded), scorer, options.as_json)


def _quality(run: Run, limits: Sequence[Limit], scorer_command: str | None, as_json: bool) -> int:
    """Ask the deployments and their references at their operating points, and answer; the exit
    code.
    """
    from frontier.cli.verify import Tick, consent, send, stopped  # which asks for these options as it is made
    from frontier.extras.quality.agreement import of_run
    from frontier.extras.quality.answers import Scorer, check_quality, quality_checks
    from frontier.extras.quality.quality_tables import quality_json, quality_text
    from frontier.store.run_dir import RunDirectory
    from frontier.sweep.secrets_of_config import secrets_of

    wanted = quality_checks(run, limits)
    consent(run)
    for decision, prompts in wanted:
        where = decision.series.label(keep_shape=True)
        note(f"{where}  {prompts:,} prompts in two passes, greedily, at {setting(decision.concurrency or 1)}")
    scorer = None
    if scorer_command is not None:
        keys = {name for d in run.config.deployments for name in d.secret_variables()}
        environ = {name: value for name, value in os.environ.items() if name not in keys}
        scorer = Scorer(scorer_command, environ, secrets_of(run.config, os.environ))
    done = send(run, Tick(), lambda sender: check_quality(sender, wanted, scorer))
    compared = of_run(run.config, RunDirectory.read_checks(run.path))
    answer(quality_json(compared) if as_json else quality_text(compared))
    return stopped() if done < len(wanted) else ExitCode.YES
