"""What was changed since it was measured is said, wherever it is read, and never counts."""

import hashlib
import os
import random
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from frontier import import_files
from frontier.core.model.decisions import Verdict
from frontier.core.model.errors import StoreError
from frontier.core.model.loads import CappedRate, Concurrency, Load
from frontier.core.model.trials import Record
from frontier.core.window.from_records import BATCH, window_data, window_of_batches
from frontier.read_run import load
from frontier.store.files import Folder
from frontier.store.journal import Journal, server_words, servers
from frontier.store.records import STORED, decode_batch, decode_record, encode_record, stored
from frontier.store.run_dir import RunDirectory
from frontier.store.trial_files import AlteredError, sealed, unsealed
from frontier.store.window_cache import pack, unpack
from tests.core.window.test_window import measured, random_records
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import ENGINES, config_text, sweep_in_virtual_time
from tests.store.test_run_dir import finish, measurement, open_run, record, trial

TEXT = config_text(ENGINES["smooth"], requests=120, sla="{p50_ttft: 50ms}").replace("2, 4, 8, 16, 32, 64", "2")
KEY = "default-256x32-c0002-grid-r1"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("altered") / "run"
    sweep_in_virtual_time(path, TEXT)
    load(path)
    return path


@pytest.fixture
def run(swept: Path, tmp_path: Path) -> Path:
    """A run whose caches are in place."""
    shutil.copytree(swept, tmp_path / "run")
    time.sleep(0.03)  # what was written in this very moment is not cached
    load(tmp_path / "run")
    return tmp_path / "run"


