"""What must hold of every night. Each invariant is a function of what the night told, and yields a
line for each fault.
"""

import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from scipy.stats import binomtest

from benchmarks.nights import oracle, outputs
from benchmarks.nights.draw import CONFIG, RUN, SWEEP, Command, Damage, Edit
from benchmarks.nights.play import KILLED, Player, Said, Told
from benchmarks.nights.server import truth
from frontier.config import load_config
from frontier.core.model.shapes import Shape

Invariant = Callable[[Told], Iterator[str]]
CODES = (0, 2, 3, 4, 5, 130, KILLED)
MOST_TRIALS, MOST_SECONDS = 400, 72 * 3600.0
BUSY = ("busy", "client bound", "idle core", "load generator")
CLOSED = ("closed", "sessions", "mix")
"""Kinds of night whose settings are numbers of requests or sessions in flight."""
READS = ("solve", "show", "status", "report", "compare", "users")


def tree(said: Said | None) -> Mapping[str, Any]:
    """The JSON that a command printed; empty where it printed none."""
    return outputs.tree("" if said is None else said.out)


def journal(told: Told) -> list[dict[str, Any]]:
    file = told.run / "journal.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines() if line.strip()] if file.exists() else []


def series(told: Told) -> set[tuple[str, str]]:
    return {(d, s) for d, s, _ in outputs.points(tree(told.look("show", RUN, "--json")))}


def alone(told: Told) -> bool:
    """One series in a closed loop, whose answer is one block of text."""
    return len(series(told)) == 1 and told.night.kind in CLOSED


# --- it ends, with a code


def it_ends(told: Told) -> Iterator[str]:
    for said in told.said:
        if said.trials > MOST_TRIALS or said.seconds > MOST_SECONDS:
            yield f"{said.line}: {said.trials} trials in {said.seconds:,.0f} s"


def no_exception(told: Told) -> Iterator[str]:
    for said in told.said:
        if said.raised:
            yield f"{said.line}: {said.raised.strip().splitlines()[-1]}"
        elif said.code not in CODES:
            yield f"{said.line}: exit {said.code}: {(said.err.strip() or 'nothing said').splitlines()[-2:]}"
        elif match := re.search(r"\w+\.py:\d+: (\w+Warning: .*)", said.err):
            yield f"{said.line}: {match[1]}"


def codes_agree(told: Told) -> Iterator[str]:
    """The last sweep's exit code and that of `solve`, where nothing was changed in between."""
    last = told.said[told.looks - 1] if told.looks else None
    solved = told.look("solve", RUN)
    if last is None or solved is None or last.words != SWEEP or last.code not in (0, 3, 4, 5):
        return
    if not told.night.limits or isinstance(told.night.steps[-1], Damage | Edit) or "server" in last.err:
        return
    if last.code != solved.code and solved.code != 2:
        yield f"sweep {int(last.code)}, solve {int(solved.code)}"


# --- nothing that was sent is lost, nothing is done twice


def every_trial_is_whole(told: Told) -> Iterator[str]:
    if any(isinstance(step, Damage) for step in told.night.steps):
        return
    for file in oracle.finished(told.run):
        said = json.loads(file.read_text()).get("records")
        records = len((told.run / "trials" / f"{file.stem}.jsonl").read_bytes().splitlines())
        if said != records:
            yield f"{file.stem}: {records} records of {said}"


def no_trial_twice(told: Told) -> Iterator[str]:
    """The same sweep again leaves finished trials as they are, and a finished sweep measures
    nothing.
    """
    if any(isinstance(step, Damage | Edit) for step in told.night.steps):
        return
    for said in told.sweeps:
        for name, digest in said.before.items():
            if name.startswith("trials/") and name.endswith(".jsonl") and said.after.get(name) != digest:
                yield f"{said.line}: {name} was measured again"
    for first, second in itertools.pairwise(told.sweeps):
        whole = first.words == second.words == SWEEP and first.code in (0, 3, 4) and "Plan:" in second.err
        if whole and "unfinished" not in first.out + first.err and "server" not in first.err and second.trials:
            yield f"{second.line}: {second.trials} trials after a finished sweep"


