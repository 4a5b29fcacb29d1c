"""What a sentence, a row or a command says of a setting is what the JSON has of it."""

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.nights import outputs
from benchmarks.nights.draw import CONFIG, RUN
from benchmarks.nights.invariants import CLOSED, alone, changed, shown
from benchmarks.nights.play import Said, Told

ROUNDED = 0.0051
"""Three digits are at most this far from the number, as a share of it."""
CAUSES = {
    "client_bound": "this machine was busy",
    "cut_off": "the budget ended it",
    "records_changed": "its records were changed",
    "no_requests": "no request counts",
    "stopped_early": "the trial was ended early",
}
"""A flag that excludes a setting, and what the table calls it."""
OPEN = ("unproven", "marginal")
_GIVES = r"(?: gives \d+% (?:more throughput but|less throughput and))?"
SAYINGS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    r" violates?(?::| although )": (("violates",), ()),
    r" also meets: ": (("meets",), ("step_not_worth",)),
    r" meets\b": (("meets",), ("meets",)),
    r" excluded: ": (("invalid",), ("excluded",)),
    r" was excluded ": (("invalid",), ("excluded",)),
    rf"{_GIVES} is not proven: ": (OPEN, ("crosses", "too_few", "no_interval", "grows")),
    rf"{_GIVES} (?:had a quick look|was measured to compare) only": (OPEN, ("scanned", "not_judged")),
    rf"{_GIVES} was measured before the server changed": (OPEN, ("stale",)),
    r": over .* and (?:no faster|\d+% slower)": (OPEN, ()),
    r": (?:no faster|\d+% slower), and not proven": (OPEN, ()),
    r": over a limit in the only trial": (("violates",), ()),
    r" may (?:give|keep) ": (OPEN, ()),
    r" is the highest proven setting, c=\d+ the lowest that violates": (("meets",), ()),
    r" is the (?:highest|lowest) (?:measured|tried|that concurrency)": ((), ()),
    r": .*(?:would decide|to decide|about [\d,]+ requests)": ((*OPEN, "invalid"), ()),
    r": [\d,]+ of [\d,]+ (?:requests|trials) |: restarts were |: the server (?:was slower|gave) ": ((), ()),
    r" \([^)]*\)": ((), ()),
    r": (?:throughput of successive|the usage of) ": ((), ()),
    r": (?:p\d+ \w+|error rate) is that of the (?:proof|newest trial); ": (("meets",), ()),
}
"""How a sentence of an answer goes on after its settings, and the verdicts and reasons in the JSON
that these have; empty where they have any."""
HEADS = {
    "No setting meets": ("violates",),
    "o setting is proven to meet": OPEN,
    "No valid measurement": ("invalid",),
    "un at ": ("meets",),
    "Proven so far": ("meets",),
}
"""Words in the first line of an answer, and the verdicts of the JSON that may go with them."""


def _answers(told: Told) -> Iterator[Said]:
    for said in told.said[told.looks :]:
        if said.words in (("solve", RUN), ("solve", RUN, "-v")):
            yield said


def cells_are_of_their_settings(told: Told) -> Iterator[str]:
    """Each latency and error rate in the table is that of its row's setting."""
    for _, rows, points in shown(told):
        for row in rows:
            metrics = points.get(row.setting, {}).get("metrics", {})
            for words, cell in row.cells.items():
                known = metrics.get("error_rate" if words == "errors" else outputs.metric_of(words), {}).get("value")
                match = outputs.VALUE.fullmatch(cell)
                if known is None or match is None:
                    continue
                value = outputs.number(match[1], match[2])
                if not outputs.near(value, known, ROUNDED) and abs(value - known) > 5e-5:
                    yield f"the table has {words} {cell} at c={row.setting}, the JSON {known:g}"


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
    series = outputs.by_series(told.tree("show", RUN, "--json"))
    if not series or told.night.kind not in CLOSED:
        return
    for said in _answers(told):
        blocks = outputs.blocks(said.out)
        if changed(told):  # the limits then say which windows count, and the points are of the first tier's
            blocks = blocks[: len(series)]
        for block, points in zip(blocks, itertools.cycle(series.values()), strict=False):
            text = re.sub(r"\s+", " ", " ".join(block))
            sure = r"Confidence (?:95%, from )?([\d,]+) requests in"
            found = re.findall(rf"(?:[Rr]un at|so far:) (?:concurrency )?(\d+)\b.*?{sure}", text)
            found += re.findall(r"c=(\d+)[^.;:]* is not proven: ([\d,]+) requests prove no", text)
            for load, n in found:
                known = points.get(int(load), {}).get("n")
                if known is not None and known != int(n.replace(",", "")):
                    yield f"{said.line}: {n} requests at c={load}, which has {known:,}"


