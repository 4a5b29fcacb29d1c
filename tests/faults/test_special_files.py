"""A stranger's run directory: links to the user's files, FIFOs, sockets and devices where files
should be, too large files. Each is refused with its place named; nothing is waited for, written
through or emptied.

And files that the user names: links will do there, but nothing may hang or fill the memory.
"""

import os
import shutil
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from frontier.core.model.errors import StoreError, UsageError
from frontier.extras.exchange.formats import read_files
from frontier.read_run import load
from frontier.store.files import NotPlainError, read_config, write_output
from frontier.store.run_dir import RunDirectory, read_manifest
from frontier.sweep.given_files import read_key_file, read_prompts
from frontier.sweep.start.started_server import last_lines
from frontier.sweep.start.supervisor import Log
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import neutral
from tests.kit.sweeps import ENGINES, config_text, sweep_in_virtual_time

TEXT = (
    config_text(ENGINES["smooth"], requests=20).replace("repeats: 3", "repeats: 1").replace("2, 4, 8, 16, 32, 64", "2")
)
KEY = "default-256x32-c0001-grid-r1"
pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("special") / "run"
    sweep_in_virtual_time(path, TEXT)
    load(path)
    return path


@pytest.fixture
def run(swept: Path, tmp_path: Path) -> Path:
    """A run of a stranger's; a second one lies beside it, for links to lead to what reads well."""
    shutil.copytree(swept, tmp_path / "theirs" / "run")
    shutil.copytree(swept, tmp_path / "mine" / "run")
    return tmp_path / "theirs" / "run"


def link(place: Path, mine: Path) -> None:
    place.symlink_to(mine)


def endless(place: Path, _: Path) -> None:
    place.symlink_to("/dev/zero")


def fifo(place: Path, _: Path) -> None:
    os.mkfifo(place)


def unix_socket(place: Path, _: Path) -> None:
    here = Path.cwd()
    os.chdir(place.parent)  # the name of a socket may have about a hundred characters
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(place.name)
    finally:
        os.chdir(here)


def nowhere(place: Path, _: Path) -> None:
    place.symlink_to("nothing is here")


def itself(place: Path, _: Path) -> None:
    place.symlink_to(place.name)


KINDS = (link, endless, fifo, unix_socket, nowhere, itself)
NO_DIRECTORIES = (endless, fifo, unix_socket, nowhere, itself)


def look(run: Path) -> None:
    load(run).points()


def resume(run: Path) -> None:
    sweep_in_virtual_time(run, TEXT)


def verify(run: Path) -> None:
    RunDirectory.open_to_verify(run).close()


def status(run: Path) -> None:
    said = frontier("status", run, cwd=run.parent, here=True)
    refused = "error: " in said.err
    assert said.code == (2 if refused else 0), said.err
    if refused:
        raise StoreError(said.err)


def draw(run: Path) -> None:
    said = frontier("plot", run, cwd=run.parent)
    refused = "error: " in said.err
    assert said.code == (2 if refused else 0), said.err
    if refused:
        raise StoreError(said.err)


FILES = {
    "manifest.json": (look, resume, verify, status),
    "config.yaml": (look, resume, status),
    "journal.jsonl": (look, resume, status),
    "lock": (resume, verify),
    f"trials/{KEY}.jsonl": (look, resume),
    f"evidence/{KEY}.json": (look, resume, status),
    f"derived/samples/{KEY}.sample": (look, resume),
    "imported.jsonl": (look,),
}
DIRECTORIES = {
    "trials": (look, resume, status),
    "evidence": (look, resume, status),
    "derived": (look, resume, draw),
    "derived/samples": (look, resume),
    "verify": (resume, verify),
    "verify/trials": (resume, verify),
    "verify/evidence": (resume, verify),
}


def cases(places: dict[str, tuple[Callable[[Path], None], ...]]) -> list[Any]:
    """The first way to meet each place in the default run, the others under slow."""
    return [
        pytest.param(place, act, marks=[pytest.mark.slow] if number else [])
        for place, acts in places.items()
        for number, act in enumerate(acts)
    ]


def contents(root: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(root)): p.read_bytes() if p.is_file() else None for p in sorted(root.rglob("*"))}


@pytest.mark.process
@pytest.mark.fault("a link, FIFO, socket or device in a run directory", times=len(KINDS))
@pytest.mark.parametrize(("place", "act"), cases(FILES), ids=lambda x: getattr(x, "__name__", str(x)))
def test_a_special_file_in_a_run_is_refused_by_name_and_nothing_behind_it_changes(
    place: str, act: Callable[[Path], None], run: Path, tmp_path: Path
) -> None:
    assert_refused(KINDS, place, act, run, tmp_path)


@pytest.mark.process
@pytest.mark.fault("a link, FIFO, socket or device in a run directory", times=len(NO_DIRECTORIES))
@pytest.mark.parametrize(("place", "act"), cases(DIRECTORIES), ids=lambda x: getattr(x, "__name__", str(x)))
def test_what_is_no_directory_in_the_place_of_one_is_refused_by_name(
    place: str, act: Callable[[Path], None], run: Path, tmp_path: Path
) -> None:
    assert_refused(NO_DIRECTORIES, place, act, run, tmp_path)


