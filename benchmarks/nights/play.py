"""Playing a night: its commands in this process, in virtual time, and what each said and left."""

import contextlib
import functools
import gc
import hashlib
import io
import os
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import yaml

from benchmarks.nights import outputs
from benchmarks.nights.disk import Disk, Killed
from benchmarks.nights.draw import CONFIG, RUN, Command, Damage, Edit, Night, SetClock
from benchmarks.nights.remembered import windows_by_contents
from benchmarks.nights.server import Server
from benchmarks.nights.virtual_time import Clock, virtual_world
from frontier.cli import main as command_line
from frontier.cli import plot
from frontier.store import trial_files
from frontier.world import inside

KILLED = -9
WIDTH = "120"
"""Columns of the terminal: a narrower table leaves columns out."""
LOOKS = (
    ("solve", RUN),
    ("solve", RUN, "--json"),
    ("solve", RUN, "-v"),
    ("show", RUN),
    ("show", RUN, "--json"),
    ("status", RUN),
    ("status", RUN, "--json"),
)
"""What every night is asked at its end, and after a sweep that was stopped."""


@dataclass(frozen=True, slots=True)
class Said:
    """A command that has ended: its exit code (KILLED: it was killed), what it wrote, what escaped
    from it, and the state of the run's files before and after. `trials` were begun in it, and it
    took `seconds` of the night.
    """

    words: tuple[str, ...]
    code: int
    out: str
    err: str
    raised: str
    trials: int
    seconds: float
    before: Mapping[str, str]
    after: Mapping[str, str]
    ended: float

    @property
    def line(self) -> str:
        return " ".join(("frontier", *self.words))


@dataclass
class Told:
    """A night that was played: all its commands in order, of which `looks` begin those at the
    end.
    """

    night: Night
    folder: Path
    server: Server
    said: list[Said] = field(default_factory=list)
    looks: int = 0
    sla: Mapping[str, object] = field(default_factory=dict)

    @property
    def run(self) -> Path:
        return self.folder / RUN

    def look(self, *words: str) -> Said | None:
        """What one of the LOOKS said at the end."""
        return next((said for said in self.said[self.looks :] if said.words == words), None)

    def tree(self, *words: str) -> Mapping[str, Any]:
        """The JSON that one of the LOOKS printed; empty where it printed none."""
        said = self.look(*words)
        return outputs.tree("" if said is None else said.out)

    @property
    def sweeps(self) -> list[Said]:
        return [said for said in self.said[: self.looks] if said.words[0] == "sweep"]


@functools.cache
def _disk() -> Disk:
    return Disk()


class Player:
    """Runs command lines in a folder of their own, in the world of one night."""

    def __init__(self, night: Night, folder: Path) -> None:
        self.night, self.folder, self.clock = night, folder, Clock()
        self.server = Server(night.laws, night.course, night.seed, self.clock)
        self.world = virtual_world(self.clock, self.server.backend)
        (folder / CONFIG).write_text(night.text)

    def run(self, command: Command) -> Said:
        """Run one command to its end."""
        out, err, server = io.StringIO(), io.StringIO(), self.server
        before, trials, began = self.state(), server.trials, self.clock.now
        raised, code = "", KILLED
        self._arm(command)
        try:
            wide = mock.patch.dict(os.environ, COLUMNS=WIDTH)
            with (
                contextlib.redirect_stdout(out),
                contextlib.redirect_stderr(err),
                inside(self.world),
                wide,
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("always", RuntimeWarning)  # each command is a process to its user
                code = command_line.run(list(command.words))
        except Killed:
            pass
        except BaseException:  # noqa: BLE001  # whatever escapes is what is looked for
            raised = traceback.format_exc()
        finally:
            _disk().mend()
            server.on_tick = lambda: None
        if code == KILLED:
            gc.collect()  # a process that is killed leaves no lock behind
        after = self.state()
        spent = server.trials - trials
        return Said(
            command.words, code, out.getvalue(), err.getvalue(), raised, spent, self.clock.now - began, before, after,
            self.clock.now,
        )  # fmt: skip

    def _arm(self, command: Command) -> None:
        if command.disk is not None:
            _disk().fail(self.folder, *command.disk)
        if command.stop_at is not None:
            left = command.stop_at

            def tick() -> None:
                nonlocal left
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGINT)

            self.server.on_tick = tick

    def state(self) -> dict[str, str]:
        """A digest of each file of the run, but for what is derived from the others."""
        run = self.folder / RUN
        files = (p for p in sorted(run.rglob("*")) if p.is_file() and "derived" not in p.parts and p.name != "lock")
        return {str(p.relative_to(run)): hashlib.sha1(p.read_bytes()).hexdigest() for p in files}

    def change(self, step: Edit | SetClock | Damage) -> None:
        """What is no command."""
        if isinstance(step, SetClock):
            self.clock.shift += step.by
        elif isinstance(step, Edit):
            config = yaml.safe_load((self.folder / CONFIG).read_text())
            (self.folder / CONFIG).write_text(yaml.safe_dump({**config, **step.keys}, sort_keys=False))
        elif files := sorted((self.folder / RUN).glob("trials/*.jsonl")):
            file = files[step.place % len(files)]
            if step.kind == "remove":
                file.unlink()
            else:
                file.write_bytes(file.read_bytes()[:-20])


@contextlib.contextmanager
def playing(night: Night) -> Iterator[tuple[Player, Told]]:
    """A player in a fresh folder, which is gone afterwards, and what it told."""
    home = Path.cwd()
    folder = Path(tempfile.mkdtemp(prefix="night-"))
    save, fsync, tick = plot.save_pictures, os.fsync, trial_files._TICK
    # A shell that puts this into the background has Ctrl-C ignored, and a sweep leaves it at that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.chdir(folder)
        os.fsync = _disk().synced
        trial_files._TICK = 0  # whether a command comes within a tick of the last is the machine's chance
        if not night.pictures:
            plot.save_pictures = lambda *_, **__: None  # type: ignore[assignment]
        player = Player(night, folder)
        with windows_by_contents():
            yield player, Told(night, folder, player.server)
    finally:
        plot.save_pictures, os.fsync, trial_files._TICK = save, fsync, tick
        signal.signal(signal.SIGINT, before)
        os.chdir(home)
        shutil.rmtree(folder, ignore_errors=True)


def play(player: Player, told: Told, looks: Sequence[tuple[str, ...]] = LOOKS) -> None:
    """All steps of the night, and the looks at its end."""
    for step in told.night.steps:
        if isinstance(step, Command):
            told.said.append(player.run(step))
        else:
            player.change(step)
    told.looks = len(told.said)
    told.sla = yaml.safe_load((told.folder / CONFIG).read_text()).get("sla") or {}
    for words in looks:
        told.said.append(player.run(Command(words)))
