"""The simulator as a child process: started, waited for, and always stopped."""

import subprocess
import sys

import orjson

from frontier.core.model.errors import MeasurementError
from frontier.simulator.spec import EngineSpec

_STOP_LIMIT = 3.0


class SimulatorProcess:
    """`with SimulatorProcess(spec) as simulator: ... simulator.url`, or `start()` and `stop()` by
    hand.

    The child ends by itself when this process does, however it does.
    """

    MODULE = "frontier.simulator.http.server"

    def __init__(self, spec: EngineSpec, *, port: int = 0) -> None:
        self.spec = spec
        self.url = ""
        self.pid: int | None = None
        self._port = port
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """It was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start and wait until it serves. MeasurementError when it ends instead."""
        command = [
            sys.executable,
            "-m",
            self.MODULE,
            "--port",
            str(self._port),
            "--spec",
            orjson.dumps(self.spec.to_mapping()).decode(),
        ]
        # A session of its own: Ctrl-C in the terminal is the parent's to answer; it then stops the
        # child.
        self._child = subprocess.Popen(  # noqa: S603 (our own)
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self.pid = self._child.pid
        assert self._child.stdout is not None
        ready = self._child.stdout.readline()  # empty where the child has ended
        if not ready:
            status = self._child.wait()
            self.stop()
            what = f"the simulator did not start: it ended with status {status}"
            raise MeasurementError(what, "is the port taken?")
        self.url = str(orjson.loads(ready)["url"])

    def stop(self) -> None:
        """Stop it; harmless when it never ran or has ended."""
        child, self._child = self._child, None
        if child is None:
            return
        with child:  # which closes its pipes and waits for it
            child.terminate()
            try:
                child.wait(_STOP_LIMIT)
            except subprocess.TimeoutExpired:
                child.kill()

    def __enter__(self) -> "SimulatorProcess":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
