"""Standing of a sweep: how far it has come, how its last session ended, and the command that goes
on."""

import itertools
import re
import shlex
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from frontier.config import Config, Setting, config_text
from frontier.config.connection import names_server
from frontier.core.claim.changes import PROOFS
from frontier.core.model.decisions import Limit, SweepEnding
from frontier.core.model.errors import UsageError
from frontier.core.model.groups import by_key
from frontier.core.model.loads import Load, listed
from frontier.core.model.series import Series
from frontier.core.model.text import MASK, capital, clean, some_of
from frontier.core.model.trials import Phase, Trial
from frontier.core.model.units import count
from frontier.planning.plan import make_plan
from frontier.store.journal import VIRTUAL, last_session, sessions
from frontier.store.run_dir import RunDirectory
from frontier.store.trial_files import AlteredError

ENDS = ("finished", "budget", "interrupted", "server_lost", "failed", "stopped")
"""Events that the journal of a sweep ends with; with any other event it was killed."""
_DONE = ("finished", "budget")
_NO_SERVER = {"never_came_up": "the server never came up", "another": "another server answered"}
_LARGEST_CONFIG = 1 << 20
_NAMED = 4
"""The most series whose missing settings are named."""

End = Literal["running", "finished", "budget", "interrupted", "server_lost", "failed", "stopped", "killed"]


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a sweep has come. `trials` are finished and on the disk, `refined` of them are of the
    search. `done` of the `planned` trials need not be run any more: they are finished, or a proof
    stands in their place. `left` are the planned trials that are neither done nor given up;
    `given_up` are the trials that the last session skipped, or dropped for the budget. A setting is
    measured when one of its trials is finished that is no quick look of the search and that the
    budget did not cut off. `settings` is None where the sweep finds its settings itself.

    `end` is how the last session ended, `reason` why, where the journal has it, and `cause` why
    there was no server. `again` is the command of that session. `missing` are the listed settings
    without any trial, `short` those with nothing but trials of a search; `several`: of several
    series. `removed` trials were finished, and their files are gone; a busy client `spoilt` some;
    the first that was changed or cut since is `damaged`. `skipped_for` says why the last session
    skipped a setting, other than for the budget.
    `is_virtual`: swept by a program in virtual time, which no command goes on with. `was_over`: the
    sweep had finished before its last session, which was to prove some settings and nothing else.
    """

    end: End
    reason: str
    trials: int
    planned: int
    done: int
    refined: int
    left: tuple[Trial, ...]
    given_up: Mapping[str, str]
    settings: int | None
    measured: int
    again: str
    cause: str = ""
    missing: tuple[tuple[Series, Load], ...] = ()
    short: tuple[tuple[Series, Load], ...] = ()
    several: bool = False
    removed: int = 0
    spoilt: int = 0
    is_virtual: bool = False
    damaged: AlteredError | None = None
    skipped_for: Mapping[tuple[Series, Load], str] = field(default_factory=dict)
    was_over: bool = False

    @property
    def state(self) -> Literal["running", "finished", "stopped"]:
        """The state as `frontier status` shows it. A finished run is one that the same command
        would not go on with.
        """
        if self.end == "running":
            return "running"
        return "finished" if (self.end in _DONE or self.was_over) and not self.left else "stopped"

    def ended(self, config: Config) -> SweepEnding:
        """How the sweep of `config` ended, for what may be said of its proofs."""
        keys = (key.rsplit("-", 2) for key in self.given_up if key.count("-") > 1)
        dropped = {setting for setting, phase, _ in keys if phase in PROOFS}
        return SweepEnding(self.end, tuple(limits for _, limits in config.tiers), dropped)

    @property
    def unfinished(self) -> bool:
        """Whether a part of the plan is missing: it is still to come, was cut off, or had no room
        in the budget.
        """
        return self.state != "finished" or (self.end == "budget" and not self.was_over)

    @property
    def was_busy(self) -> bool:
        """Whether a busy client spoilt at least half of the trials: the rest would be of no use."""
        return 2 * self.spoilt >= max(1, self.trials)

    @property
    def brief(self) -> str:
        """'unfinished: the budget had no room for more'; '' for a finished run."""
        if not self.unfinished:
            return ""
        words = {
            "running": "a sweep is running on it now",
            "finished": (
                f"the files of {count(self.removed, 'finished trial')} are missing"
                if self.removed
                else "the last sweep was asked for a part of it"
            ),
            "budget": "the budget had no room for more",
            "interrupted": "it was interrupted",
            "server_lost": _NO_SERVER.get(self.cause, "the server was lost"),
            "failed": f"it failed: {self.reason}" if self.reason else "it failed",
            "stopped": "it was stopped",
            "killed": "it was killed",
        }
        return clean(f"unfinished: {words[self.end]}", 400)

    @property
    def gaps(self) -> str:
        """'Not measured: c=4, 16. Quick looks only: c=1, 8.': the listed settings without a whole
        trial. For a finished run it also says why, line by line.
        """
        short = self.short if self.unfinished else ()
        reasons = self.skipped_for if self.unfinished else {}  # of a finished run they stand below
        missing = by_key((f" ({clean(reasons[s], 160)})" if s in reasons else "", s) for s in self.missing)
        named = [
            *(("Not measured", settings, why) for why, settings in missing.items()),
            ("Quick looks only", short, ""),
        ]
        lines = [f"{what}: {_named(settings, self.several)}{why}." for what, settings, why in named if settings]
        if self.unfinished and not lines:
            part = f"{self.done:,} of {count(self.planned, 'listed trial')} are done."
            every = "Every listed setting is measured; the search is not over."
            of_listed = part if self.done < self.planned else every
            lines = [of_listed if self.settings else "The search is not over."]
        why = () if self.unfinished or not lines else dict.fromkeys(map(capital, self.given_up.values()))
        return "\n  ".join([" ".join(lines), *why])

    @property
    def first(self) -> str:
        """What to do of a damaged trial before the run is gone on with; '' for nothing."""
        if self.damaged is None:
            return ""
        what = "" if self.damaged.trial in self.reason else f"trial {self.damaged.trial} was changed or damaged: "
        return clean(capital(f"{what}{self.damaged.hint}"), 1000)

    @property
    def way(self) -> str:
        """What stands before the command that goes on: what to do first, or what it does."""
        if self.first:
            return f"{self.first}. Then"
        if self.is_virtual:
            return "To measure all of it in real time, in a run of its own"
        return "This machine was busy. Where it is idle, measure anew" if self.was_busy else "To complete the sweep"

    def text(self, go_on: str) -> str:
        """How the run ended, which settings are not measured, and the command that measures them;
        '' for a finished run.
        """
        if not self.unfinished:
            return ""
        if self.end == "running":
            return f"{self.brief}. {self.gaps}"
        return f"{self.brief}. {self.gaps} {self.way}:\n  {go_on}"

    def tree(self, go_on: str) -> dict[str, Any] | None:
        """The standing for JSON; None for a finished run."""
        if not self.unfinished:
            return None
        return {
            "end": self.end,
            "settings": self.settings,
            "measured": self.measured,
            "trials": self.planned,
            "finished": self.done,
            "trials_finished": self.trials,
            "not_measured": [_setting_tree(setting) for setting in self.missing],
            "short": [_setting_tree(setting) for setting in self.short],
            "go_on": go_on,
        }


def _named(settings: Sequence[tuple[Series, Load]], several: bool) -> str:
    """'c=4, 16', with the names of the series where there are several."""
    groups = by_key(settings)
    names = [f"{series.label()} {listed(loads)}" if several else listed(loads) for series, loads in groups.items()]
    return some_of(names, _NAMED, "; ")


def _setting_tree(setting: tuple[Series, Load]) -> dict[str, Any]:
    (deployment, shape), load = setting
    return {"deployment": deployment, "shape": shape.label, **load.facts}


def lost_server(lines: Sequence[Mapping[str, Any]]) -> str:
    """Why a sweep ended without a server, of the lines of its journal: it never came up, was lost,
    or is another one.
    """
    ends = [line for line in lines if line["event"] == "server_lost" and "trial" not in line]
    last = ends[-1] if ends else {}
    said = {"never_came_up": "the server never came up: ", "another": ""}
    before = said.get(str(last.get("cause")), "the server was lost and did not come back: ")
    return f"{before}{last.get('reason', '')}"


def standing(
    run: RunDirectory,
    lines: Sequence[dict[str, Any]],
    config: Config,
    finished: Mapping[str, Trial],
    altered: Sequence[AlteredError] = (),
) -> Standing:
    """How far the sweep of `run` has come, by the `lines` of its journal; `finished` are its
    finished trials by key, `altered` are known to be damaged.
    """
    session = last_session(lines)
    plan = make_plan(config)
    planned = {t.key: t for t in plan.trials if config.measured_by == "sweep"}
    cut = _flagged(lines, "cut_off")
    given_up = skipped(session, finished.keys() - (planned.keys() & cut))
    whole = {key: t for key, t in finished.items() if key not in cut}
    own = [t for t in whole.values() if plan.sized or t.phase not in (Phase.SCAN, Phase.FRONTIER)]
    finds = config.auto or config.rate == ()  # the setting that `auto` begins with is not listed
    listed = () if finds else planned.values()
    settings, measured = ({_setting(t) for t in trials} for trials in (listed, own))
    # A setting that the sweep sizes itself may have been proven instead of measured for the grid,
    # and one that the budget cut off is measured again in a trial of its own.
    other = {k for k, t in planned.items() if (k in cut or not plan.sized) and _setting(t) in measured}
    done = other | (planned.keys() & whole.keys())
    tried = {_setting(t) for t in whole.values()}
    last, over = _last(lines)
    running = not over and run.held()
    ended: Any = last["event"] if last["event"] in ENDS else "killed"
    return Standing(
        end="running" if running else ended,
        reason=str(last.get("reason", "")),
        trials=len(finished),
        planned=len(planned),
        done=len(done),
        refined=len(finished.keys() - planned.keys()),
        left=tuple(trial for key, trial in planned.items() if key not in done and key not in given_up),
        given_up=given_up,
        settings=len(settings) or None,
        measured=len(settings & measured) if settings else len(measured),
        again=_command(run, lines, config.measured_by),
        cause=str(last.get("cause", "")),
        missing=tuple(sorted(settings - tried, key=_place)),
        short=tuple(sorted((settings & tried) - measured, key=_place)),
        several=len({series for series, _ in settings}) > 1,
        spoilt=len(_flagged(lines, "client_bound")),
        is_virtual=_session(lines) is None and VIRTUAL in {line.get("identity") for line in lines},
        damaged=next(iter(altered), None),
        skipped_for=_skipped_for(session, planned),
        removed=len({line["trial"] for line in lines if line["event"] == "trial_done"} - finished.keys()),
        was_over=_was_over(lines),
    )


def _was_over(lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the sweep had finished before sessions that were to prove some settings alone."""
    every = sessions(lines)
    own = [session for session in every if not any("prove" in line for line in session)]
    return bool(own) and own[-1] is not every[-1] and _last(own[-1])[0]["event"] == "finished"


