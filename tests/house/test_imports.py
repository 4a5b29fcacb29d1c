"""The floors of the house: imports point down, or sideways inside a room, never up and never in a
circle."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import frontier

ROOT = Path(frontier.__file__).parent

RINGS = [
    "_version",
    "core",
    "registry",
    "world",
    "search",
    "client",
    "fields",
    "hardware",
    "simulator",
    "store",
    "config",
    "planning",
    "uncertainty",
    "run",
    "read_run",
    "sweep",
    "show",
    "cli",
    "__main__",
]
"""From the core outwards. `frontier.extras` is none of them: the table in `registry` finds them."""
PURE = ("core", "search", "config", "planning")
FLOORS = ["model", "window", "stats", "flags", "estimates", "claim"]
"""Of the core, each importing only those before it."""
MACHINE = ("os", "resource", "time", "platform", "subprocess", "socket")
"""What a pure room would ask the machine with."""


def modules() -> dict[str, Path]:
    return {
        ".".join(p.relative_to(ROOT.parent).with_suffix("").parts): p
        for p in ROOT.rglob("*.py")
        if p.name != "__init__.py" or p.parent != ROOT
    }


def ring(module: str) -> str:
    """The ring that a module is in; of an extra, 'extras.NAME'."""
    parts = module.split(".")
    return ".".join(parts[1:3]) if parts[1] == "extras" else parts[1]


@cache
def imported(path: Path) -> frozenset[str]:
    """Dotted names of this package's modules that a file imports, anywhere in it; of the registry
    not those that its protocols are typed by.
    """
    names: set[str] = set()
    tree = ast.parse(path.read_text())
    for node in ast.walk(_without_types(tree) if path == ROOT / "registry.py" else tree):
        if isinstance(node, ast.Import):
            names |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{a.name}" for a in node.names} | {node.module}
    return frozenset(n for n in names if n.startswith("frontier."))


def crossings() -> list[tuple[str, str]]:
    """(importer, imported) of every import from one ring, or extra, into another."""
    known = modules()
    return [
        (module, name)
        for module, path in known.items()
        for name in imported(path)
        if name in known and ring(name) != ring(module)
    ]


def test_a_ring_imports_the_core_and_rings_before_it() -> None:
    found = [(a, b) for a, b in crossings() if not a.startswith("frontier.extras.")]
    assert len(found) > 500
    wrong = {(a, b) for a, b in found if b.startswith("frontier.extras") or RINGS.index(ring(b)) > RINGS.index(ring(a))}
    assert wrong == set()


def test_a_floor_of_the_core_imports_those_before_it() -> None:
    floors = {m: m.split(".")[2] for m in modules() if m.startswith("frontier.core.") and m.count(".") > 2}
    assert set(floors.values()) == set(FLOORS)
    found = [(a, b) for a in floors for b in imported(modules()[a]) if b in floors]
    assert len(found) > 100
    assert [(a, b) for a, b in found if FLOORS.index(floors[b]) > FLOORS.index(floors[a])] == []


def test_an_extra_imports_no_other_extra_and_only_its_commands_import_the_command_line() -> None:
    found = [(a, b) for a, b in crossings() if a.startswith("frontier.extras.")]
    assert len(found) > 100
    assert [pair for pair in found if pair[1].startswith("frontier.extras.")] == []
    assert [(a, b) for a, b in found if ring(b) == "cli" and "command" not in a.rpartition(".")[2]] == []


def test_a_sweep_reports_its_progress_and_draws_nothing() -> None:
    names = {name for module, path in modules().items() if ring(module) == "sweep" for name in imported(path)}
    assert names
    assert set() == {name for name in names if name.split(".")[1] in ("show", "cli")}


@pytest.mark.parametrize("start", ["frontier.core.claim.solver", "frontier.search.scan"])
def test_solver_and_search_import_nothing_that_shows_measures_or_stores(start: str) -> None:
    known, seen, todo = modules(), set[str](), [start]
    while todo:
        module = todo.pop()
        if module in known and module not in seen:
            seen.add(module)
            todo += imported(known[module])
    assert len(seen) > 20
    assert {"core", "search"} >= {ring(module) for module in seen}


def test_no_module_imports_itself_through_a_circle() -> None:
    known = modules()
    graph = {m: {n for n in imported(p) if n in known and n != m} for m, p in known.items()}
    state: dict[str, int] = {}

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert state.get(module) != 1, f"circle: {' -> '.join((*path, module))}"
        if state.get(module) == 2:
            return
        state[module] = 1
        for other in graph[module]:
            visit(other, (*path, module))
        state[module] = 2

    for module in graph:
        visit(module, ())


def test_pure_rooms_read_no_clock_no_file_and_no_unseeded_randomness() -> None:
    wrong = []
    for name in PURE:
        target = ROOT / name
        for path in [target] if target.is_file() else target.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                text = ast.unparse(node) if isinstance(node, ast.Call) else ""
                if text.startswith(("open(", "time.", "os.environ", "random.random(")) or (
                    text in {"np.random.default_rng()", "random.Random()"}
                ):
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno}: {text}")  # type: ignore[attr-defined]
    assert [] == wrong


def test_pure_rooms_ask_the_machine_nothing_and_planning_no_client() -> None:
    asked = [(module, name) for module, path in modules().items() for name in _imported_when_run(path)]
    assert [(a, b) for a, b in asked if ring(a) in PURE and b.partition(".")[0] in MACHINE] == []
    assert [(a, b) for a, b in asked if ring(a) == "planning" and b.startswith("frontier.client")] == []


def _imported_when_run(path: Path) -> set[str]:
    """Names of the modules that a file imports, but those that only its types need."""
    names: set[str] = set()
    for node in ast.walk(_without_types(ast.parse(path.read_text()))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def _without_types(tree: ast.Module) -> ast.Module:
    """A module without its imports for types."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    return tree