def reading_changes_nothing(told: Told) -> Iterator[str]:
    for said in told.said:
        if said.words[0] in READS and said.before != said.after:
            changed = [n for n in {*said.before, *said.after} if said.before.get(n) != said.after.get(n)]
            yield f"{said.line} changed {changed}"


# --- two outputs say the same


def shown(told: Told) -> Iterator[tuple[tuple[str, str], list[outputs.Row], Mapping[Any, Mapping[str, Any]]]]:
    """Of each series in a closed loop: its name, its rows in the table of `show`, and its points in
    the JSON by setting.
    """
    said, found = told.look("show", RUN), outputs.by_series(told.tree("show", RUN, "--json"))
    if said is None or told.night.kind not in CLOSED:
        return
    for (name, points), rows in zip(found.items(), outputs.tables(said.out), strict=False):
        yield name, rows, points


def table_and_json_agree(told: Told) -> Iterator[str]:
    for _, rows, points in shown(told):
        if {row.setting for row in rows} != set(points):
            yield f"the table has {sorted(r.setting for r in rows)}, the JSON {sorted(points)}"
        for row in rows:
            point = points.get(row.setting)
            if point is None:
                continue
            if point["n"] != row.n:
                yield f"c={row.setting}: n {row.n} in the table, {point['n']} in the JSON"
            rate = point["metrics"].get("output_throughput", {}).get("value")
            if rate is not None and row.throughput is not None and not outputs.near(rate, row.throughput):
                yield f"c={row.setting}: {row.throughput} tok/s in the table, {rate} in the JSON"
            excluded = bool(point.get("excluded")) and "invalid" in str(point["excluded"])
            if excluded != row.verdict.startswith("excluded"):
                yield f"c={row.setting}: {row.verdict!r} in the table, {point.get('excluded')!r} in the JSON"


def figures_are_of_the_files(told: Told) -> Iterator[str]:
    """Requests, failures and the slowest first token of each point are those of some of its trials'
    files, as a second program reads them.
    """
    if told.night.kind != "closed" or any(isinstance(step, Damage) for step in told.night.steps):
        return
    if len({shape for _, shape in series(told)}) != 1:
        return
    files = oracle.windows(told.run)
    for (deployment, _, load), point in outputs.points(tree(told.look("show", RUN, "--json"))).items():
        mine = [w for w in files if (w.deployment, w.setting) == (deployment, load)]
        metrics = point["metrics"]
        errors, slowest = (metrics.get(name, {}).get("value") for name in ("error_rate", "max_ttft"))
        if len(mine) <= 12 and not oracle.explains(mine, point["n"], errors, slowest):
            yield f"c={load}: n={point['n']}, errors {errors}; its files have {[(w.key, w.n, w.failed) for w in mine]}"


def verdicts_agree(told: Told) -> Iterator[str]:
    """What the table says of a setting is what `solve --json` judges."""
    judged = {
        (shape["deployment"], shape["shape"], j["concurrency"]): j["verdict"]
        for shape in told.tree("solve", RUN, "--json").get("shapes", ())
        for j in shape["judgements"]
    }
    starts = {"meets": ("meets",), "violates": ("violates", "over"), "invalid": ("excluded",)}
    for name, rows, _ in shown(told):
        for row in rows:
            verdict = judged.get((*name, row.setting))
            allowed = starts.get(verdict or "", ("not proven", "over", "comfort", "marginal", "meets promise"))
            if verdict is not None and not row.verdict.startswith(allowed):
                yield f"c={row.setting}: {row.verdict!r} in the table, {verdict} in the JSON"


def figures_are_of_the_setting_named(told: Told) -> Iterator[str]:
    """Each number of an answer is of the setting in whose block it stands. One that the answer says
    is the proof's alone is held against the one of all trials that it says too.
    """
    for said, load, figure, known in _figures(told):
        if known["value"] is not None and not any(
            outputs.as_shown(value, known["value"]) for value in (figure.value, *outputs.of_all(said.out, load, figure))
        ):
            yield f"{said.line}: {figure.words} {figure.value:g} under c={load}, which has {known['value']:g}"