def _skipped_for(session: Iterable[Mapping[str, Any]], planned: Mapping[str, Trial]) -> dict[tuple[Series, Load], str]:
    """Why a session skipped planned settings, other than for the budget."""
    unfit = skipped((line for line in session if line["event"] == "skipped"), ())
    return {_setting(planned[key]): why for key, why in unfit.items() if key in planned}


def _flagged(lines: Iterable[Mapping[str, Any]], name: str) -> set[str]:
    """The trials that a flag excluded: a busy client spoilt them, or the budget cut them off."""
    return {line["trial"] for line in lines if line["event"] == "flagged" and name in line.get("flags", ())}


def counts_text(trials: int, refined: int, measured: int, settings: int | None) -> str:
    """'23 trials: 1 listed, 22 of the search; 1 of 5 listed settings measured'; '23 trials; 4
    settings measured' where none is listed.
    """
    if not settings:
        return f"{count(trials, 'trial')}; {count(measured, 'setting')} measured"
    of_each = f": {trials - refined:,} listed, {refined:,} of the search" if refined else ""
    of_each = ", all of the search" if trials == refined > 1 else of_each
    return f"{count(trials, 'trial')}{of_each}; {measured:,} of {count(settings, 'listed setting')} measured"


def _setting(trial: Trial) -> tuple[Series, Load]:
    return trial.series, trial.load


