"""How long a second look at a finished run takes, the interpreter's start included: `python
benchmarks/look_speed.py`.

A run is swept in virtual time into a temporary directory and looked at once, which makes its
derived summaries; then each command is timed. The goal is one second; what the imports of libraries
alone take stands first, as no command can take less. Times are processor time of the command, the
least of three, so that other work on the machine does not count; wall-clock time stands beside it.
"""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from frontier.config import load_config
from frontier.extras.api.virtual_backend import VirtualBackend
from frontier.planning.plan import make_plan
from frontier.planning.sweep_progress import Progress
from frontier.store.run_dir import RunDirectory
from frontier.sweep.conductor import Conductor

GOAL = 1.0
CONFIG = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 60us, per_prefill_token: 20us, noise: 0.05}
shapes: [256/32, 512/32]
concurrency: [1, 2, 4, 8, 16, 32, 64]
sla: {p99_ttft: 50ms}
requests: 400
repeats: 3
refine: 0
"""
FIVE = ("p99_ttft<=50ms", "p95_ttft<=20ms", "p99_tpot<=9ms", "p99_e2e<=400ms, error_rate<=1%", "output_throughput>=900")
EVERYWHERE = "import numpy, pydantic, scipy.special, yaml"
LIBRARIES = {
    "(libraries)": EVERYWHERE,
    "(those of plot)": f"{EVERYWHERE}, matplotlib.figure, matplotlib.backends.backend_agg",
}
COMMANDS = {
    "solve": ("solve",),
    "solve, five SLAs": ("solve", *(part for sla in FIVE for part in ("--sla", sla))),
    "show": ("show",),
    "plot": ("plot", "-o", "out.png"),
    "report": ("report", "-o", "page.html"),
}


def sweep(path: Path) -> None:
    """A run of CONFIG in `path`."""
    config = load_config(CONFIG, "sweep.yaml")

    async def go(run: RunDirectory) -> None:
        backend = VirtualBackend({d.name: d.engine_spec() for d in config.deployments})
        await Conductor(config, make_plan(config), run, backend, Progress(), asyncio.Event()).conduct()

    with RunDirectory.open_for_sweep(
        path, identity=config.identity(), canonical=config.canonical(), config_text=CONFIG, facts={}
    ) as run:
        asyncio.run(go(run))


def spent(arguments: list[str], cwd: Path) -> tuple[float, float]:
    """Processor and wall-clock seconds of one call of the interpreter."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}  # an installed package is compiled once
    subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - began


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as directory:
        cwd = Path(directory)
        sweep(cwd / "run")
        print(f"{'command':<18} {'processor':>10} {'wall clock':>11} {'of the goal':>12}")
        rows = {name: ["-c", code] for name, code in LIBRARIES.items()}
        rows |= {name: ["-m", "frontier", command, "run", *rest] for name, (command, *rest) in COMMANDS.items()}
        for name, arguments in rows.items():
            spent(arguments, cwd)
            processor, wall = min(spent(arguments, cwd) for _ in range(3))
            print(f"{name:<18} {processor:>8.2f} s {wall:>9.2f} s {processor / GOAL:>12.2f}")


if __name__ == "__main__":
    main()