def one_sided_inside_two_sided(told: Told) -> Iterator[str]:
    """A one-sided bound lies inside the two-sided interval of the same level."""
    for said, load, figure, known in _figures(told):
        high = known["high"]
        if high is not None and figure.bound is not None and figure.bound > high * 1.02 + 1e-9:
            interval = f"[{known['low']:g}, {high:g}] (95%)"
            yield f"{said.line}: c={load} {figure.words} at most {figure.bound:g} (95%), and {interval}"


def _figures(told: Told) -> Iterator[tuple[Said, int | None, outputs.Figure, Mapping[str, Any]]]:
    """Every figure of an answer in text, with the setting that it stands under and that setting's
    metric in the JSON.
    """
    for said, there in _asked(told, several=True):
        points, answers = outputs.points(tree(there)), outputs.answers(said.out)
        of_tier = [*dict.fromkeys((deployment, shape) for deployment, shape, _ in points)]
        if not of_tier or len(answers) % len(of_tier):
            continue  # nothing was measured of a series
        if changed(told):  # the limits then say which windows count, and the points are of the first tier's
            answers = answers[: len(of_tier)]
        for answer, (deployment, shape) in zip(answers, itertools.cycle(of_tier), strict=False):
            metrics = points.get((deployment, shape, answer.setting), {}).get("metrics", {})
            for figure in answer.figures:
                if known := metrics.get(outputs.metric_of(figure.words)):
                    yield said, answer.setting, figure, known


def _asked(told: Told, *, several: bool = False) -> Iterator[tuple[Said, Said | None]]:
    """Every answer in text at the end, with the points of its data; also of `several` series."""
    if not (alone(told) or (several and told.night.kind in CLOSED)):
        return
    other = changed(told)
    for said in told.said[told.looks :]:
        of_other = other and "--sla" in said.words
        if said.words[0] == "solve" and "--json" not in said.words and "-v" not in said.words and not of_other:
            yield said, told.look("show", RUN, "--json")


def changed(told: Told) -> bool:
    """Whether the server, or its tail, is said to have changed: the limits then say which windows
    count.
    """
    said = [said.out for said in told.said[told.looks :]]
    return any(words in out for out in said for words in ("The server changed", "A higher setting later showed a tail"))


def a_harder_question_takes_more(told: Told) -> Iterator[str]:
    """A p95 within a limit takes no more requests than a p99 inside it, and one need has one
    number.
    """
    if not alone(told):
        return
    texts = [(said.words, said.out) for said, _ in _asked(told)]
    texts += [
        (s.words, s.out)
        for s in told.said[told.looks :]
        if s.words[0] == "show" and "--json" not in s.words and "-v" not in s.words
    ]
    known: dict[tuple[Any, ...], int] = {}
    for words, text in texts:  # a table is of the first tier
        for tier, block in enumerate(outputs.blocks(text) if words[0] == "solve" else [[text]]):
            for load, need in outputs.needs("\n".join(block)):
                if not outputs.near(known.setdefault((words[1:], tier, load), need), need, 0.05):
                    yield f"{words}: c={load} needs {known[words[1:], tier, load]:,} and {need:,} requests"
    by_p: dict[int, dict[int, int]] = {}
    for words, text in texts:
        asked = re.fullmatch(r"p(9[59])_\w+<=\S+", words[-1])
        if asked and "--sla" in words:
            for load, need in outputs.needs(text):
                of_p = by_p.setdefault(int(asked[1]), {})
                of_p[load] = max(of_p.get(load, 0), need)
    for load, need in by_p.get(95, {}).items():
        harder = by_p.get(99, {}).get(load)
        if harder is not None and need > 1.1 * harder:
            yield f"c={load}: the p95 needs {need:,} requests, the p99 of the same limit {harder:,}"


