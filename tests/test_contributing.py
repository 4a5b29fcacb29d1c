"""The examples of CONTRIBUTING.md are changes that work: each is applied to a copy of the package,
and does what it is there for."""

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
EXAMPLES = dict(re.findall(r"^### (\w+ \w+)[^\n]*\n(?:(?!^### ).)*?^```diff\n(.*?)^```$", PAGE, re.M | re.S))
MOST_FILES = {"A metric": 6, "An engine": 2, "An extra": 3, "An importer": 2, "A config": 5}
"""Files of the package that each may touch: a new one beside the table that names it."""
DOES = {
    "A metric": "from frontier.config import parse_sla\n"
    "run = frontier.load(RUN)\n"
    "(point, *_) = run.points(names=['p50_decode', 'p50_e2e'])\n"
    "assert 0 < point.metrics['p50_decode'].value < point.metrics['p50_e2e'].value\n"
    "assert parse_sla('p95_decode<=3s')",
    "An engine": "from frontier.client.engines import ENGINES\nassert ENGINES['mlc'].title == 'MLC LLM'",
    "An extra": "from frontier.cli.main import run\nassert run(['peak', RUN]) == 0",
    "An importer": "from frontier.extras.importers.importing import read_results\n"
    'text = b\'{"Number of concurrency": 16, "Succeed requests": 198, "Average latency (s)": 1.6}\'\n'
    "(result,) = read_results('benchmark_summary.json', text).results\n"
    "assert (result.concurrency, result.figures) == (16, {'mean_e2e': 1.6})",
    "A config": "config = frontier.config.load_config(open(CONFIG).read() + 'cooldown: 2s\\n', 'sweep.yaml')\n"
    "assert config.cooldown == 2.0",
}


@pytest.mark.process
@pytest.mark.parametrize("name", DOES)
def test_an_example_of_a_change_applies_and_works(name: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "frontier", tmp_path / "frontier", ignore=shutil.ignore_patterns("__pycache__"))
    touched = re.findall(r"^\+\+\+ b/(\S+)$", EXAMPLES[name], re.M)
    assert 1 <= len(touched) <= MOST_FILES[name]
    applied = subprocess.run(
        ["git", "apply", "-C1"], cwd=tmp_path, input=EXAMPLES[name], capture_output=True, text=True
    )
    assert applied.returncode == 0, applied.stderr
    with tarfile.open(ROOT / "tests" / "data" / "runs" / "runs-1.0.0.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    places = {"RUN": str(tmp_path / "closed"), "CONFIG": str(ROOT / "configs" / "quickstart.yaml")}
    head = "import frontier, frontier.config\n" + "".join(f"{name} = {place!r}\n" for name, place in places.items())
    words = [sys.executable, "-c", head + DOES[name]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
