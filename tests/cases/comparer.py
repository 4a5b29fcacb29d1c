"""Compares what the command says on a situation with what is expected. A case is a situation, a
config and what may, must and must not be said."""

import json
import math
import re
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cases.http_server import serving
from tests.cases.situation import Served, Situation
from tests.kit.commands import Said, frontier, start, until_trial

DEFAULTS = {
    "shapes": "[64/32]",
    "concurrency": "[4]",
    "sla": "{p50_ttft: 900ms, p50_tpot: 60ms}",
    "requests": "34",
    "repeats": "1",
    "refine": "0",
    "max_time": "8s",
    "budget": "{time: 60s}",
    "warmup": "200ms",
}
SWEEP = (("sweep", "{config}", "-o", "{run}"),)
LOOKS = (("show", "{run}", "-v"), ("solve", "{run}", "--json"), ("show", "{run}", "--json"))
"""What is looked at after the commands of a case, where a trial was finished."""
BUSY = ("client_bound", "this machine was busy", "machine is busy", "client_capacity")
"""What a measurement says of a machine that had too much else to do."""
COUNTED = {"shapes": "[80/32]"}
"""Prompts of trials that can be told from all others at the server, by their length: what is sent
ahead of trials has others, or asks for one token."""
AHEAD = frozenset({1, 16, 48})
"""Words of prompts that are sent ahead of trials and ask for more than one token."""
KILLED = -signal.SIGKILL
TOLERANCE = 0.10
"""Of a figure against the server's truth: a busy machine delays what the server writes, too."""
YES, NO, UNPROVEN, FAILED = 0, 3, 4, 5


@dataclass(frozen=True)
class Expected:
    """What is allowed, and what has to be there.

    `codes`: exit codes of the first command. `verdicts`: of each shape; empty: none need be given.
    `flags` stand at a point, `no_flags` at none. `true`: metrics whose interval has to hold the
    server's truth. `words` (regular expressions) are in what was said, `not_words` nowhere but in
    JSON. `then`: exit codes of the further commands. `counted`: each request of a trial that the
    server saw is in a file of the run, or in a gap that is said: the first group of `gap` is how
    many.
    """

    codes: tuple[int, ...] = (YES,)
    verdicts: tuple[str, ...] = ("meets",)
    flags: tuple[str, ...] = ()
    no_flags: tuple[str, ...] = ()
    true: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    not_words: tuple[str, ...] = ()
    then: tuple[tuple[int, ...], ...] = ()
    counted: bool = False
    gap: str | None = None


@dataclass(frozen=True)
class Case:
    """A case by its name. `config`: lines that replace or add to the defaults, with URL for the
    server's address. A command that begins with `kill` is killed in its second trial. `gate`: it is
    in the gate, too.
    """

    name: str
    situation: Callable[[], Situation]
    expected: Expected
    config: Mapping[str, str] | None = None
    commands: tuple[tuple[str, ...], ...] = SWEEP
    gate: bool = False
    environ: Mapping[str, str] | None = None
    files: Callable[[], Mapping[str, bytes]] | None = None
    """Files beside the config, by name."""
    check: Callable[["Seen"], list[str]] | None = None
    """More that is to be held against what was seen; each text is a difference."""

    def text(self, url: str) -> str:
        """The config."""
        return "".join(f"{key}: {value}\n" for key, value in self.lines(f"{url}/v1").items()).replace("URL", url)

    def lines(self, endpoint: str = "") -> dict[str, str]:
        """The config's values as they are written, by key."""
        counted = COUNTED if self.expected.counted else {}
        return {"endpoint": endpoint, **DEFAULTS, **counted, **(self.config or {})}