def counts_agree(told: Told) -> Iterator[str]:
    """The trials that a sweep counts, that `status` counts and that are on the disk."""
    status, config = told.look("status", RUN), told.night.config
    if status is not None and "auto" in (config.get("concurrency"), config.get("rate")) and " listed" in status.out:
        yield f"nothing is listed, and status says {status.out.splitlines()[0]}"
    if status is None or any(isinstance(step, Damage | Edit) for step in told.night.steps):
        return
    files = len(oracle.finished(told.run))
    if (match := re.search(r"(\d+) trials?\b", status.out)) and int(match[1]) != files:
        yield f"status counts {match[1]} trials, and {files} are on the disk"
    if any(isinstance(step, Command) and step.interrupted for step in told.night.steps):
        return
    ran = [int(m[1]) for said in told.sweeps if (m := re.search(r"(\d+) trials? run in", said.err))]
    if len(ran) == len(told.sweeps) and sum(ran) != files:
        yield f"the sweeps ran {' + '.join(map(str, ran))} trials, and {files} are on the disk"


def left_agrees(told: Told) -> Iterator[str]:
    """What `status` counts as left, and the settings that the answer lists as unfinished; and one
    says that the sweep is finished where the other does. Where all is to be measured anew, or on an
    idle machine, what is left says nothing.
    """
    text, answer = told.look("status", RUN), told.look("solve", RUN)
    if text is not None and answer is not None and answer.out and told.night.limits:
        finished, told_of = text.out.startswith("finished"), re.sub(r"\s+", " ", answer.out)
        anew = "measure anew" in told_of or "as this machine was busy" in told_of
        if not anew and finished == bool(re.search(r"(?m)^unfinished: ", answer.out)):
            yield f"status says {text.out.split()[0]}, the answer {'un' if finished else ''}finished"
    status, solved = tree(told.look("status", RUN, "--json")), tree(told.look("show", RUN, "--json"))
    unfinished = solved.get("unfinished") or {}
    if not status or not unfinished:
        return
    still, named = len(status.get("open", ())), len(unfinished.get("not_measured", ()))
    if named > still:
        yield f"status has {still} trials left or left out, the answer names {named} settings that were not measured"


def one_way_on(told: Told) -> Iterator[str]:
    """`status` and the answer name the same command to go on with, after the same words; and of a
    damaged trial `status` says what to do, as the answer does.
    """
    status, solved = told.tree("status", RUN, "--json"), told.look("solve", RUN)
    if not status or solved is None or not solved.out or not told.night.limits:
        return
    text = re.sub(r"\s+", " ", solved.out)
    if "\n  frontier " in solved.out and status["go_on"] and status["go_on"] not in text:
        yield f"status goes on with {status['go_on']}, the answer with {outputs.commands(solved.out)}"
    if "On an idle machine or core, measure anew:" in text and not status["way"]:
        yield "the answer is to measure anew, and status names no way"
    hint = re.search(r"remove (\S+) and sweep again", text)
    if hint and hint[1] not in status["way"]:
        yield f"the answer says {hint[0]!r} first, and status {status['way']!r}"


def what_the_budget_ended_is_not_finished(told: Told) -> Iterator[str]:
    """Where the table says that the budget ended a setting, the sweep is not called finished, and
    the setting not measured.
    """
    text, status = told.look("status", RUN), told.tree("status", RUN, "--json")
    found = outputs.points(told.tree("show", RUN, "--json"))
    cut = {load for (_, _, load), p in found.items() if not p["valid"] and "cut_off" in p["flags"]}
    if not cut or text is None or not told.sweeps or "--prove" in told.sweeps[-1].words:
        return
    if text.out.startswith("finished"):
        yield f"status says finished, and the budget ended {sorted(cut)}"
    if status.get("settings") and status["measured"] == status["settings"] and len(found) == status["settings"]:
        yield f"all {status['settings']} settings are measured, and the budget ended {sorted(cut)}"