def sentences_and_verdicts_agree(told: Told) -> Iterator[str]:
    """What a sentence calls a setting is what the JSON judges."""
    answered = [shape for tier in told.tree("solve", RUN, "--json").get("tiers", ()) for shape in tier["shapes"]]
    if told.night.kind not in CLOSED:
        return
    for said in _answers(told):
        blocks = outputs.blocks(said.out)
        if answered and len(blocks) != len(answered):
            yield f"{said.line}: {len(blocks)} answers, in the JSON {len(answered)}"
        for block, shape in zip(blocks, answered, strict=False):
            yield from (f"{said.line}: {line}" for line in _disagrees(block, shape))


def _disagrees(block: Sequence[str], shape: Mapping[str, Any]) -> Iterator[str]:
    """What the text of an answer says of a setting, and the JSON otherwise; and what it says of one
    in words that are not known here.
    """
    text = re.sub(r"\s+", " ", " ".join(block))
    yield from _sayings_disagree(text, {j["concurrency"]: (j["verdict"], j["reason"]) for j in shape["judgements"]})
    yield from _places_disagree(text, shape)
    head = re.search(r"(?:[Rr]un at|(?:Proven|Accepted) so far:) (?:concurrency )?(\d+)", text)
    if (int(head[1]) if head else None) != shape["concurrency"]:
        yield f"{block[0]}; in the JSON c={shape['concurrency']}"
    for word, verdicts in HEADS.items():
        if word in outputs.own(block[0]) and shape["verdict"] not in verdicts:
            yield f"{block[0]}; in the JSON {shape['verdict']}"
    if outputs.is_corrected(block[0]) != bool(shape["claim"] and shape["claim"]["corrected"]):
        yield f"{block[0]}; in the JSON the claim is {shape['claim']}"


def _sayings_disagree(text: str, judged: Mapping[int, tuple[str, str]]) -> Iterator[str]:
    """Each sentence that begins with settings is one of SAYINGS, and each of these settings has its
    verdict and its reason.
    """
    first = r"(?:(?<=[.;:] )|(?<=setting )|(?<=Why )|(?<=Also ))(?<!nearest: )"
    for match in re.finditer(rf"{first}(c=\d+(?:, (?:c=)?\d+)*)(?=[ :])((?:[^.]|\.(?=\d))*)", text):
        said = next((known for known in SAYINGS if re.match(known, match[2])), None)
        if said is None:
            yield f"words that are not known: {match[1]}{match[2][:80]}"
            continue
        verdicts, reasons = SAYINGS[said]
        for load in map(int, re.findall(r"\d+", match[1])):
            verdict, reason = judged.get(load, ("", ""))
            if (verdicts and verdict and verdict not in verdicts) or (reasons and reason and reason not in reasons):
                yield f"c={load}{match[2][:60]}, in the JSON {verdict}: {reason}"


def _places_disagree(text: str, shape: Mapping[str, Any]) -> Iterator[str]:
    """The settings that a text calls nearest, next, highest or first are those of the JSON."""
    step = shape["next_step"] or {}
    for words, known in (
        (r"; nearest: c=(\d+)", shape["candidate"]),
        (r"c=(\d+) may (?:give|keep)", step.get("concurrency")),
        (r"c=(\d+) is the highest proven setting", shape["last_pass"]),
        (r"c=(\d+) the lowest that violates", shape["first_fail"]),
    ):
        for load in map(int, re.findall(words, text)):
            if load != known:
                yield f"{words} is c={load}, in the JSON {known}"


def causes_are_the_flags(told: Told) -> Iterator[str]:
    """What the table names as the causes that exclude a setting are its flags."""
    for row, point in ((row, points.get(row.setting)) for _, rows, points in shown(told) for row in rows):
        if point is None or not row.verdict.startswith("excluded: "):
            continue
        flags = [flag["name"] for flag in point["flag_details"] if flag["fatal"]]
        causes = row.verdict.removeprefix("excluded: ").partition("  ")[0].split(", ")
        for flag, cause in CAUSES.items():
            if ((cause in causes) and flag not in flags) or (
                flag in flags and cause not in causes and "…" not in row.verdict
            ):
                yield f"c={row.setting}: {row.verdict}, and its flags are {flags}"
    yield from _figures_are_of_all(told)


