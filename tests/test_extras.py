"""Extras: each can be deleted, and takes exactly its own with it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import frontier
from frontier import registry

PACKAGE = Path(frontier.__file__).parent
EXTRAS = sorted(path.name for path in (PACKAGE / "extras").iterdir() if (path / "__init__.py").exists())
LOOK = """
import importlib, json, pkgutil, sys
import frontier, frontier.registry as registry
names = [m.name for m in pkgutil.walk_packages(frontier.__path__, "frontier.")
         if not m.name.endswith("__main__") and "extras.ray.bridge" not in m.name]
for name in names:
    importlib.import_module(name)
from frontier.cli.main import sections
from frontier.cli.plot import FIGURES
from frontier.cli import sweep, verify
options = {c.name: [p.opts[0] for p in c.params if p.name != "help"] for c in (sweep.command, verify.command)}
from frontier.cli.main import run
code = run(["sweep", sys.argv[1], "--dry-run"])
print()
print(json.dumps({"home": frontier.__file__, "dry_run": int(code),
                  "commands": [c for s in sections().values() for c in s], "figures": list(FIGURES), "options": options,
                  "notes": [n for n, _ in registry.there(registry.NOTES)]}))
"""


def look(home: Path) -> dict[str, object]:
    """What a package offers once all of its modules are imported, and the quickstart's dry run
    worked."""
    words = [sys.executable, "-c", LOOK, str(PACKAGE.parent / "configs" / "quickstart.yaml")]
    done = subprocess.run(words, cwd=home, env={"PYTHONPATH": str(home)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("dry_run") == 0, done.stderr
    assert Path(str(found.pop("home"))).is_relative_to(home)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    home = tmp_path_factory.mktemp("whole")
    shutil.copytree(PACKAGE, home / "frontier", ignore=shutil.ignore_patterns("__pycache__"))
    return look(home)


def of(extra: str, places: dict[str, str]) -> list[str]:
    return [name for name, place in places.items() if place.partition(".")[0] == extra]


@pytest.mark.process
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_that_is_deleted_takes_exactly_its_own_with_it(
    extra: str, whole: dict[str, object], tmp_path: Path
) -> None:
    shutil.copytree(PACKAGE, tmp_path / "frontier", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tmp_path / "frontier" / "extras" / extra)
    left = look(tmp_path)
    commands = of(extra, {name: command.module for name, command in registry.COMMANDS.items()})
    assert [c for c in whole["commands"] if c not in left["commands"]] == commands  # type: ignore[attr-defined, operator]
    figures = of(extra, registry.FIGURES)
    assert [f for f in whole["figures"] if f not in left["figures"]] == figures  # type: ignore[attr-defined, operator]
    assert [n for n in whole["notes"] if n not in left["notes"]] == of(extra, registry.NOTES)  # type: ignore[attr-defined, operator]
    for name, options in whole["options"].items():  # type: ignore[attr-defined]
        places = (*registry.OPTIONS[name], *(registry.OPTIONS["dry-run"] if name == "sweep" else ()))
        adds = any(place.partition(".")[0] == extra for place in places)
        assert (options != left["options"][name]) == adds  # type: ignore[index]


def test_only_the_table_names_what_is_in_an_extra() -> None:
    rings = [path for path in PACKAGE.rglob("*.py") if "extras" not in path.relative_to(PACKAGE).parts]
    assert len(rings) > 100
    naming = {str(path.relative_to(PACKAGE)) for path in rings if "frontier.extras" in path.read_text()}
    assert naming == {"registry.py", "__init__.py"}


def test_each_row_of_the_table_leads_to_an_extra() -> None:
    places = [command.module for command in registry.COMMANDS.values() if command.module]
    places += [*registry.NOTES.values(), *registry.FIGURES.values(), *registry.PAGE_FIGURES.values()]
    places += [place for modules in registry.OPTIONS.values() for place in modules]
    places += [*registry.API.values(), registry.SEVERAL, registry.EXECUTOR]
    places += [registry.TRACE, registry.KEPT_TRACE, registry.SESSIONS, registry.REQUESTS]
    places += [registry.SIMULATOR, registry.NATURAL, registry.STARTED_SERVER, registry.LEFT_ALIVE]
    places += [registry.NOTIFY, registry.FINISH]
    places += [
        registry.COMPARED_ANSWERS,
        *registry.SOURCES.values(),
        *registry.TABLES.values(),
        registry.POWER,
    ]
    places += [registry.ARRIVAL_RATE, registry.POOLED, registry.RECORDED, *registry.SHAPE_KINDS.values()]
    places += [registry.ROOFLINES, registry.MODEL_FILE, registry.ON_RAY, registry.ADVICE, registry.FOUND_RATES]
    for place in places:
        assert registry.load(place) is not None
    assert sorted({place.partition(".")[0] for place in places}) == EXTRAS