def _place(setting: tuple[Series, Load]) -> tuple[str, str, int]:
    (deployment, shape), load = setting
    return deployment, shape.label, load


def _last(lines: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], bool]:
    """The line with the end of the last session, and whether that session is surely over.

    The line of a server that was stopped comes after the end. A trial that was lost or cut off is
    not yet the end: the lock shows whether the sweep still lives. After the end it may be `verify`
    that holds the lock.
    """
    kept = [line for line in lines if line["event"] != "stopped"] or lines
    last = kept[-1] if kept else {"event": "created"}
    over = last["event"] in ENDS and "trial" not in last
    return (last if over or not lines else lines[-1]), over


def _command(run: RunDirectory, lines: Sequence[Mapping[str, Any]], name: str) -> str:
    """The command of the sweep into this directory again. It uses the user's own config, with the
    settings given beside it, where that is still the same; after a `cd` where it lies elsewhere.
    Otherwise it uses the run's copy, which has the settings in it.
    """
    session = _session(lines) or {}
    file = str(session.get("config", run.manifest.get("config_file", "")))
    given = tuple(session.get("settings", ()))
    options = [word for setting in given for word in ("--set", setting)]
    if names_server(file):
        return clean(shlex.join(["frontier", name, file, "-o", str(run.path), *_line_options(given)]), 4000)
    kept = _without_head(run.config_text())
    for directory in ("", *([session["directory"]] if session else [])):
        own = _own_config(Path(directory, file), given)
        if own is not None and re.fullmatch(re.escape(kept).replace(re.escape(MASK), ".*"), own):
            path = run.path.absolute() if directory else run.path
            words = shlex.join(["frontier", name, file, "-o", str(path), *options])
            return clean(f"cd {shlex.quote(directory)} && {words}" if directory else words, 4000)
    return clean(shlex.join(["frontier", name, str(run.path / "config.yaml"), "-o", str(run.path)]), 4000)


