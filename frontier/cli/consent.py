"""Consent to the config of a run directory, which anybody may have written. What it would run, read
and send is shown before any of it is done.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from frontier.cli.common import say
from frontier.core.model.errors import UsageError

if TYPE_CHECKING:
    from frontier.config import Config


def consent_to_sweep(config_file: Path, config: "Config") -> None:
    """Ask for consent to a sweep of a config inside a run directory, which anybody may have
    written. The user is shown what it would run, read and send. UsageError without a yes.
    """
    if needs_consent(config_file):
        _ask(config_file, [effect.text for effect in config.effects])


def consent_to_reach(config_file: Path, config: "Config", begun_with: Path | None = None) -> None:
    """Ask for the same consent before a command that sends requests as the config says but runs
    none of its commands.

    Nothing is asked where the user has agreed already: the file that the run was started from is on
    this machine, outside the run, and does the same.
    """
    if not needs_consent(config_file):
        return
    effects = [effect.text for effect in config.effects if effect.by != "sweep"]
    if begun_with is None or not set(effects) <= _agreed(begun_with, config_file):
        _ask(config_file, effects, begun_with)


def needs_consent(file: Path) -> bool:
    """Whether a config lies in a run directory, or is a link into one."""
    # Both paths are needed: `sweep.yaml` may link into a run, and a run's `config.yaml` may link
    # out of it.
    return any((path.parent / "manifest.json").exists() for path in (file.absolute(), file.resolve()))


def _agreed(own: Path, foreign: Path) -> set[str]:
    """The effects of the user's own config file; empty when the file lies in a run itself or cannot
    be read.
    """
    from frontier.config.config_file import load_config_file

    # The manifest that names `own` is as foreign as the config: it must not make a file of the run
    # the user's own.
    if not own.is_file() or needs_consent(own) or own.resolve().is_relative_to(foreign.resolve().parent):
        return set()
    try:
        return {effect.text for effect in load_config_file(own).effects}
    except (OSError, UsageError):
        return set()


def _ask(file: Path, effects: list[str], begun_with: Path | None = None) -> None:
    if not effects:
        return
    lines = [line for text in effects for line in ("  " + text.replace("\n", "\n       ")).splitlines()]
    say(f"{file} lies in a run directory, and would:\n" + "\n".join(lines))
    if sys.stdin is not None and sys.stdin.isatty() and click.confirm("allow this?", err=True):
        return
    hint = "read it, then copy it to a file of your own and name that"
    if begun_with is not None:
        hint = f"if the run is yours, go where its config {begun_with} is, or answer at a terminal"
    raise UsageError(f"refusing to go on: {file} is inside a run directory and was not confirmed", hint)
