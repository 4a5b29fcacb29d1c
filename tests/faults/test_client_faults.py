"""The fault matrix, faults of the client machine: disk, descriptors, ports, clock, memory. Finished
trials are kept."""

import ast
import asyncio
import errno
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import frontier
from benchmarks.kills import decided
from frontier.cli import main
from frontier.client.ask import preflight
from frontier.client.ask.target import Target
from frontier.client.load import health as watchdog
from frontier.core.flags.flags import flags
from frontier.core.model.errors import MeasurementError, MemoryShortError, WriteError
from frontier.core.model.trials import ClientHealth, Measurement, Outcome, Record, Trial, Window
from frontier.core.window.from_records import window_data
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.store.run_dir import RunDirectory
from frontier.world import World, inside
from tests.kit.commands import frontier as run_frontier
from tests.kit.commands import http_sweep, start, until_trial
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import line_of, neutral, without_numbers
from tests.kit.sweeps import ENGINES, config_text, own_exit_code, sweep_in_virtual_time
from tests.store.test_run_dir import open_run, record, trial

SWEEP = http_sweep("[1, 4]", requests=60, more="max_time: 20s\n")
BIG = SWEEP.replace("requests: 60", "requests: 600")
VIRTUAL = (
    config_text(ENGINES["smooth"], requests=100)
    .replace("[1, 2, 4, 8, 16, 32, 64]", "[2, 4]")
    .replace("repeats: 3", "repeats: 2")
)
"""A config for virtual time; the tests below share one run of it."""


def finished(run: Path) -> list[int]:
    return sorted(m.trial.load for m in RunDirectory.read(run).finished().values())


# --- the disk


@pytest.mark.process
@pytest.mark.fault("file size limit")
@pytest.mark.slow
def test_a_file_size_limit_ends_the_sweep_with_the_command_to_resume_and_keeps_finished_trials(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    process = start("sweep", "sweep.yaml", "-o", "run", cwd=tmp_path)
    until_trial(process, tmp_path, finished=1)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4000, 4000))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5
    assert_golden_row("messages", re.sub(r"error: \S+", "error: FILE", err[err.index("error: ") :]))
    assert err.rstrip().endswith("frontier sweep sweep.yaml -o run")
    assert "Traceback" not in err
    assert len(finished(tmp_path / "run")) == 1
    assert not list((tmp_path / "run").rglob("*.part"))
    assert RunDirectory.read(tmp_path / "run").journal_lines()[-1]["event"] == "failed"
    said = run_frontier("sweep", "sweep.yaml", "-o", "run", cwd=tmp_path)
    assert said.code == own_exit_code(tmp_path / "run"), said.err
    assert {*finished(tmp_path / "run")} == {1, 4}  # each again where the machine was busy


NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount", "--net"]


