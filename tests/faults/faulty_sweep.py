"""A short sweep over HTTP against a server that is made to fail at a chosen moment."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.faults.server import FaultyServer
from frontier.config import load_config
from frontier.core.model.trials import Trial
from frontier.planning.plan import make_plan
from frontier.simulator.spec import EngineSpec
from frontier.sweep.backend import HttpBackend
from frontier.sweep.conductor import Conductor, SweepEnd
from tests.kit.sweeps import Told, open_run

SPEC = EngineSpec(step_base=0.01, per_decode=1e-4, per_prefill_token=1e-5)

CONFIG = """\
endpoint: {url}
shapes: [64/8]
concurrency: [2, 4]
sla: {{p90_ttft: 500ms}}
requests: 30
repeats: 1
refine: 0
warmup: 200ms
max_time: 6s
timeouts: {{connect: 1s, first_byte: 600ms, idle: 600ms, total: 2s}}
"""


class FaultInjector(Told):
    """Calls `act(trial)` in a thread of its own, once per start of a trial, when its window is
    open.
    """

    def __init__(self, act: Callable[[Trial], object], before: Callable[[Trial], object] = lambda _: None) -> None:
        super().__init__()
        self.act, self.before = act, before
        self.trial: Trial | None = None
        self.started: list[Trial] = []
        self.threads: list[threading.Thread] = []

    def trial_started(self, trial: Trial) -> None:
        self.before(trial)
        self.trial = trial
        self.started.append(trial)

    def tick(self, tick: object) -> None:
        if self.trial is not None and tick.stage in ("window", "hold"):  # type: ignore[attr-defined]
            thread = threading.Thread(target=self.act, args=(self.trial,))
            self.trial = None
            self.threads.append(thread)
            thread.start()


def run_sweep(
    server: FaultyServer,
    path: Path,
    injector: Told,
    *,
    ready_wait: float = 15.0,
    more: str = "",
    environ: Mapping[str, str] | None = None,
    requests: int = 30,
) -> SweepEnd:
    """Run (or resume) the sweep to its end."""
    text = CONFIG.replace("requests: 30", f"requests: {requests}").format(url=server.url) + more
    config = load_config(text, "sweep.yaml")

    async def go() -> SweepEnd:
        backend = HttpBackend(config, environ or {}, salt=1)
        conductor = Conductor(config, make_plan(config), run, backend, injector, asyncio.Event(), ready_wait=ready_wait)
        return await conductor.conduct()

    with open_run(path, config, text) as run:
        try:
            return asyncio.run(go())
        finally:
            for thread in getattr(injector, "threads", ()):
                thread.join()


def at_concurrency(concurrency: int, act: Callable[[], object], times: int = 1) -> Callable[[Trial], None]:
    """Act in the first `times` trials of this concurrency."""
    left = [times]

    def do(trial: Trial) -> None:
        if trial.load == concurrency and left[0]:
            left[0] -= 1
            act()

    return do
