"""The examples of CONTRIBUTING.md are changes that work: each is applied to a copy of the package,
does what it is there for, and passes the tests of shape, documents, imports and extras."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.kit.places import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text()
SECTIONS = dict(re.findall(r"^### (\w+ \w+)[^\n]*\n(.*?)(?=^##)", PAGE, re.M | re.S))
EXAMPLES = {
    name: diff[1] for name, text in SECTIONS.items() if (diff := re.search(r"^```diff\n(.*?)^```$", text, re.M | re.S))
}
GOLDEN = {
    name: re.findall(r"^WRITE_GOLDEN=1 \.venv/bin/python -m pytest -q ([^#\n]+)", text, re.M)
    for name, text in SECTIONS.items()
}
"""The tests whose golden files an example changes, as its section says."""
ENGINES = "tests/client/engines/test_engines"
MOST_FILES = {"A metric": 6, "An engine": 2, "An extra": 3, "An importer": 2, "A config": 5}
"""Files of the package that each may touch: a new one beside the table that names it."""
DOES = {
    "A metric": "from frontier.config import parse_sla\n"
    "run = frontier.load(RUN)\n"
    "(point, *_) = run.points(names=['p50_decode', 'p50_e2e'])\n"
    "assert 0 < point.metrics['p50_decode'].value < point.metrics['p50_e2e'].value\n"
    "assert parse_sla('p95_decode<=3s')",
    "An engine": "from frontier.cli.init_template import commented_config\n"
    "from frontier.client.ask.found_servers import USUAL_PORTS\n"
    "from frontier.client.engines import ENGINES\n"
    "from frontier.extras.capacity.command import TARGETS\n"
    "from frontier.extras.capacity.emit import emit\n"
    "from frontier.extras.workload.server_metrics import OF_ENGINE, Increases, workload_of\n"
    "assert ENGINES['lmdeploy'].title == 'LMDeploy'\n"
    "assert 23333 in USUAL_PORTS and '| lmdeploy' in commented_config('http://h/v1')\n"
    "assert OF_ENGINE.search(b'lmdeploy:request_prompt_tokens_count 0')\n"
    "parts = {'_bucket': (('le', '+Inf'),), '_count': (), '_sum': ()}\n"
    "sides = (('prompt', 100.0), ('generation', 20.0))\n"
    "grown = {(f'lmdeploy:request_{side}_tokens{part}', labels): 10.0 * (mean if part == '_sum' else 1)\n"
    "         for side, mean in sides for part, labels in parts.items()}\n"
    "found = workload_of('here', grown, 60.0, None)\n"
    "assert (found.requests, found.classes[0].pairs[0]) == (10, (100, 20))\n"
    "came = Increases()\n"
    "key = ('lmdeploy:time_to_first_token_seconds_count', ())\n"
    "assert [came.add({key: count})[0] for count in (1.0, 4.0)] == [0.0, 3.0]\n"
    "decision = next(each for each in frontier.load(RUN).solve() if each.load)\n"
    "assert 'lmdeploy' in TARGETS and '--max-batch-size' in emit('lmdeploy', decision, None)",
    "An extra": "from frontier.cli.main import run\nassert run(['peak', RUN]) == 0",
    "An importer": "from frontier.extras.exchange.formats import read_results\n"
    'text = b\'{"metrics": {"vus_max": {"value": 16}, "http_reqs": {"count": 200, "rate": 10.0}, \'\n'
    'text += b\'"http_req_duration": {"avg": 1600.0}, "http_req_failed": {"passes": 2, "fails": 198}}}\'\n'
    "(result,) = read_results('summary.json', text).results\n"
    "assert (result.concurrency, result.figures) == (16, {'request_throughput': 10.0, 'mean_e2e': 1.6})",
    "A config": "config = frontier.config.load_config(open(CONFIG).read() + 'cooldown: 2s\\n', 'sweep.yaml')\n"
    "assert config.cooldown == 2.0",
}


def apply(name: str, copy: Path) -> None:
    words = ["git", "apply", "-C1"]
    applied = subprocess.run(words, cwd=copy, input=EXAMPLES[name], capture_output=True, text=True)
    assert applied.returncode == 0, applied.stderr


def test_each_example_is_used() -> None:
    assert EXAMPLES.keys() == DOES.keys() == MOST_FILES.keys()


@pytest.mark.process
@pytest.mark.parametrize("name", DOES)
def test_an_example_of_a_change_applies_and_works(name: str, tmp_path: Path) -> None:
    for part in ("frontier", "docs", "tests/kit"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    touched = re.findall(r"^\+\+\+ b/(frontier/\S+)$", EXAMPLES[name], re.M)
    assert 1 <= len(touched) <= MOST_FILES[name]
    apply(name, tmp_path)
    with tarfile.open(ROOT / "tests" / "data" / "runs" / "runs-1.0.0.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    places = {"RUN": str(tmp_path / "closed"), "CONFIG": str(ROOT / "configs" / "quickstart.yaml")}
    head = "import frontier, frontier.config\n" + "".join(f"{name} = {place!r}\n" for name, place in places.items())
    words = [sys.executable, "-c", head + DOES[name]]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", DOES)
def test_an_example_of_a_change_passes_the_tests_of_the_whole(name: str, tmp_path: Path) -> None:
    """What starts a process for each extra, engine or documented command is asked of the new one
    alone."""
    copy = tmp_path / "copy"
    listed = subprocess.check_output(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, text=True)
    for file in filter(None, listed.split("\0")):
        if (ROOT / file).exists():
            (copy / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, copy / file)
    apply(name, copy)
    environ = {**os.environ, "PYTHONPATH": str(copy)}
    fast = [f"tests/house/test_{name}.py" for name in ("shape", "docs", "imports", "extras")]
    runs = [(tests.split(), {"WRITE_GOLDEN": "1"}) for tests in GOLDEN[name]] + [(fast, {})]
    alone = {"An extra": ("tests/house/test_extras.py", "peak"), "An engine": (f"{ENGINES}_http.py", "lmdeploy")}
    if name in alone:
        file, word = alone[name]
        runs.append(([file, "-m", "process", "-k", word], {}))
    if name == "An engine":
        runs.append(([f"{ENGINES}.py", "tests/extras/capacity", "tests/client/ask"], {}))
    for words, more in runs:
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *words]
        done = subprocess.run(command, cwd=copy, env={**environ, **more}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr
