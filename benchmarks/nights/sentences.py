"""What a sentence, a row or a command says of a setting is what the JSON has of it."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.nights import outputs
from benchmarks.nights.draw import CONFIG, RUN
from benchmarks.nights.play import Said, Told

Points = Mapping[Any, Mapping[str, Any]]
ROUNDED = 0.0051
"""Three digits are at most this far from the number, as a share of it."""
CAUSES = {
    "client_bound": "this machine was busy",
    "cut_off": "the budget ended it",
    "records_changed": "records changed",
    "no_requests": "no request counts",
    "stopped_early": "the trial was ended early",
}
"""A flag that excludes a setting, and what the table calls it."""


def _points(told: Told) -> Points:
    """The points of a night with one series in a closed loop, by setting; none for others."""
    found = outputs.points(told.tree("show", RUN, "--json"))
    series = {(d, s) for d, s, _ in found}
    if len(series) != 1 or told.night.kind not in ("closed", "sessions"):
        return {}
    return {load: point for (_, _, load), point in found.items()}


def _answers(told: Told) -> Iterator[Said]:
    for said in told.said[told.looks :]:
        if said.words in (("solve", RUN), ("solve", RUN, "-v")):
            yield said


def cells_are_of_their_settings(told: Told) -> Iterator[str]:
    """Each latency and error rate in the table is that of its row's setting."""
    points, shown = _points(told), told.look("show", RUN)
    if not points or shown is None:
        return
    for setting, cells in outputs.cells(shown.out):
        metrics = points.get(setting, {}).get("metrics", {})
        for words, cell in cells.items():
            known = metrics.get("error_rate" if words == "errors" else outputs.metric_of(words), {}).get("value")
            match = outputs.VALUE.fullmatch(cell)
            if known is None or match is None:
                continue
            value = outputs.number(match[1], match[2])
            if not outputs.near(value, known, ROUNDED) and abs(value - known) > 5e-5:
                yield f"the table has {words} {cell} at c={setting}, the JSON {known:g}"


def figures_and_limits_are_whole(told: Told) -> Iterator[str]:
    """A bound lies on its side of its value, a limit is the SLA's, and the headroom is the
    share that bound and limit give.
    """
    limits = [limit for tier in told.tree("solve", RUN, "--json").get("tiers", ()) for limit in _limits(tier)]
    for said in _answers(told):
        for match in outputs.FIGURE_WITH_LIMIT.finditer(said.out):
            value, limit = outputs.number(match["value"], match["unit"]), outputs.number(match["limit"], match["of"])
            line = match[0].strip()
            bound = outputs.number(match["bound"], match["in"]) if match["bound"] else value
            if match["side"] == "at most" and bound < value * (1 - ROUNDED):
                yield f"{said.line}: a bound below its value: {line}"
            promises = [promise for name, promise in limits if name == outputs.metric_of(match["words"])]
            if promises and not any(outputs.near(limit, promise, ROUNDED) for promise in promises):
                yield f"{said.line}: the limit is {promises}: {line}"
            left = match["left"] if limit > 0 and match["words"] != "error rate" else None
            if left is not None and abs(100 * (1 - bound / limit) - float(left)) > 1.1:
                yield f"{said.line}: {line}"


