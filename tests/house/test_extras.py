"""Extras: each can be deleted. It takes exactly its own with it, and changes no answer, and nothing
that another command sends."""

import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import frontier
from frontier import registry
from tests.kit.places import DATA

PACKAGE = Path(frontier.__file__).parent
RUNS = DATA / "runs" / "runs-1.0.0.tar.xz"
EXTRAS = sorted(path.name for path in (PACKAGE / "extras").iterdir() if (path / "__init__.py").exists())
HEAD = "endpoint: http://127.0.0.1:9/v1\nmodel: m\nconcurrency: [1, 2]\n"
SIZES = (
    "model_type: llama, hidden_size: 4096, num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8, "
    "intermediate_size: 14336, vocab_size: 128256, tie_word_embeddings: false, torch_dtype: bfloat16"
)
KEYS = {
    "cluster": f"{HEAD}shapes: [8/8]\nworkers: ray\n",
    "predict": f"{HEAD}shapes: [8/8]\nhardware: {{name: h100, model: {{{SIZES}}}}}\n",
    "tune": "shapes: [8/8]\ndeployments: [{name: e, endpoint: simulator, vary: {max_num_seqs: [4, 8]}}]\n",
    "verify": f"{HEAD}shapes: [8/8]\ndeployments: [{{name: a, quality: {{reference: b}}}}, {{name: b}}]\n",
    "workload": f"{HEAD}shapes: [{{name: log, pairs: 8/8 12/4}}]\n",
}
"""A config with a key that only an extra has; the others have none."""
LOOK = """
import contextlib, importlib, io, json, pkgutil, sys
import frontier, frontier.registry as registry
names = [m.name for m in pkgutil.walk_packages(frontier.__path__, "frontier.")
         if not m.name.endswith("__main__") and "ray_bridge" not in m.name]
for name in names:
    importlib.import_module(name)
from frontier.cli.main import run, sections
from frontier.cli.plot import FIGURES
def said(*words):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = run(list(words))
    return [int(code), out.getvalue(), err.getvalue()]
options = {name: [p.opts[0] for p in importlib.import_module(f"frontier.cli.{name}").command.params]
           for name in ("sweep", "solve", "show", "init", "probe", "quick")}
plan, configs, *runs = sys.argv[1:]
print(json.dumps({"home": frontier.__file__, "plan": said("sweep", plan, "--dry-run", "--json"),
                  "commands": [c for s in sections().values() for c in s], "figures": list(FIGURES), "options": options,
                  "notes": [n for n, _ in registry.installed(registry.NOTES)],
                  "refused": {e: said("sweep", t, "--dry-run") for e, t in json.loads(configs).items()},
                  "answers": [said(c, r, "--json")[:2] for r in runs for c in ("solve", "show")]}))
"""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What is looked at: the quickstart, a config with each extra's key, and the runs of 1.0.0."""
    home = tmp_path_factory.mktemp("given")
    with tarfile.open(RUNS) as archive:
        archive.extractall(home / "runs", filter="data")
    configs = {}
    for extra, text in KEYS.items():
        (home / f"{extra}.yaml").write_text(text)
        configs[extra] = str(home / f"{extra}.yaml")
    runs = sorted(str(path.parent) for path in (home / "runs").rglob("manifest.json") if path.parent.name != "verify")
    return [str(PACKAGE.parent / "configs" / "quickstart.yaml"), json.dumps(configs), *runs]


