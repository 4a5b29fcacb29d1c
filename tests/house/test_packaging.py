"""What is built: a wheel and a source distribution of known content, the same bytes wherever and
whenever."""

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

from frontier._version import __version__
from tests.kit.places import ROOT

NAME = f"llm_frontier-{__version__}"
DATA = {
    "py.typed",
    "client/ask/words.txt",
    "client/ask/natural.txt.gz",
    "extras/present/templates/page.md.j2",
    "extras/present/templates/page.html.j2",
    "extras/present/templates/page.js",
}


def built(root: Path, where: Path) -> tuple[Path, Path]:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", where], cwd=root, check=True, capture_output=True)
    return where / f"{NAME}-py3-none-any.whl", where / f"{NAME}.tar.gz"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return built(ROOT, tmp_path_factory.mktemp("dist"))


def code() -> set[str]:
    return {str(p.relative_to(ROOT)) for p in (ROOT / "frontier").rglob("*.py")} | {f"frontier/{name}" for name in DATA}


@pytest.mark.process
def test_the_wheel_holds_the_package_and_its_notices_alone(here: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(here[0]) as wheel:
        names = set(wheel.namelist())
    about = {name for name in names if name.startswith(f"{NAME}.dist-info/")}
    assert names - about == code()
    ends = ("METADATA", "WHEEL", "entry_points.txt", "RECORD", "licenses/LICENSE", "licenses/NOTICE")
    assert about == {f"{NAME}.dist-info/{end}" for end in ends}


@pytest.mark.process
def test_the_source_distribution_holds_no_data_of_others_and_no_cache(here: tuple[Path, Path]) -> None:
    with tarfile.open(here[1]) as sdist:
        names = {name.removeprefix(f"{NAME}/") for name in sdist.getnames()}
    configs = {f"configs/{path.name}" for path in (ROOT / "configs").glob("*.yaml")}
    more = "README.md CHANGELOG.md CITATION.cff LICENSE NOTICE PKG-INFO pyproject.toml .gitignore"
    assert names == code() | configs | set(more.split())


@pytest.mark.process
@pytest.mark.slow
def test_a_build_elsewhere_has_the_same_bytes(here: tuple[Path, Path], tmp_path: Path) -> None:
    """Of a copy with other times and another order, and caches that are not git's."""
    clone = tmp_path / "clone"
    clone.mkdir()
    for name in ("README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", ".gitignore"):
        shutil.copyfile(ROOT / name, clone / name)
    for name in ("frontier", "configs"):
        shutil.copytree(ROOT / name, clone / name, copy_function=shutil.copyfile)
    (clone / "frontier" / "__pycache__").mkdir(exist_ok=True)
    (clone / "frontier" / "__pycache__" / "x.pyc").write_bytes(b"x")
    (clone / "frontier" / ".DS_Store").write_bytes(b"x")
    for mine, other in zip(here, built(clone, tmp_path / "dist"), strict=True):
        assert hashlib.sha256(mine.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest(), mine.name


def test_what_is_said_of_the_project_agrees() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["license"] == re.search(r'^license = "(.*)"', text, re.MULTILINE)[1]  # type: ignore[index]
    assert {"cff-version", "message", "title", "authors", "type"} <= citation.keys()


def test_the_version_is_the_same_wherever_it_is_named() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    newest = re.findall(r"^## (\d\S*) - \d{4}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    tables = [(ROOT / page).read_text() for page in ("README.md", "docs/validation/clients.md")]
    rows = [name for text in tables for name in re.findall(r"^\| \*\*frontier\*\* (\d\S*) \|", text, re.MULTILINE)]
    assert len(rows) == 2
    assert {__version__} == {citation["version"], newest, *rows}


def test_the_workflow_of_a_release_publishes_nothing_and_may_not() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in workflow["jobs"].values())
    assert not re.search(r"twine|docker push|gh release|pypi|secrets\.", text)
    steps = [step for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert {step["uses"].partition("/")[0] for step in steps} == {"actions"}
    kept = [step["with"]["path"] for step in steps if "upload-artifact" in step["uses"]]
    assert kept == ["dist", "frontier-image.tar.gz"]
