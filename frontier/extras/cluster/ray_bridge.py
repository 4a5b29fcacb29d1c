"""The process between a sweep and Ray: `python -m frontier.extras.cluster.ray_bridge`. Ray is used
only here.

Its standard input is a socket to the sweep, with the same frames as between a sweep and its client
processes: questions (number, client process, method, arguments) and answers (number, what went
wrong, result). A client process is an actor of the class `ShardHost`. The key reaches it as an
argument of a call, straight from this process. Ray writes arguments into no file, and no part of a
setup (runtime_env, environment, command line) holds the key.
"""

import asyncio
import os
import shutil
import socket
import sys
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from frontier.client.load.processes import read_frame, write_frame
from frontier.client.load.shard import ShardHost
from frontier.core.model.text import one_line, shortened

_STORE = 100 * 2**20
"""Bytes of Ray's shared memory. Records pass through it in pieces of about 100 kB."""
_TRIES = 3
"""Connection attempts to a cluster by `ray://` before it counts as out of reach. Its head forks a
process for each; on a busy head gRPC ended 3 in 108 of them at the fork (Ray 2.60)."""
Answer = tuple[str | None, Any]


class Cluster:
    """A Ray cluster and the client processes on it."""

    def __init__(self) -> None:
        self._nodes: list[dict[str, Any]] = []
        self._actors: dict[int, Any] = {}
        self._folder: str | None = None

    def open(self, address: str | None, folder: str | None) -> Answer:
        """Reach a cluster, or without an address start one on this machine, with its files in
        `folder`.

        The result is the hosts of the nodes.
        """
        self._folder = folder
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        try:
            if address is not None:
                reach(address, quiet)
            else:
                # Ray opens its folder to all users: it lies in one that only this user may enter.
                ray.init(
                    "local",
                    num_cpus=1,
                    num_gpus=0,
                    include_dashboard=False,
                    object_store_memory=_STORE,
                    _temp_dir=f"{folder}/ray",
                    **quiet,
                )
        except Exception as error:  # noqa: BLE001 - as Ray raises, for one, where a node takes too long to start
            what = "did not start" if address is None else "cannot be used"
            return f"{what}: {shortened(one_line(without_traceback(str(error))), 300)}", None
        # A node without processors, as many a head, is not meant to run anything.
        alive = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
        self._nodes = sorted(alive, key=lambda node: (node["NodeManagerHostname"], node["NodeID"]))
        return None if alive else "has no node with a processor", [node["NodeManagerHostname"] for node in self._nodes]

    def actor(self, index: int) -> Any:
        """A client process, started if there is none yet. Ray may not restart it: its measurements
        would be lost silently.
        """
        if index not in self._actors:
            node = NodeAffinitySchedulingStrategy(self._nodes[index % len(self._nodes)]["NodeID"], soft=False)
            how = ray.remote(ShardHost).options(
                num_cpus=0, max_restarts=0, max_task_retries=0, scheduling_strategy=node
            )
            self._actors[index] = how.remote()
        return self._actors[index]

    async def ask(self, index: int, method: str, arguments: tuple[Any, ...]) -> Answer:
        """The answer of a client process."""
        try:
            problem, result = await self.actor(index).answer.remote(method, arguments)
        except RayError as error:
            return f"was lost: {cause(error)}", None
        return problem and f"failed: {problem}", result

    def close(self) -> None:
        """Stop the client processes, and the Ray that was started."""
        ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def reach(address: str, quiet: dict[str, Any]) -> None:
    """Connect to a cluster, again where the process that its head starts for us ends at once."""
    for left in reversed(range(_TRIES)):
        try:
            ray.init(address, **quiet)
        except ConnectionAbortedError:
            if not left:
                raise
        else:
            return


def without_traceback(text: str) -> str:
    """A message of the cluster's in short: only the last line of a quoted traceback, the error
    itself.
    """
    before, traceback, rest = text.partition("Traceback (most recent call last):")
    return before + rest.strip().rpartition("\n")[2].strip() if traceback else text


def cause(error: RayError) -> str:
    """Why an actor is lost. Ray's message begins with circumstances or a traceback, and ends with
    the reason and guesses.
    """
    return str(error).strip().rpartition("\n")[2].strip().partition(". ")[0].rstrip(".")


def mute_ray() -> None:
    """Keep the lines that Ray writes beside its errors out of the sweep's output; what Python
    itself reports still shows.
    """
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


async def serve(connection: socket.socket) -> None:
    """Answer the sweep's questions, side by side, until it closes the connection."""
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    cluster = Cluster()

    async def answer(number: int, index: int | None, method: str, arguments: tuple[Any, ...]) -> None:
        found = cluster.open(*arguments) if index is None else await cluster.ask(index, method, arguments)
        write_frame(writer, (number, *found))

    try:
        async with asyncio.TaskGroup() as questions:
            while True:
                questions.create_task(answer(*await read_frame(reader)))
    except* (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        cluster.close()
    os._exit(0)  # threads of Ray that still run could keep this process


if __name__ == "__main__":
    mute_ray()
    asyncio.run(serve(socket.socket(fileno=0)))
