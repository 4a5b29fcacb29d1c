"""What the deployments in foreign files are called: the facts that tell them apart, joined to a name."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from frontier.errors import UsageError
from frontier.formats.documents import short_hash
from frontier.formats.found import Result, Trace

MOST_DEPLOYMENTS = 1_000
LONGEST = 60
"""Characters of a name that a config takes."""
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
UNNAMED = "default"
"""What a deployment is called of which nothing is said."""

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A deployment: what the files say of it."""

    name: str
    model: str | None = None
    gpus: int | None = None


def facts_of(what: Result | Trace) -> Facts:
    """What the file says of the deployment, to look it up by."""
    return tuple(what.facts.items())


def named(whats: Sequence[Result | Trace], wanted: str | None = None) -> dict[Facts, Named]:
    """The deployment of each set of facts. `wanted` names the only one.

    Files that say nothing beside files of one deployment are taken to be of that one.
    UsageError when the files are of too many deployments, or of several where one name is wanted.
    """
    several = list(dict.fromkeys(map(facts_of, whats)))
    known = [facts for facts in several if facts]
    if len(known) > MOST_DEPLOYMENTS:
        raise UsageError(f"the files are of {len(known):,} deployments", "import a part of them")
    names = _telling(known)
    if wanted is not None and len(known) > 1:
        said = ", ".join(names.values())
        raise UsageError(f"the files are of {len(known)} deployments: {said[:300]}", "leave --deployment out")
    if len(known) == 1:
        names[()] = names[known[0]]
    elif () in several:
        names[()] = _unused(UNNAMED, names.values())
    found = {}
    for facts in several:
        alone = len(known) <= 1
        mine = [what for what in whats if alone or facts_of(what) == facts]
        model = next((what.model for what in mine if what.model), None)
        gpus = next((what.gpus for what in mine if what.gpus), None)
        found[facts] = Named(wanted or names[facts], model, gpus)
    return found


def _telling(known: Sequence[Facts]) -> dict[Facts, str]:
    """As few facts as tell them all apart, joined to a name. A name the file itself gives counts as it is."""
    keys = list(dict.fromkeys(key for facts in known for key, _ in facts))
    chosen: list[str] = []

    def groups(by: Iterable[str]) -> int:
        return len({tuple(dict(facts).get(key) for key in by) for facts in known})

    if all("deployment" in dict(facts) for facts in known):
        chosen, keys = ["deployment"], [key for key in keys if key != "deployment"]
    for key in keys:
        if groups(chosen) == len(known):
            break
        if groups([*chosen, key]) > groups(chosen):
            chosen.append(key)
    names: dict[Facts, str] = {}
    for facts in known:
        parts = [_part(key, dict(facts)[key]) for key in chosen if key in dict(facts)]
        names[facts] = _unused(_slug("-".join(parts)) or UNNAMED, names.values())
    return names


def _unused(name: str, others: Iterable[str]) -> str:
    """The name, numbered where another has it; names that differ only in case would share a file name."""
    taken = {other.lower() for other in others}
    found, number = name, 2
    while found.lower() in taken:
        found, number = f"{name[: LONGEST - 5]}-{number}", number + 1
    return found


def _part(key: str, value: str) -> str:
    """A fact in a name: what it is of is said of bare numbers and yes or no, as 'tp8'."""
    bare = value.rstrip("/").rsplit("/", 1)[-1]
    says_nothing = bare.replace(".", "").isdigit() or bare.lower() in ("true", "false", "yes", "no")
    if not says_nothing or key == "deployment":
        return bare
    return f"v{bare}" if key.endswith("version") else f"{key.removesuffix('_size')}{bare}"


def _slug(name: str) -> str:
    """A name a config takes: letters, digits, dot, dash, underscore. What is cut off stays in a short hash."""
    found = _NO_NAME.sub("-", name).strip("-._")
    return found if len(found) <= LONGEST else f"{found[: LONGEST - 9].rstrip('-._')}-{short_hash(name)}"
