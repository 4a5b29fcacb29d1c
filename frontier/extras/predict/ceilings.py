"""Measured ceilings of a machine: memory bandwidth, matmul rates, and attention in prefill and in
decode.

They are what hardware does at its best on the operations of an LLM server. They are compared with
the data sheet and with other hosts, and can replace the data sheet as the config's `hardware:`.

Runs on numpy; on torch where that is installed, and then on its GPUs. Measurements come in rounds:
each is made once before any is repeated, so that a lasting disturbance does not hit one of them
alone. The ceiling is the best run of all rounds, as any disturbance only makes a run slower.
"""

import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from frontier.core.model.errors import MeasurementError
from frontier.hardware.gpus import HARDWARE, Hardware

ROUNDS = 6
"""Rounds of each measurement. The lowest and the highest of six are a 97% confidence interval of
the typical round (1 - 2 / 2^6), whatever its distribution."""
LEAST_RUNS = 3
"""Fewest runs of a measurement in a round."""
MOST_AT_ONCE = 100
"""Most calls that are timed together."""
_LEAST_TIMED = 0.01
"""Fewest seconds of one timing."""
_HEADS, _GROUP, _HEAD_DIM = 8, 4, 128
"""The attention of most current models: eight KV heads with four queries each."""
ROWS = (1, 64)
"""Rows of the flat matmuls beside the square one: a decode step of one request and of a batch.
Their rate counts the weights that they read, as memory binds there."""

Kernel = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Work:
    """An operation to time: `run` it, then `wait` until it is done. `amount` is its bytes or its
    FLOPs. Its data are made before the timing starts; the machine's `no_room` is raised where
    memory is too small for them.
    """

    run: Kernel
    amount: float
    wait: Kernel = lambda: None


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One measured ceiling: its key in JSON, its words, its unit, and its rate in each round.

    `sheet` is the data sheet's figure beside it (a field of `Hardware`, '' for none). For links,
    `seconds` are those of one operation at best, and `algorithm` is its bytes over them, where the
    rate is the bus bandwidth.
    """

    key: str
    what: str
    unit: str
    sheet: str = ""
    rounds: tuple[float, ...] = ()
    seconds: float | None = None
    algorithm: float | None = None

    @property
    def value(self) -> float:
        """The ceiling: the best of all rounds."""
        return max(self.rounds)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The ceilings of a machine. `sheet` is the data sheet of the same device, when known; `hosts`
    are the hosts whose links were measured.
    """

    name: str
    backend: str
    devices: int
    memory: float
    lines: tuple[Ceiling, ...]
    sheet: Hardware | None = None
    host: str = ""
    hosts: tuple[str, ...] = ()

    def value(self, key: str) -> float | None:
        """The ceiling of that key; None where it was not measured."""
        return next((line.value for line in self.lines if line.key == key), None)

    def hardware(self) -> dict[str, Any]:
        """The `hardware:` block of a config with the measured figures. A known GPU keeps its name,
        and its data sheet for the rest.
        """
        wide = [rate for form in ("bf16", "fp16", "fp32") if (rate := self.value(f"matmul_{form}"))]
        bandwidth, eight = self.value("memory_bandwidth"), self.value("matmul_fp8")
        links = [line.value for line in self.lines if line.key.startswith("all_reduce_")]
        block = {
            "name": self.sheet.name if self.sheet else self.name,
            "memory_bandwidth": f"{(bandwidth or 0.0) / 1e9:.4g}GB/s",
            "memory": f"{self.memory / 1e9:.4g}GB",
            "tflops": _digits(max(wide) / 1e12),
            "tflops_fp8": _digits(eight / 1e12) if eight else None,
            "link": f"{max(links) / 1e9:.4g}GB/s" if links else None,
        }
        return {key: value for key, value in block.items() if value is not None}


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def measure(
    machine: "NumpyMachine | TorchMachine",
    seconds: float = 0.5,
    clock: Callable[[], float] = time.perf_counter,
    links: Iterable[Ceiling] = (),
    hosts: tuple[str, ...] = (),
    done: Callable[[str], None] = lambda _: None,
) -> Ceilings:
    """Every ceiling of a machine, `seconds` for each, and those of its links. `done` is told each
    one in each of the ROUNDS. MeasurementError when its memory is taken.
    """
    lines = tuple(lines_of(machine))
    rounds: list[list[float]] = [[] for _ in lines]
    try:
        for _ in range(ROUNDS):
            for (line, make), rates in zip(lines, rounds, strict=True):
                work = make()
                rates.append(work.amount / least_time(work, seconds / ROUNDS, clock))
                done(line.what)
    except machine.no_room as error:
        what = f"there is no room for the data of a measurement on {machine.name}"
        raise MeasurementError(what, "stop what runs there, as the engine") from error
    measured = (replace(line, rounds=tuple(rates)) for (line, _), rates in zip(lines, rounds, strict=True))
    return Ceilings(
        name=machine.name,
        backend=machine.backend,
        devices=machine.devices,
        memory=machine.memory,
        lines=(*measured, *links),
        sheet=data_sheet(machine.name),
        host=platform.node(),
        hosts=hosts,
    )


def lines_of(machine: "NumpyMachine | TorchMachine") -> Iterator[tuple[Ceiling, Callable[[], Work]]]:
    """The ceilings that one machine has by itself, each with the function that makes its work."""
    yield Ceiling("memory_bandwidth", "memory, copying", "B/s", "bandwidth"), machine.copy
    for form in machine.formats():
        peak, n = _SHEETS.get(form, ""), machine.side
        yield Ceiling(f"matmul_{form}", f"matmul {n}³, {form}", "FLOP/s", peak), partial(machine.matmul, form, n)
        for rows in ROWS:
            key, what = f"matmul_{form}_{rows}", f"matmul {rows} x {n}², {form}, weights read"
            yield Ceiling(key, what, "B/s", "bandwidth"), partial(machine.matmul, form, rows)
    (batch, context), *_ = machine.decodes
    for b, c in machine.decodes:
        key = "attention" if (b, c) == (batch, context) else f"attention_{b}x{c}"
        what = f"attention decode {b} x {c:,}, KV read"
        yield Ceiling(key, what, "B/s", "bandwidth"), partial(machine.decode, b, c)
    for b, c in machine.prefills:
        what = f"attention prefill {b} x {c:,}"
        yield Ceiling(f"prefill_{b}x{c}", what, "FLOP/s", "bf16"), partial(machine.prefill, b, c)


_SHEETS: Mapping[str, str] = {"bf16": "bf16", "fp16": "bf16", "fp8": "fp8"}
"""The data sheet's figure beside a number format."""


def least_time(work: Work, seconds: float, clock: Callable[[], float]) -> float:
    """The shortest time of one run in seconds. There are as many timings as fit in `seconds`, at
    least three, after a run that is not counted.

    Work of less than 10 ms is run several times in one timing. Starting a kernel and waiting for it
    takes some 10 us, a tenth of what a GPU needs for one step of attention.
    """
    work.run()
    work.wait()
    begin = clock()
    shortest, timings, runs = float("inf"), 0, 1
    while timings < LEAST_RUNS or clock() - begin < seconds:
        start = clock()
        for _ in repeat(None, runs):
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


