"""Run notebooks and store what they print, without times and paths of this machine:

python notebooks/run.py [NOTEBOOK ...]      all of them in about 2 minutes
"""

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def run(file: Path) -> None:
    """Run a notebook in its folder, and write it. Of a picture or a table its text is left out."""
    notebook = nbformat.read(file, as_version=4)
    where = {"metadata": {"path": str(file.parent)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False, resources=where).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if len(output.get("data", ())) > 1:
                output["data"].pop("text/plain", None)
    nbformat.write(notebook, file)


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(map(str, HERE.glob("*.ipynb"))):
        run(Path(name).resolve())
