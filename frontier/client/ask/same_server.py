"""Identity of the server of a deployment: the model, version and process that answered in its first
windows, with which those of every later window are compared.

A trial is compared with itself while it runs. A gateway that falls back to another model for a
whole window, or for all windows of a setting, shows only against the windows before it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from frontier.core.flags import LIFE
from frontier.core.trials import TOGETHER
from frontier.core.window import WindowData

CLOCK = 60.0
"""Seconds by which the clocks of the server and of this machine may differ."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who answered first: the names that each answer gave its model, the version, the start of the
    process, and when the window began in which that was read (unix times); None: not told yet.
    """

    names: frozenset[str] | None = None
    version: str | None = None
    process: float | None = None
    since: float = 0.0

    def with_window(self, sample: WindowData) -> tuple["Identity", WindowData]:
        """The identity with what one more window tells first, and the window, which then says in
        `changed` what is another in it.

        A process that began since the first window is a restart, which is no other server; one
        that was running then, beside that of the first window, is. A window in which answers differ
        in their model has its flag, and is compared with none.
        """
        names, (told,) = sample.names("model"), sample.server_identities
        known = frozenset(next(iter(names)).split(TOGETHER)) if len(names) == 1 else None
        version = LIFE.sub("", told or "") or None
        match = LIFE.search(told or "")
        process, begun = (float(match[1]) if match else None), float(sample.starts[0])
        first = replace(
            self,
            names=known if self.names is None else self.names,
            version=version if self.version is None else self.version,
        )
        if first.process is None and process is not None:
            first = replace(first, process=process, since=begun)
        found = list(filter(None, sample.changed))
        if known not in (None, first.names):
            found.append(f"the answers name {_listed(known)}, those of the first window {_listed(first.names)}")
        if version not in (None, first.version):
            found.append(f"it is {version}, and was {first.version} in the first window")
        if _ran_beside(first, process):
            found.append("another process answers than in the first window, and had been started before it")
        return first, replace(sample, changed=("; ".join(found),)) if found else sample


def _listed(names: frozenset[str] | None) -> str:
    return TOGETHER.join(sorted(names or ()))


def _ran_beside(first: Identity, process: float | None) -> bool:
    """Whether a process was running when the first window was measured, and is not that of it."""
    if process is None or first.process is None or process == first.process:
        return False
    return process < max(first.process, first.since - CLOCK)


def compared(first: Mapping[str, Identity], sample: WindowData) -> WindowData:
    """The window, compared with the first ones of its deployment."""
    return first.get(sample.deployment, Identity()).with_window(sample)[1]