@pytest.mark.smoke
def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from frontier.cli.main import run\n"
        "run(['--help'])\n"
        "heavy = {'numpy', 'scipy', 'pandas', 'matplotlib', 'aiohttp', 'pydantic', 'rich', 'yaml', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.smoke
def test_the_entry_of_the_client_is_imported_when_it_is_first_used() -> None:
    code = (
        "import sys, frontier.client, frontier.client.engines\n"
        "assert not {'numpy', 'aiohttp', 'asyncio'} & set(sys.modules)\n"
        "from frontier.client import run_trial\n"
        "assert run_trial.__module__ in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.smoke
def test_a_sweep_begins_without_what_only_its_answer_needs(tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(
        "endpoint: http://127.0.0.1:9/v1\nmodel: m\nshapes: [32/4]\nconcurrency: [1, 2]\nsla: {p99_ttft: 1s}\n"
    )
    code = (
        "import sys\n"
        "from frontier.cli.main import run\n"
        "assert run(['sweep', 'sweep.yaml', '--dry-run']) == 0\n"
        "import frontier.show.live, frontier.sweep.backend, frontier.sweep.conductor\n"
        "late = {'scipy', 'pandas', 'matplotlib', 'jinja2', 'ray'}\n"
        "print(sorted(late & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"


@pytest.mark.smoke
def test_no_garbage_is_looked_for_at_exit() -> None:
    code = (
        "import atexit, gc, sys\n"
        "from frontier.cli.main import main\n"
        "sys.argv = ['frontier', '--version']\n"
        "atexit.register(lambda: print(gc.get_freeze_count() > 10 * len(gc.get_objects()), file=sys.stderr))\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "True"


DECIDES = ("core.claim", "core.estimates", "core.stats", "core.window", "core.model.points", "core.model.decisions")
"""What a renderer works with only as the view has it."""
RENDERERS = (
    "frontier.extras.compare.comparison_text",
    "frontier.extras.exchange.export",
    "frontier.extras.present.page",
    "frontier.extras.tune.race_text",
)
"""Renderers outside `show`."""


def test_what_lays_out_the_view_works_out_nothing() -> None:
    rendering = [m for m in modules() if ring(m) == "show" and not m.startswith("frontier.show.view")]
    assert len(rendering) > 15
    deciding = tuple(f"frontier.{name}" for name in (*DECIDES, "core.model.trials", "run", "search"))
    found = {
        (m, name) for m in (*rendering, *RENDERERS) for name in imported(modules()[m]) if name.startswith(deciding)
    }
    assert found == set()