def assert_refused(
    kinds: Iterable[Callable[[Path, Path], None]], place: str, act: Callable[[Path], None], run: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "mine" / "run"
    for name in ("verify/trials", "verify/evidence"):
        (mine / name).mkdir(parents=True)
    (mine / "imported.jsonl").touch()
    before = contents(mine)
    for kind in kinds:
        there = run / place
        shutil.rmtree(there) if there.is_dir() else there.unlink(missing_ok=True)
        there.parent.mkdir(exist_ok=True)
        kind(there, mine / place)
        with pytest.raises(StoreError) as caught:
            act(run)
        assert place in str(caught.value), kind
        assert contents(mine) == before, kind
        there.unlink()
        shutil.rmtree(run)
        shutil.copytree(mine, run)


@pytest.mark.fault("a link, FIFO, socket or device in a run directory", times=4)
@pytest.mark.parametrize("kind", [link, endless, fifo, nowhere])
def test_a_log_is_written_through_no_link(kind: Callable[[Path, Path], None], run: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    (run / "logs").mkdir()
    kind(run / "logs" / "a.log", precious)
    log = Log(run / "logs" / "a.log", limit=100)
    for _ in range(20):
        log.write("written")
    log.close()
    assert last_lines(run / "logs" / "a.log") == []
    assert precious.read_text() == "mine\n"


def test_the_run_itself_may_be_reached_by_a_link_of_the_users(run: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(run)
    (tmp_path / "dir").symlink_to(run.parent)
    for path in (tmp_path / "latest", tmp_path / "dir" / "run"):
        look(path)
        resume(path)
        verify(path)
        assert frontier("show", path, cwd=tmp_path).code == 0


@pytest.mark.fault("a file of a run that is too large to be one")
@pytest.mark.parametrize("name", ["manifest.json", "config.yaml", "journal.jsonl", f"evidence/{KEY}.json"])
def test_a_huge_file_is_refused_before_it_is_read(name: str, run: Path) -> None:
    os.truncate(run / name, 2**40)
    with pytest.raises(StoreError, match="1,099,511,627,776 bytes") as caught:
        look(run)
    assert name in str(caught.value)


@pytest.mark.fault("a file of a run that is too large to be one")
def test_huge_records_are_not_read(run: Path) -> None:
    os.truncate(run / "trials" / f"{KEY}.jsonl", 2**40)
    found = load(run)
    assert [trial.key for trial, _ in found.altered] == [KEY]
    assert not found.points()[0].valid


def test_a_lock_that_is_a_file_of_the_users_is_not_emptied(run: Path) -> None:
    (run / "lock").write_text("combination: 12-34-56")
    with pytest.raises(StoreError) as refused:
        resume(run)
    assert_golden_row("messages", neutral(str(refused.value), run))
    assert (run / "lock").read_text() == "combination: 12-34-56"


# --- files the user names


def opened(file: Path) -> str:
    return read_config(file)


def imported(file: Path) -> str:
    return str(read_files([file]))


def key(file: Path) -> str:
    return read_key_file(file)


def prompts(file: Path) -> str:
    return str(read_prompts(file))


@pytest.mark.process
@pytest.mark.fault("a FIFO, socket, device or endless file where the user names one", times=5)
@pytest.mark.parametrize("read", [opened, imported, key, prompts])
def test_a_special_file_that_the_user_names_is_a_usage_error_without_a_wait(
    read: Callable[[Path], str], tmp_path: Path
) -> None:
    sparse = tmp_path / "sparse"
    sparse.touch(mode=0o600)
    os.truncate(sparse, 2**40)
    fifo(tmp_path / "fifo", sparse)
    unix_socket(tmp_path / "socket", sparse)
    link(tmp_path / "link to a fifo", tmp_path / "fifo")
    for file in (sparse, tmp_path / "fifo", tmp_path / "socket", tmp_path / "link to a fifo", Path("/dev/zero")):
        with pytest.raises(UsageError) as caught:
            read(file)
        assert str(file) in str(caught.value)


COMMANDS = (("sweep", "--dry-run"), ("predict",), ("probe",), ("serve-sim",), ("import", "-o", "run"))


@pytest.mark.fault("a FIFO, socket, device or endless file where the user names one", times=2)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_every_command_that_reads_a_file_refuses_a_special_one(command: tuple[str, ...], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for file in ("fifo", "/dev/zero"):
        said = frontier(command[0], file, *command[1:], cwd=tmp_path, here=True)
        assert said.code == 2, said.err
        assert file in said.err


def test_a_config_may_be_a_link_and_comes_through_no_pipe(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(TEXT)
    (tmp_path / "link.yaml").symlink_to("sweep.yaml")
    assert frontier("sweep", "link.yaml", "--dry-run", cwd=tmp_path).code == 0
    reading, writing = os.pipe()
    said = frontier("sweep", f"/dev/fd/{reading}", "--dry-run", cwd=tmp_path, here=True)
    os.close(reading)
    os.close(writing)
    assert said.code == 2
    assert_golden_row("messages", said.err.replace(f"fd/{reading}", "fd/N"))


def test_an_output_replaces_no_pipe_and_no_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.html")
    for path in (tmp_path / "fifo.html", Path("/dev/null")):
        with pytest.raises(UsageError) as refused:
            write_output(path, b"x")
        assert not path.is_file()
        assert_golden_row("messages", neutral(str(refused.value), tmp_path), path.name)


def test_a_manifest_that_is_no_file_says_so_and_not_that_there_is_no_run(run: Path) -> None:
    (run / "manifest.json").unlink()
    os.mkfifo(run / "manifest.json")
    with pytest.raises(NotPlainError) as refused:
        read_manifest(run)
    assert_golden_row("messages", neutral(str(refused.value), run))
    with suppress(StoreError):
        RunDirectory.read(run.parent)