def _session(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The line with the last command that swept; None where a program did."""
    return next((line for line in reversed(lines) if "config" in line and "directory" in line), None)


def _line_options(settings: Sequence[str]) -> list[str]:
    """The options of a line with these settings: --shape and --sla, and --set for the others."""
    words: list[str] = []
    for key, _, value in (setting.partition("=") for setting in settings):
        if key == "shapes" and not re.search("[{,]", value):
            words += ["--shape", value.strip("[]")]
        else:
            words += ["--sla", value] if key == "sla" else ["--set", f"{key}={value}"]
    return words


def _own_config(file: Path, settings: Sequence[str]) -> str | None:
    """The text of the user's config as a run would keep it, without the masking; None where there
    is no such file.
    """
    with suppress(OSError, UnicodeDecodeError, ValueError, UsageError):
        status = file.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size < _LARGEST_CONFIG:
            text = file.read_text()
            given = [Setting.of(setting) for setting in settings]
            return _without_head(config_text(text, str(file), given) if given else text)
    return None


def _without_head(text: str) -> str:
    """A config's text without the comments at its beginning. A run's copy begins with comments that
    say which settings were put into it.
    """
    lines = text.splitlines(keepends=True)
    return "".join(itertools.dropwhile(lambda line: line.startswith("#"), lines))


def limit_texts(limits: Iterable[Limit]) -> list[str]:
    """The limits of an SLA as the journal has them: 'p99_ttft=0.5'."""
    return [f"{limit.metric}={limit.promise:.12g}" for limit in limits]


def proven_settings(lines: Iterable[Mapping[str, Any]], limits: Sequence[Limit]) -> list[Mapping[str, Any]]:
    """The lines of a journal that say which setting is proven for these limits, less those that
    were corrected later. Lines of earlier versions have no limits.
    """
    wanted, found = limit_texts(limits), list[Mapping[str, Any]]()
    for line in lines:
        if line["event"] == "proven" and list(line.get("limits", wanted)) == wanted:
            found.append(line)
        elif line["event"] == "corrected":
            where = line["deployment"], line["shape"]
            found = [one for one in found if (one["deployment"], one["shape"]) != where]
    return found


def skipped(lines: Iterable[Mapping[str, Any]], finished: Collection[str]) -> dict[str, str]:
    """Why each skipped or dropped trial was not measured, by its key; the last reason counts."""
    reasons: dict[str, str] = {}
    for line in lines:
        keys = {"skipped": [line.get("trial")], "dropped": line.get("trials", ())}.get(line["event"], ())
        reasons |= {str(key): str(line.get("reason")) for key in keys if key not in finished}
    return reasons