def progress_and_table_agree(told: Told) -> Iterator[str]:
    """A setting that the search called within is not over its limit in the table of the same
    command, and what progress said last of a setting that was measured whole is its verdict there.
    A server that was slower for some time, as a later trial showed, takes proofs back.
    """
    if not alone(told) or any(isinstance(step, Damage | Edit) for step in told.night.steps):
        return
    for said in told.sweeps:
        table = {row.setting: row.verdict for rows in outputs.tables(said.out) for row in rows}
        measured_later = set(map(int, re.findall(r"c=(\d+)", "".join(re.findall(r"(?:complete|prove) .*", said.err)))))
        last: dict[int, str] = {}  # of a server that changed the search speaks twice
        for load, word in re.findall(r"search +c=(\d+) .*   (within|over)\b", said.err):
            last[int(load)] = word
        for load, word in last.items():
            over = table.get(load, "").startswith(("over", "violates"))
            if word == "within" and over and load not in measured_later:
                yield f"{said.line}: the search says c={load} within, the table {table[load]!r}"
        if not changed(told) and "corrected: " not in said.err:
            rows = re.findall(r"(?:complete|prove) +c=(\d+) .*   (meets|violates|not proven)\b", said.err)
            slower = "the server was slower for some time at some setting" in re.sub(r"\s+", " ", said.out)
            allowed = {"meets": ("meets", "not proven: ") if slower else ("meets",), "violates": ("violates",)}
            for load, word in {int(load): word for load, word in rows}.items():
                if word in allowed and not table.get(load, word).startswith((*allowed[word], "excluded")):
                    yield f"{said.line}: c={load} {word} in the progress, {table[load]!r} in the table"


def a_skipped_setting_is_told_once(told: Told) -> Iterator[str]:
    """The progress of a sweep says once that a setting was skipped, whatever its repeats."""
    for said in told.sweeps if alone(told) else ():
        lines = re.findall(r"(?m)^\S+  (skipped \S+ c=\d+: .*)$", said.err)
        yield from (f"{said.line}: {line}" for line in set(lines) if lines.count(line) > 1)


def one_rate_of_arrivals(told: Told) -> Iterator[str]:
    """The rate of independent users is the same in JSON, text, page and `verify`."""
    solved = tree(told.look("solve", RUN, "--json"))
    if told.night.kind not in CLOSED or not solved.get("shapes"):
        return
    found = [(s.get("arrival_rate") or {}).get("rate") for tier in solved["tiers"] for s in tier["shapes"]]
    rates = [rate for rate in found if rate is not None]
    if not rates:
        return
    verbose = told.look("solve", RUN, "-v")
    texts = {"solve -v": verbose.out if verbose else ""}
    for said in told.said[told.looks :]:
        if said.words[0] == "report":
            texts["the page"] = outputs.page_text(said.out)
    for said in told.said:
        if said.words == ("verify", RUN) and told.said.index(said) >= _last_change(told):
            texts["verify"] = said.err
    for name, text in texts.items():
        pattern = r"about ([\d.,]+) requests/s with that limit|requests arrive at ([\d.,]+)/s"
        for match in re.findall(pattern, re.sub(r"\s+", " ", text)):
            rate = float((match[0] or match[1]).replace(",", ""))
            if not any(outputs.near(rate, known) for known in rates):
                yield f"{name}: {rate:g} requests/s, JSON {', '.join(f'{known:g}' for known in rates)}"


def _last_change(told: Told) -> int:
    """The place of the first command after the last that measured for the run or changed its
    SLA.
    """
    if any(isinstance(step, Damage | Edit) for step in told.night.steps):
        return len(told.said)
    return max((k + 1 for k, said in enumerate(told.said) if said.words[0] == "sweep"), default=0)


def one_word_for_a_verdict(told: Told) -> Iterator[str]:
    """The page has one word for what became of a setting, in all its tables."""
    if not alone(told):
        return
    for said in told.said[told.looks :]:
        if said.words[0] != "report":
            continue
        text = outputs.page_text(said.out)
        every = re.findall(r"^(\d+) \| ([^|]+?) \| ", text, re.M)
        around = re.findall(r"^c=(\d+) \| ([^|]+?) \| (?:p\d+|error)", text, re.M)
        words: dict[str, set[str]] = {}
        for load, verdict in [*every, *around]:  # the whole verdict is the same, but for the mark of the row
            words.setdefault(load, set()).add(verdict.partition("<-")[0].strip())
        for load, verdicts in words.items():
            if len(verdicts) > 1:
                yield f"the page calls c={load} {' and '.join(sorted(verdicts))}"


