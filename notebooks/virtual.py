"""A whole sweep of the embedded engine in virtual time, for these notebooks: the same on every
machine.
"""

import tempfile
from pathlib import Path

import frontier


def sweep(text: str, name: str = "night") -> frontier.Run:
    """The finished run of a config whose deployments are simulators."""
    folder = Path(tempfile.mkdtemp())
    (folder / "sweep.yaml").write_text(text)
    return frontier.run_sweep(folder / "sweep.yaml", folder / name, virtual=True)
