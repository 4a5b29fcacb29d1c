"""An audit derives all again: an untouched pack is self-consistent, an edited one is told or says
the same."""

import random
import re
import shutil
import tarfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from frontier import import_files
from frontier._version import __version__
from frontier.audit.archive import unpacked
from frontier.audit.check import DERIVED, _changed, audit, differences, state
from frontier.audit.contradictions import contradictions
from frontier.errors import FrontierError, UsageError, exit_code
from frontier.run import load
from frontier.simulator.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.store.run_dir import RunDirectory
from frontier.text import Secrets
from tests.audit.packs import Files, contents, hashed_again, of_json, packed, stated_again, written, zipped
from tests.commands import frontier
from tests.golden import assert_golden_row

KEY = "default-256x32-c0002-grid-r1"
SECRET = "sk-planted-0123456789abcdef"


@pytest.fixture(scope="module")
def whole(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return contents(packed(run, tmp_path_factory.mktemp("pack") / "claim.zip"))


def found(files: Files, tmp_path: Path) -> tuple[str, ...]:
    return audit(zipped(files, tmp_path / "edited.zip")).found


# --- a sound pack


def test_pack_and_audit_as_a_user_does(run: Path, tmp_path: Path) -> None:
    said = frontier("pack", run, "-o", "claim.zip", cwd=tmp_path)
    assert said.code == 0
    assert said.err.endswith("  frontier audit claim.zip\n")
    assert re.fullmatch(r"[0-9a-f]{64}  claim\.zip\n", said.out)
    said = frontier("audit", "claim.zip", cwd=tmp_path)
    assert (said.code, said.err) == (0, "")
    assert_golden_row("answers", said.out.replace(__version__, "VERSION"))
    assert not re.search("authentic|genuine|trustworthy|valid", said.out)
    tree = orjson.loads(frontier("audit", "claim.zip", "--json", cwd=tmp_path).out)
    assert (tree["self_consistent"], tree["origin"], tree["contradictions"]) == (True, "unknown", [])
    assert tree["checked"]["requests"] == sum(len(f.read_bytes().splitlines()) for f in (run / "trials").iterdir())


def test_nothing_of_this_machine_is_claimed(run: Path, whole: Files) -> None:
    claim = whole["claim.json"].decode()
    assert str(run.parent) not in claim
    assert re.findall(r'"next_step": ([^,}]+)', claim) == ["null"], "a finished run has none"


def test_an_import_is_audited_and_says_what_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text(
        "concurrency,request_throughput,output_throughput,p99_ttft_ms\n1,2,300,40\n4,9,1100,55\n"
    )
    import_files([tmp_path / "table.csv"], tmp_path / "imported", deployment="a", shape="256/64")
    files = contents(packed(tmp_path / "imported", tmp_path / "claim.zip"))
    result = audit(tmp_path / "claim.zip")
    assert result.found == ()
    assert len(result.unchecked) == 1
    assert_golden_row("answers", result.unchecked[0], "unchecked")
    files["run/imported.jsonl"] = files["run/imported.jsonl"].replace(b"300", b"900")
    assert_golden_row("answers", "\n".join(found(files, tmp_path)), "as it is")
    again = found(hashed_again(files), tmp_path)
    assert [line for line in again if "output_throughput" in line]
    assert_golden_row("answers", "\n".join(again), "hashed again")


def test_a_run_of_an_earlier_version_is_audited_and_says_what_cannot_be(tmp_path: Path) -> None:
    data = Path(__file__).parents[1] / "data" / "runs" / "runs-0.1.0.tar.gz"
    with tarfile.open(data) as archive:
        archive.extractall(tmp_path, filter="data")
    packed(tmp_path / "before", tmp_path / "claim.zip")
    result = audit(tmp_path / "claim.zip")
    assert result.found == ()
    assert result.unchecked
    assert_golden_row("answers", "\n".join(result.unchecked))


def test_a_pack_of_another_version_says_what_it_cannot_check(whole: Files, tmp_path: Path) -> None:
    def version(tree: dict[str, Any]) -> None:
        tree["frontier"] = "0.9.3"

    result = audit(zipped({**whole, "claim.json": of_json(version, whole["claim.json"])}, tmp_path / "x.zip"))
    assert result.consistent
    (unchecked,) = result.unchecked
    assert "0.9.3" in unchecked
    assert_golden_row("answers", unchecked.replace(__version__, "VERSION"))


@pytest.mark.parametrize(
    ("version", "shown"), [("2.0.0", "2.0.0"), ("1; rm -rf /", "llm-frontier==?"), (None, "llm-frontier==?")]
)
def test_a_claim_of_another_form_names_the_version_to_use(
    version: object, shown: str, whole: Files, tmp_path: Path
) -> None:
    def another(tree: dict[str, Any]) -> None:
        tree |= {"schema": "frontier.claim/2", "frontier": version}

    with pytest.raises(UsageError, match=r"frontier\.claim/2") as caught:
        found({**whole, "claim.json": of_json(another, whole["claim.json"])}, tmp_path)
    assert shown in str(caught.value)
    assert "rm -rf" not in str(caught.value)


# --- what is not packed


def test_a_run_that_was_changed_is_not_packed(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for name, data in contents(packed(run, tmp_path / "x.zip")).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "run").rename(copy)
    file = copy / "trials" / f"{KEY}.jsonl"
    file.write_bytes(file.read_bytes()[:-2] + b" }\n")
    said = frontier("pack", copy, "-o", "claim.zip", cwd=tmp_path)
    assert said.code == 2
    assert f"{KEY}.jsonl" in said.err
    assert_golden_row("messages", said.err.replace(str(tmp_path), "HERE"))
    assert not (tmp_path / "claim.zip").exists()


def test_a_running_sweep_is_not_packed(run: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(run, tmp_path / "run"))
    manifest = RunDirectory.read(run).manifest
    with RunDirectory.open_for_sweep(
        run,
        identity=manifest["identity"],
        canonical=manifest["canonical"],
        config_text=RunDirectory.read(run).config_text(),
        facts={},
    ):
        said = frontier("pack", run, "-o", "claim.zip", cwd=tmp_path)
    assert said.code == 2
    assert_golden_row("messages", said.err.replace(str(tmp_path), "HERE"))
    assert not (tmp_path / "claim.zip").exists()


# --- a sweep over HTTP: keys, seeds and lengths


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over HTTP, of random lengths, whose config names a key."""
    here = tmp_path_factory.mktemp("measured")
    with SimulatorProcess(EngineSpec.from_mapping({"step_base": "2ms"})) as simulator:
        (here / "sweep.yaml").write_text(
            f"endpoint: {simulator.url}\napi_key_env: MY_KEY\nshapes: [64-128/4-16]\nconcurrency: [4]\n"
            "requests: 60\nrepeats: 1\nrefine: 0\nwarmup: 100ms\nsla: {p50_ttft: 1s}\n"
        )
        said = frontier("sweep", "sweep.yaml", "-o", "run", cwd=here, MY_KEY=SECRET)
    # On a busy machine its point may be flagged, and the answer is another.
    assert said.code == exit_code(decision.verdict for decision in load(here / "run").solve()), said.err
    return here / "run"


@pytest.mark.process
def test_a_measured_run_is_consistent_and_holds_no_key(measured: Path, tmp_path: Path) -> None:
    assert list(contradictions(load(measured))) == []
    said = frontier("pack", measured, "-o", "claim.zip", cwd=tmp_path, MY_KEY=SECRET)
    assert said.code == 0, said.err
    assert "warning" not in said.err
    secrets = Secrets.of([SECRET])
    for name, data in contents(tmp_path / "claim.zip").items():
        assert secrets.redact(data.decode()) == data.decode(), name
    result = audit(tmp_path / "claim.zip")
    assert (result.found, result.unchecked) == ((), ())


def test_lengths_that_the_seed_does_not_give_are_found(measured: Path, tmp_path: Path) -> None:
    files = contents(packed(measured, tmp_path / "claim.zip"))
    name = next(name for name in files if "c0004-grid" in name and "trials" in name)
    lines = files[name].splitlines(keepends=True)
    tree = orjson.loads(lines[20])
    asked = tree["asked_isl"]
    tree["asked_isl"] = asked + 1 if asked < 128 else asked - 1
    lines[20] = orjson.dumps(tree) + b"\n"
    edited = audit(stated_again(files | {name: b"".join(lines)}, tmp_path))
    (line,) = edited.found
    assert line.startswith("trial default-64-128x4-16-c0004-grid-r1: ")
    assert_golden_row("answers", line)


# --- one edit of each kind, with every hash and the answers made again


def in_record(name: str, change: Callable[[Any], Any], line: int = 40) -> Callable[[Files], None]:
    """Another value of a field of a record in the midst of the window."""

    def edit(files: Files) -> None:
        file = f"run/trials/{KEY}.jsonl"
        lines = files[file].splitlines(keepends=True)
        tree = orjson.loads(lines[line])
        tree[name] = change(tree.get(name))
        lines[line] = orjson.dumps(tree) + b"\n"
        files[file] = b"".join(lines)

    return edit


def in_evidence(*path: str, change: Callable[[Any], Any]) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        file = f"run/evidence/{KEY}.json"
        tree = node = orjson.loads(files[file])
        for part in path[:-1]:
            node = node[part]
        node[path[-1]] = change(node.get(path[-1]))
        files[file] = orjson.dumps(tree)

    return edit


def without_line(line: int) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        file = f"run/trials/{KEY}.jsonl"
        lines = files[file].splitlines(keepends=True)
        files[file] = b"".join(lines[:line] + lines[line + 1 :])

    return edit


def in_config(old: bytes, new: bytes) -> Callable[[Files], None]:
    def edit(files: Files) -> None:
        assert old in files["run/config.yaml"]
        files["run/config.yaml"] = files["run/config.yaml"].replace(old, new)

    return edit


EDITS = {
    "first token earlier": in_record("first", lambda t: t - 0.01),
    "last token earlier": in_record("last", lambda t: t - 0.01),
    "a gap shorter": in_record("gaps", lambda g: [*g[:5], g[5] - 900, *g[6:]]),
    "a gap less": in_record("gaps", lambda g: g[:-1]),
    "sent after its first token": in_record("sent", lambda t: t + 5),
    "sent before the last answer": in_record("sent", lambda t: t - 0.02),
    "tokens more": in_record("completion_tokens", lambda n: n + 40),
    "cached more than sent": in_record("cached_tokens", lambda _: 999),
    "another output length": in_record("asked_osl", lambda n: n - 1),
    "a failure made a success": in_record("error", lambda _: "boom"),
    "a request taken out": without_line(40),
    "one twice": in_record("index", lambda n: n - 1),
    "a stream that is not there": in_record("stream", lambda _: 2),
    "a window cut": in_evidence("window", "end", change=lambda t: t * 0.7),
    "a window drawn out": in_evidence("window", "end", change=lambda t: t + 1.5),
    "a window opened early": in_evidence("window", "start", change=lambda _: 0.0),
    "another seed": in_evidence("trial", "seed", change=lambda n: n + 1),
    "fewer requests": in_evidence("trial", "requests", change=lambda _: 20),
    "another server": in_evidence("server_identity", change=lambda _: "H100"),
    "sent again": in_evidence("health", "resent", change=lambda _: 3),
    "ended otherwise": in_evidence("ended", change=lambda _: "time"),
    "another load in the config": in_config(b"requests: 120", b"requests: 60"),
}


@pytest.mark.parametrize("what", EDITS)
def test_an_edit_contradicts_what_else_is_there(what: str, whole: Files, tmp_path: Path) -> None:
    files = dict(whole)
    EDITS[what](files)
    again = list(contradictions(load(written(files, tmp_path))))
    edited = "manifest.json" if what == "another load in the config" else f"trial {KEY}:"
    assert {line.startswith(edited) for line in again} == {True}
    assert_golden_row("answers", "\n".join(again).replace(f"trial {KEY}: ", ""))


def test_the_first_contradictions_are_printed_and_the_rest_counted(whole: Files, tmp_path: Path) -> None:
    def half(tree: dict[str, Any]) -> None:
        for point in tree["points"]:
            for figure in point["metrics"].values():
                figure["value"] = (figure["value"] or 1.0) / 2

    zipped({**whole, "claim.json": of_json(half, whole["claim.json"])}, tmp_path / "claim.zip")
    said = frontier("audit", "claim.zip", cwd=tmp_path)
    assert said.code == 3
    assert said.out.count("contradiction: points ") == 10
    unwrapped = re.sub(r"\n(?!contradiction:|and )", " ", said.out)
    figures = re.findall(r"c=2 metrics \w+ value: \w+ ([\d.e-]+), [a-z ]+ ([\d.e-]+)$", unwrapped, re.MULTILINE)
    assert len(figures) == 10
    halves = [(float(derived) or 1.0) / 2 for _, derived in figures]
    assert [float(stated) for stated, _ in figures] == pytest.approx(halves)
    assert re.search(r"^and \d+ more$", said.out, re.MULTILINE)
    assert_golden_row("answers", said.out.splitlines()[-1])


def test_what_is_added_to_the_claim_is_found(whole: Files, tmp_path: Path) -> None:
    def boast(tree: dict[str, Any]) -> None:
        tree["certified_by"] = "somebody"

    (line,) = found({**whole, "claim.json": of_json(boast, whole["claim.json"])}, tmp_path)
    assert "certified_by" in line
    assert_golden_row("answers", line)


WRONG = [
    ("points", None),
    ("points", [[[[]]]]),
    ("frontiers", 5),
    ("tiers", {"a": {"b": 1}}),
    ("servers", "x"),
    ("files", []),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_claim_of_the_wrong_type_is_found(name: str, value: object, whole: Files, tmp_path: Path) -> None:
    def typed(tree: dict[str, Any]) -> None:
        tree[name] = value

    assert found({**whole, "claim.json": of_json(typed, whole["claim.json"])}, tmp_path)


# --- random edits


def random_edit(files: Files, rng: random.Random) -> str:
    """One edit of one file, as a person or a disk would make it; what was done."""
    name = rng.choice([name for name in files if name != "claim.json"])
    if name.endswith(".jsonl"):
        lines = files[name].splitlines(keepends=True)
        at = rng.randrange(len(lines))
        kind = rng.choice(["field"] * 6 + ["out", "twice", "swap"])
        if kind == "out":
            del lines[at]
        elif kind == "twice":
            lines.insert(at, lines[at])
        elif kind == "swap":
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        else:
            tree = orjson.loads(lines[at])
            kind = changed_leaf(tree, rng)
            lines[at] = orjson.dumps(tree) + b"\n"
        files[name] = b"".join(lines)
        return f"{name}:{at} {kind}"
    if name.endswith(".json"):
        tree = orjson.loads(files[name])
        kind = changed_leaf(tree, rng)
        files[name] = orjson.dumps(tree)
        return f"{name} {kind}"
    digits = [m.start() for m in re.finditer(rb"\d", files[name])]
    at = rng.choice(digits)
    data = bytearray(files[name])
    data[at] = ord(rng.choice([d for d in "123456789" if d != chr(data[at])]))
    files[name] = bytes(data)
    return f"{name} byte {at}"


def changed_leaf(tree: Any, rng: random.Random) -> str:
    """Another value somewhere in a JSON tree."""
    places: list[tuple[Any, Any, str]] = []

    def walk(node: Any, where: str) -> None:
        for name, value in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(value, dict | list) and value:
                walk(value, f"{where}.{name}")
            else:
                places.append((node, name, f"{where}.{name}"))

    walk(tree, "")
    gaps = [place for place in places if ".gaps." in place[2]]
    others = [place for place in places if ".gaps." not in place[2]]
    node, name, where = rng.choice(gaps if gaps and rng.random() < 0.15 else others)
    value = node[name]
    if isinstance(value, bool) or value is None:
        new: Any = not value if isinstance(value, bool) else 1
    elif isinstance(value, int):
        new = value + rng.choice([-1, 1, 1, rng.randint(1, 1 + abs(value))])
    elif isinstance(value, float):
        new = value * rng.choice([1.001, 0.99, 1.1, 0.5]) + rng.choice([0.0, 0.0, 1e-3])
    else:
        new = f"{value}x" if value != [] else [1]
    node[name] = new
    return f"{where}: {value!r:.40} -> {new!r:.40}"


def points_of(files: Files, scratch: Path) -> Any:
    """What `show` and `solve` say of the run in a pack; the oracle of what is harmless."""
    for name, data in files.items():
        (scratch / name).parent.mkdir(parents=True, exist_ok=True)
        (scratch / name).write_bytes(data)
    shown = [frontier(command, scratch / "run", "--json", cwd=scratch) for command in ("show", "solve")]
    return [re.sub(r"(\d\.\d{6})\d+", r"\1", said.out.replace(str(scratch), "")) for said in shown]


def verdicts(tree: Any) -> list[Any]:
    """What a statement decides."""
    return [(shape["verdict"], shape["concurrency"]) for tier in tree["tiers"] for shape in tier["shapes"]]


def moved(before: Any, after: Any) -> float:
    """The largest relative change of a figure of a point."""
    pairs = [
        (one["metrics"][name]["value"], other["metrics"].get(name, {}).get("value"))
        for one, other in zip(before, after, strict=True)
        for name in one["metrics"]
    ]
    return max((abs((b or 0.0) / a - 1) for a, b in pairs if a), default=0.0)


def study(whole: Files, tmp_path: Path, count: int, seed: int, *, every: int) -> Counter[str]:
    """Random edits of one place, and how many are seen: as they are; with every hash made again;
    and with what is stated made again too, as the owner of a run can. Each `every`-th goes through
    the audit and the commands as well.
    """
    rng, counts = random.Random(seed), Counter[str]()
    before, shown = state(written(whole, tmp_path / "0"))[1], points_of(hashed_again(whole), tmp_path / "1")
    for number in range(2, count + 2):
        files, scratch = dict(whole), tmp_path / str(number)
        done = random_edit(files, rng)
        if files == whole:
            continue
        counts["edits"] += 1
        with unpacked(zipped(files, tmp_path / "raw.zip")) as inside:
            assert _changed(inside), done
        try:
            run, after = state(written(files, scratch))
            contradicted = bool(run.altered) or next(contradictions(run), None) is not None
            differs = any(line for name in DERIVED for line in differences(before[name], after[name], name))
        except FrontierError:
            contradicted = differs = True
        counts["found"] += contradicted or differs
        counts["harmless"] += not (contradicted or differs)
        counts["contradicted"] += contradicted
        if differs and not contradicted:
            change = moved(before["points"], after["points"])
            counts["unseen"] += 1
            counts["unseen, a figure moves by over 1 %"] += change > 0.01
            told_once = ".health." in done or ".server." in done or "config.yaml" in done  # docs/audit.md
            counts["unseen, a verdict changes"] += verdicts(before) != verdicts(after)
            assert told_once or verdicts(before) == verdicts(after), done
            print(f"unseen: {done}: {change:.3%}")
        if number % every == 0:
            assert bool(found(hashed_again(files), tmp_path)) == (contradicted or differs), done
            assert contradicted or differs or points_of(hashed_again(files), scratch) == shown, done
        shutil.rmtree(scratch)
    return counts


def test_random_edits_are_found_or_harmless(whole: Files, tmp_path: Path) -> None:
    counts = study(whole, tmp_path, 6, 1, every=3)
    # Half of a real run's evidence are readings of the server's metrics, of which most decide no
    # number.
    assert counts["found"] > 0.4 * counts["edits"]


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("which", ["virtual time", "HTTP"])
def test_a_thousand_random_edits_are_found_or_harmless(
    which: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    whole = request.getfixturevalue("whole")
    if which == "HTTP":
        whole = contents(packed(request.getfixturevalue("measured"), tmp_path / "measured.zip"))
    counts = study(whole, tmp_path, 500, 2, every=20)
    print(which, dict(counts))
    assert counts["edits"] > 450
    # Half of a real run's evidence are readings of the server's metrics, of which most decide no
    # number.
    assert counts["found"] > 0.4 * counts["edits"]
    assert counts["unseen"] < 0.15 * counts["edits"]