# --- causes


def the_cause_is_named(told: Told) -> Iterator[str]:
    """Where an answer says of a setting that it is not proven, and a busy client widened its
    bounds, the answer says so.
    """
    if not alone(told):
        return
    found = outputs.points(tree(told.look("show", RUN, "--json")))
    bound = {load for (_, _, load), point in found.items() if "client_bound" in point["flags"] and point["valid"]}
    for said in told.said[told.looks :]:
        if said.words[0] != "solve" or "--json" in said.words:
            continue
        text = re.sub(r"\s+", " ", said.out)
        said_of = r"c=(\d+) (?:gives[^.]*is|is) not proven: [^;]*at most[^;]*; about [0-9,]+ requests"
        for match in re.finditer(said_of, text):
            if int(match[1]) in bound and not any(word in text for word in BUSY):
                yield f"{said.line}: c={match[1]} is not proven, this machine was busy, and the answer does not say so"


def what_was_spoilt_is_excluded(told: Told) -> Iterator[str]:
    """Where an answer says that a busy machine spoilt other settings, it excluded one."""
    points = outputs.points(tree(told.look("show", RUN, "--json"))).values()
    excluded = any(f["name"] == "client_bound" and f["fatal"] for point in points for f in point["flag_details"])
    for said in told.said[told.looks :]:
        if "which spoilt other settings" in re.sub(r"\s+", " ", said.out) and not excluded:
            yield f"{said.line}: a busy machine excluded no setting"


def the_budget_is_no_excuse(told: Told) -> Iterator[str]:
    """Only a proof that the budget cut is said to have ended with the budget."""
    lines = journal(told)
    cut = {t for line in lines if line["event"] == "dropped" for t in line.get("trials", ())}
    cut |= {line["trial"] for line in lines if line["event"] == "flagged" and "cut_off" in line.get("flags", ())}
    for said in told.said[told.looks :]:
        text = re.sub(r"\s+", " ", said.out)
        for match in re.finditer(r"c=(\d+)[^.;]* is not proven: (?:(?!\. )[^\"])*?the budget ended its proof", text):
            mark = f"-c{int(match[1]):04d}-"
            if not any(mark in key and "-grid-" not in key for key in cut):
                yield f"{said.line}: the budget ended no proof of c={match[1]}"


def what_was_skipped_is_not_the_budgets(told: Told) -> Iterator[str]:
    """A setting that the last session skipped for another reason than the budget is named with that
    reason where the budget ended the sweep.
    """
    if not alone(told):
        return
    began, skipped = "", set[int]()
    for line in journal(told):
        if "config" in line and "directory" in line:
            began, skipped = str(line["time"]), set()
        elif line["event"] == "skipped" and (load := re.search(r"-c0*(\d+)-", str(line.get("trial")))):
            skipped.add(int(load[1]))
    for said in told.said[told.looks :]:
        text = re.sub(r"\s+", " ", said.out)
        for match in re.finditer(r"the budget had no room for more\. Not measured: c=([\d, ]+)\.", text):
            if began and (wrong := skipped & set(map(int, re.findall(r"\d+", match[1])))):
                yield f"{said.line}: {sorted(wrong)} were skipped, and not for the budget"


def one_time_of_proof(told: Told) -> Iterator[str]:
    """A sweep that measures nothing says of an operating point the time that was said before, for
    the same SLA.
    """
    if any(isinstance(step, Edit) for step in told.night.steps):
        return
    known: set[str] = set()
    for said in told.sweeps:
        times = set(re.findall(r"Run at .*?: (?:.*, )?(proven after [^.]*)\.", said.err))
        if known and not said.trials and not times <= known:
            yield f"{said.line}: {sorted(times - known)}, before {sorted(known)}"
        known |= times


