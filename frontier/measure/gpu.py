"""The GPUs of this machine over a window, as nvidia-smi tells: evidence, where there is one and the server is here."""

import asyncio
import ipaddress
import shutil
import subprocess
import threading
from collections.abc import Sequence
from urllib.parse import urlsplit

from frontier.measure.target import Target
from frontier.units import usable

_FIELDS = ("index", "power.draw", "utilization.gpu", "memory.used", "clocks.sm", "temperature.gpu")
_ARGUMENTS = (f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits", "--loop=1")

Reading = tuple[float | None, ...]
"""One GPU at one moment, as _FIELDS; None where nvidia-smi has no value."""


class Gpus:
    """Reads the GPUs once a second while a trial runs. `result()` covers what was read in its window."""

    def __init__(self, target: Target) -> None:
        self._tool = shutil.which("nvidia-smi") if is_here(target.base_url) else None
        self._readings: list[Reading] = []

    async def watch(self, opened: asyncio.Event, closed: asyncio.Event) -> None:
        """One process for the whole trial, begun before the window, so that starting it disturbs nothing."""
        if self._tool is None:
            return
        try:
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - quick, before the window; our own arguments
                [self._tool, *_ARGUMENTS], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError:
            return
        threading.Thread(target=self._read, args=(process, opened), daemon=True).start()
        try:
            await closed.wait()
        finally:
            process.kill()
            process.wait()

    def _read(self, process: "subprocess.Popen[bytes]", opened: asyncio.Event) -> None:
        """In a thread of its own: a line a second."""
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                reading = parse(line.decode(errors="replace"))
                if reading is not None and opened.is_set():
                    self._readings.append(reading)

    def result(self) -> dict[str, float]:
        """Over all GPUs: power in watts and memory in bytes added up, utilization as a mean share, the lowest clock in
        hertz, the highest temperature in degrees Celsius. What no GPU told is not there."""
        readings = list(self._readings)
        found = {"gpu_count": float(len({reading[0] for reading in readings}))}
        if not readings:
            return {}
        power, busy, memory, clock, heat = (
            [value for reading in readings if (value := reading[i]) is not None] for i in range(1, 6)
        )
        if power:
            found["gpu_power"] = _mean(power) * found["gpu_count"]
        if busy:
            found["gpu_utilization"] = _mean(busy) / 100
        if memory:
            found["gpu_memory_used"] = _mean(memory) * found["gpu_count"] * 2**20
        if clock:
            found["gpu_sm_clock_min"] = min(clock) * 1e6
        if heat:
            found["gpu_temperature_max"] = max(heat)
        return found


def parse(line: str) -> Reading | None:
    """A line of nvidia-smi's CSV; None for anything else. What is not supported reads '[N/A]' or the like."""
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != len(_FIELDS) or not fields[0].isdigit():
        return None
    return tuple(_number(field) for field in fields)


def _number(text: str) -> float | None:
    try:
        return usable(float(text))
    except ValueError:
        return None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def is_here(url: str) -> bool:
    """The address is this machine's own."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
