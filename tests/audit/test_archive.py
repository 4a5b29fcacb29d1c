"""A pack is read as a file from a stranger: whatever is in it, it is refused in plain words, and
nothing is written."""

import io
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from frontier.audit import archive
from frontier.audit.archive import UnsoundPackError, unpacked
from frontier.errors import ExitCode, UsageError
from tests.audit.packs import contents, packed, zipped
from tests.commands import frontier
from tests.golden import assert_golden_row


@pytest.fixture(scope="module")
def bytes_of_pack(run: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return packed(run, tmp_path_factory.mktemp("packed") / "claim.zip").read_bytes()


@pytest.fixture
def pack(bytes_of_pack: bytes, tmp_path: Path) -> Path:
    (tmp_path / "claim.zip").write_bytes(bytes_of_pack)
    return tmp_path / "claim.zip"


def refusal(pack: Path) -> str:
    with pytest.raises(UnsoundPackError) as caught, unpacked(pack):
        pass
    assert caught.value.exit_code is ExitCode.NO
    return str(caught.value)


def assert_refused(pack: Path, part: str = "") -> None:
    """The pack is refused, in the words of the row of the running test."""
    assert_golden_row("messages", refusal(pack).replace(str(pack.parent), "HERE"), part)


def test_the_same_run_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    first = packed(run, tmp_path / "a.zip").read_bytes()
    os.utime(run / "config.yaml", (1, 1))
    assert first == packed(run, tmp_path / "elsewhere" / "b.zip").read_bytes()
    assert not list(tmp_path.glob(".*.tmp"))


def test_it_holds_the_run_and_nothing_beside_it(run: Path, pack: Path) -> None:
    run = Path(shutil.copytree(run, pack.with_name("run")))
    (run / "notes.txt").write_text("mine")
    (run / "logs").mkdir(exist_ok=True)
    (run / "logs" / "default.log").write_text("the server's")
    keys = [file.stem for file in (run / "trials").glob("*.jsonl")]
    assert len(keys) >= 6
    expected = {"claim.json", "run/manifest.json", "run/config.yaml", "run/journal.jsonl"}
    expected |= {
        f"run/{folder}/{key}.{end}" for folder, end in (("trials", "jsonl"), ("evidence", "json")) for key in keys
    }
    again = contents(packed(run, pack))
    assert set(again) == expected
    with unpacked(pack) as inside:
        for name in set(again) - {"claim.json"}:
            assert (inside.run.parent / name).read_bytes() == again[name] == (run / name[4:]).read_bytes()
    assert not inside.run.exists()


NAMES = [
    "../evil",
    "/etc/passwd",
    "run/../../evil",
    "run\\..\\evil",
    "C:evil",
    "run/trials/../config.yaml",
    "run/lock",
    "run/derived/x.png",
    "run/inner.zip",
    "run/trials/x.jsonl/y",
    "run/verify/journal.jsonl",
    "claim.json/",
    "run/",
    "run/trials/\x1b[31m.jsonl",
    "run/trials/" + "x" * 300 + ".jsonl",
    "CLAIM.JSON",
]


@pytest.mark.parametrize("name", NAMES, ids=[name[:30] for name in NAMES])
def test_a_file_of_another_name_is_refused(name: str, pack: Path) -> None:
    hostile = zipped({**contents(pack), name: b"x"}, pack)
    assert "\x1b" not in refusal(hostile)
    assert_refused(hostile)


def test_a_name_with_a_zero_byte_is_refused(pack: Path) -> None:
    zipped({**contents(pack), "run/trials/aXzip.jsonl": b"x"}, pack)
    pack.write_bytes(pack.read_bytes().replace(b"aXzip", b"a\0zip"))
    assert_refused(pack)


def with_entry(pack: Path, change: Callable[[zipfile.ZipInfo], None]) -> Path:
    files = contents(pack)
    with zipfile.ZipFile(pack, "w") as made:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            if name == "run/config.yaml":
                change(entry)
            made.writestr(entry, data)
    return pack


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR])
def test_what_is_no_regular_file_is_refused(kind: int, pack: Path) -> None:
    def as_kind(entry: zipfile.ZipInfo) -> None:
        entry.create_system, entry.external_attr = 3, (kind | 0o777) << 16

    assert_refused(with_entry(pack, as_kind))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_another_compression_is_refused(method: int, pack: Path) -> None:
    def compressed(entry: zipfile.ZipInfo) -> None:
        entry.compress_type = method

    assert_refused(with_entry(pack, compressed))


def test_two_files_of_one_name_are_refused(pack: Path) -> None:
    with zipfile.ZipFile(pack, "a") as made, pytest.warns(UserWarning, match="Duplicate"):
        made.writestr("run/config.yaml", b"other")
    assert_refused(pack)