# --- relations


def a_looser_sla_keeps_what_met(told: Told) -> Iterator[str]:
    """Of the same data, which it is where the server did not change."""
    if changed(told):
        return
    met: dict[str, set[Any]] = {}
    for said in told.said[told.looks :]:
        if said.words[0] == "solve" and "--json" in said.words and "--sla" in said.words:
            for shape in tree(said).get("shapes", ()):
                met.setdefault(said.words[-1], set()).update(
                    (shape["deployment"], shape["shape"], j["concurrency"])
                    for j in shape["judgements"]
                    if j["verdict"] == "meets"
                )
    tight, loose = (met.get(text) for text in _tight_and_loose(told))
    if tight is None or loose is None:
        return
    if not tight <= loose:
        yield f"met by the tighter limits alone: {sorted(tight - loose, key=str)}"
    if told.night.config.get("marginal_gain") is False:
        answers = [
            {(s["deployment"], s["shape"]): s["concurrency"] or 0 for s in tree(said).get("shapes", ())}
            for text in _tight_and_loose(told)
            for said in [told.look("solve", RUN, "--json", "--sla", text)]
        ]
        for one, named in answers[0].items():
            if named > answers[1].get(one, named):
                yield f"{one}: the answer is c={named}, and c={answers[1][one]} by limits half as high again"


def _tight_and_loose(told: Told) -> tuple[str, str]:
    """The night's limits, and the same limits half as high again, as options."""
    limits = {k: v for k, v in told.night.limits.items() if k != "error_rate"}
    tight, loose = (",".join(f"{k}<={v * f * 1e3:.5g}ms" for k, v in limits.items()) for f in (1.0, 1.5))
    return tight, loose


INVARIANTS: tuple[Invariant, ...] = (
    it_ends,
    no_exception,
    codes_agree,
    every_trial_is_whole,
    no_trial_twice,
    reading_changes_nothing,
    table_and_json_agree,
    figures_are_of_the_files,
    verdicts_agree,
    figures_are_of_the_setting_named,
    one_sided_inside_two_sided,
    a_harder_question_takes_more,
    counts_agree,
    left_agrees,
    one_way_on,
    what_the_budget_ended_is_not_finished,
    progress_and_table_agree,
    a_skipped_setting_is_told_once,
    one_rate_of_arrivals,
    one_word_for_a_verdict,
    the_cause_is_named,
    what_was_spoilt_is_excluded,
    the_budget_is_no_excuse,
    what_was_skipped_is_not_the_budgets,
    one_time_of_proof,
    a_looser_sla_keeps_what_met,
)

WAITING: dict[str, str] = {}
"""Invariants that are known not to hold yet, and why: counted, and no night fails by them."""


def look_further(player: Player, told: Told) -> None:
    """Ask the run what the invariants compare: other SLAs, and in a night with pictures the
    page.
    """
    limits = {k: v for k, v in told.night.limits.items() if k != "error_rate"}
    if limits and told.night.kind != "rate":
        name, value = next(iter(limits.items()))
        quantity = name.partition("_")[2]
        for p in (95, 99):
            text = f"p{p}_{quantity}<={value * 1e3:.5g}ms"
            told.said.append(player.run(Command(("solve", RUN, "--sla", text))))
        for text in _tight_and_loose(told):
            told.said.append(player.run(Command(("solve", RUN, "--json", "--sla", text))))
    if told.night.pictures and limits:
        said = player.run(Command(("report", RUN, "-o", "page.html")))
        page = told.folder / "page.html"
        told.said.append(Said(**{**_fields(said), "out": page.read_text() if page.exists() else ""}))


def _fields(said: Said) -> dict[str, Any]:
    return {name: getattr(said, name) for name in Said.__slots__}


_AWAY = "nothing answers at"
"""What a sweep says of a server that is still away."""


