"""Measured ceilings of a machine: memory bandwidth, matmul rate per number format, attention
decode, links.

What hardware does at its best on the three operations that an LLM server consists of: to compare
with the data sheet, and to use in its place as the config's `hardware:`. Runs on numpy; on torch
where that is installed, and then on its GPUs. A ceiling is the best of several runs: whatever
disturbs one only makes it slower.
"""

import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from frontier.core.errors import MeasurementError
from frontier.hardware.gpus import HARDWARE, Hardware

MESSAGES = tuple(2**power for power in range(15, 31))
"""Bytes of an all-reduce: 32 KB to 1 GB."""
LEAST_RUNS = 3
"""Runs of a measurement at the least."""
MOST_AT_ONCE = 100
"""Calls timed together at the most."""
_LEAST_TIMED = 0.01
"""Seconds between two looks at the clock."""
_HEADS, _GROUP, _HEAD_DIM = 8, 4, 128
"""Attention as in most models of today: eight KV heads, four queries each."""

Run = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Work:
    """An operation to time: `run` it, `wait` until it is done. `amount` is its bytes or its FLOPs.

    Its data are made before the timing starts; where memory is short for them, the machine's
    `no_room` is raised.
    """

    run: Run
    amount: float
    wait: Run = lambda: None


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What was measured: bytes/s, FLOP/s per number format, bytes of KV per second in attention
    decode, and between devices the bytes/s each moves one way, by message size. `sheet` is the data
    sheet of the same GPU, when known."""

    name: str
    backend: str
    devices: int
    memory: float
    bandwidth: float
    matmul: Mapping[str, float]
    attention: float
    all_reduce: Mapping[int, float] = field(default_factory=dict)
    send: float | None = None
    sheet: Hardware | None = None

    def hardware(self) -> dict[str, Any]:
        """The `hardware:` block of a config with what was measured; a known GPU keeps its name, and
        its sheet for the rest."""
        best = max(self.matmul.get("bf16", 0.0), self.matmul.get("fp32", 0.0))
        block: dict[str, Any] = {
            "name": self.sheet.name if self.sheet else self.name,
            "memory_bandwidth": f"{self.bandwidth / 1e9:.4g}GB/s",
            "memory": f"{self.memory / 1e9:.4g}GB",
            "tflops": _digits(best / 1e12),
        }
        if "fp8" in self.matmul:
            block["tflops_fp8"] = _digits(self.matmul["fp8"] / 1e12)
        if self.all_reduce:
            block["link"] = f"{max(self.all_reduce.values()) / 1e9:.4g}GB/s"
        return block


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def measure(
    machine: "NumpyMachine | TorchMachine", seconds: float = 0.3, clock: Callable[[], float] = time.perf_counter
) -> Ceilings:
    """Every ceiling of a machine, `seconds` for each. MeasurementError when its memory is taken."""

    def best(work: Work) -> float:
        return work.amount / least_time(work, seconds, clock)

    links = machine.links
    try:
        return Ceilings(
            name=machine.name,
            backend=machine.backend,
            devices=machine.devices,
            memory=machine.memory,
            bandwidth=best(machine.copy()),
            matmul={form: best(machine.matmul(form)) for form in machine.formats()},
            attention=best(machine.attention()),
            all_reduce={} if links is None else {size: best(links.all_reduce(size)) for size in MESSAGES},
            send=None if links is None else best(links.send(MESSAGES[-1])),
            sheet=data_sheet(machine.name),
        )
    except machine.no_room as error:
        what = f"there is no room for the data of a measurement on {machine.name}"
        raise MeasurementError(what, "stop what runs there, as the engine") from error


def least_time(work: Work, seconds: float, clock: Callable[[], float]) -> float:
    """The shortest time of one run, of as many timings as fit in `seconds`, three at least, after a
    run that is not counted.

    What is over in less than 10 ms is run several times between two looks at the clock: starting a
    kernel and waiting for it takes some 10 us, which is a tenth of what a GPU needs for one step of
    attention.
    """
    work.run()
    work.wait()
    begin = clock()
    shortest, timings, runs = float("inf"), 0, 1
    while timings < LEAST_RUNS or clock() - begin < seconds:
        start = clock()
        for _ in range(runs):
            work.run()
        work.wait()
        elapsed = (clock() - start) / runs
        shortest = min(shortest, elapsed)
        timings += 1
        runs = max(1, min(MOST_AT_ONCE, round(_LEAST_TIMED / max(elapsed, 1e-9))))
    return max(shortest, 1e-9)


def data_sheet(name: str) -> Hardware | None:
    """The data sheet of the GPU whose name a device's own name holds: 'NVIDIA H100 80GB HBM3' is
    the h100.
    """
    parts = set(re.split(r"[ _/-]+", name.lower()))
    names = [key for key in HARDWARE if set(key.split("-")) <= parts]
    return HARDWARE[max(names, key=len)] if names else None


def attention_bytes(batch: int, context: int, size: int) -> float:
    """Keys and values read by one decode step of attention in one layer."""
    return 2.0 * batch * context * _HEADS * _HEAD_DIM * size


class NumpyMachine:
    """This computer's processor through numpy, in single precision."""

    backend = "numpy"
    devices = 1
    links = None
    no_room: type[Exception] = MemoryError

    def __init__(self, scale: float = 1.0) -> None:
        """`scale` shrinks the data, for tests: a rate is only a ceiling when the data does not fit
        in the cache.
        """
        self.name = platform.processor() or platform.machine()
        self.memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        self._scale = scale

    def formats(self) -> Sequence[str]:
        """Number formats it multiplies."""
        return ("fp32",)

    def copy(self) -> Work:
        source = np.ones(max(1, int(2**25 * self._scale)), dtype=np.float32)
        target = np.empty_like(source)
        return Work(lambda: np.copyto(target, source), 2.0 * source.nbytes)

    def matmul(self, form: str) -> Work:
        assert form == "fp32"
        n = max(8, int(1024 * self._scale))
        a, b = (np.full((n, n), 0.5, dtype=np.float32) for _ in range(2))
        out = np.empty_like(a)
        return Work(lambda: np.matmul(a, b, out=out), 2.0 * n**3)

    def attention(self) -> Work:
        batch, context = 4, max(8, int(2048 * self._scale))
        query = np.full((batch, _HEADS, _GROUP, _HEAD_DIM), 0.01, dtype=np.float32)
        keys = np.full((batch, _HEADS, _HEAD_DIM, context), 0.01, dtype=np.float32)
        values = np.full((batch, _HEADS, context, _HEAD_DIM), 0.01, dtype=np.float32)

        def step() -> Any:
            scores = query @ keys
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            return (scores / scores.sum(axis=-1, keepdims=True)) @ values

        return Work(step, attention_bytes(batch, context, 4))


