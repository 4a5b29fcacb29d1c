"""The request of a `frontier sweep` command line: the config with its settings, and the run
directory to use.
"""

import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frontier.cli.common import given_options, say
from frontier.cli.one_line import name_of, read_line, require_line
from frontier.client.secrets import redact, remember
from frontier.config import Config, Setting, left_out, load_config
from frontier.config.config_file import read_sessions, read_settings
from frontier.config.connection import names_server
from frontier.config.kept_text import kept_text
from frontier.core.model.errors import StoreError, UsageError
from frontier.planning.plan import ToProve
from frontier.store.files import read_config
from frontier.store.run_dir import RUNS, is_narrower, read_manifest, runs_under
from frontier.sweep.given_files import with_files
from frontier.sweep.secrets_of_config import secrets_of


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """The sweep to run.

    - `source`: its config's file, or the URL of a line in the place of one.
    - `text`: its config as the run keeps it.
    - `options`: the options to give again.
    - `run`: the run directory to resume; None: a new one.
    - `settings`: everything that was put into the file's config, as 'key=value'.
    """

    config: Config
    text: str
    run: Path | None
    source: str
    output: Path | None
    options: tuple[str, ...]
    settings: tuple[str, ...]

    @property
    def again(self) -> str:
        """The command that continues this sweep."""
        return self.command(self.output)

    def command(self, output: Path | None) -> str:
        """The command that runs the same sweep into `output`."""
        where = ["-o", str(output)] if output else []
        return shlex.join(["frontier", self.config.measured_by, self.source, *where, *self.options])

    def where(self, path: Path) -> str:
        """Where the run lies, and the config that a line was written into."""
        written = f"\n     its config, written from this line:  {path / 'config.yaml'}"
        return f"run  {path}" + written * names_server(self.source)

    @property
    def facts(self) -> dict[str, Any]:
        """The facts that the journal keeps, so that a later command can name this sweep again."""
        return {"config": self.source, "directory": str(Path.cwd()), "settings": self.settings}

    def directory(self) -> Path:
        """The run directory: the one to resume, the one asked for, else a new one under runs/."""
        stem = name_of(self.source) if names_server(self.source) else Path(self.source).stem
        name = f"{time.strftime('%Y-%m-%d')}-{self.config.name or stem}-{self.config.identity()[:6]}"
        return self.run or self.output or RUNS / name


def read_request(
    source: str,
    output: Path | None,
    settings: Sequence[str],
    until: str | None,
    prove: ToProve,
    also: Sequence[Setting] = (),
    line: Sequence[Setting] = (),
) -> SweepRequest:
    """The sweep of a file, or of a line that names a URL, with these options; `line` are settings
    under those of --set, `also` over them. ConfigError or UsageError when there is none.
    """
    text = read_line(source) if names_server(source) else read_config(Path(source))
    given = [*line, *read_settings(settings), *also]
    given += [] if until is None else [Setting(f"--until {until}", "budget.until", f'"{until}"')]
    if names_server(source):
        require_line(source, given)
    configs: dict[str, Config] = {}

    def config_in(manifest: Mapping[str, Any] | None) -> Config:
        """The config as the run with this manifest reads it; without a manifest, as a new
        run does.
        """
        key = repr(left_out(manifest))  # nearly all runs under runs/ take it alike
        if key not in configs:
            configs[key] = with_files(load_config(text, source, given, manifest, read_sessions=read_sessions))
        return configs[key]

    run = _run_to_resume(output, config_in)
    manifest = None if run is None else read_manifest(run)
    config = config_in(manifest)
    if manifest is not None and is_narrower(manifest, config.canonical()):
        before = manifest["canonical"].get("concurrency", ())
        more = ", ".join(load.bare for load in config.loads if load not in before)
        say(f"{run} goes on, with {config.loads[0].kind} {more} added")
    if config.open_loop and prove:
        raise UsageError("--prove is for a concurrency, and this sweep has rates", "it proves the highest that holds")
    put = tuple(redact(f"{setting.key}={setting.value}") for setting in given)
    remember(secrets := secrets_of(config, os.environ))
    kept = kept_text(text, source, given, secrets)
    return SweepRequest(config, kept, run, source, output, tuple(given_options("output")), put)


def _run_to_resume(output: Path | None, config_in: Callable[[Mapping[str, Any]], Config]) -> Path | None:
    """The run to resume: the one that is named, else the newest of this very sweep under runs/,
    else the newest of a sweep with fewer concurrencies (or rates).
    """
    if output is not None:
        return output if (output / "manifest.json").exists() else None
    narrower = None
    for path in runs_under(RUNS):  # newest first; those without a finished trial last
        with suppress(StoreError):
            manifest = read_manifest(path)
            config = config_in(manifest)
            if config.identity() == manifest.get("identity"):
                return path
            if narrower is None and is_narrower(manifest, config.canonical()):
                narrower = path
    return narrower
