"""The simulator as a child process: started, waited for, and always stopped."""

import selectors
import subprocess
import sys

import orjson

from frontier.core.errors import MeasurementError
from frontier.simulator.spec import EngineSpec

_START_LIMIT = 30.0
_STOP_LIMIT = 3.0


class SimulatorProcess:
    """`with SimulatorProcess(spec) as simulator: ... simulator.url`, or `start()` and `stop()` by
    hand.

    The child ends by itself when this process does, however it does.
    """

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
        """Start and wait until it serves. MeasurementError when it does not within half a
        minute.
        """
        command = [
            sys.executable,
            "-m",
            "frontier.simulator.server",
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
        try:
            self.url = str(orjson.loads(self._first_line())["url"])
        except (TimeoutError, orjson.JSONDecodeError) as wrong:
            status = self._child.poll()
            self.stop()
            why = f"it ended with status {status}" if status is not None else "it did not become ready"
            raise MeasurementError(f"the simulator did not start: {why}", "is the port taken?") from wrong

    def _first_line(self) -> bytes:
        assert self._child is not None
        assert self._child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            if not selector.select(_START_LIMIT):
                raise TimeoutError
        return self._child.stdout.readline()

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