def _limits(tier: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [(limit["metric"], limit["promise"]) for limit in tier["shapes"][0]["limits"]] if tier["shapes"] else []


def requests_are_of_the_setting(told: Told) -> Iterator[str]:
    """The requests on which an answer rests, and those that did not prove a setting, are its n."""
    points = _points(told)
    for said in _answers(told):
        text = re.sub(r"\s+", " ", said.out)
        sure = r"Confidence (?:95%, from )?([\d,]+) requests in"
        found = re.findall(rf"Run at concurrency (\d+):(?:(?!Run at).)*?{sure}", text)
        found += re.findall(r"c=(\d+) is not proven: ([\d,]+) requests prove no", text)
        for load, n in found:
            known = points.get(int(load), {}).get("n")
            if known is not None and known != int(n.replace(",", "")):
                yield f"{said.line}: {n} requests at c={load}, which has {known:,}"


def sentences_and_verdicts_agree(told: Told) -> Iterator[str]:
    """What a sentence calls a setting is what the JSON judges."""
    answered = [shape for tier in told.tree("solve", RUN, "--json").get("tiers", ()) for shape in tier["shapes"]]
    if told.night.kind not in ("closed", "sessions"):
        return
    for said in _answers(told):
        blocks = outputs.blocks(said.out)
        if answered and len(blocks) != len(answered):
            yield f"{said.line}: {len(blocks)} answers, in the JSON {len(answered)}"
        for block, shape in zip(blocks, answered, strict=False):
            yield from (f"{said.line}: {line}" for line in _disagrees(block, shape))


def _disagrees(block: Sequence[str], shape: Mapping[str, Any]) -> Iterator[str]:
    """What the text of an answer calls a setting, and the JSON otherwise."""
    judged = {j["concurrency"]: j["verdict"] for j in shape["judgements"]}
    words = {"violates": ("violates",), "is not proven": ("unproven", "marginal"), "also meets": ("meets",)}
    words |= {"excluded": ("invalid",), "was excluded": ("invalid",)}
    text = re.sub(r"\s+", " ", " ".join(block))
    for load, word in re.findall(rf"c=(\d+) ({'|'.join(words)})\b", text):
        verdict = judged.get(int(load))
        if verdict is not None and verdict not in words[word]:
            yield f"c={load} {word}, in the JSON {verdict}"
    head = re.search(r"(?:[Rr]un at|Proven so far:) concurrency (\d+)", text)
    if (int(head[1]) if head else None) != shape["concurrency"]:
        yield f"{block[0]}; in the JSON c={shape['concurrency']}"


def causes_are_the_flags(told: Told) -> Iterator[str]:
    """What the table names as the causes that exclude a setting are its flags."""
    points, shown = _points(told), told.look("show", RUN)
    if not points or shown is None:
        return
    for row in outputs.rows(shown.out):
        point = points.get(row.setting)
        if point is None or not row.verdict.startswith("excluded: "):
            continue
        flags = [flag["name"] for flag in point["flag_details"] if flag["fatal"]]
        causes = row.verdict.removeprefix("excluded: ").partition("  ")[0].split(", ")
        for flag, cause in CAUSES.items():
            if ((cause in causes) and flag not in flags) or (
                flag in flags and cause not in causes and "…" not in row.verdict
            ):
                yield f"c={row.setting}: {row.verdict}, and its flags are {flags}"


def commands_are_of_the_setting_named(told: Told) -> Iterator[str]:
    """A command that would decide a setting is of that setting, and of this run."""
    for said in _answers(told):
        named = ""
        for line in said.out.splitlines():
            if (command := line.strip()).startswith("frontier sweep"):
                words = shlex.split(command)
                if (
                    words[2] not in (CONFIG, f"{RUN}/config.yaml")
                    or words[3] != "-o"
                    or not re.fullmatch(rf"{RUN}(-\d+)?", words[4])
                ):
                    yield f"{said.line}: {command}"
                settings = words[words.index("--prove") + 1].split(",") if "--prove" in words else []
                if (known := re.findall(r"c=(\d+)", named)) and not set(settings) <= set(known):
                    yield f"{said.line}: {command}, under: {named}"
            named = f"{named} {line.strip()}" if line.strip() else ""


SENTENCES: tuple[Callable[[Told], Iterator[str]], ...] = (
    cells_are_of_their_settings,
    figures_and_limits_are_whole,
    requests_are_of_the_setting,
    sentences_and_verdicts_agree,
    causes_are_the_flags,
    commands_are_of_the_setting_named,
)
