"""What is wrong with a value of a config, and how it is said."""

import difflib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong: what, the way out, and where below the value (`at_key`: at the key, not its value)."""

    what: str
    hint: str | None = None
    path: tuple[str | int, ...] = ()
    at_key: bool = False


class Faults(ValueError):  # noqa: N818
    """Everything wrong with one value."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("; ".join(f.what for f in faults))
        self.faults = faults


def fault(what: str, hint: str | None = None, *path: str | int) -> Faults:
    """One fault, ready to be raised."""
    return Faults(Fault(what, hint, path))


def shown(value: Any) -> str:
    """A value as a message repeats it: short, and a list or mapping by its kind only."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value) if isinstance(value, str) else f"{value}"
    return text if len(text) <= 60 else text[:57] + "..."


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def nearest(value: Any, allowed: tuple[str, ...]) -> str:
    """'did you mean X?' when something is close, else all that is known."""
    close = difflib.get_close_matches(str(value)[:80].lower(), allowed, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else "known: " + ", ".join(allowed)
