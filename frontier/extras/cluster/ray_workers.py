"""Client processes on Ray: actors on the nodes of a cluster, or on a local Ray of the sweep's own.

A process of its own, `bridge`, speaks to Ray in place of the sweep's. Ray takes over signals and
ends the process that uses it when a cluster is gone, and what it starts inherits the environment.
The bridge gets an environment without the secrets. It ends, with all that it started, as soon as
its socket to the sweep closes.
"""

import asyncio
import contextlib
import importlib.util
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from secrets import token_hex
from typing import Any

from frontier.client.load.processes import read_frame, start_process, write_frame
from frontier.client.load.shard import WorkerLostError
from frontier.client.secrets import Secrets
from frontier.core.model.errors import MeasurementError, UsageError, install_command

RAY_SETTINGS: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",  # under `uv run` Ray would upload the working directory
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # Ray warns where it is left out
}
_OWN_RAY: Mapping[str, str] = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # on every system: no node but this one, so it listens on 127.0.0.1 only
    "RAY_AUTH_MODE": "token",  # else any user of this machine could have it run what he likes
}
_REACH_LIMIT = 10.0
_CONNECT_LIMIT = 180.0  # three connections that fail take 40 s each
_STOP_LIMIT = 15.0
_GONE = "was lost: the process that speaks with Ray has ended"


def bridge_environment(environ: Mapping[str, str], secrets: Secrets, *, local: bool) -> dict[str, str]:
    """The environment of the bridge, without variables that hold a secret. A Ray that the bridge
    starts inherits it.

    A `local` Ray gets none of the user's RAY_* variables. To reach a cluster they are all kept:
    they may be needed, and a token may be among them.
    """
    hidden = secrets.values | secrets.whole
    kept = {
        name: value
        for name, value in environ.items()
        if (not local if name.startswith("RAY_") else not any(secret in value for secret in hidden))
    }
    own = {**_OWN_RAY, "RAY_AUTH_TOKEN": token_hex(32)} if local else {}
    return {**kept, **RAY_SETTINGS, **own}


def require_ray() -> None:
    """Check that Ray is installed. UsageError otherwise, with the command that installs it."""
    spec = importlib.util.find_spec("ray")
    if spec is None or spec.origin is None:  # without an origin: a folder that happens to be called so
        raise UsageError("workers: ray needs Ray, which is not installed", install_command("ray[client]"))


async def _why_not_there(address: str | None) -> str | None:
    """Why nothing listens at the address of a cluster; None where something does. Asked first,
    because Ray itself tries for minutes.
    """
    if address is None:
        return None
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        async with asyncio.timeout(_REACH_LIMIT):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except OSError as error:  # a timeout among them
        return error.strerror or f"no answer for {_REACH_LIMIT:g} s"
    writer.close()
    return None


class RayWorkers:
    """The client processes of a sweep on Ray. `address` None: a local Ray of the sweep's own."""

    def __init__(self, address: str | None, secrets: Secrets) -> None:
        self._address, self._secrets = address, secrets
        self._folder: str | None = None
        self._bridge: _Bridge | None = None
        self._hosts: list[str] = []

    @property
    def nodes(self) -> int:
        """The number of nodes of the cluster when it was reached."""
        return len(self._hosts)

    async def connect(self) -> None:
        """Reach the cluster, or start Ray. UsageError where Ray is not installed, MeasurementError
        where it does not answer.
        """
        if self._bridge is not None and self._bridge.alive:
            return
        self.close()
        require_ray()
        local = self._address is None
        where = "Ray on this machine" if local else f"the Ray cluster at {self._address}"
        if (problem := await _why_not_there(self._address)) is not None:
            raise MeasurementError(
                f"{where} is not there: {problem}", "start it, or let the sweep start one:  workers: ray"
            )
        self._bridge = _Bridge(bridge_environment(os.environ, self._secrets, local=local))
        if local:  # only this user may enter it; in /tmp, as the paths of sockets are short
            self._folder = tempfile.mkdtemp(prefix="frontier-ray-", dir="/tmp")
        try:
            async with asyncio.timeout(_CONNECT_LIMIT):
                problem, hosts = await self._bridge.ask(None, "open", self._address, self._folder)
        except TimeoutError:
            problem, hosts = f"gave no answer for {_CONNECT_LIMIT:g} s", None
        if problem is not None:
            self.close()
            hint = "check  ray status  there, its versions of Ray and Python, and RAY_AUTH_TOKEN"
            if local:
                hint = "see whether this machine is too busy for it; or do without:  workers: auto"
            raise MeasurementError(f"{where} {problem}", hint)
        self._hosts = hosts

    async def get(self, count: int) -> list["RayWorker"]:
        """This number of client processes, placed on one node after the other."""
        await self.connect()
        assert self._bridge is not None
        return [RayWorker(self._bridge, index, self._hosts[index % self.nodes]) for index in range(count)]

    def close(self) -> None:
        """End them all, and the Ray that was started for them."""
        if self._bridge is not None:
            self._bridge.close()
            if self._folder is not None:  # where the bridge was killed it could not remove it
                shutil.rmtree(self._folder, ignore_errors=True)
        self._bridge = self._folder = None


class RayWorker:
    """One client process on Ray, the `index`-th."""

    def __init__(self, bridge: "_Bridge", index: int, host: str) -> None:
        self.name = f"client process {index + 1} on Ray ({host})"
        self._bridge, self._index = bridge, index

    async def call(self, method: str, *arguments: Any) -> Any:
        """As in Worker."""
        problem, result = await self._bridge.ask(self._index, method, *arguments)
        if problem is not None:
            raise WorkerLostError(f"{self.name} {problem}")
        return result


class _Bridge:
    """The process that speaks with Ray, and the questions that it has not yet answered."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._child, self._socket = start_process("frontier.extras.cluster.ray_bridge", environ)
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[tuple[str | None, Any]]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._reading is not None and not self._reading.done()

    async def ask(self, worker: int | None, method: str, *arguments: Any) -> tuple[str | None, Any]:
        """The answer of a client process, or of the bridge where none is named: as of
        `ShardHost.answer`.
        """
        if self._writer is None:
            reader, self._writer = await asyncio.open_unix_connection(sock=self._socket)
            self._reading = asyncio.create_task(self._read(reader))
        assert self._reading is not None
        number = next(self._numbers)
        answer: asyncio.Future[tuple[str | None, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        write_frame(self._writer, (number, worker, method, arguments))
        if self._reading.done():
            return _GONE, None
        return await answer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Pass each answer to the task that waits for it, in whatever order answers come."""
        try:
            while True:
                number, problem, result = await read_frame(reader)
                if not (answer := self._waiting.pop(number)).done():  # done: it was given up
                    answer.set_result((problem, result))
        except (asyncio.IncompleteReadError, ConnectionError):
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_result((_GONE, None))

    def close(self) -> None:
        """End it, with the Ray that it started."""
        if self._reading is not None:
            self._reading.cancel()
        with contextlib.suppress(OSError):  # it has ended already
            # Closing would wait for the event loop; the other side sees this at once.
            self._socket.shutdown(socket.SHUT_RDWR)
        try:
            self._child.wait(_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        with contextlib.suppress(ProcessLookupError):
            # Where it was killed, some of what it started would only look for it after a minute.
            os.killpg(self._child.pid, signal.SIGKILL)
        if self._writer is not None:
            self._writer.close()
        self._socket.close()