def _figures_are_of_all(told: Told) -> Iterator[str]:
    """Where a sentence says once why several settings are excluded, and at none of them, each has
    these figures and limits.
    """
    if not alone(told):
        return
    found = {load: p for (_, _, load), p in outputs.points(told.tree("show", RUN, "--json")).items()}
    for said in _answers(told):
        text = re.sub(r"\s+", " ", said.out)
        for match in re.finditer(r"(c=\d+(?:, (?:c=)?\d+)+) excluded: ((?:[^.]|\.(?=\d))*)", text):
            points = [found[int(load)] for load in re.findall(r"\d+", match[1]) if int(load) in found]
            if any(point["valid"] for point in points) or " at c=" in match[2]:
                continue
            flags = [[flag for flag in point["flag_details"] if flag["fatal"]] for point in points]
            told_of = {flag["name"] for each in flags for flag in each if flag["measured"].split("; ")[0] in match[2]}
            figures = {tuple((f["measured"], f["limit"]) for f in each if f["name"] in told_of) for each in flags}
            if len(figures) > 1:
                yield f"{said.line}: {match[1]} excluded with the figures of one of {figures}"


def one_limit_is_the_reason(told: Told) -> Iterator[str]:
    """The limit by which a sentence says that a setting is over or not proven is the one that its
    row names.
    """
    for said, block, rows in _blocks_and_rows(told):
        for load, words in re.findall(rf"c=(\d+){_GIVES} {_WHY}(p\d+ \w+|error rate) ", block):
            row = next((row.verdict for row in rows if row.setting == int(load)), "")
            named = re.search(r"(p\d+ \w+|error rate)(?: is| needs| has| rests| \(quick| \(to compare|$)", row)
            if named and named[1] != words:
                yield f"{said.line}: c={load}, by {words}; in the table {row!r}"


_WHY = r"(?:violates: |is not proven: |(?:had a quick look|was measured to compare) only(?:, which proves nothing)?: )"


def rows_give_the_reason_of_the_answer(told: Told) -> Iterator[str]:
    """A row of what was measured before the server changed says so, and one of a proof that a busy
    machine ended names the machine, as the answer does.
    """
    for said, block, rows in _blocks_and_rows(told):
        stale = re.findall(r"c=(\d+)[^.;:]* was measured before the server changed", block)
        busy = re.findall(r"c=(\d+)[^.;]*; its proof was given up after [\d,]+ requests: this machine was busy", block)
        for row in rows:
            word = "the server changed since" if str(row.setting) in stale else ""
            word = "this machine was busy" if str(row.setting) in busy else word
            if word not in row.verdict:
                yield f"{said.line}: c={row.setting}, {word!r}; in the table {row.verdict!r}"
    for _, rows, points in shown(told):
        for row in rows:
            reason = points.get(row.setting, {}).get("reason")
            if reason == "stale" and "the server changed since" not in row.verdict:
                yield f"c={row.setting} is stale in the JSON, in the table {row.verdict!r}"


def no_bound_is_denied(told: Told) -> Iterator[str]:
    """Where a figure of an answer has a bound, no sentence says that there is none."""
    for said in told.said[told.looks :]:
        if said.words[0] != "solve" or "--json" in said.words or told.night.kind not in CLOSED:
            continue
        for lines in outputs.blocks(said.out):
            block = re.sub(r"\s+", " ", " ".join(lines))
            nearest = re.search(r"; nearest: c=(\d+)", block)
            for label in re.findall(r"[✓✗?] (p\d+ \w+|error rate) [\d.]+ \S+ at (?:most|least) ", block):
                if nearest and re.search(rf"c={nearest[1]}\b[^.;]* is not proven: {label} [^;]*, no bound", block):
                    yield f"{said.line}: {label} at c={nearest[1]} has a bound, and no bound"


def no_higher_setting_is_passed_over(told: Told) -> Iterator[str]:
    """Where an answer says why no higher setting is the answer, the first higher one that was
    measured is named, unless it is excluded or meets.
    """
    for said, block, rows in _blocks_and_rows(told):
        head = re.search(r"(?:[Rr]un at|so far:) (?:concurrency )?(\d+)\b", block)
        higher = sorted((row.setting, row.verdict) for row in rows if head and row.setting > int(head[1]))
        if not higher or " Next higher setting " not in block or higher[0][1].startswith(("excluded", "meets")):
            continue
        if not re.search(rf"\bc=(?:\d+, )*{higher[0][0]}\b", block.partition(" Next higher setting ")[2]):
            yield f"{said.line}: no word of c={higher[0][0]}, {higher[0][1]}"


def _blocks_and_rows(told: Told) -> Iterator[tuple[Said, str, list[outputs.Row]]]:
    """Each answer's text, with the rows of its series, where one tier is asked for."""
    tables = [rows for _, rows, _ in shown(told)]
    for said in _answers(told):
        blocks = outputs.blocks(said.out)
        if len(blocks) == len(tables):
            yield from ((said, re.sub(r"\s+", " ", " ".join(b)), rows) for b, rows in zip(blocks, tables, strict=True))


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
    one_limit_is_the_reason,
    rows_give_the_reason_of_the_answer,
    no_bound_is_denied,
    no_higher_setting_is_passed_over,
    commands_are_of_the_setting_named,
)