def digit(file: Path, after: bytes) -> None:
    """Another digit after these bytes, in the middle of the file, and its times as they were."""
    data, before = bytearray(file.read_bytes()), file.stat()
    at = max(data.find(after, len(data) // 2), data.index(after)) + len(after)
    while not chr(data[at]).isdigit():
        at += 1
    data[at] = ord("1") if data[at] != ord("1") else ord("2")
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def records(run: Path) -> None:
    digit(run / "trials" / f"{KEY}.jsonl", b'"first":')


def cut(run: Path) -> None:
    file = run / "trials" / f"{KEY}.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))


def more(run: Path) -> None:
    file = run / "trials" / f"{KEY}.jsonl"
    file.write_bytes(file.read_bytes() + file.read_bytes().splitlines(keepends=True)[0])


def no_record(run: Path) -> None:
    file = run / "trials" / f"{KEY}.jsonl"
    file.write_bytes(file.read_bytes().replace(b"{", b"(", 1))


def another(run: Path) -> None:
    shutil.copy(run / "trials" / KEY.replace("r1", "r2.jsonl"), run / "trials" / f"{KEY}.jsonl")


def window(run: Path) -> None:
    digit(run / "evidence" / f"{KEY}.json", b'"end": ')


def health(run: Path) -> None:
    digit(run / "evidence" / f"{KEY}.json", b'"resent": ')


def its_hash(run: Path) -> None:
    digit(run / "evidence" / f"{KEY}.json", b'"sha256": "')


def without_hashes(run: Path) -> None:
    file = run / "evidence" / f"{KEY}.json"
    tree = orjson.loads(file.read_bytes())
    file.write_bytes(orjson.dumps({name: tree[name] for name in tree if name not in ("sha256", "digest")}))


CHANGES = [records, cut, more, no_record, another, window, health, its_hash, without_hashes]


@pytest.mark.fault("stored records or evidence changed, times and size put back or not")
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_trial_never_counts_and_the_rest_is_read(change: Callable[[Path], None], run: Path) -> None:
    whole = {p.load: p for p in load(run).points()}
    change(run)
    found = load(run)
    points = {p.load: p for p in found.points()}
    assert points[1] == whole[1]
    assert not points[2].valid
    assert [flag.name for flag in points[2].flags if flag.fatal] == ["records_changed"]
    assert (points[2].n, points[2].repeats) == (whole[2].n - 120, whole[2].repeats - 1)
    assert [trial.key for trial, _ in found.altered] == [KEY]
    assert [(d.load, d.verdict) for d in found.solve()] == [(1, Verdict.MEETS)]


def test_a_setting_of_which_nothing_else_is_left_is_flagged_too(run: Path) -> None:
    for file in (run / "trials").glob("default-256x32-c0002-*"):
        digit(file, b'"first":')
    found = {p.load: p for p in load(run).points()}
    assert found[2].n == 0
    assert "records_changed" in [flag.name for flag in found[2].flags]
    (decision,) = load(run).solve()
    assert next(j for j in decision.judgements if j.load == 2).verdict is Verdict.INVALID


def test_every_command_says_it_and_json_stays_json(run: Path) -> None:
    records(run)
    for command in (("solve",), ("show",), ("export", "--csv"), ("report", "-o", "page.html")):
        said = frontier(command[0], run, *command[1:], cwd=run.parent)
        assert f"remove {run}/trials/{KEY}.jsonl" in said.err, command
        warning = "\n".join(said.err.splitlines()[:2])
        assert_golden_row("messages", warning.replace(str(run.parent), "HERE"))
    said = frontier("show", run, "--json", cwd=run.parent)
    assert [p["valid"] for p in orjson.loads(said.out)["points"]] == [True, False]


def test_a_sweep_stops_at_a_changed_trial_and_measures_it_again_once_it_is_removed(run: Path) -> None:
    records(run)
    with pytest.raises(AlteredError, match=rf"{KEY}\.jsonl"):
        sweep_in_virtual_time(run, TEXT)
    (run / "trials" / f"{KEY}.jsonl").unlink()
    found, told, _ = sweep_in_virtual_time(run, TEXT)
    assert [trial.key for trial in told.finished] == [KEY]
    assert found.altered == ()


def test_an_unchanged_run_is_not_read_again(run: Path) -> None:
    """The cache answers: records that cannot be opened are not missed, as long as their state is
    known.
    """
    caches = {p: p.read_bytes() for p in (run / "derived" / "samples").iterdir()}
    stamps = {p: p.stat().st_mtime_ns for p in caches}
    load(run)
    assert {p: p.stat().st_mtime_ns for p in caches} == stamps


def test_a_copied_run_makes_its_caches_anew_and_a_strangers_cache_answers_nothing(run: Path) -> None:
    """A cache may be forged with every digest in place; it counts only for the file it was made
    from, here.
    """
    cache = run / "derived" / "samples" / f"{KEY}.sample"
    opened = RunDirectory.read(run)
    state = opened.mark(KEY)[0]
    made_from = f"{opened.evidence(KEY).digest} {state}"
    sample = unpack(cache.read_bytes(), made_from)
    assert sample is not None
    sample.ttft.setflags(write=False)
    forged = pack(load(run).histories[next(iter(load(run).histories))][0][1], made_from)
    copied = run.with_name("copied")
    cache.write_bytes(forged)
    shutil.copytree(run, copied)
    cache.unlink()
    assert load(copied).points() == load(run).points()


def test_a_change_right_after_the_records_were_read_is_seen(tmp_path: Path) -> None:
    """Times of files go by ticks: a state that may have a second of the same name is not
    trusted.
    """
    with open_run(tmp_path / "run") as run:
        finish(run, trial())
        for _ in range(30):
            name, settled = run.mark(trial().key)
            file = run.trial_file(trial().key)
            file.write_bytes(file.read_bytes())
            if settled:
                assert run.mark(trial().key)[0] != name
        time.sleep(0.05)
        assert run.mark(trial().key) == (run.mark(trial().key)[0], True), "left alone, it can be trusted"


def test_a_run_made_before_is_read_and_that_is_said_once(run: Path) -> None:
    for file in (run / "evidence").iterdir():
        tree = orjson.loads(file.read_bytes())
        file.write_bytes(orjson.dumps({k: v for k, v in tree.items() if k not in ("sha256", "digest")}))
    manifest = orjson.loads((run / "manifest.json").read_bytes())
    del manifest["hashed"]
    (run / "manifest.json").write_bytes(orjson.dumps(manifest))
    found = load(run)
    assert (found.unhashed, found.altered) == (len(list((run / "evidence").iterdir())), ())
    assert [point.valid for point in found.points()] == [True, True]
    for command in (("solve", run, "--json"), ("show", run), ("compare", run, run, "--json")):
        said = frontier(*command, cwd=run.parent)
        assert said.err.count("hashes") == 1, said.err
        assert "hashes" not in said.out
        assert_golden_row("messages", said.err.replace(str(run.parent), "HERE"))
    records(run)  # it cannot be told, but no cache answers for what is there no more
    before, after = (sum(s.ttft.sum() for h in r.histories.values() for _, s in h) for r in (found, load(run)))
    assert before != after


IMPORTED = b"concurrency,request_throughput,output_throughput,p99_ttft_ms\n1,2.5,300,40\n4,9,1100,55\n"


@pytest.fixture
def aggregates(tmp_path: Path) -> Path:
    (tmp_path / "table.csv").write_bytes(IMPORTED)
    import_files([tmp_path / "table.csv"], tmp_path / "imported", deployment="a", shape="256/64")
    return tmp_path / "imported"


def test_changed_aggregates_are_refused_and_the_same_import_is_not_a_change(aggregates: Path, tmp_path: Path) -> None:
    assert load(aggregates).unhashed == 0
    import_files([tmp_path / "table.csv"], aggregates, deployment="a", shape="256/64")
    points = load(aggregates).points()
    file = aggregates / "imported.jsonl"
    whole = file.read_bytes()
    for changed in (whole.replace(b"300", b"900"), whole[:-1], whole * 2, b""):
        file.write_bytes(changed)
        with pytest.raises(StoreError, match=r"imported\.jsonl") as refused:
            load(aggregates)
        assert_golden_row("messages", str(refused.value).replace(str(aggregates), "RUN"))
    file.write_bytes(whole)
    assert load(aggregates).points() == points
    (aggregates / "evidence" / "imported.json").unlink()
    with pytest.raises(StoreError, match="is missing"):
        load(aggregates)


def test_an_import_made_before_has_no_hash_and_is_read(aggregates: Path) -> None:
    (aggregates / "evidence" / "imported.json").unlink()
    manifest = orjson.loads((aggregates / "manifest.json").read_bytes())
    del manifest["hashed"]
    (aggregates / "manifest.json").write_bytes(orjson.dumps(manifest))
    said = frontier("show", aggregates, "--json", cwd=aggregates.parent)
    assert len(orjson.loads(said.out)["points"]) == 2
    assert said.err.count("hashes") == 1


@pytest.mark.parametrize(
    "change",
    [
        {"n": "many"},
        {"concurrency": None},
        {"concurrency": 0},
        {"concurrency": 1e300},
        {"values": {"p99_ttft": []}},
        {"values": {"no_such_metric": 1.0}},
        {"values": 5},
        {"deployment": ["a"]},
        {"shape": {}},
        {"flags": [{}]},
        {"flags": [{"name": 1, "measured": 2, "limit": 3, "advice": 4}]},
        {"notes": [1]},
        {"whole_run": {"x": "y"}},
        {"repeats": -1},
    ],
    ids=str,
)
def test_aggregates_of_the_wrong_type_are_refused_with_the_file_named(
    change: dict[str, object], aggregates: Path
) -> None:
    """A foreign import, with every hash in place."""
    file = aggregates / "imported.jsonl"
    line = orjson.loads(file.read_bytes().splitlines()[0]) | change
    file.write_bytes(orjson.dumps(line) + b"\n")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    (aggregates / "evidence" / "imported.json").write_bytes(sealed({"sha256": digest}))
    with pytest.raises(StoreError, match="cannot be read") as caught:
        load(aggregates)
    assert str(file) in str(caught.value)


def test_the_trials_of_verify_have_hashes_too(run: Path) -> None:
    with RunDirectory.open_to_verify(run) as below:
        finish(below, trial())
        assert [record()] == list(below.records(trial().key))
        digit(below.trial_file(trial().key), b'"first":')
        with pytest.raises(AlteredError):
            list(below.records(trial().key))


def test_a_tree_is_as_it_was_sealed_whatever_its_layout() -> None:
    tree = {"a": 1.5, "b": [1, None, {"c": "é"}], "d": 1e300}
    data = sealed(tree)
    assert unsealed(data) == (tree, True)
    assert unsealed(orjson.dumps(dict(reversed(orjson.loads(data).items())))) == (tree, True)
    assert unsealed(data.replace(b"1.5", b"1.6"))[1] is False
    assert unsealed(orjson.dumps(tree)) == (tree, None)


# --- what a server says is bounded and cleaned


BIDI = "llama\u202e8b\x1b[31m\x00"


def test_what_is_stored_is_bounded_and_clean(tmp_path: Path) -> None:
    huge = "m" * 5_000_000
    said = measurement(trial())
    with open_run(tmp_path / "run") as run:
        run.journal("server", deployment="d", identity=BIDI, model=huge, more=[{BIDI: (BIDI, huge)}])
        with run.writer(trial()) as writer:
            writer.add(type(record())(**{**_fields(record()), "error": BIDI + huge, "finish_reason": BIDI}))
            server = {BIDI: 1.0}
            writer.commit(type(said)(**{**_fields(said), "server": server, "server_identity": huge}))
    named = set()
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():
            data = file.read_text()
            assert len(data) < 30_000, file
            assert not set(data) & {"\u202e", "\x1b", "\x00"}, file
            assert "\\u001b" not in data, file
            named |= {file.name} if "llama8b[31m" in data else set()
    assert named == {"journal.jsonl", f"{trial().key}.json", f"{trial().key}.jsonl"}
    (kept,) = RunDirectory.read(tmp_path / "run").records(trial().key)
    assert kept.finish_reason == "llama8b[31m"


def _fields(what: object) -> dict[str, object]:
    return {name: getattr(what, name) for name in what.__slots__}  # type: ignore[attr-defined]


def test_a_server_with_a_name_that_is_cut_is_the_same_server_and_one_that_differs_at_its_end_another(
    tmp_path: Path,
) -> None:
    journal = Journal(Folder(tmp_path))
    names = {"a": "m" * 100_000 + "a", "b": "m" * 100_000 + "b", "c": BIDI}
    for deployment, name in names.items():
        journal.append("server", deployment=deployment, identity="v1", model=name)
    told = servers(journal.lines())
    assert told == {deployment: server_words(name, "v1") for deployment, name in names.items()}
    assert len(set(told.values())) == 3


@pytest.mark.parametrize(
    "said", ["", "plain", "two\nlines\t1 tab", "x" * 2_000, "é 漢字 🙂", "x" * 2_001, "\u202e" * 9_000]
)
def test_what_was_stored_is_stored_again_as_it_is(said: str) -> None:
    once = stored(said)
    assert len(once) <= STORED
    assert stored(once) == once
    assert (once == said) == (len(said) <= 2_000)


# --- records in batches


def odd_in_places(record: Record, rng: random.Random) -> Record:
    """The record with some of the fields that few records have."""
    some = {
        "first_text": None if record.first is None else record.first + rng.random(),
        "scheduled": record.sent - rng.random(),
        "finish_reason": rng.choice(("stop", "content_filter")),
        "error": "HTTP 429: try again in 16 s",
        "status": 429,
        "resent": True,
        "connect": rng.random(),
        "session": rng.randrange(9),
        "turn": 0,
        "connection": rng.randrange(4),
        "first_chars": 3,
        "most_tokens": 2_000,
    }
    return replace(record, **{name: value for name, value in some.items() if rng.random() < 0.3})


@pytest.mark.parametrize("load", [Concurrency(4), CappedRate.at(10.0, 4)])
def test_batches_give_the_window_data_of_their_records_to_the_last_bit(tmp_path: Path, load: Load) -> None:
    rng, made = random.Random(3), random_records(2 * BATCH + 100, 3)
    with open_run(tmp_path / "run") as run, run.writer(trial()) as writer:
        for each in made:
            writer.add(odd_in_places(each, rng))
        writer.commit(measurement(trial()))
    found = measured(5.0, 25.0, load=load)
    slow = window_data(found, run.records(trial().key))
    quick = window_of_batches(found, run.batches(trial().key))
    assert slow.n > BATCH
    assert len(slow.failures) > 1
    assert slow.hollow.any()
    assert pack(quick, "") == pack(slow, "")


def test_an_odd_line_of_a_batch_is_read_as_a_record_is() -> None:
    plain = [encode_record(each) for each in random_records(50, 5)]
    for old, new in (
        (b'"gaps":[', b'"gaps":[12.5,'),
        (b'"gaps":[', b'"gaps": ['),
        (b'"gaps":[', b'"gaps":[ '),
        (b'"index":7', b'"error":null,"index":7'),
        (b'"index":7', rb'"error":"\"gaps\":[1,2]","index":7'),
        (b'"index":7', rb'"error":"]\\","index":7'),
    ):
        lines = [line.replace(old, new) for line in plain]
        assert lines != plain
        slow = window_data(measured(5.0, 25.0), map(decode_record, lines))
        assert pack(window_of_batches(measured(5.0, 25.0), [decode_batch(lines)]), "") == pack(slow, "")


@pytest.mark.parametrize(
    "gaps", [b"null", b"[1,,2]", b"[,1]", b"[1,]", b"[1", b"[1,-]", b"[1 2]", b"[x]", b'["7"]', b"7"]
)
def test_gaps_that_are_no_list_of_numbers_are_refused_in_a_batch_as_in_a_record(gaps: bytes) -> None:
    plain = [encode_record(each) for each in random_records(3, 5)]
    head, _, rest = plain[1].partition(b'"gaps":[')
    line = head + b'"gaps":' + gaps + rest.partition(b"]")[2]
    with pytest.raises(StoreError) as refused:
        decode_record(line)
    with pytest.raises(StoreError) as of_batch:
        decode_batch([plain[0], line, plain[2]])
    assert str(of_batch.value) == str(refused.value)


def test_a_gap_beyond_all_that_can_be_is_refused() -> None:
    plain = [encode_record(each) for each in random_records(3, 5)]
    for number in (b"-1", b"99999999999999", b"99999999999999999999999"):
        with pytest.raises((StoreError, ValueError)):
            window_of_batches(
                measured(5.0, 25.0), [decode_batch([x.replace(b'"gaps":[', b'"gaps":[%s,' % number) for x in plain])]
            )


def test_records_without_gaps_are_a_batch() -> None:
    plain = [encode_record(replace(each, gaps=())) for each in random_records(3, 5)]
    assert decode_batch(plain).counts.tolist() == [0, 0, 0]
    assert not len(decode_batch(plain).gaps)