@dataclass(frozen=True)
class Seen:
    """What a case came to: each command with what it said, the JSON answers, the place, and the
    server.
    """

    case: Case
    said: tuple[Said, ...]
    looks: tuple[Said, ...]
    solve: Mapping[str, Any]
    show: Mapping[str, Any]
    run: Path
    server: Situation

    @property
    def words(self) -> str:
        """All that was said."""
        return "\n".join(text for one in (*self.said, *self.looks) for text in (one.out, one.err))

    @property
    def prose(self) -> str:
        """All that was said but for JSON."""
        return "\n".join(text for one in (*self.said, *self.looks[:1]) for text in (one.out, one.err))

    @property
    def busy(self) -> bool:
        """Whether the machine was too busy to measure on."""
        return any(word in self.words for word in BUSY)

    @property
    def points(self) -> list[dict[str, Any]]:
        return list(self.show.get("points", ()))

    def point(self, concurrency: int) -> dict[str, Any]:
        """The first point of a concurrency; nothing where there is none."""
        return next((point for point in self.points if point["concurrency"] == concurrency), {})

    @property
    def of_trials(self) -> list[Served]:
        """The requests of trials that the server saw, but for those of one token: those with as
        many words as a shape asks for, without what the server adds.
        """
        asked = {int(isl) for isl, _ in re.findall(r"(\d+)/(\d+)", self.case.lines()["shapes"])}
        words = {isl - self.server.template for isl in asked}
        assert not words & AHEAD, f"prompts of {sorted(words)} words are sent ahead of trials, too"
        return [one for one in self.server.served if one.prompt in words and one.asked > 1]

    @property
    def records(self) -> list[dict[str, Any]]:
        """The records in all files of the run, but for those of one token."""
        files = [file for file in self.run.rglob("*.jsonl*") if not file.name.startswith("journal")]
        lines = (json.loads(line) for file in files for line in file.read_text().splitlines())
        return [line for line in lines if "outcome" in line and "sent" in line and line.get("asked_osl") != 1]


@dataclass(frozen=True)
class Result:
    """The differences of a case: `wrong` stand whatever the machine did, `missing` may be owed
    to a busy one.
    """

    case: Case
    wrong: tuple[str, ...]
    missing: tuple[str, ...]
    busy: bool
    seconds: float
    words: str

    @property
    def state(self) -> str:
        """ok, DIFFERS, or busy where what is missing may be owed to the machine."""
        if self.wrong or (self.missing and not self.busy):
            return "DIFFERS"
        return "busy" if self.missing else "ok"


def compare(case: Case) -> Result:
    """The result of a case; on a busy machine of its second try."""
    result = _compare(case)
    return _compare(case) if result.state != "ok" and result.busy else result


def _compare(case: Case) -> Result:
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="case-") as place:
        seen = see(case, Path(place))
        wrong, missing = differences(case.expected, seen)
        if case.check is not None:
            wrong += case.check(seen)
        return Result(case, tuple(wrong), tuple(missing), seen.busy, time.monotonic() - begun, seen.prose)


def see(case: Case, place: Path) -> Seen:
    """Carry out the commands of a case in a folder."""
    server, run = case.situation(), place / "run"
    environ = {"XDG_CACHE_HOME": str(place / "cache"), **(case.environ or {})}
    with serving(server) as url:
        (place / "sweep.yaml").write_text(case.text(url))
        for name, data in (case.files() if case.files else {}).items():
            (place / name).write_bytes(data)
        named = {"config": "sweep.yaml", "run": "run", "url": f"{url}/v1", "root": url}
        said = []
        for command in case.commands:
            words = [word.format(**named) for word in command]
            if words[0] == "kill":
                said.append(_killed(words[1:], place, run, environ))
            else:
                said.append(frontier(*words, cwd=place, here=False, **environ))
            server.step += 1
    looks: tuple[Said, ...] = ()
    if list(run.glob("trials/*.jsonl")):
        looks = tuple(frontier(*(w.format(**named) for w in one), cwd=place, **environ) for one in LOOKS)
    solve, show = (_json(one.out) for one in looks[1:]) if looks else ({}, {})
    return Seen(case, tuple(said), looks, solve, show, run, server)


