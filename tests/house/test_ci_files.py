"""The CI files of deploy/ci in somebody else's repository: their steps as the services run them,
with the wheel of this package in the place of the released one."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.kit.places import ROOT

CI = ROOT / "deploy" / "ci"
FILES = ("github.yml", "gitlab.yml")


class Job(NamedTuple):
    """What a service does with a CI file: where its first line says that it stands, the scripts,
    each in a shell of its own, and the folder that is kept."""

    place: str
    scripts: list[str]
    shell: list[str]
    kept: str


def job(file: str) -> Job:
    text = (CI / file).read_text()
    place = re.match(r"# Copy this file to (\S+?),? .*\bgate\.yaml to the top of your repository\.\n", text)[1]  # type: ignore[index]
    tree = yaml.safe_load(text)
    if file == "gitlab.yml":
        own = tree["performance gate"]
        (kept,) = own["artifacts"]["paths"]
        return Job(place, ["\n".join(own["script"])], ["bash", "-eo", "pipefail"], kept)
    steps = tree["jobs"]["gate"]["steps"]
    (kept,) = [step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", "")]
    return Job(place, [step["run"] for step in steps if "run" in step], ["bash", "-e"], kept)


def test_both_ci_files_run_the_same_commands_on_nothing_but_what_is_copied() -> None:
    github, gitlab = (job(file) for file in FILES)
    assert "\n".join(github.scripts) == "\n".join(gitlab.scripts)
    assert github.kept == gitlab.kept
    assert github.place.startswith(".github/workflows/")
    assert gitlab.place == ".gitlab-ci.yml"
    install, *commands = github.scripts
    assert install == "pip install llm-frontier"
    assert re.findall(r"\S+\.yaml", " ".join(commands)) == ["gate.yaml"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=CI.parents[1], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def checked_out(file: str, gate: str, folder: Path) -> Path:
    """A clone of a repository that has the CI file and gate.yaml where the file says, and nothing
    else."""
    origin, clone = folder / "origin", folder / "clone"
    copied = origin / job(file).place
    copied.parent.mkdir(parents=True)
    shutil.copy(CI / file, copied)
    (origin / "gate.yaml").write_text(gate)
    git = ["git", "-c", "user.name=a user", "-c", "user.email=user@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "A gate"]):
        subprocess.run([*git, *words], cwd=origin, check=True)
    subprocess.run([*git, "clone", "-q", origin, clone], check=True)
    return clone


class Ended(NamedTuple):
    """How the steps of a job ended, what they printed, and how the comparison alone ends."""

    code: int
    text: str
    verdict: int


def carry_out(file: str, gate: str, pip: dict[str, str], folder: Path, packages: str = "") -> Ended:
    """The steps of a CI file in a Python environment of their own, until one fails; the folder that
    the service keeps is there whatever they say. `packages` is a folder of dependencies."""
    clone, python = checked_out(file, gate, folder), folder / "python"
    subprocess.run([sys.executable, "-m", "venv", python], check=True)
    (library,) = python.glob("lib/python*/site-packages")
    (library / "dependencies.pth").write_text(packages)
    environ = {"PATH": f"{python / 'bin'}:/usr/bin:/bin", "HOME": str(folder), "CI": "true"}
    environ |= {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "OPENBLAS_"))} | pip
    of, code, text = job(file), 0, ""
    for i, script in enumerate(of.scripts):
        (folder / f"step-{i}.sh").write_text(script)
        step = [*of.shell, folder / f"step-{i}.sh"]
        done = subprocess.run(
            step, cwd=clone, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        code, text = done.returncode, text + done.stdout
        if code:
            break
    assert (clone / of.kept / "manifest.json").exists(), text
    ask = [python / "bin" / "python", "-c", "import frontier; print(frontier.__file__)"]
    asked = subprocess.run(ask, cwd=clone, env=environ, capture_output=True, text=True, check=True)
    assert Path(asked.stdout.strip()).is_relative_to(python)
    compare, _, _ = of.scripts[-1].splitlines()[-1].partition("||")
    verdict = subprocess.run(["bash", "-c", compare], cwd=clone, env=environ, capture_output=True, check=False)
    return Ended(code, text, verdict.returncode)


@pytest.mark.process
def test_the_steps_of_a_ci_file_work_in_another_repository(wheel: Path, tmp_path: Path) -> None:
    """With a shorter gate, and without an index: the dependencies are those of these tests."""
    gate = (CI / "gate.yaml").read_text()
    for long, short in (("repeats: 12 ", "repeats: 2 "), ("requests: 60", "requests: 20")):
        assert long in gate
        gate = gate.replace(long, short)
    alone = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_IGNORE_INSTALLED": "1", "PIP_FIND_LINKS": str(wheel.parent)}
    ended = carry_out("github.yml", gate, alone, tmp_path, sysconfig.get_path("purelib"))
    assert ended.code == 0, ended.text
    assert ended.verdict in (0, 4), ended.text


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("file", "slower"), [("gitlab.yml", False), ("github.yml", True)])
def test_a_ci_file_as_it_stands_fails_a_slower_build_alone(
    file: str, slower: bool, wheel: Path, tmp_path: Path
) -> None:
    """In full, with the dependencies from the package index."""
    (tmp_path / "constraints.txt").write_text(f"llm-frontier @ {wheel.as_uri()}\n")
    gate = (CI / "gate.yaml").read_text()
    base, new = gate[: gate.rindex("step_base: 4ms")], gate[gate.rindex("step_base: 4ms") :]
    if slower:
        new = new.replace("step_base: 4ms", "step_base: 6ms")
    ended = carry_out(file, base + new, {"PIP_CONSTRAINT": str(tmp_path / "constraints.txt")}, tmp_path)
    assert ended.verdict == 3 if slower else ended.verdict in (0, 4), ended.text
    assert (ended.code != 0) == slower, ended.text
