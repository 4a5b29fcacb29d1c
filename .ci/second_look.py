"""Tests that a busy machine failed are asked once more, in the open.

usage: second_look.py LANE CODE COMMAND...    COMMAND is the lane's pytest, which exited with CODE
       second_look.py end                     what was unsteady in the gate; exits 1 over MOST

A lane's pytest writes its reports to .ci/log/LANE.jsonl (pytest-reportlog) and keeps its cache in
.pytest_cache/LANE. Asked again are tests marked `process`, `smoke` or `engine`. One that passes
then is unsteady and does not fail the gate; all else does.
"""

import datetime as dt
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LOG = Path(".ci/log")
UNSTEADY = LOG / "unsteady.jsonl"
MOST = 5
"""Unsteady tests of a gate: more are no accident."""
CLOCKED = {"process", "smoke", "engine"}
"""Marks of tests that a busy machine can fail."""
LINES, BEFORE = 8, 3
"""Last lines of a failure, and tests before it on its worker, that are printed."""
CRASHED = "???"
"""The phase that pytest-xdist reports for a test whose worker crashed."""


@dataclass(frozen=True)
class Failure:
    """A failed test: its marks, the end of its traceback, and what ran before it on its worker."""

    lane: str
    test: str
    marks: tuple[str, ...]
    crashed: bool
    words: tuple[str, ...]
    before: tuple[str, ...]

    @property
    def why_not_again(self) -> str | None:
        """Why this test is not asked again; None if it is."""
        if self.crashed:
            return "its worker crashed"
        if not CLOCKED & set(self.marks):
            return "it is not marked process, smoke or engine: no clock can have failed it"
        if "chance" in self.marks:
            return "it judges how often something is wrong: a second draw would double that"
        return None


def reports(path: Path) -> list[dict[str, Any]]:
    """The reports of a pytest; none if it did not come to write them."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def failures(lane: str, lines: Iterable[Mapping[str, Any]]) -> list[Failure]:
    """The failed tests in their order, each once."""
    ran = defaultdict[str, list[str]](list)
    failed: dict[str, Failure] = {}
    for line in lines:
        if line["$report_type"] != "TestReport":
            continue
        test, worker = line["nodeid"], ran[line.get("worker_id", "")]
        if test not in worker:
            worker.append(test)
        if line["outcome"] == "failed" and test not in failed:
            words = tuple(text(line["longrepr"]).splitlines()[-LINES:])
            crashed = line["when"] == CRASHED
            before = tuple(worker[-BEFORE - 1 : -1])
            failed[test] = Failure(lane, test, tuple(line["keywords"]), crashed, words, before)
    return list(failed.values())


def text(longrepr: Any) -> str:
    """A failure in words: the message of its exception, or all of its text."""
    if isinstance(longrepr, dict):
        return str(longrepr["reprcrash"]["message"])
    return str(longrepr)


def passed(lines: Iterable[Mapping[str, Any]]) -> set[str]:
    """The tests that ran and passed, in all of their phases."""
    outcomes = defaultdict[str, set[str]](set)
    for line in lines:
        if line["$report_type"] == "TestReport":
            outcomes[line["nodeid"]].add(line["outcome"])
    return {test for test, seen in outcomes.items() if seen == {"passed"}}


def refused(lane: str, code: int, lines: list[dict[str, Any]], unsteady: int) -> list[str]:
    """Why nothing of the lane is asked again, a line a reason; none if it may be."""
    failed = failures(lane, lines)
    if any(line["$report_type"] == "CollectReport" and line["outcome"] == "failed" for line in lines):
        return ["a file of tests could not be collected"]
    if code != 1 or not failed:
        return [f"pytest exited with {code} and {len(failed)} failed tests, which is no failure of tests alone"]
    if reasons := [f"{each.test}: {each.why_not_again}" for each in failed if each.why_not_again]:
        return reasons
    if len(failed) + unsteady > MOST:
        return [f"{len(failed)} tests failed and {unsteady} were unsteady before; at most {MOST} may be in a gate"]
    remembered = last_failed(lane)
    if remembered != {each.test for each in failed}:
        return [f".pytest_cache/{lane} has other failures, perhaps of another commit: remove it and run the lane again"]
    return []


def last_failed(lane: str) -> set[str]:
    """The tests that --last-failed would choose."""
    path = Path(".pytest_cache") / lane / "v" / "cache" / "lastfailed"
    return set(json.loads(path.read_text())) if path.exists() else set()


def look_again(lane: str, code: int, command: list[str]) -> int:
    """Ask for the failed tests of the lane once more; the exit code that the lane has then."""
    lines = reports(LOG / f"{lane}.jsonl")
    if reasons := refused(lane, code, lines, len(reports(UNSTEADY))):
        print("not asked again:", *reasons, sep="\n  ")
        return max(code, 1)
    failed = failures(lane, lines)
    again = LOG / f"{lane}.again.jsonl"
    again.unlink(missing_ok=True)
    only = ["--last-failed", "--last-failed-no-failures", "none", f"--report-log={again}"]
    print(f"asked once more, one at a time: {len(failed)} failed tests of the lane {lane}", flush=True)
    command += ["-n", "0", "-o", f"cache_dir=.pytest_cache/{lane}", *only]
    second = subprocess.run(command, check=False).returncode
    missing = {each.test for each in failed} - passed(reports(again))
    if second == 0 and not missing:
        with UNSTEADY.open("a") as file:
            file.writelines(json.dumps(asdict(each)) + "\n" for each in failed)
        return 0
    if second != 1:
        print(f"the second look ended with exit {second} before it was done")
    print("failed, and did not pass when asked again:", *sorted(missing), sep="\n  ")
    return max(code, 1)


def end() -> int:
    """Print what was unsteady; 1 if that is too much."""
    unsteady = reports(UNSTEADY)
    if unsteady:
        print("\nunsteady: failed in its lane, passed when asked again. Add to tests/unsteady.txt:\n")
    today = dt.datetime.now(dt.UTC).date()
    for each in unsteady:
        print(f"{today}  {each['test']}  {' '.join(each['words'])[:80].strip()}")
    for each in unsteady:
        print(f"\n{each['test']} (lane {each['lane']})", *each["words"], sep="\n    ")
        print("  ran before it on its worker:", *(each["before"] or ("nothing",)), sep="\n    ")
    if len(unsteady) > MOST:
        print(f"\n{len(unsteady)} unsteady tests; at most {MOST} may be in a gate")
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["end"]:
        sys.exit(end())
    sys.exit(look_again(sys.argv[1], int(sys.argv[2]), sys.argv[3:]))
