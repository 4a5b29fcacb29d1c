"""Identity of a deployment's server: the model, version and process that answered in its first
windows.

Those of every later window are compared with them. A trial is compared with itself while it runs. A
gateway that falls back to another model for a whole window, or for all windows of a setting, shows
only against the windows before it.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from frontier.core.claim.changes import History
from frontier.core.flags.flags import LIFE, flags
from frontier.core.model.points import Point
from frontier.core.model.trials import TOGETHER, Trial
from frontier.core.window.window import WindowData, join

EVENT = "answered"
CLOCK = 60.0
"""Seconds by which the clocks of the server and of this machine may differ."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The server that answered first; None in a field: not told yet.

    `names` are the names that each answer gave its model. `process` is the start of the process,
    and `since` the beginning of the window in which it was read (unix times).
    """

    names: frozenset[str] | None = None
    version: str | None = None
    process: float | None = None
    since: float = 0.0

    def with_window(self, sample: WindowData) -> tuple["Identity", WindowData]:
        """The identity with what one more window tells first, and the window. Its `changed` then
        says what differs in it.

        A process that began since the first window is a restart, and not another server. A process
        that was running then, beside that of the first window, is another server. A window in which
        the server changed has its flag, and of it only the name in its first answer is compared
        with.
        """
        names, (told,) = sample.names("model"), sample.server_identities
        named = next((frozenset(name.split(TOGETHER)) for name in names), None)
        known = named if len(names) == 1 else None
        version = LIFE.sub("", told or "") or None
        match = LIFE.search(told or "")
        process, begun = (float(match[1]) if match else None), float(sample.starts[0])
        first = self
        if not any(sample.changed) and not any(server.get("restarts") for server in sample.server):
            first = Identity(self.names or named, self.version or version, self.process, self.since)
            if first.process is None and process is not None:
                first = replace(first, process=process, since=begun)
        found = list(filter(None, sample.changed))
        if known and first.names and known != first.names:
            found.append(f"the answers name {_listed(known)}, those of the first window {_listed(first.names)}")
        if version and first.version and version != first.version:
            found.append(f"it is {version}, and was {first.version} in the first window")
        if _ran_beside(first, process):
            found.append("another process answers than in the first window, and had been started before it")
        return first, replace(sample, changed=("; ".join(found),)) if found else sample

    def facts(self) -> dict[str, Any]:
        """It as a line of the journal has it."""
        known = asdict(self) | {"names": sorted(self.names or ()) or None}
        return {name: fact for name, fact in known.items() if fact is not None}


def journalled(lines: Iterable[Mapping[str, Any]]) -> dict[str, Identity]:
    """Who answered first for each deployment, as the journal of a run has it: windows are measured
    again, and the first is then no longer the first. Nothing of runs of earlier versions.
    """
    found = {}
    for line in lines:
        if line["event"] == EVENT:
            names = frozenset(line.get("names", ())) or None
            since = line.get("since", 0.0)
            found[line["deployment"]] = Identity(names, line.get("version"), line.get("process"), since)
    return found


def _listed(names: frozenset[str]) -> str:
    return TOGETHER.join(sorted(names))


def _ran_beside(first: Identity, process: float | None) -> bool:
    """Whether a process was running when the first window was measured, and is not that of it."""
    if process is None or first.process is None or process == first.process:
        return False
    return process < max(first.process, first.since - CLOCK)


def compared(first: Mapping[str, Identity], sample: WindowData) -> WindowData:
    """The window, compared with the first ones of its deployment."""
    return first.get(sample.deployment, Identity()).with_window(sample)[1]


def with_others(point: Point, history: History) -> Point:
    """A point of a series with the flag that another server answered trials of its setting. It is a
    warning where they are left out beside others; where the first server is gone, it is fatal at
    every setting.
    """
    mine = [sample for trial, sample in history if trial.load == point.load]
    replaced, gone = [sample for sample in mine if any(sample.changed)], _gone(history)
    known = any(flag.name == "server_changed" for flag in point.flags)
    if known or not (gone or 0 < len(replaced) < len(mine)):
        return point
    where = f"{len(replaced):,} of {len(mine):,} trials, left out"
    if gone is not None:
        trial, newest = gone
        replaced, where = [newest], f"since then, at {trial.load.label}"
    flag = next(flag for flag in flags(join(tuple(replaced))) if flag.name == "server_changed")
    raised = replace(flag, measured=f"{where}: {flag.measured}", fatal=gone is not None)
    return replace(point, flags=tuple(sorted((*point.flags, raised), key=lambda each: not each.fatal)))


def _gone(history: History) -> tuple[Trial, WindowData] | None:
    """The newest trial of a setting that the first server answered before and another one answers
    now. None where the first has answered since, and where the other answered new settings alone: a
    gateway may fall back under their load.
    """
    before = {trial.load for trial, sample in history if not any(sample.changed) and sample.ok.any()}
    newest = itertools.takewhile(lambda each: any(each[1].changed), reversed(history))
    return next((each for each in newest if each[0].load in before), None)