def look(home: Path, given: list[str]) -> dict[str, Any]:
    """What a package offers and answers once all of its modules are imported."""
    words = [sys.executable, "-c", LOOK, *given]
    done = subprocess.run(words, cwd=home, env={"PYTHONPATH": str(home)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert Path(str(found.pop("home"))).is_relative_to(home)
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, given: list[str]) -> dict[str, Any]:
    home = tmp_path_factory.mktemp("whole")
    shutil.copytree(PACKAGE, home / "frontier", ignore=shutil.ignore_patterns("__pycache__"))
    found = look(home, given)
    assert found["plan"][0] == 0
    assert len(found["answers"]) > 4
    assert {"predict": 0, "verify": 0, "workload": 0}.items() <= {
        e: told[0] for e, told in found["refused"].items()
    }.items()
    return found


def of(extra: str, rows: Mapping[str, registry.Row[Any]]) -> list[str]:
    return [name for name, row in rows.items() if row.extra == extra]


def without(text: str, sections: list[str]) -> Any:
    """An answer in JSON without the sections of an extra, at any depth."""

    def cut(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {name: cut(value) for name, value in tree.items() if name not in sections}
        return [cut(value) for value in tree] if isinstance(tree, list) else tree

    return cut(json.loads(text))


@pytest.mark.process
@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_that_is_deleted_takes_exactly_its_own_with_it(
    extra: str, whole: dict[str, Any], given: list[str], tmp_path: Path
) -> None:
    shutil.copytree(PACKAGE, tmp_path / "frontier", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tmp_path / "frontier" / "extras" / extra)
    left = look(tmp_path, given)
    commands = of(extra, {name: found.row for name, found in registry.COMMANDS.items() if found.row is not None})
    notes = of(extra, registry.NOTES)
    assert [c for c in whole["commands"] if c not in left["commands"]] == commands
    assert [f for f in whole["figures"] if f not in left["figures"]] == of(extra, registry.FIGURES)
    assert [n for n in whole["notes"] if n not in left["notes"]] == notes
    assert [n for n, options in whole["options"].items() if options != left["options"][n]] == (
        ["sweep"] if registry.SWEEP_OPTION.extra == extra else []
    )
    assert left["plan"] == whole["plan"]
    for (code, text), (code_left, text_left) in zip(whole["answers"], left["answers"], strict=True):
        assert code == code_left
        assert text == text_left or (notes and without(text, notes) == json.loads(text_left))
    if extra in KEYS:  # in other words than whatever else is wrong with it
        assert 2 == left["refused"][extra][0]
        assert whole["refused"][extra] != left["refused"][extra]


def test_only_the_table_names_what_is_in_an_extra() -> None:
    rings = [path for path in PACKAGE.rglob("*.py") if "extras" not in path.relative_to(PACKAGE).parts]
    assert len(rings) > 100
    naming = {str(path.relative_to(PACKAGE)) for path in rings if "frontier.extras" in path.read_text()}
    assert naming == {"registry.py", "__init__.py"}


def rows() -> dict[str, registry.Row[Any]]:
    """Every row of the table, by the expression that is it."""
    found: dict[str, registry.Row[Any]] = {}
    for name, value in vars(registry).items():
        if isinstance(value, registry.Row):
            found[f"registry.{name}"] = value
        elif isinstance(value, dict):
            found |= {f"registry.{name}[{k!r}]": row for k, row in value.items() if isinstance(row, registry.Row)}
    commands = {name: command.row for name, command in registry.COMMANDS.items() if command.row is not None}
    return found | {f"some(registry.COMMANDS[{name!r}].row)": row for name, row in commands.items()}


def test_each_row_of_the_table_leads_to_an_extra_and_each_extra_has_one() -> None:
    for row in rows().values():
        assert row.load() is not None
    assert sorted({row.extra for row in rows().values()}) == EXTRAS


@pytest.mark.process
def test_what_stands_at_a_place_is_what_its_protocol_says(tmp_path: Path) -> None:
    """By mypy, which sees neither the strings nor what stands behind them."""
    lines = [
        "from typing import TypeVar",
        "from frontier import registry",
        "T = TypeVar('T')",
        "def same(row: registry.Row[T], it: T) -> None: ...",
        "def some(row: registry.Row[T] | None) -> registry.Row[T]: assert row; return row",
    ]
    for number, (expression, row) in enumerate(rows().items()):
        module, _, name = row.place.partition(":")
        package, _, last = f"frontier.extras.{module}".rpartition(".")
        origin, what = (f"{package}.{last}", name) if name else (package, last)
        lines += [f"from {origin} import {what} as it_{number}", f"same({expression}, it_{number})"]
    (tmp_path / "places.py").write_text("\n".join(lines))
    words = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(PACKAGE.parent / ".mypy_cache"), "places.py"]
    config = ["--config-file", str(PACKAGE.parent / "pyproject.toml")]
    done = subprocess.run([*words, *config], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