def _killed(words: list[str], place: Path, run: Path, environ: Mapping[str, str]) -> Said:
    """What a command said that is killed in its second trial."""
    process = start(*words, cwd=place, **environ)
    try:
        until_trial(process, run, finished=1)
    finally:
        process.kill()
        out, err = process.communicate()
    return Said(process.returncode, out, err)


def _json(text: str) -> dict[str, Any]:
    try:
        tree: dict[str, Any] = json.loads(text)
    except ValueError:
        return {}
    return tree


def differences(expected: Expected, seen: Seen) -> tuple[list[str], list[str]]:
    """What is wrong, and what is missing."""
    wrong, missing, words = [], [], seen.words
    codes = [expected.codes, *expected.then]
    for number, (said, allowed) in enumerate(zip(seen.said, codes, strict=False), 1):
        if said.code not in allowed:
            # A yes that may not be is wrong whatever the machine did; others may be owed to it.
            (wrong if said.code in (YES, 1) else missing).append(
                f"command {number} ended with {said.code}, not {allowed}"
            )
    verdicts = [shape.get("verdict") for shape in seen.solve.get("shapes", ())]
    for verdict in verdicts:
        if expected.verdicts and verdict not in expected.verdicts:
            (wrong if verdict in ("meets", "violates") else missing).append(
                f"verdict {verdict}, not {expected.verdicts}"
            )
    flags = {flag["name"] if isinstance(flag, dict) else flag for point in seen.points for flag in point["flags"]}
    missing += [f"no flag {name}" for name in expected.flags if name not in flags]
    missing += [f"flag {name}" for name in expected.no_flags if name in flags]
    missing += [f"not said: {word}" for word in expected.words if not re.search(word, words)]
    wrong += [f"said: {match[0]!r}" for word in expected.not_words if (match := re.search(word, seen.prose))]
    wrong += [text for metric in expected.true for text in _untrue(metric, seen)]
    if expected.counted:
        wrong += _uncounted(seen)
    return wrong, missing


def _untrue(metric: str, seen: Seen) -> list[str]:
    """Points whose interval of a metric does not hold the server's truth of their requests."""
    found = []
    for point in seen.points:
        figure = point["metrics"].get(metric) or {}
        if not point["valid"] or figure.get("value") is None:
            continue
        truth = true_value(metric, seen.server, point)
        low, high = (figure["value"] if figure.get(side) is None else figure[side] for side in ("low", "high"))
        if not (low <= truth * (1 + TOLERANCE) and high >= truth * (1 - TOLERANCE)):
            found.append(f"{metric} {low:.4g} to {high:.4g} at c={point.get('concurrency')}; true {truth:.4g}")
    return found


def true_value(metric: str, server: Situation, point: Mapping[str, Any]) -> float:
    """A percentile of the requests with the point's output length, by rank, in the units of the
    answer.
    """
    statistic, _, quantity = metric.partition("_")
    tokens = int(str(point["shape"]).split("/")[1])
    values = sorted(getattr(one, quantity) for one in server.served if one.asked == tokens and one.status is not None)
    return float(values[math.ceil(int(statistic[1:]) / 100 * len(values)) - 1])


def _uncounted(seen: Seen) -> list[str]:
    """The requests of trials that the server saw, against the records in the run's files and the
    gaps that are said. A record may be of a request that the server never saw: it was cancelled, or
    could not be sent.
    """
    gap = seen.case.expected.gap
    named = sum(int(count.replace(",", "")) for count in re.findall(gap, seen.words)) if gap else 0
    records, saw = seen.records, len(seen.of_trials)
    unseen = sum(one["outcome"] in ("cancelled", "connect", "client", "tls") for one in records)
    if len(records) + named < saw or len(records) - unseen > saw:
        gaps = f" and names {named} more" if gap else ""
        return [f"the server saw {saw} requests of trials, the run has {len(records)}{gaps}"]
    return []