class TorchMachine:
    """Torch's GPUs, or the processor through torch where it has none."""

    def __init__(self, torch: Any, device: str = "cuda", scale: float = 1.0) -> None:
        self._torch, self._scale = torch, scale
        self._gpu = device == "cuda"
        self.backend = f"torch {torch.__version__}"
        self.no_room: type[Exception] = torch.cuda.OutOfMemoryError if self._gpu else RuntimeError
        self.devices = torch.cuda.device_count() if self._gpu else 1
        self._device = "cuda:0" if self._gpu else "cpu"
        self.links = _TorchLinks(torch, self.devices, self._wait) if self.devices > 1 else None
        if self._gpu:
            about = torch.cuda.get_device_properties(0)
            self.name, self.memory = str(about.name), float(about.total_memory)
        else:
            plain = NumpyMachine()
            self.name, self.memory = plain.name, plain.memory

    def _wait(self) -> None:
        if self._gpu:
            for device in range(self.devices):
                self._torch.cuda.synchronize(device)

    def _work(self, run: Run, amount: float) -> Work:
        return Work(run, amount, self._wait)

    def _number(self, gpu: int, cpu: int) -> int:
        return max(16, int((gpu if self._gpu else cpu) * self._scale) // 16 * 16)

    def formats(self) -> Sequence[str]:
        if not self._gpu:
            return ("fp32", "bf16")
        # AMD's FP8 is another format on some GPUs: there it is not measured rather than wrongly.
        nvidia = self._torch.version.hip is None and self._torch.cuda.get_device_capability(0) >= (8, 9)
        eight = nvidia and hasattr(self._torch, "_scaled_mm")
        return ("fp32", "bf16", "fp8") if eight else ("fp32", "bf16")

    def copy(self) -> Work:
        source = self._torch.ones(self._number(2**31, 2**26), dtype=self._torch.bfloat16, device=self._device)
        target = self._torch.empty_like(source)
        return self._work(lambda: target.copy_(source), 2.0 * source.numel() * 2)

    def matmul(self, form: str) -> Work:
        torch, n = self._torch, self._number(8192, 1024)
        kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp8": torch.bfloat16}[form]
        a, b = (torch.randn((n, n), device=self._device, dtype=kind) for _ in range(2))
        if form != "fp8":
            out = torch.empty_like(a)
            return self._work(lambda: torch.matmul(a, b, out=out), 2.0 * n**3)
        a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=self._device)
        return self._work(
            lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True),
            2.0 * n**3,
        )

    def attention(self) -> Work:
        torch, batch, context = self._torch, 64 if self._gpu else 4, self._number(4096, 2048)
        query, keys, values = (
            torch.randn((batch, _HEADS, length, _HEAD_DIM), device=self._device, dtype=torch.bfloat16)
            for length in (_GROUP, context, context)
        )
        attend = torch.nn.functional.scaled_dot_product_attention
        return self._work(lambda: attend(query, keys, values), attention_bytes(batch, context, 2))


class _TorchLinks:
    """Between the GPUs of one process, by NCCL and by a copy from one to the next."""

    def __init__(self, torch: Any, devices: int, wait: Run) -> None:
        self._torch, self._devices, self._wait = torch, devices, wait

    def all_reduce(self, size: int) -> Work:
        """The bytes each GPU must send: 2 (n - 1) / n of the message, as a ring does."""
        torch = self._torch
        parts = [torch.ones(size // 2, dtype=torch.bfloat16, device=f"cuda:{i}") for i in range(self._devices)]
        moved = 2.0 * (self._devices - 1) / self._devices * size
        return Work(lambda: torch.cuda.nccl.all_reduce(parts), moved, self._wait)

    def send(self, size: int) -> Work:
        torch = self._torch
        source = torch.ones(size // 2, dtype=torch.bfloat16, device="cuda:0")
        target = torch.empty_like(source, device="cuda:1")
        return Work(lambda: target.copy_(source), float(size), self._wait)
