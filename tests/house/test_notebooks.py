"""The notebooks run from top to bottom, and print what is stored in them: they are the same on
every machine."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.places import ROOT

NOTEBOOKS = ROOT / "notebooks"
REAL_TIME = ("1-", "2-")
"""What these sweep takes a minute of real time."""


def printed(file: Path) -> list[str]:
    """What the cells print, however it was cut into pieces on its way."""
    cells = json.loads(file.read_text())["cells"]
    streams = ([o for o in cell.get("outputs", []) if o["output_type"] == "stream"] for cell in cells)
    return ["".join("".join(output["text"]) for output in found) for found in streams]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(
    "notebook",
    [
        pytest.param(path, marks=[pytest.mark.nightly] * path.stem.startswith(REAL_TIME))
        for path in sorted(NOTEBOOKS.glob("*.ipynb"))
    ],
    ids=lambda path: path.stem,
)
def test_a_notebook_runs_and_prints_what_is_stored(notebook: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbclient")
    here = tmp_path / "notebooks"
    shutil.copytree(NOTEBOOKS, here, ignore=shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints"))
    done = subprocess.run(
        [sys.executable, "run.py", notebook.name], cwd=here, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert printed(notebook) == printed(here / notebook.name)


@pytest.mark.parametrize("notebook", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda p: p.stem)
def test_a_notebook_is_stored_with_its_outputs_and_without_errors_or_paths(notebook: Path) -> None:
    text = notebook.read_text()
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert cells
    assert all(cell["outputs"] for cell in cells)
    assert "/tmp/" not in text
    assert '"output_type": "error"' not in text
    assert len(text) < 600_000
    pictures = [o for cell in cells for o in cell["outputs"] if "image/svg+xml" in o.get("data", {})]
    assert pictures or "p99-claim" in notebook.stem
