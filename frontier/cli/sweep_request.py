"""What a `frontier sweep` command line asks for: the config with its settings, and the run
directory to use."""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from frontier.cli.common import RUNS, option_words, say
from frontier.config import Config, Setting, config_text, left_out, load_config
from frontier.errors import StoreError, UsageError
from frontier.formats.arrivals import with_trace
from frontier.formats.session_files import read_sessions
from frontier.model import bare, kind_of
from frontier.plan import NOTHING, ToProve
from frontier.store.files import read_config
from frontier.store.run_dir import extends, last_measured, read_manifest, runs_under
from frontier.text import redact


@dataclass(frozen=True, slots=True)
class SweepRequest:
    """The sweep to run: `text` is its config as the run keeps it, `options` are those to give
    again.

    `run` is the run directory to resume, None when there is none yet; with `extend` it may get more
    concurrencies. `settings` are all that were put into the file's config, as 'key=value'.
    """

    config: Config
    text: str
    run: Path | None
    file: Path
    output: Path | None
    options: tuple[str, ...]
    settings: tuple[str, ...]
    extend: bool = False

    @property
    def again(self) -> str:
        """The command that continues this sweep."""
        return self.command(self.output)

    def command(self, output: Path | None) -> str:
        """The command that runs the same sweep into `output`."""
        where = ["-o", str(output)] if output else []
        return shlex.join(["frontier", "sweep", str(self.file), *where, *self.options])

    @property
    def facts(self) -> dict[str, Any]:
        """What the journal keeps of it, so that a later command can name this sweep again."""
        return {"config": str(self.file), "directory": str(Path.cwd()), "settings": self.settings}

    def directory(self) -> Path:
        """The run directory: the one to resume, the one asked for, else a new one under runs/."""
        name = f"{time.strftime('%Y-%m-%d')}-{self.config.name or self.file.stem}-{self.config.identity()[:6]}"
        return self.run or self.output or RUNS / name


def read_request(
    file: Path,
    output: Path | None,
    settings: Sequence[str],
    until: str | None,
    add: str | None,
    only: Sequence[str],
    prometheus: int | None = None,
    prove: ToProve = NOTHING,
) -> SweepRequest:
    """The sweep that the options ask for. ConfigError or UsageError when there is none."""
    text = read_config(file)
    given = [Setting.of(setting) for setting in settings]
    given += [] if until is None else [Setting(f"--until {until}", "budget.until", f'"{until}"')]
    asked = _Asked(file, text, given)
    run, more = asked.run(output), None
    if add is not None:
        run, more = asked.extended(add, output)
    elif run is not None and (held := asked.grown(run)):
        more = asked.loads(f"the settings of {run}", held)
        say(f"{run} was extended to {kind_of(held[0])} {', '.join(map(bare, held))}")
    elif run is None and output is None:
        asked.say_extendable()
    if more is not None:
        given.append(more)
    config = asked.config(None if run is None else read_manifest(run))
    if config.open_loop and prove:
        raise UsageError("--prove is for a concurrency, and this sweep has rates", "it proves the highest that holds")
    proofs = prove.named or None
    named = {"--set": settings, "--until": [until], "--only": only, "--prove": [proofs], "--prometheus": [prometheus]}
    text = config_text(text, str(file), given)
    put = tuple(redact(f"{setting.key}={setting.value}") for setting in given)
    return SweepRequest(config, text, run, file, output, tuple(option_words(named)), put, extend=add is not None)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The config file with the settings given beside it, and the runs that it may go on with."""

    file: Path
    text: str
    given: list[Setting]
    _read: dict[str, Config] = field(default_factory=dict)

    def config(self, manifest: Mapping[str, Any] | None = None, *more: Setting) -> Config:
        """The config, as the run of this manifest takes it; of a new run without one."""
        settings = [*self.given, *more]
        key = repr((settings, left_out(manifest)))  # nearly all runs under runs/ take it alike
        if key not in self._read:
            loaded = load_config(self.text, str(self.file), settings, manifest, read_sessions=read_sessions)
            self._read[key] = with_trace(loaded)
        return self._read[key]

    def run(self, output: Path | None, *more: Setting) -> Path | None:
        """The run of this very sweep, named or the newest under runs/: the one that the same
        command again resumes.
        """
        if output is not None:
            return output if (output / "manifest.json").exists() else None
        for path, manifest in _runs():
            if self.config(manifest, *more).identity() in (manifest.get("identity"), *manifest.get("begun_as", ())):
                return path
        return None

    def grown(self, run: Path) -> list[int] | None:
        """The concurrencies, or rates, of a run that was started with this config and extended
        since; None for any other run.
        """
        manifest = read_manifest(run)
        begun = self.config(manifest).identity() in manifest.get("begun_as", ())
        return [self.config().shapes[0].load(c) for c in manifest["canonical"]["concurrency"]] if begun else None

    def loads(self, said: str, loads: Sequence[int]) -> Setting:
        """The setting that gives the config these concurrencies, or these rates where it has
        rates.
        """
        return Setting(said, "rate" if self.config().open_loop else "concurrency", f"[{', '.join(map(bare, loads))}]")

    def narrower(self, *more: Setting) -> Iterator[tuple[Path, dict[str, Any], Config]]:
        """Runs of the same sweep with fewer concurrencies, newest first: path, manifest and the
        config there.
        """
        for path, manifest in _runs():
            if extends(manifest.get("canonical", {}), (config := self.config(manifest, *more)).canonical()):
                yield path, manifest, config

    def extended(self, add: str, output: Path | None) -> tuple[Path, Setting]:
        """The run that --add-concurrency extends, and all the concurrencies, or rates, it will
        have.
        """
        option, at_rates = f"--add-concurrency {add}", self.config().open_loop
        added = self.config(None, Setting(option, "rate" if at_rates else "concurrency", f"[{add}]")).concurrency
        every = sorted({*self.config().concurrency, *added})
        wider = self.loads(option, every)
        run = self.run(output) or self.run(output, wider) or next((path for path, *_ in self.narrower(wider)), None)
        if run is None:
            raise UsageError(
                f"there is no run of this sweep to add {'rate' if at_rates else 'concurrency'} {add} to",
                f"write it into {self.file}, or name the run with  -o DIR",
            )
        return run, self.loads(option, sorted({*every, *(self.grown(run) or ())}))

    def say_extendable(self) -> None:
        """Say that an earlier run could be extended instead of starting a new one."""
        run, manifest, config = next(self.narrower(), (None, {}, None))
        if run is not None and config is not None and last_measured(run) is not None:
            before = manifest["canonical"]["concurrency"]
            more = ",".join(bare(c) for c in config.concurrency if c not in before)
            say(f"{run} holds this sweep without {kind_of(config.concurrency[0])} {more}; to go on there instead:")
            say(f"  frontier sweep {self.file} --add-concurrency {more}")


def _runs() -> Iterator[tuple[Path, dict[str, Any]]]:
    """The runs under runs/ that can be read, newest first; those without a finished trial last."""
    for path in runs_under(RUNS):
        try:
            yield path, read_manifest(path)
        except StoreError:
            continue
