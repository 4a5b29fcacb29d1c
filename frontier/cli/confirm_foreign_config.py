"""Consent: a config in a run directory may be anybody's, so what it would run, read and send is asked about first."""

import sys
from pathlib import Path

import click

from frontier.cli.common import say
from frontier.config import Config, load_config
from frontier.config.yaml_source import MAX_BYTES
from frontier.errors import UsageError
from frontier.store.files import read_config


def consent_to_sweep(config_file: Path, config: Config) -> None:
    """Before a sweep. UsageError where the config is not evidently the user's own and nobody says yes."""
    if _in_a_run(config_file):
        _ask(config_file, [one.text for one in config.effects])


def consent_to_reach(config_file: Path, config: Config, begun_with: Path | None = None) -> None:
    """Before anything is sent as a run's own config says, by a command that runs none of its commands. Where the file
    that the run says it was begun with is here, outside the run, and does the same, the user has agreed already.
    """
    if not _in_a_run(config_file):
        return
    wanted = [one.text for one in config.effects if one.by != "sweep"]
    if begun_with is None or not set(wanted) <= _agreed(begun_with, config_file):
        _ask(config_file, wanted, begun_with)


def _in_a_run(file: Path) -> bool:
    """It lies in a run directory, or is a link into one."""
    return any((one.parent / "manifest.json").exists() for one in (file.absolute(), file.resolve()))


def _agreed(own: Path, foreign: Path) -> set[str]:
    """What a file of the user's does; nothing when it lies in a run itself or cannot be read."""
    if not own.is_file() or own.stat().st_size > MAX_BYTES:
        return set()
    if _in_a_run(own) or own.resolve().is_relative_to(foreign.resolve().parent):
        return set()
    try:
        return {one.text for one in load_config(read_config(own), str(own)).effects}
    except (OSError, UsageError):
        return set()


def _ask(file: Path, wanted: list[str], begun_with: Path | None = None) -> None:
    if not wanted:
        return
    lines = [line for text in wanted for line in ("  " + text.replace("\n", "\n       ")).splitlines()]
    say(f"{file} lies in a run directory, and would:\n" + "\n".join(lines))
    if sys.stdin is not None and sys.stdin.isatty() and click.confirm("allow this?", err=True):
        return
    hint = "read it, then copy it to a file of your own and name that"
    if begun_with is not None:
        hint = f"if the run is yours, go where its config {begun_with} is, or answer at a terminal"
    raise UsageError(f"refusing to go on: {file} is inside a run directory and was not confirmed", hint)