def processor_name() -> str:
    """What this computer's processor is called."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else platform.machine()


def attention_bytes(batch: int, context: int, size: int) -> float:
    """Keys and values read by one decode step of attention in one layer."""
    return 2.0 * batch * context * _HEADS * _HEAD_DIM * size


def prefill_flops(batch: int, length: int) -> float:
    """FLOPs of causal attention over prompts of this length in one layer."""
    return 2.0 * batch * _HEADS * _GROUP * _HEAD_DIM * float(length) ** 2


def matmul_amount(rows: int, side: int, size: int) -> float:
    """FLOPs of a square product; of one with fewer rows the bytes of its weights."""
    return 2.0 * side**3 if rows == side else float(size) * side**2


class NumpyMachine:
    """This computer's processor through numpy, in single precision."""

    backend = "numpy"
    device = "cpu"
    devices = 1
    no_room: type[Exception] = MemoryError

    def __init__(self, scale: float = 1.0) -> None:
        """Make the machine. `scale` shrinks the data, for tests: a rate is only a ceiling when the
        data does not fit in the cache.
        """
        self.name = processor_name()
        self.memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        self.side = max(8, int(1024 * scale))
        self._scale = scale
        long = max(8, int(2048 * scale))
        self.decodes = ((4, long), (1, long))
        self.prefills: tuple[tuple[int, int], ...] = ((1, long // 4),)

    def formats(self) -> Sequence[str]:
        """Number formats it multiplies."""
        return ("fp32",)

    def copy(self) -> Work:
        source = np.ones(max(1, int(2**25 * self._scale)), dtype=np.float32)
        target = np.empty_like(source)
        return Work(lambda: np.copyto(target, source), 2.0 * source.nbytes)

    def matmul(self, form: str, rows: int) -> Work:
        assert form == "fp32"
        n = self.side
        a, b = (np.full((m, n), 0.5, dtype=np.float32) for m in (rows, n))
        out = np.empty_like(a)
        return Work(lambda: np.matmul(a, b, out=out), matmul_amount(rows, n, 4))

    def decode(self, batch: int, context: int) -> Work:
        return self._attention(batch, _GROUP, context, attention_bytes(batch, context, 4))

    def prefill(self, batch: int, length: int) -> Work:
        """Prefill attention. Numpy has no causal kernel: it computes the whole square, half of
        which counts.
        """
        return self._attention(batch, _GROUP * length, length, prefill_flops(batch, length))

    def _attention(self, batch: int, queries: int, context: int, amount: float) -> Work:
        query = np.full((batch, _HEADS, queries, _HEAD_DIM), 0.01, dtype=np.float32)
        keys = np.full((batch, _HEADS, _HEAD_DIM, context), 0.01, dtype=np.float32)
        values = np.full((batch, _HEADS, context, _HEAD_DIM), 0.01, dtype=np.float32)

        def step() -> Any:
            scores = query @ keys
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            return (scores / scores.sum(axis=-1, keepdims=True)) @ values

        return Work(step, amount)


class TorchMachine:
    """One of torch's GPUs, or the processor through torch where it has none."""

    def __init__(self, torch: Any, device: str = "cuda", scale: float = 1.0, local: int = 0) -> None:
        self._torch, self._scale = torch, scale
        self.on_gpu = device == "cuda"
        self.backend = f"torch {torch.__version__}"
        self.no_room: type[Exception] = torch.cuda.OutOfMemoryError if self.on_gpu else RuntimeError
        self.devices = torch.cuda.device_count() if self.on_gpu else 1
        self.device = f"cuda:{local}" if self.on_gpu else "cpu"
        if self.on_gpu:
            about = torch.cuda.get_device_properties(local)
            self.name, self.memory = str(about.name), float(about.total_memory)
        else:
            plain = NumpyMachine()
            self.name, self.memory = plain.name, plain.memory
        self.side = self._number(8192, 1024)
        long = self._number(4096, 1024)
        many = 64 if self.on_gpu else 4
        self.decodes = ((many, long), (1, long), (max(1, many // 4), 4 * long))
        self.prefills = ((1, long // 2), (1, 2 * long), (4, long // 2))

    def _wait(self) -> None:
        if self.on_gpu:
            self._torch.cuda.synchronize(self.device)

    def _work(self, run: Kernel, amount: float) -> Work:
        return Work(run, amount, self._wait)

    def _number(self, gpu: int, cpu: int) -> int:
        return max(16, int((gpu if self.on_gpu else cpu) * self._scale) // 16 * 16)

    def formats(self) -> Sequence[str]:
        if not self.on_gpu:
            return ("fp32", "bf16")
        # AMD's FP8 is another format on some GPUs: there it is not measured rather than wrongly.
        nvidia = self._torch.version.hip is None and self._torch.cuda.get_device_capability(0) >= (8, 9)
        eight = nvidia and hasattr(self._torch, "_scaled_mm")
        return ("fp32", "bf16", "fp16", *(("fp8",) if eight else ()))

    def copy(self) -> Work:
        source = self._torch.ones(self._number(2**31, 2**26), dtype=self._torch.bfloat16, device=self.device)
        target = self._torch.empty_like(source)
        return self._work(lambda: target.copy_(source), 2.0 * source.numel() * 2)

    def matmul(self, form: str, rows: int) -> Work:
        torch, n = self._torch, self.side
        kind = {"fp32": torch.float32, "fp16": torch.float16}.get(form, torch.bfloat16)
        amount = matmul_amount(rows, n, {"fp32": 4, "fp8": 1}.get(form, 2))
        # A scaled product in FP8 takes rows by sixteens.
        a, b = (torch.randn((m, n), device=self.device, dtype=kind) for m in (-(-rows // 16) * 16, n))
        if form != "fp8":
            a = a[:rows]
            out = torch.empty_like(a)
            return self._work(lambda: torch.matmul(a, b, out=out), amount)
        a, b = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=self.device)
        return self._work(
            lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True),
            amount,
        )

    def decode(self, batch: int, context: int) -> Work:
        return self._attention(batch, _HEADS, _GROUP, context, attention_bytes(batch, context, 2))

    def prefill(self, batch: int, length: int) -> Work:
        return self._attention(batch, _HEADS * _GROUP, length, length, prefill_flops(batch, length))

    def _attention(self, batch: int, heads: int, queries: int, context: int, amount: float) -> Work:
        torch = self._torch
        query, keys, values = (
            torch.randn((batch, heads, length, _HEAD_DIM), device=self.device, dtype=torch.bfloat16)
            for length in (queries, context, context)
        )
        attend, causal = torch.nn.functional.scaled_dot_product_attention, queries == context
        return self._work(lambda: attend(query, keys, values, is_causal=causal), amount)
