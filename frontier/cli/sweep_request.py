"""What a `frontier sweep` command line asks for: the config with its settings, and the run directory it means."""

import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frontier.cli.common import RUNS, say
from frontier.config import Config, Setting, config_text, load_config
from frontier.errors import StoreError, UsageError
from frontier.store.files import read_config
from frontier.store.run_dir import extends, last_measured, read_manifest, runs_under


@dataclass(frozen=True, slots=True)
class Asked:
    """The sweep to run: `text` is its config as it is kept, `options` are those to give again.

    `run` is the run directory to resume, None when there is none yet; `extend` allows it to get more concurrencies.
    """

    config: Config
    text: str
    run: Path | None
    file: Path
    output: Path | None
    options: tuple[str, ...]
    extend: bool = False

    @property
    def again(self) -> str:
        """The command that goes on with it."""
        return self.command(self.output)

    def command(self, output: Path | None) -> str:
        """The same sweep, run there."""
        where = ["-o", str(output)] if output else []
        return shlex.join(["frontier", "sweep", str(self.file), *where, *self.options])

    def directory(self, output: Path | None, stem: str) -> Path:
        """Where it is run."""
        day = time.strftime("%Y-%m-%d")
        return self.run or output or RUNS / f"{day}-{self.config.name or stem}-{self.config.identity()[:6]}"


def read_asked(
    file: Path, output: Path | None, settings: Sequence[str], until: str | None, add: str | None, only: Sequence[str],
    prometheus: int | None = None,
) -> Asked:  # fmt: skip
    """The sweep that the options ask for. ConfigError or UsageError when there is none."""
    text = read_config(file)
    given = [Setting.of(one) for one in settings]
    given += [] if until is None else [Setting(f"--until {until}", "budget.until", f'"{until}"')]
    config = load_config(text, str(file), given)
    run = _run_of(config, output)
    if add is not None:
        more, run = _added(file, text, given, config, add, output)
        given.append(more)
    elif run is not None and (held := _grown(run, config)):
        given.append(Setting(f"the concurrencies of {run}", "concurrency", str(held)))
        say(f"{run} was extended to concurrency {', '.join(map(str, held))}")
    elif run is None and output is None:
        _hint(file, config)
    options: list[str] = []
    port = [] if prometheus is None else [str(prometheus)]
    given_once = [until] if until else []
    for name, values in (("--set", settings), ("--until", given_once), ("--only", only), ("--prometheus", port)):
        options += [part for value in values for part in (name, value)]
    config = load_config(text, str(file), given)
    return Asked(config, config_text(text, str(file), given), run, file, output, tuple(options), add is not None)


def _added(
    file: Path, text: str, given: Sequence[Setting], config: Config, add: str, output: Path | None
) -> tuple[Setting, Path]:
    """All the concurrencies there will be, and the run they are added to."""
    said = f"--add-concurrency {add}"
    more = load_config(text, str(file), [*given, Setting(said, "concurrency", f"[{add}]")]).concurrency
    every = sorted({*config.concurrency, *more})
    wider = load_config(text, str(file), [*given, Setting(said, "concurrency", str(every))])
    run = _run_of(config, output) or _run_of(wider, output) or next(_fewer(wider), None)
    if run is None:
        raise UsageError(
            f"there is no run of this sweep to add concurrency {add} to",
            f"write it into {file}, or name the run with  -o DIR",
        )
    every = sorted({*every, *(_grown(run, config) or ())})
    return Setting(said, "concurrency", str(every)), run


def _run_of(config: Config, output: Path | None) -> Path | None:
    """The run of this very sweep, named or the newest under runs/: what `the same command again` resumes."""
    if output is not None:
        return output if (output / "manifest.json").exists() else None
    identity = config.identity()
    return next((p for p, m in _runs() if identity in (m.get("identity"), *m.get("begun_as", ()))), None)


def _grown(run: Path, config: Config) -> list[int] | None:
    """The concurrencies of a run that was begun with this config and extended since; None when it was not."""
    manifest = read_manifest(run)
    begun = config.identity() in manifest.get("begun_as", ())
    return manifest["canonical"]["concurrency"] if begun else None


def _fewer(config: Config) -> Iterator[Path]:
    """Runs of the same sweep with fewer concurrencies, newest first."""
    return (path for path, manifest in _runs() if extends(manifest.get("canonical", {}), config.canonical()))


def _hint(file: Path, config: Config) -> None:
    """Say that an earlier run could be extended instead of beginning a new one."""
    if (run := next(_fewer(config), None)) is not None and last_measured(run) is not None:
        before = read_manifest(run)["canonical"]["concurrency"]
        more = ",".join(str(c) for c in config.concurrency if c not in before)
        say(f"{run} holds this sweep without concurrency {more}; to go on there instead:")
        say(f"  frontier sweep {file} --add-concurrency {more}")


def _runs() -> Iterator[tuple[Path, dict[str, Any]]]:
    """The runs under runs/ that can be read, newest first; those without a finished trial last."""
    for path in runs_under(RUNS):
        try:
            yield path, read_manifest(path)
        except StoreError:
            continue
