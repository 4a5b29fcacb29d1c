"""Records a run of each kind, made by the version that is checked out, and what its commands say.

    python -m tests.kit.record_runs

writes tests/data/runs/runs-VERSION.tar.xz and .json. Later versions have to say the same of these
runs (tests/test_read_run.py). The runs are made on the simulated engine in virtual time.
"""

import json
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import frontier as package
from tests.kit import places
from tests.kit.commands import frontier
from tests.kit.sweeps import sweep_in_virtual_time

DATA = places.DATA / "runs"
ENGINE = "{step_base: 5ms, per_decode: 100us, per_prefill_token: 20us, noise: 0.05, prefix_cache: true}"
CLOSED = """\
endpoint: simulator
simulator: ENGINE
shapes: [{name: short, isl: 64, osl: 16}, {name: long, isl: 400, osl: 8}]
concurrency: [1, 4, 16]
sla: {p90_ttft: 40ms, p90_tpot: 7ms}
max_time: 20s
"""
CONFIGS = {
    "closed": CLOSED,
    "stated": CLOSED.replace("20s", "5s") + "requests: 500\nrepeats: 1\nrefine: 0\n",
    "open": """\
endpoint: simulator
simulator: {step_base: 8ms, per_decode: 200us, noise: 0.1, max_num_seqs: 8}
shapes: [{isl: 64, osl: {uniform: [6, 12]}, name: short}]
rate: [5, 40, 320]
sla: {p50_ttft: 40ms}
requests: 150
refine: 0
""",
    "sessions": """\
endpoint: simulator
simulator: ENGINE
shapes: [{name: agent, turns: 4, first: 300, per_turn: 40/8, think: 100ms, system: 100}]
concurrency: [2, 8]
sla: {first: {p90_ttft: 60ms}, later: {p90_ttft: 40ms}}
requests: 200
repeats: 1
refine: 0
""",
    "mix": """\
endpoint: simulator
simulator: ENGINE
shapes: [{name: chat, isl: 64, osl: 12}, {name: rag, isl: 300, osl: 4}]
traffic: {chat: {share: 60%, sla: {p90_ttft: 60ms}}, rag: {share: 40%}}
concurrency: [2, 8]
requests: 200
repeats: 1
refine: 0
""",
}
"""The configs by the name of their run."""


def said(folder: Path, *command: str) -> dict[str, Any]:
    """The exit code of a command and its JSON."""
    done = frontier(*command, "--json", cwd=folder, here=True)
    return {"code": done.code, "json": json.loads(done.out)}


def statements(folder: Path) -> dict[str, Any]:
    """What the commands say of the runs in a folder, by command line."""
    lines = [f"{command} {name}" for name in CONFIGS for command in ("show", "solve")]
    return {line: said(folder, *line.split()) for line in [*lines, "compare closed stated"]}


def main(data: Path = DATA) -> None:
    """Make the runs, and write both files."""
    with tempfile.TemporaryDirectory() as place:
        folder, version = Path(place), package.__version__
        for name, text in CONFIGS.items():
            sweep_in_virtual_time(folder / name, text.replace("ENGINE", ENGINE))
        (data / f"runs-{version}.json").write_text(json.dumps(statements(folder), sort_keys=True) + "\n")
        with tarfile.open(data / f"runs-{version}.tar.xz", "w:xz") as archive:
            for name in CONFIGS:
                archive.add(folder / name, name, filter=lambda file: None if "/derived" in file.name else file)


if __name__ == "__main__":
    main()
