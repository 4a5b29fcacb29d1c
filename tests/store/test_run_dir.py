import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontier.core.model.errors import StoreError, UsageError
from frontier.core.model.loads import POISSON, CappedRate, Rate
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import ClientHealth, Measurement, Outcome, Phase, Record, Trial, Window
from frontier.core.model.units import LONGEST
from frontier.store.files import Folder
from frontier.store.journal import Journal
from frontier.store.records import (
    decode_batch,
    decode_measurement,
    decode_record,
    encode_measurement,
    encode_record,
    stored,
)
from frontier.store.run_dir import AnotherSweepError, RunDirectory, last_measured, runs_under
from frontier.store.trial_files import AlteredError
from frontier.sweep.given_files import prompts_facts
from tests.kit.golden import assert_golden_row


def trial(concurrency: int = 4, repeat: int = 1) -> Trial:
    return Trial(
        "default", Shape.of(256, 32), concurrency, repeat, Phase.GRID, 100, 7, 1.0, 0.0, 10.0, f"f{concurrency}{repeat}"
    )


def measurement(of: Trial) -> Measurement:
    return Measurement(
        of, 1_700_000_000.5, Window(1.0, 9.0), "requests", ClientHealth(0.001, resent=2), {"num_preemptions": 3.0}, "v"
    )


def record(index: int = 0) -> Record:
    return Record(
        index,
        1,
        0.25,
        Outcome.OK,
        1.5,
        256,
        32,
        0.5,
        0.5,
        1.25,
        257,
        32,
        0,
        32,
        30,
        90,
        80,
        "length",
        200,
        gaps=(10, 20, 30),
    )


def open_run(path: Path, identity: str = "same") -> RunDirectory:
    return RunDirectory.open_for_sweep(
        path, identity=identity, canonical={"seed": identity}, config_text="seed: 1\n", facts={}
    )


def test_a_committed_trial_reads_back_as_it_was(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        with run.writer(trial()) as writer:
            for i in range(3):
                writer.add(record(i))
            writer.commit(measurement(trial()))
        assert {trial().key: measurement(trial())} == run.finished()
        assert [record(i) for i in range(3)] == list(run.records(trial().key))
        assert ["created", "trial_done"] == [line["event"] for line in run.journal_lines()]


def test_a_trial_left_without_commit_leaves_nothing(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        with run.writer(trial()) as writer:
            writer.add(record())
        assert {} == run.finished()
        assert [] == list((tmp_path / "run" / "trials").iterdir())


@given(
    st.builds(
        Record,
        index=st.integers(0, 10**9),
        stream=st.integers(0, 10**4),
        sent=st.floats(0, 1e5).map(lambda x: round(x, 6)),
        outcome=st.sampled_from(Outcome),
        end=st.floats(0, 1e5).map(lambda x: round(x, 6)),
        asked_isl=st.integers(0, 10**6),
        asked_osl=st.integers(0, 10**6),
        error=st.none() | st.text(max_size=50),
        first=st.none() | st.floats(0, 1e5).map(lambda x: round(x, 6)),
        prompt_tokens=st.none() | st.integers(0, 10**6),
        resent=st.booleans(),
        gaps=st.lists(st.integers(0, 10**9), max_size=20).map(tuple),
    )
)
def test_any_record_survives_the_file(written: Record) -> None:
    error = None if written.error is None else stored(written.error)
    assert replace(written, error=error) == decode_record(encode_record(written))


def test_a_measurement_survives_the_file() -> None:
    assert measurement(trial()) == decode_measurement(encode_measurement(measurement(trial())))


def test_only_a_trial_whose_window_is_bounded_says_so_in_the_file() -> None:
    unbounded = encode_measurement(measurement(trial()))
    assert "seconds" not in unbounded["trial"]
    short = measurement(replace(trial(), seconds=4.0))
    assert encode_measurement(short)["trial"]["seconds"] == 4.0
    assert decode_measurement(encode_measurement(short)) == short
    with pytest.raises(ValueError, match="times are impossible"):
        decode_measurement(encode_measurement(measurement(replace(trial(), seconds=LONGEST * 2))))


def test_a_check_keeps_its_exact_rate_and_the_most_in_flight() -> None:
    tree = encode_measurement(measurement(replace(trial(), load=CappedRate.at(135.0625, 49))))
    assert (tree["trial"]["concurrency"], tree["trial"]["rate"]) == (49, 135.0625)
    load = decode_measurement(tree).trial.load
    assert (load, load.per_second, load.streams, load.is_open) == (49, 135.0625, 49, True)
    assert "rate" not in encode_measurement(measurement(trial()))["trial"]


def test_a_rate_is_stored_in_thousandths_and_per_second() -> None:
    shape = replace(trial().shape, arrivals=POISSON)
    tree = encode_measurement(measurement(replace(trial(), shape=shape, load=Rate.of(2.5))))
    assert (tree["trial"]["concurrency"], tree["trial"]["rate"]) == (2500, 2.5)
    assert decode_measurement(tree).trial.load.per_second == 2.5


def test_a_damaged_record_is_an_error_with_a_reason() -> None:
    sent = b'"index": 0, "stream": 0, "sent": 0.0, "outcome": "ok", "end": 1.0, "asked_isl": 1, "asked_osl": 1'
    assert decode_record(b"{%s}" % sent).status is None
    of_text = [b'{%s, "%s": "5"}' % (sent, name) for name in (b"status", b"first", b"turn", b"class_index")]
    for line in (b"{", b"[]", b"{}", b'{"outcome": "no such"}', b'{"outcome": "ok", "surprise": 1}', *of_text):
        with pytest.raises(StoreError) as refused:
            decode_record(line)
        with pytest.raises(StoreError) as of_batch:
            decode_batch([b"{%s}" % sent, line])
        assert str(of_batch.value) == str(refused.value)
        what, _, why = refused.value.what.partition(": ")  # why: Python's own words
        assert why
        assert_golden_row("messages", f"{what}: ...\n  {refused.value.hint}")


def test_a_torn_journal_line_is_left_out(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        with (run.path / "journal.jsonl").open("ab") as file:
            file.write(b'{"event": "trial_do')
        assert ["created"] == [line["event"] for line in run.journal_lines()]


@pytest.mark.process
def test_a_journal_line_that_does_not_fit_leaves_no_half_of_it(tmp_path: Path) -> None:
    """The disk is full in the midst of a line; with room again the next line stands alone."""
    script = """if True:
        import resource, sys
        from pathlib import Path
        from frontier.core.model.errors import WriteError
        from frontier.store.files import Folder
        from frontier.store.journal import Journal
        journal = Journal(Folder(Path(sys.argv[1]).parent))
        journal.append("first")
        room = Path(sys.argv[1]).stat().st_size + 20
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
        try:
            journal.append("second", text="far more than there is room for")
        except WriteError as error:
            print(error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        journal.append("third")
    """
    file = tmp_path / "journal.jsonl"
    said = subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True, timeout=60)
    assert "file size limit" in said.stdout, said.stderr
    assert file.read_bytes().count(b"\n") == 2
    assert ["first", "third"] == [line["event"] for line in Journal(Folder(tmp_path)).lines()]


OURS = (
    "manifest.json.8.tmp",
    "config.yaml.12345.tmp",
    "trials/{key}.jsonl.part",
    "evidence/{key}.json.77.tmp",
    "derived/frontier.png.7.tmp",
    "derived/samples/{key}.sample.7.tmp",
    "verify/trials/{key}.jsonl.part",
    "verify/evidence/{key}.json.77.tmp",
)
NOT_OURS = (
    "notes.tmp",
    "notes.2024.tmp",
    "download.part",
    "trials/mine.part",
    "trials/{key}.jsonl.part.old",
    "evidence/notes.2024.tmp",
    "derived/notes.2024.tmp",
    "sub/trials/mine.part",
    "sub/trials/{key}.jsonl.part",
    "sub/manifest.json.8.tmp",
    "below/verify/trials/{key}.jsonl.part",
    "logs/vllm.log.7.tmp",
    "manifest.json.tmp",
)


@pytest.mark.fault("files of other names, and other runs, below a run that is resumed", times=len(NOT_OURS))
def test_only_our_own_leftovers_are_cleared_away(tmp_path: Path) -> None:
    """By their exact names in the run's own directories: what lies below may be a run of its own,
    with a trial in flight."""
    open_run(tmp_path / "run").close()
    files = {name: tmp_path / "run" / name.format(key=trial().key) for name in (*OURS, *NOT_OURS)}
    for file in files.values():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    open_run(tmp_path / "run").close()
    assert set(NOT_OURS) == {name for name, file in files.items() if file.exists()}


@pytest.mark.parametrize("names", [("config.yaml",), ("journal.jsonl",), ("config.yaml", "lock")])
def test_a_directory_with_files_of_our_names_that_we_did_not_write_is_left_alone(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    (tmp_path / "run").mkdir()
    for name in names:
        (tmp_path / "run" / name).write_text("mine")
    with pytest.raises(StoreError, match="not empty"):
        open_run(tmp_path / "run")
    assert dict.fromkeys(names, "mine") == {p.name: p.read_text() for p in (tmp_path / "run").iterdir()}


def test_a_trial_measured_again_and_killed_before_its_records_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment between the new evidence and the new records: the old records never meet it."""

    def measure_again(run: RunDirectory) -> None:
        with run.writer(trial()) as writer:
            writer.add(replace(record(), stream=9))
            writer.commit(replace(measurement(trial()), epoch=3e9))

    carry_on = Folder.replace

    def die(folder: Folder, old: str, new: str) -> None:
        if folder.path.name == "trials":
            raise KeyboardInterrupt
        carry_on(folder, old, new)

    with open_run(tmp_path / "run") as run:
        finish(run, trial())
        with monkeypatch.context() as killed:
            killed.setattr(Folder, "replace", die)
            with pytest.raises(KeyboardInterrupt):
                measure_again(run)
        assert {} == run.finished()
        measure_again(run)
        assert [9] == [r.stream for r in run.records(trial().key)]
        assert run.finished()[trial().key].epoch == 3e9


def test_a_journal_line_that_no_sweep_writes_is_left_out(tmp_path: Path) -> None:
    """A run may be a stranger's, and damaged: what reads the journal may rely on what is in a
    line.
    """
    file = tmp_path / "journal.jsonl"
    file.write_text(
        """\
        {"event": "created", "time": 1.5}
        {"event": "skipped", "time": 1}
        {"event": "skipped", "time": 1, "trial": "k", "reason": {"a": 1}}
        {"event": "dropped", "time": 1, "trials": 5}
        {"event": "dropped", "time": 1, "trials": [5]}
        {"event": "trial_begun", "trial": "k"}
        {"event": "server", "time": 1, "deployment": "d"}
        {"event": "failed", "time": 1e300}
        {"event": "failed", "time": true}
        {"event": ["failed"], "time": 1}
        {"event": "trial_done", "time": 1, "trial": "k", "took": 1}
        {"event": "trial_done", "time": 1, "trial": "k", "spent": {"seconds": "x"}}
        {"event": "finished", "time": 1, "spent": {"hours": 1}}
        {"event": "finished", "time": 2, "spent": {"seconds": 1}, "of another version": [1]}
        """
    )
    lines = Journal(Folder(tmp_path)).lines()
    assert [("created", 1.5), ("finished", 2)] == [(line["event"], line["time"]) for line in lines]


def test_a_half_journal_line_of_a_killed_predecessor_does_not_swallow_the_next(tmp_path: Path) -> None:
    open_run(tmp_path / "run").close()
    with (tmp_path / "run" / "journal.jsonl").open("ab") as file:
        file.write(b'{"event": "trial_do')
    open_run(tmp_path / "run").close()
    assert ["created", "resumed"] == [line["event"] for line in RunDirectory.read(tmp_path / "run").journal_lines()]


def test_a_start_killed_before_its_manifest_is_no_obstacle(tmp_path: Path) -> None:
    open_run(tmp_path / "run").close()
    (tmp_path / "run" / "manifest.json").rename(tmp_path / "run" / "manifest.json.77.tmp")
    (tmp_path / "run" / "journal.jsonl").unlink()
    with open_run(tmp_path / "run") as run:
        assert ["created"] == [line["event"] for line in run.journal_lines()]
    assert [] == list((tmp_path / "run").glob("*.tmp"))
    (tmp_path / "run" / "manifest.json").unlink()
    (tmp_path / "run" / "trials" / "precious.jsonl").write_text("{}")
    with pytest.raises(StoreError, match="not empty"):
        open_run(tmp_path / "run")


def finish(run: RunDirectory, of: Trial, epoch: float = 1.7e9) -> None:
    with run.writer(of) as writer:
        writer.add(record())
        writer.commit(replace(measurement(of), epoch=epoch))


def test_finished_trials_come_in_the_order_they_ended_even_when_the_clock_was_set_back(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        finish(run, trial(repeat=1), epoch=2e9)
    with open_run(tmp_path / "run") as run:
        finish(run, trial(repeat=2), epoch=1e9)
        finish(run, trial(repeat=3), epoch=1.5e9)
        assert [1, 2, 3] == [m.trial.repeat for m in run.finished().values()]


def test_a_trial_file_that_was_cut_is_not_taken_for_a_short_trial(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        with run.writer(trial()) as writer:
            writer.add(record(0))
            writer.add(record(1))
            writer.commit(measurement(trial()))
        file = run.trial_file(trial().key)
        file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
        with pytest.raises(AlteredError, match=r"have \d+ bytes of \d+") as caught:
            list(run.records(trial().key))
    assert f"remove {file}" in (caught.value.hint or "")


def test_a_run_whose_file_of_prompts_changed_is_not_resumed(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "one"}\n')

    def begin(path: Path) -> None:
        facts = prompts_facts(str(prompts))
        RunDirectory.open_for_sweep(path, identity="i", canonical={}, config_text="", facts=facts).close()

    earlier = tmp_path / "earlier"
    RunDirectory.open_for_sweep(earlier, identity="i", canonical={}, config_text="", facts={}).close()
    begin(tmp_path / "run")
    begin(tmp_path / "run")
    prompts.write_text('{"prompt": "another"}\n')
    begin(earlier)  # a run of an earlier version does not say what its file was
    with pytest.raises(UsageError, match="prompts") as refused:
        begin(tmp_path / "run")
    assert_golden_row("messages", str(refused.value).replace(str(tmp_path), "HERE"))
    begin(tmp_path / "new")


def test_a_key_in_a_comment_of_the_config_is_not_copied(tmp_path: Path) -> None:
    text = "seed: 1  # was sk-proj-abcdefghij0123456789\n"
    RunDirectory.open_for_sweep(tmp_path / "run", identity="i", canonical={}, config_text=text, facts={}).close()
    assert "seed: 1  # was ***\n" == RunDirectory.read(tmp_path / "run").config_text()


def test_another_sweep_is_refused_and_its_trials_kept(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run, run.writer(trial()) as writer:
        writer.commit(measurement(trial()))
    with pytest.raises(AnotherSweepError) as caught:
        open_run(tmp_path / "run", identity="other")
    assert ({"seed": "same"}, {"seed": "other"}) == (caught.value.theirs, caught.value.ours)
    assert 1 == caught.value.finished
    open_run(tmp_path / "run").close()


def test_a_mended_config_takes_the_place_of_a_sweep_that_never_got_to_a_trial(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        run.journal("failed", reason="no such file of prompts")
    with open_run(tmp_path / "run", identity="other") as run:
        assert {"seed": "other"} == run.manifest["canonical"]
        assert ["created"] == [line["event"] for line in run.journal_lines()]


def test_an_import_is_no_empty_sweep(tmp_path: Path) -> None:
    with open_run(tmp_path / "run") as run:
        run.write_imported([])
    with pytest.raises(AnotherSweepError):
        open_run(tmp_path / "run", identity="other")


def test_a_second_start_on_one_run_is_refused_with_the_holder_named(tmp_path: Path) -> None:
    with open_run(tmp_path / "run"), pytest.raises(StoreError, match=f"process {os.getpid()} on"):
        open_run(tmp_path / "run")
    open_run(tmp_path / "run").close()


def test_a_directory_with_other_things_is_not_taken_for_a_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("precious")
    with pytest.raises(StoreError) as refused:
        open_run(tmp_path / "run")
    assert_golden_row("messages", str(refused.value).replace(str(tmp_path), "HERE"))
    assert ["thesis.tex"] == [p.name for p in (tmp_path / "run").iterdir()]


def test_no_write_permission_is_said_with_a_way_out(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        target = Path("/proc/frontier-cannot-write-here")  # root may write anywhere a file system lets it
    else:
        (tmp_path / "locked").mkdir(mode=0o500)
        target = tmp_path / "locked" / "run"
    with pytest.raises(StoreError) as caught:
        open_run(target)
    assert caught.value.hint is not None
    assert "-o DIR" in caught.value.hint


def test_a_file_of_another_schema_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"schema": "frontier.run/99"}')
    with pytest.raises(StoreError, match="another version"):
        RunDirectory.read(tmp_path)


def test_runs_are_listed_by_their_last_finished_trial(tmp_path: Path) -> None:
    assert runs_under(tmp_path) == []
    now = time.time()
    for name, begun in (("first", 300), ("second", 200), ("empty", 100)):
        open_run(tmp_path / name).close()
        os.utime(tmp_path / name / "manifest.json", (now - begun, now - begun))
    assert [tmp_path / name for name in ("empty", "second", "first")] == runs_under(tmp_path)
    for name, ended in (("first", 10), ("second", 150)):  # the one begun before was gone on with
        with RunDirectory(tmp_path / name, {}).writer(trial()) as writer:
            writer.commit(measurement(trial()))
        for file in (tmp_path / name / "trials").iterdir():
            os.utime(file, (now - ended, now - ended))
    assert [tmp_path / name for name in ("first", "second", "empty")] == runs_under(tmp_path)


def test_a_link_or_a_part_is_no_finished_trial(tmp_path: Path) -> None:
    open_run(tmp_path / "run").close()
    (tmp_path / "run" / "trials" / "a.jsonl").symlink_to("/etc/hostname")
    (tmp_path / "run" / "trials" / "b.jsonl.part").write_text("{}\n")
    (tmp_path / "run" / "trials" / "c.jsonl").mkdir()
    assert last_measured(tmp_path / "run") is None


def _write_trials_for_ever(path: Path) -> None:
    with open_run(path) as run:
        for repeat in range(1, 10_000):
            with run.writer(trial(repeat=repeat)) as writer:
                for i in range(50):
                    writer.add(record(i))
                writer.commit(measurement(trial(repeat=repeat)))


@pytest.mark.process
def test_a_kill_at_any_moment_loses_at_most_the_trial_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "run"
    context = multiprocessing.get_context("fork")
    done = 0
    for pause in (0.05, 0.08, 0.11, 0.13, 0.17):
        child = context.Process(target=_write_trials_for_ever, args=(path,))
        child.start()
        time.sleep(pause)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        if not (path / "manifest.json").exists():
            continue
        with open_run(path) as run:
            finished = run.finished()
            assert len(finished) >= done - 1  # one that is measured again is in flight as well
            done = len(finished)
            for key in finished:
                assert 50 == len(list(run.records(key)))
            assert [] == list(path.rglob("*.part"))
    assert done > 0
