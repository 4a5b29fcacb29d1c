"""GPUs of this machine, read beside a trial: by nvidia-smi, and by NVML for why clocks are held
down.
"""

import asyncio
import importlib
import ipaddress
import shutil
import subprocess
import threading
import time
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from frontier.client.ask.facts import Readings
from frontier.client.ask.target import Target
from frontier.client.engines.base import Key
from frontier.core.model.units import usable

_FIELDS = ("index", "power.draw", "utilization.gpu", "memory.used", "clocks.sm", "temperature.gpu")
_ARGUMENTS = (f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits", "--loop=1")

_EVERY = 1.0

GpuSample = tuple[float | None, ...]
"""One GPU at one moment, as _FIELDS; None where nvidia-smi has no value."""


class Gpus:
    """Reads the GPUs once a second while a trial runs. `readings` has the values read in its
    window.
    """

    def __init__(self, target: Target) -> None:
        self._tool = shutil.which("nvidia-smi") if is_here(target.base_url) else None
        self.readings = Readings("nvidia-smi")

    async def watch(self, opened: asyncio.Event, closed: asyncio.Event) -> None:
        """One process for the whole trial, begun before the window, so that starting it disturbs
        nothing.
        """
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
        """Read in a thread of its own: a line a second for each GPU; the lines of all GPUs are one
        moment.
        """
        assert process.stdout is not None
        moment: dict[Key, float] = {}
        with process.stdout as lines:
            for line in lines:
                sample = parse_gpu_line(line.decode(errors="replace"))
                if sample is None or not opened.is_set():
                    continue
                index = (("index", f"{sample[0]:.0f}"),)
                if ("index", index) in moment:
                    self.readings.add(moment, time.perf_counter())
                    moment = {}
                values = zip(_FIELDS, sample, strict=True)
                moment |= {(name, index): value for name, value in values if value is not None}
        if moment and not self.readings:  # a later one may lack GPUs: it was cut off
            self.readings.add(moment, time.perf_counter())


def parse_gpu_line(line: str) -> GpuSample | None:
    """A line of nvidia-smi's CSV; None for any other text. A value that is not supported reads
    '[N/A]' or similar.
    """
    fields = [field.strip() for field in line.split(",")]
    if len(fields) != len(_FIELDS) or not fields[0].isdigit():
        return None
    return tuple(_number(field) for field in fields)


def _number(text: str) -> float | None:
    try:
        return usable(float(text))
    except ValueError:
        return None


def is_here(url: str) -> bool:
    """Whether an address is this machine's own."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class GpuClocks:
    """Why the clocks of this machine's NVIDIA GPUs are held down, by NVML, which is only read.
    Empty without the package nvidia-ml-py or without a driver.
    """

    def __init__(self, target: Target) -> None:
        self.readings = Readings("nvml")
        self._nvml: Any = None
        self._devices: list[Any] = []
        with suppress(ImportError):
            self._nvml = nvml = importlib.import_module("pynvml")
            with suppress(nvml.NVMLError):
                if is_here(target.base_url):
                    nvml.nvmlInit()
                    self._devices = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]

    def read(self) -> dict[Key, float]:
        """The values of all devices now, without those that a device does not report."""
        samples: dict[Key, float] = {}
        for index, device in enumerate(self._devices):
            with suppress(self._nvml.NVMLError):
                reasons = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
                samples["clocks_reasons", (("index", str(index)),)] = float(reasons)
        return samples

    async def watch(self, opened: asyncio.Event, closed: asyncio.Event) -> None:
        """Read them as the window opens, as it closes, and about once a second between."""
        await opened.wait()
        await asyncio.to_thread(self._keep)
        while self.readings and not closed.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(closed.wait(), _EVERY)
            await asyncio.to_thread(self._keep, last=closed.is_set())

    def _keep(self, *, last: bool = False) -> None:
        """Read in a thread: a driver may take milliseconds to answer."""
        if samples := self.read():
            self.readings.add(samples, time.perf_counter(), last=last)


def sources(target: Target) -> "tuple[Gpus, GpuClocks]":
    """The readers of the GPUs of a target's machine, where that is this machine."""
    return Gpus(target), GpuClocks(target)
