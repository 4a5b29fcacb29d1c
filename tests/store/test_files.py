"""Files are written whole or not at all, and what goes wrong is told of the file that was meant."""

from pathlib import Path

import pytest

from frontier.store.files import Folder, free_beside


def write_whole(file: Path, data: bytes) -> None:
    Folder(file.parent).write_whole(file.name, data)


def test_a_file_that_cannot_be_written_is_named_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as told:
        write_whole(tmp_path / "gone" / "a.svg", b"x")
    assert str(tmp_path / "gone" / "a.svg") == told.value.filename
    (tmp_path / "a.svg").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(tmp_path / "a.svg", b"x")
    assert [tmp_path / "a.svg"] == list(tmp_path.iterdir())


def test_what_was_there_stays_until_the_new_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.svg"
    write_whole(file, b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m:
        m.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            write_whole(file, b"new")
    assert b"old" == file.read_bytes()
    assert [file] == list(tmp_path.iterdir())


def test_a_run_beside_another_gets_the_first_name_that_is_free(tmp_path: Path) -> None:
    (tmp_path / "night").mkdir()
    assert free_beside(tmp_path / "night").name == "night-2"
    (tmp_path / "night-2").mkdir()
    assert free_beside(tmp_path / "night").name == "night-3"
    assert free_beside(tmp_path / "night-2").name == "night-3", "not night-2-2"
    (tmp_path / "night-70").mkdir()
    assert free_beside(tmp_path / "night-70").name == "night-70-2", "a number of the name"
    assert free_beside(tmp_path / "llama-8").name == "llama-8-2", "a run that is not there yet"
    assert free_beside(Path()).name == f"{Path.cwd().name}-2", "a run that is looked at from inside"