def printed_commands_work(player: Player, told: Told) -> Iterator[str]:
    """A command that an answer prints runs as it stands and does what it promises: with --prove N,
    a trial of N, or a word why not; to complete a sweep, any trial. Run last: it changes the run.
    """
    if any(isinstance(step, Damage) for step in told.night.steps):
        return
    texts = [
        said.out for said in told.said[told.looks :] if said.words[:1] == ("solve",) and "--json" not in said.words
    ]
    wanted = {shlex.join(words): words for text in texts for words in outputs.commands(text)}
    for line, words in list(wanted.items())[:1]:
        said = player.run(Command(tuple(words)))
        if said.raised or said.code not in CODES or said.code == 2:
            yield f"frontier {line}: exit {int(said.code)}: {(said.raised or said.err).strip().splitlines()[-1:]}"
        elif "--prove" in words and not said.trials:
            named = words[words.index("--prove") + 1]
            told_why = re.search(
                rf"(not proven|not measured|left out|given up|busy|lost)[^\n]*{named}|{named}[^\n]*not",
                said.err + said.out,
            )
            if said.code != 0 and not told_why:
                yield f"frontier {line}: no trial, exit {int(said.code)}, and no word of c={named}"
        elif words[0] == "sweep" and "--prove" not in words and not said.trials and _AWAY not in said.err:
            yield f"frontier {line}: no trial, exit {int(said.code)}, though it is to complete the sweep"
    yield from _next_commands_work(player, told)


def _next_commands_work(player: Player, told: Told) -> Iterator[str]:
    """What a sweep names as next is a command that this run takes. To verify takes long: not after
    each sweep of a closed loop.
    """
    last = told.sweeps[-1] if told.sweeps else None
    if last is None or last is not told.said[told.looks - 1] or (told.night.kind == "closed" and told.night.seed % 8):
        return
    for words in re.findall(r"(?m)^(?:Next)? +frontier (verify|compare)( .*)$", last.err):
        said = player.run(Command((words[0], *shlex.split(words[1]))))
        if said.raised or said.code not in CODES or said.code == 2:
            line = f"frontier {words[0]}{words[1]}"
            yield f"{line}: exit {int(said.code)}: {(said.raised or said.err).strip().splitlines()[-1:]}"


# --- how often a named setting breaks its SLA


def named(told: Told) -> Iterator[tuple[str, bool]]:
    """Of each setting that the run names at the night's end: the family of its servers, and whether
    it breaks the SLA by the law that its series ended under. Where a limit is of a share of
    requests that come seldom, a law has its own rate (`docs/validation`), and is left out.
    """
    night, course = told.night, told.night.course
    if night.kind in ("rate",) or any(isinstance(step, Edit) for step in night.steps):
        return
    points = outputs.points(tree(told.look("show", RUN, "--json")))
    for shape in tree(told.look("solve", RUN, "--json")).get("shapes", ()):
        load = shape["concurrency"]
        if load is None or (shape["deployment"], shape["shape"], load) not in points:
            continue
        last = max(k for k, said in enumerate(told.said) if said.trials) if any(s.trials for s in told.said) else 0
        changed = told.said[last].ended >= course.at
        if changed and (course.tail is not None or course.factor > 1):
            continue  # what comes after the last window is not the claim's
        law = night.laws[shape["deployment"]]
        sizes = next((s for s in _shapes(told) if s.label == shape["shape"]), None)
        if sizes is None:
            continue
        true = truth(law, sizes, load, course.factor if changed else 1.0)
        limits = {limit["metric"]: limit["promise"] for limit in shape["limits"]}
        broken = any(true[name] > 1.01 * limit for name, limit in limits.items() if name in true)
        yield night.families[0], broken


def _shapes(told: Told) -> Sequence[Shape]:
    return load_config((told.folder / CONFIG).read_text(), CONFIG).shapes


def too_often(counts: Mapping[str, tuple[int, int]]) -> Iterator[str]:
    """The families in which surely more than 5% of the named settings break their SLA: 99% over
    all families together.
    """
    for family, (broken, count) in sorted(counts.items()):
        if broken and binomtest(broken, count, 0.05, "greater").pvalue < 0.01 / len(counts):
            yield f"{family}: {broken} of {count} named settings break their SLA"