def in_a_namespace(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell script where it may mount file systems and set network limits of its own."""
    if shutil.which("unshare") is None or subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode:
        pytest.skip("this system does not allow namespaces")
    command = [*NAMESPACE, "sh", "-c", textwrap.dedent(script)]
    environ = {**os.environ, "PY": sys.executable, "NO_COLOR": "1"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, env=environ)


LOOPBACK = """\
$PY -c "
import fcntl, socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
fcntl.ioctl(s, 0x8914, struct.pack('16sh14x', b'lo', 0x1 | 0x40))"
"""


@pytest.mark.process
@pytest.mark.fault("disk full")
@pytest.mark.slow
def test_a_full_disk_ends_the_sweep_and_with_room_again_it_goes_on(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(BIG)
    (tmp_path / "disk").mkdir()
    said = in_a_namespace(
        LOOPBACK
        + """\
        mount -t tmpfs -o size=8m tmpfs disk || exit 99
        $PY -m frontier sweep sweep.yaml -o disk/run 2> first.err &
        while ! ls disk/run/trials/*.part 2> /dev/null; do sleep 0.1; done
        dd if=/dev/zero of=disk/ballast bs=64k 2> /dev/null
        wait $!; echo "first $?"
        rm disk/ballast
        $PY -m frontier sweep sweep.yaml -o disk/run 2> second.err
        echo "second $?"
        ls disk/run/trials
        cat disk/run/journal.jsonl
        """,
        tmp_path,
    )
    if said.returncode == 99:
        pytest.skip("this system does not allow mounting a tmpfs")
    assert "first 5" in said.stdout, said.stdout + said.stderr + (tmp_path / "first.err").read_text()
    first = (tmp_path / "first.err").read_text()
    assert "no space" in line_of(first, "error: ", "disk/run")
    assert "  frontier sweep sweep.yaml -o disk/run" in first.splitlines()
    assert "Traceback" not in first
    assert "default-32x8-c0004-grid-r1.jsonl\n" in said.stdout
    assert ".part" not in said.stdout.partition("second")[2]
    assert '"event":"failed"' in said.stdout


@pytest.mark.fault("file size limit")
def test_records_beyond_the_file_size_limit_are_an_error_and_leave_no_partial_file(tmp_path: Path) -> None:
    """While the trial runs, not only at its end: the buffer is written out when it is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def write(run: RunDirectory) -> None:
        with run.writer(trial()) as writer:
            for i in range(100_000):
                writer.add(record(i))

    with open_run(tmp_path / "run") as run:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard))
        try:
            with pytest.raises(WriteError, match="file size limit"):
                write(run)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [] == list((tmp_path / "run" / "trials").iterdir())


@pytest.mark.fault("no space, quota, remounted read-only, I/O error")
@pytest.mark.parametrize(
    "name",
    ["ENOSPC", *(pytest.param(name, marks=pytest.mark.slow) for name in ("EDQUOT", "EROFS", "EIO"))],
)
def test_an_error_of_the_disk_is_reported_with_its_cause(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fsync is made to fail: a quota, a dying disk and a remount cannot be had for a test."""
    sweep_in_virtual_time(tmp_path / "run", VIRTUAL)
    (tmp_path / "run" / "trials" / "default-256x32-c0004-grid-r2.jsonl").unlink()
    before = finished(tmp_path / "run")
    real, number = os.fsync, getattr(errno, name)

    def fails(descriptor: int) -> None:
        if "trials" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(number, os.strerror(number))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(WriteError) as caught:
        sweep_in_virtual_time(tmp_path / "run", VIRTUAL)
    assert caught.value.exit_code == 5
    assert_golden_row("messages", neutral(str(caught.value), tmp_path))
    monkeypatch.setattr(os, "fsync", real)
    assert before == finished(tmp_path / "run")
    assert RunDirectory.read(tmp_path / "run").journal_lines()[-1]["event"] == "failed"


@pytest.mark.process
@pytest.mark.fault("run directory moved or removed")
@pytest.mark.slow
def test_a_run_directory_that_is_moved_ends_the_sweep_which_resumes_at_the_new_place(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    process = start("sweep", "sweep.yaml", "-o", "run", cwd=tmp_path)
    until_trial(process, tmp_path, finished=1)
    (tmp_path / "run").rename(tmp_path / "moved")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5
    assert_golden_row("messages", re.sub(r"error: \S+", "error: FILE", err[err.index("error: ") :]))
    assert "Traceback" not in err
    assert len(finished(tmp_path / "moved")) == 1
    said = run_frontier("sweep", "sweep.yaml", "-o", "moved", cwd=tmp_path)
    assert said.code == own_exit_code(tmp_path / "moved"), said.err
    assert {*finished(tmp_path / "moved")} == {1, 4}


def test_a_run_that_can_only_be_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing is made to fail: root may write anywhere, and tests may run as root."""
    run, _, _ = sweep_in_virtual_time(tmp_path / "run", VIRTUAL)
    shutil.rmtree(tmp_path / "run" / "derived")

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", denied)
    assert frontier.load(tmp_path / "run").points() == run.points()


# --- descriptors and ports


@pytest.mark.process
@pytest.mark.fault("too few file descriptors")
@pytest.mark.slow
def test_too_few_open_files_end_a_sweep_before_anything_is_sent(tmp_path: Path) -> None:
    nowhere = "endpoint: http://127.0.0.1:9/v1\n" + SWEEP.split("\n", 2)[2]
    (tmp_path / "sweep.yaml").write_text(nowhere.replace("[1, 4]", "[1, 512]"))
    process = start(
        "sweep",
        "sweep.yaml",
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200)),
    )
    _, err = process.communicate(timeout=60)
    assert process.returncode == 5
    assert_golden_row("messages", err[err.index("error: ") :])


@pytest.mark.fault("too few file descriptors")
def test_a_limit_below_the_concurrency_is_an_error_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit as small as a crowded machine's; the system's own is not touched."""
    monkeypatch.setattr(preflight, "raise_fd_limit", lambda *_: 100)
    with pytest.raises(MeasurementError) as caught:
        asyncio.run(preflight.preflight(Target("http://127.0.0.1:9/v1"), concurrency=128))
    assert_golden_row("messages", str(caught.value))


@pytest.mark.process
@pytest.mark.fault("local ports taken away during the sweep")
@pytest.mark.slow
def test_running_out_of_ports_counts_against_the_client_and_not_the_server(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("[1, 4]", "[4, 32]"))
    said = in_a_namespace(
        LOOPBACK
        + """\
        echo "40000 40020" > /proc/sys/net/ipv4/ip_local_port_range || exit 99
        $PY -c "
        import sys
        from frontier.cli.main import run
        sys.exit(run(['sweep', 'sweep.yaml', '-o', 'run']))" 2> err
        echo "code $?"
        """.replace("        ", ""),
        tmp_path,
    )
    if said.returncode == 99:
        pytest.skip("this system does not allow setting the range of ports")
    err = (tmp_path / "err").read_text()
    assert "Traceback" not in err, err
    run = RunDirectory.read(tmp_path / "run")
    ours = [r for key in run.finished() if "c0032" in key for r in run.records(key) if r.outcome is Outcome.CLIENT]
    assert ours, said.stdout + err
    assert {None} == {record.first for record in ours}
    (point,) = [p for p in frontier.load(tmp_path / "run").points() if p.load == 32]
    assert "client_bound" in {flag.name for flag in point.flags}


# --- time


def test_no_duration_is_taken_from_the_wall_clock() -> None:
    """The wall clock may be stepped: it gives a trial's epoch, a salt and the hour of a deadline,
    and no duration.
    """
    root = Path(frontier.__file__).parent
    files = [*(root / "sweep").rglob("*.py"), *(root / "client").rglob("*.py")]
    calls = [
        file.stem
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.time", "world().wall")
    ]
    # backend: a salt; conductor: the hour of a deadline; shard, trial: a trial's epoch.
    assert sorted(calls) == ["backend", "conductor", "shard", "trial"]


@pytest.mark.fault("wall clock set back by an hour, again and again")
def test_a_clock_that_is_set_back_changes_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _, _ = sweep_in_virtual_time(tmp_path / "whole", VIRTUAL)
    real, calls = time.time, [0]

    def stepping() -> float:
        calls[0] += 1
        return real() - 3600 * (calls[0] // 5)

    run, begun = VirtualBackend.run, count()

    async def dated(self: VirtualBackend, trial: Trial, **how: Any) -> Measurement:
        """Each trial an hour before the one that was run before it."""
        return replace(await run(self, trial, **how), epoch=-3600.0 * next(begun))

    monkeypatch.setattr(VirtualBackend, "run", dated)
    (tmp_path / "run").mkdir()  # a run that exists is swept, a new one may be a copy of "whole"
    with inside(World(wall=stepping)):
        stepped, progress, end = sweep_in_virtual_time(tmp_path / "run", VIRTUAL)
    assert end == "finished"
    assert len(progress.finished) == len(finished(tmp_path / "whole"))
    assert calls[0] > 5
    assert [*map(decided, whole.solve())] == [*map(decided, stepped.solve())]
    assert whole.points() == stepped.points()
    assert list(RunDirectory.read(tmp_path / "whole").finished()) == list(
        RunDirectory.read(tmp_path / "run").finished()
    )


def measured(health: ClientHealth) -> tuple[str, ...]:
    records = [
        Record(i, 0, i * 0.1, Outcome.OK, i * 0.1 + 0.1, 8, 4, i * 0.1 + 0.02, None, i * 0.1 + 0.09, 8, 4)
        for i in range(100)
    ]
    found = window_data(Measurement(trial(1), 0.0, Window(0.0, 10.0), "requests", health), records)
    return tuple(flag.measured for flag in flags(found) if flag.name == "client_bound")


@pytest.mark.fault("suspend")
def test_a_trial_in_which_the_machine_was_suspended_is_flagged() -> None:
    assert measured(ClientHealth(suspended=0.0)) == ()
    (suspended,) = measured(ClientHealth(suspended=3600.0))
    assert_golden_row("flags", suspended)


@pytest.mark.fault("suspend")
def test_suspended_time_is_read_from_the_boot_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's two clocks, one made to run ahead: a test cannot send the machine to sleep."""
    watch = watchdog.HealthMonitor(time.perf_counter)
    real = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda c: real(c) + 77.0 * (c == time.CLOCK_BOOTTIME))
    suspended = watch.health(0, 0).suspended
    assert suspended is not None
    assert suspended == pytest.approx(77.0, abs=0.1)


@pytest.mark.fault("this process stopped for a while (SIGSTOP, Ctrl-Z)")
def test_a_trial_in_which_this_process_was_stopped_is_flagged() -> None:
    assert measured(ClientHealth(stood_still=0.4)) == ()
    (stood_still,) = measured(ClientHealth(stood_still=3.0))
    assert_golden_row("flags", stood_still)
    watch = watchdog.HealthMonitor(time.perf_counter)
    watch.beat(9.0)
    watch.open_window()
    watch.beat(0.001)
    watch.close_window()
    watch.beat(3.0)  # the window's last requests are still in flight
    assert watch.health(0, 0).stood_still == 3.0


@pytest.mark.process
@pytest.mark.fault("this process stopped for a while (SIGSTOP, Ctrl-Z)")
@pytest.mark.slow
def test_a_trial_in_which_the_sweep_was_stopped_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("[1, 4]", "[2]").replace("requests: 60", "requests: 300"))
    process = start("sweep", "sweep.yaml", "-o", "run", cwd=tmp_path)
    until_trial(process, tmp_path)
    time.sleep(0.5)  # into the window
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == own_exit_code(tmp_path / "run"), err
    again = [x for x in RunDirectory.read(tmp_path / "run").journal_lines() if x["event"] == "measured_again"]
    assert "stood still" in again[0]["reason"], err
    assert 1 + len(again) == len(RunDirectory.read(tmp_path / "run").finished()), "each has a number of its own"


# --- memory, and the terminal


@pytest.mark.fault("out of memory")
def test_no_memory_is_reported_and_is_no_internal_error(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    def greedy(**_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(main.cli, "main", greedy)
    assert main.run(["show"]) == 5
    assert_golden_row("messages", capsys.readouterr().err)


@pytest.mark.fault("out of memory")
def test_no_memory_in_a_trial_ends_the_sweep_and_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep_in_virtual_time(tmp_path / "run", VIRTUAL)
    before = finished(tmp_path / "run")
    (tmp_path / "run" / "trials" / "default-256x32-c0004-grid-r2.jsonl").unlink()

    def greedy(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(RunDirectory, "writer", greedy)
    with pytest.raises(MemoryShortError) as caught:
        sweep_in_virtual_time(tmp_path / "run", VIRTUAL)
    assert caught.value.exit_code == 5
    assert_golden_row("messages", neutral(str(caught.value), tmp_path))
    assert len(finished(tmp_path / "run")) == len(before) - 1
    assert RunDirectory.read(tmp_path / "run").journal_lines()[-1]["event"] == "failed"


@pytest.mark.fault("too little memory free")
def test_too_little_free_memory_is_reported_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("frontier.sweep.ledger.available", lambda: 50 << 20)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    said = run_frontier("sweep", "sweep.yaml", "-o", "run", cwd=tmp_path, here=True)
    assert said.code == 5
    assert " 50 MB " in said.err
    assert_golden_row("messages", without_numbers(said.err[said.err.index("error: ") :]))
    assert not (tmp_path / "run").exists()


def test_a_crash_log_is_the_users_own_and_holds_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    def broken(**_: object) -> None:
        raise RuntimeError("with hunter2-hunter2 and Bearer abcdefgh12345678 inside")

    monkeypatch.setattr(main.cli, "main", broken)
    monkeypatch.setenv("MY_API_KEY", "hunter2-hunter2")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main.run(["show"]) == 1
    (log,) = tmp_path.iterdir()
    assert log.stat().st_mode & 0o077 == 0
    said = capsys.readouterr().err + log.read_text()
    assert "RuntimeError" in said
    assert "hunter2" not in said
    assert "abcdefgh" not in said
