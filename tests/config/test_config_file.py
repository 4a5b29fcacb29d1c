"""Config files: what a file and its run give, with settings in place."""

from pathlib import Path

import pytest

from frontier.config.complaints import ConfigError
from frontier.config.config_file import config_of, load_config_file, open_run, with_prompts
from frontier.store.run_dir import RunDirectory

TEXT = """\
endpoint: http://127.0.0.1:9/v1
model: m
concurrency: [1, 2]
shapes: [{name: agent, sessions: sessions.jsonl}]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    turns = '{"turns": [{"new": 64, "out": 8}, {"new": 16, "out": 8, "pause": 1.0}]}\n'
    (tmp_path / "sessions.jsonl").write_text(turns * 3)
    (tmp_path / "sweep.yaml").write_text(TEXT)
    return tmp_path / "sweep.yaml"


def test_a_run_gives_the_config_that_it_was_opened_with_without_the_files_that_are_named(file: Path) -> None:
    config = load_config_file(file, ["concurrency=[4, 8]"])
    assert (4, 8) == config.loads
    with open_run(Path("run"), config, file.read_text().replace("[1, 2]", "[4, 8]"), {}):
        pass
    Path("sessions.jsonl").unlink()
    kept = config_of(RunDirectory.read(Path("run")))
    assert config.identity() == kept.identity()
    assert 3 == kept.shapes[0].session.file.sessions
    assert "gold" == config_of(RunDirectory.read(Path("run")), ["name=gold"]).name


def test_a_run_is_resumed_by_the_same_config(file: Path) -> None:
    config = load_config_file(file)
    for _ in range(2):
        with open_run(Path("run"), config, TEXT, {}) as run:
            assert config.identity() == run.manifest["identity"]


def test_what_is_wrong_is_said_with_the_name_of_the_file(file: Path) -> None:
    file.write_text(TEXT + "speed: 3\n")
    with pytest.raises(ConfigError, match=r"sweep\.yaml:5:1: unknown key 'speed'"):
        load_config_file(file)


def test_a_run_keeps_the_size_of_a_pass_without_its_file_of_prompts(file: Path) -> None:
    text = "endpoint: http://h\nmodel: m\nshapes: [8/8]\nprompts: p.jsonl\nrequests: 5 passes\n"
    file.write_text(text)
    unread = load_config_file(file)
    config = with_prompts(unread, 40)
    assert (None, 200) == (unread.requests, config.requests)
    with open_run(Path("run"), config, text, {}):
        pass
    kept = config_of(RunDirectory.read(Path("run")))
    assert (40, config.identity()) == (kept.passes.size if kept.passes else None, kept.identity())
