"""How far the sweep of a run has come: finished, running, interrupted or killed; what is left, and what goes on."""

import shlex
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from frontier.config import Config
from frontier.model import Shape, Trial
from frontier.plan import make_plan
from frontier.present.wording import clean, count
from frontier.redaction import redact
from frontier.store import RunDirectory

ENDS = ("finished", "budget", "interrupted", "server_lost", "failed", "stopped")
"""What the journal of a sweep ends with; with anything else it was killed."""
_DONE = ("finished", "budget")
_LARGEST_CONFIG = 1 << 20

End = Literal["running", "finished", "budget", "interrupted", "server_lost", "failed", "stopped", "killed"]


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a sweep has come. `left` are the planned trials that are neither finished nor given up; `given_up` those
    that the last session skipped, or dropped for the budget. A setting is measured when one of its trials is finished.

    `end` is how the last session ended, `reason` why where the journal says so; `again` is the command that goes on.
    """

    end: End
    reason: str
    planned: int
    done: int
    refined: int
    left: tuple[Trial, ...]
    given_up: frozenset[str]
    settings: int
    measured: int
    again: str

    @property
    def state(self) -> Literal["running", "finished", "stopped"]:
        """As `frontier status` says it: finished is what the same command would not go on with."""
        if self.end == "running":
            return "running"
        return "finished" if self.end in _DONE and not self.left else "stopped"

    @property
    def unfinished(self) -> bool:
        """A part of what was planned is not there: it is still to come, was cut off, or had no room in the budget."""
        return self.state != "finished" or self.end == "budget"

    @property
    def brief(self) -> str:
        """'unfinished: 4 of 10 settings measured (12 of 30 trials)'; '' for a finished run."""
        if not self.unfinished:
            return ""
        measured = f"{self.measured} of {count(self.settings, 'setting')} measured"
        return f"unfinished: {measured} ({self.done} of {count(self.planned, 'trial')})"

    @property
    def text(self) -> str:
        """The same with how it ended and the command that goes on, in two lines; '' for a finished run."""
        if not self.unfinished:
            return ""
        words = {
            "running": "a sweep is running on it now",
            "finished": "the last sweep was asked for a part of it",
            "budget": "the budget had no room for more",
            "interrupted": "it was interrupted",
            "server_lost": "the server was lost",
            "failed": f"it failed: {self.reason}" if self.reason else "it failed",
            "stopped": "it was stopped",
            "killed": "it was killed",
        }
        if self.end == "running":
            return f"{self.brief}; {words[self.end]}"
        way = "raise it and go on with" if self.end == "budget" else "go on with"
        return clean(f"{self.brief}; {words[self.end]}; {way}", 400) + f"\n  {self.again}"

    def tree(self) -> dict[str, Any] | None:
        """For JSON; None for a finished run."""
        if not self.unfinished:
            return None
        return {
            "end": self.end,
            "settings": self.settings,
            "measured": self.measured,
            "trials": self.planned,
            "finished": self.done,
            "go_on": self.again,
        }


def standing(run: RunDirectory, config: Config, finished: Mapping[str, Trial]) -> Standing:
    """How far the sweep of `run` has come; `finished` are its finished trials by key."""
    lines = run.journal_lines()
    began = max((i for i, one in enumerate(lines) if one["event"] in ("created", "resumed")), default=0)
    given_up = given_up_in(lines[began:]) - finished.keys()
    planned = {t.key: t for t in make_plan(config).trials}
    last, over = _last(lines)
    running = not over and run.held()
    return Standing(
        end="running" if running else last["event"] if last["event"] in ENDS else "killed",
        reason=str(last.get("reason", "")),
        planned=len(planned),
        done=len(finished.keys() & planned.keys()),
        refined=len(finished.keys() - planned.keys()),
        left=tuple(trial for key, trial in planned.items() if key not in finished and key not in given_up),
        given_up=frozenset(given_up),
        settings=len(_settings(planned.values())),
        measured=len(_settings(planned.values()) & _settings(finished.values())),
        again=_command(run),
    )


def _last(lines: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], bool]:
    """The line that says how the last session ended, and whether it is surely over.

    A server that is stopped says so after the end. A trial that is lost or cut off is not yet the end, and only who
    holds the lock then says whether the sweep lives; after the end it may be `verify` that holds it.
    """
    kept = [line for line in lines if line["event"] != "stopped"] or lines
    last = kept[-1] if kept else {"event": "created"}
    over = last["event"] in ENDS and "trial" not in last
    return (last if over or not lines else lines[-1]), over


def given_up_in(session: Sequence[Mapping[str, Any]]) -> set[str]:
    """The trials that were skipped, or dropped for the budget."""
    skipped = {str(one["trial"]) for one in session if one["event"] == "skipped"}
    return skipped.union(*(one["trials"] for one in session if one["event"] == "dropped"))


def _settings(trials: Any) -> set[tuple[str, Shape, int]]:
    return {(t.deployment, t.shape, t.concurrency) for t in trials}


def _command(run: RunDirectory) -> str:
    """The sweep into this directory again: by the user's own config where that is still the same, else by the run's,
    which has the options in it that were given beside the file.
    """
    own = Path(str(run.manifest.get("config_file", "")))
    kept = run.path / "config.yaml"
    with suppress(OSError, UnicodeDecodeError, ValueError):
        status = own.stat()
        same = stat.S_ISREG(status.st_mode) and status.st_size < _LARGEST_CONFIG
        if same and redact(own.read_text()) == kept.read_text():
            kept = own
    return clean(shlex.join(["frontier", "sweep", str(kept), "-o", str(run.path)]), 4000)