@pytest.mark.parametrize("missing", ["claim.json", "run/manifest.json", "run/config.yaml"])
def test_a_pack_without_its_head_is_refused(missing: str, pack: Path) -> None:
    files = contents(pack)
    del files[missing]
    hollow = zipped(files, pack)
    assert missing in refusal(hollow)
    assert_refused(hollow)


def directory_at(data: bytes) -> int:
    return int.from_bytes(data[-6:-2], "little")


def in_directory(pack: Path, offset: int, value: int, size: int) -> Path:
    """Another number in the list's first entry, at this offset of it."""
    data = bytearray(pack.read_bytes())
    at = directory_at(bytes(data)) + offset
    data[at : at + size] = value.to_bytes(size, "little")
    pack.write_bytes(data)
    return pack


WRONG_NUMBERS = {
    "a shorter file": (24, 5),
    "a longer file": (24, 2**31),
    "another sum": (16, 7),
    "a longer entry": (20, 2**31),
    "another place": (42, 9),
}


@pytest.mark.parametrize("what", WRONG_NUMBERS)
def test_wrong_sizes_and_sums_are_refused(what: str, pack: Path) -> None:
    offset, value = WRONG_NUMBERS[what]
    assert_refused(in_directory(pack, offset, value, 4))


def test_a_bomb_is_refused_before_it_is_unpacked(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = contents(pack)
    monkeypatch.setattr(archive, "MOST_BYTES", 2**20)
    assert_refused(zipped({**files, "run/trials/x.jsonl": b" " * 2**21}, pack), "bytes")
    monkeypatch.setattr(archive, "MOST_BYTES", 2**30)
    monkeypatch.setattr(archive, "MOST_RECORDS", 1000)
    assert_refused(zipped({**files, "run/trials/x.jsonl": b"\n" * 2000}, pack), "requests")
    monkeypatch.setattr(archive, "CLAIM_BYTES", 1000)
    assert_refused(pack, "claim")


@pytest.mark.process
def test_an_audit_of_a_large_file_takes_little_memory(pack: Path) -> None:
    """100 MB of one byte: the records are copied block by block."""
    files, small = contents(pack), zipped(contents(pack), pack.with_name("small.zip"))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            made.writestr(name, data)
        with made.open("run/trials/x.jsonl", "w") as sink:
            for _ in range(100):
                sink.write(b" " * 2**20)
    pack.write_bytes(buffer.getvalue())
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from frontier.audit.archive import unpacked\n"
        "with unpacked(Path(sys.argv[1])): before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(before)"
    )
    peaks = [
        int(subprocess.run([sys.executable, "-c", code, of], capture_output=True, text=True, check=True).stdout)
        for of in (small, pack)
    ]
    assert peaks[1] < peaks[0] + 30_000, "kB"


@pytest.mark.parametrize(
    "data",
    [b"", b"PK", b"PK\5\6" + bytes(18), b"no zip" * 100, b"PK\6\7" + bytes(16) + b"PK\5\6" + bytes(18)],
    ids=["empty", "cut", "no files", "text", "zip64"],
)
def test_what_is_no_zip_of_ours_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(data)
    assert_refused(tmp_path / "x.zip")


def test_a_long_list_of_files_is_not_read(pack: Path) -> None:
    data = bytearray(pack.read_bytes())
    data[-10:-6] = (2**31).to_bytes(4, "little")
    pack.write_bytes(data)
    assert "2.15 GB" in refusal(pack)
    assert_refused(pack)


def test_a_claim_that_is_no_object_is_refused(pack: Path) -> None:
    for claim in (b"[]", b"{", b"[" * 100_000, b'"\xff"'):
        refusal(zipped({**contents(pack), "claim.json": claim}, pack))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="pipe") as caught, unpacked(tmp_path / "pipe"):
        pass
    assert_golden_row("messages", str(caught.value).replace(str(tmp_path), "HERE"))


def test_a_cut_pack_is_refused_by_the_command(pack: Path) -> None:
    whole = pack.read_bytes()
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        pack.write_bytes(whole[:length])
        said = frontier("audit", pack, cwd=pack.parent)
        assert (said.code, said.out) == (3, ""), length
        assert said.err.startswith(f"error: {pack} ")
        assert len(said.err.splitlines()) == 2


def test_a_run_that_is_too_large_is_not_packed(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_RECORDS", 10)
    with pytest.raises(UsageError, match=r"\b10\b") as caught:
        packed(run, tmp_path / "claim.zip")
    assert_golden_row("messages", str(caught.value).replace(str(run), "RUN"))
    assert list(tmp_path.iterdir()) == []
