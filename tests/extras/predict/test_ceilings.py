import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from frontier.config import load_config
from frontier.core.model.errors import MeasurementError
from frontier.core.model.units import format_seconds
from frontier.extras.predict.ceilings import (
    LEAST_RUNS,
    MOST_AT_ONCE,
    ROUNDS,
    Ceiling,
    Ceilings,
    NumpyMachine,
    TorchMachine,
    Work,
    attention_bytes,
    data_sheet,
    least_time,
    measure,
    prefill_flops,
)
from frontier.extras.predict.ceilings_tables import ceilings_json, ceilings_table, ceilings_yaml
from frontier.extras.predict.link_ceilings import bus_factor
from frontier.hardware.gpus import HARDWARE
from frontier.hardware.roofline import ModelRoofline
from tests.kit.golden import assert_golden_row


class Clock:
    """Time that passes only when something says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def takes(self, *seconds: float) -> Work:
        durations = itertools.chain(seconds, itertools.repeat(seconds[-1]))

        def run() -> None:
            self.now += next(durations)

        return Work(run, 1.0)


class Known:
    """A GPU at known speeds: 4 TB/s, 700 TFLOP/s in bf16."""

    name, backend, devices, memory, device = "NVIDIA H200", "fake", 1, 150e9, "cuda:0"
    side, decodes, prefills = 8192, ((64, 4096), (1, 4096)), ((1, 2048),)
    no_room = MemoryError

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def _at(self, amount: float, seconds: float) -> Work:
        return Work(self.clock.takes(seconds).run, amount)

    def formats(self):
        return ("fp32", "bf16", "fp8")

    def copy(self):
        return self._at(4e9, 1e-3)

    def matmul(self, form, rows):
        amount = {"fp32": 5e10, "bf16": 7e11, "fp8": 1.3e12}[form] if rows == self.side else 3.5e9
        return self._at(amount, 1e-3)

    def decode(self, batch, context):
        return self._at(3e9 if batch == 64 else 2e9, 1e-3)

    def prefill(self, batch, length):
        return self._at(4e11, 1e-3)


RANKS = 8
"""Ranks of the links that are made up: all-reduces with a latency of 20 us at 400 GB/s of bus."""


def links() -> list[Ceiling]:
    lines = [Ceiling("all_reduce_latency", "all-reduce, latency", "1/s", "", (5e4,) * ROUNDS, 20e-6)]
    for size in (2**15, 2**30):
        seconds = 20e-6 + bus_factor("all_reduce", RANKS) * size / 400e9
        bus = bus_factor("all_reduce", RANKS) * size / seconds
        rounds = (bus, *(bus * 0.9,) * (ROUNDS - 1))
        lines.append(Ceiling(f"all_reduce_{size}", "all-reduce", "B/s", "link", rounds, seconds, size / seconds))
    return lines


def both() -> Ceilings:
    clock = Clock()
    return measure(Known(clock), 0.01, clock, links(), ("a",) * 4 + ("b",) * 4)


def test_the_best_run_counts_and_the_first_does_not() -> None:
    clock = Clock()
    assert least_time(clock.takes(0.1, 3.0, 2.0, 5.0), 0.01, clock) == pytest.approx(2.0)
    assert clock.now == pytest.approx(0.1 + 3.0 + 2.0 + 5.0)
    clock = Clock()
    least_time(clock.takes(0.1), 1.0, clock)
    assert clock.now > 1.0, "short work is repeated for as long as asked"
    assert LEAST_RUNS == 3


def test_short_work_is_started_many_times_before_it_is_waited_for() -> None:
    clock = Clock()
    kernel = clock.takes(1e-4)
    waits = []

    def wait() -> None:  # as a GPU: 20 us for noticing, however much was started
        waits.append(clock.now)
        clock.now += 20e-6

    found = least_time(Work(kernel.run, 1.0, wait), 0.1, clock)
    assert found == pytest.approx(1e-4, rel=0.003), "the waiting is shared by a hundred runs"
    assert np.diff(waits)[-1] == pytest.approx(MOST_AT_ONCE * 1e-4 + 20e-6, rel=0.2)


def test_known_speeds_are_measured_as_they_are() -> None:
    found = both()
    known = {"memory_bandwidth": 4e12, "attention": 3e12, "attention_1x4096": 2e12, "prefill_1x2048": 4e14}
    known |= {"matmul_fp32": 5e13, "matmul_bf16": 7e14, "matmul_fp8": 1.3e15, "matmul_bf16_64": 3.5e12}
    assert known == pytest.approx({key: found.value(key) for key in known})
    assert all(len(line.rounds) == ROUNDS for line in found.lines)
    assert found.sheet is HARDWARE["h200"]


def test_the_best_of_all_rounds_counts_and_rounds_of_all_come_before_any_again() -> None:
    clock = Clock()
    machine, order = Known(clock), []
    machine.copy = lambda: order.append("copy") or machine._at(4e9, 1e-3 if len(order) > 10 else 2e-3)
    machine.decode = lambda *_: order.append("decode") or machine._at(3e9, 1e-3)
    told: list[str] = []
    found = measure(machine, 0.01, clock, done=told.append)
    assert [line.what for line in found.lines] * ROUNDS == told, "each, in each round"
    (line,) = (line for line in found.lines if line.key == "memory_bandwidth")
    assert order[:3] == ["copy", "decode", "decode"]
    assert (min(line.rounds), max(line.rounds)) == pytest.approx((2e12, 4e12)) == (min(line.rounds), line.value)


@pytest.mark.parametrize(
    ("operation", "ranks", "factor"),
    [("all_reduce", 2, 1.0), ("all_reduce", 8, 1.75), ("all_to_all", 8, 0.875), ("send", 8, 1.0)],
)
def test_the_bus_carries_what_nccl_tests_says(operation: str, ranks: int, factor: float) -> None:
    assert bus_factor(operation, ranks) == factor


@pytest.mark.parametrize(
    ("name", "sheet"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA GB200", "gb200"),
        ("AMD Instinct MI300X", "mi300x"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("AMD Instinct MI250X / MI250", "mi250x"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 3060", None),
        ("x86_64", None),
    ],
)
def test_a_device_is_found_in_the_data_sheets_by_its_own_name(name, sheet) -> None:
    assert data_sheet(name) is (None if sheet is None else HARDWARE[sheet])


def test_the_file_stands_in_a_config_and_the_roofline_uses_it() -> None:
    text = "endpoint: http://h:8000\nmodel: llama-3.1-8b\nshapes: [1024/256]\n" + ceilings_yaml(both())
    roofline = load_config(text, "s.yaml").deployments[0].roofline()
    assert isinstance(roofline, ModelRoofline)
    gpu = roofline.gpu
    assert (4e12, 150e9, 700e12, 1300e12) == pytest.approx((gpu.bandwidth, gpu.capacity, gpu.bf16, gpu.fp8))
    assert gpu.link == pytest.approx(400e9, rel=0.02)
    assert (
        roofline.decode(64, 1024).seconds > ModelRoofline.of(roofline.model, HARDWARE["h200"]).decode(64, 1024).seconds
    )


def test_the_table_and_json_set_the_measured_beside_the_data_sheet() -> None:
    shown = ceilings_table(both()).splitlines()
    assert_golden_row("pages", ceilings_table(both()))
    rows = [" ".join(line.split()) for line in shown]
    assert "memory, copying 4.00 TB/s 4.00 TB/s 4.80 TB/s 83.3%" in rows
    assert "matmul 8192³, bf16 700 TFLOP/s 700 TFLOP/s 989 TFLOP/s 70.8%" in rows
    assert "matmul 8192³, fp32 50.0 TFLOP/s 50.0 TFLOP/s – –" in rows
    assert "links between 8 ranks on 2 hosts" in rows
    (latency,) = (row for row in rows if row.startswith("all-reduce, latency"))
    assert "20.0 µs" in latency
    seconds = 20e-6 + 1.75 * 2**30 / 400e9
    (large,) = (row for row in rows if row.startswith("all-reduce") and format_seconds(seconds) in row)
    assert f"{2**30 / seconds / 1e9:.0f} GB/s {1.75 * 2**30 / seconds / 1e9:.0f} GB/s" in large
    tree = ceilings_json(both())
    assert ("frontier.ceilings/1", 1, ROUNDS) == (tree["schema"], tree["devices"], len(tree["ceilings"][0]["rounds"]))
    (copy,) = (line for line in tree["ceilings"] if line["name"] == "memory_bandwidth")
    assert (4e12, 4.8e12) == (pytest.approx(copy["measured"]), copy["data_sheet"])


def test_the_processor_is_measured_with_numpy() -> None:
    found = measure(NumpyMachine(scale=0.05), 0.01)
    assert 1e8 < found.value("memory_bandwidth") < 1e13
    assert 1e8 < found.value("matmul_fp32") < 1e14
    assert 1e7 < found.value("attention") < 1e13
    assert 1e7 < found.value("prefill_1x25") < 1e14
    assert found.devices == 1
    assert found.hardware()["name"] == found.name


def test_attention_decode_reads_keys_and_values_once() -> None:
    machine = NumpyMachine(scale=0.05)
    work = machine.decode(4, 102)
    assert work.amount == attention_bytes(4, 102, 4) == 2 * 4 * 102 * 8 * 128 * 4
    assert machine.prefill(2, 16).amount == prefill_flops(2, 16) == 2 * 2 * 32 * 128 * 16**2
    assert machine.matmul("fp32", 51).amount == 2 * 51**3
    assert machine.matmul("fp32", 1).amount == 51**2 * 4, "what a step reads of its weights"
    answer = work.run()
    assert answer.shape == (4, 8, 4, 128)
    assert answer == pytest.approx(0.01), "equal scores average equal values"


def test_the_processor_is_measured_with_torch_where_it_is_installed() -> None:
    torch = pytest.importorskip("torch")
    found = measure(TorchMachine(torch, "cpu", scale=0.05), 0.01)
    assert found.value("matmul_bf16")
    assert found.value("matmul_fp16") is None
    assert found.value("memory_bandwidth") > 1e8
    assert found.value("attention") > 1e7


def test_memory_that_is_taken_is_said_with_the_way_out() -> None:
    class Full(Known):
        def prefill(self, batch, length):
            raise MemoryError

    clock = Clock()
    with pytest.raises(MeasurementError, match="NVIDIA H200") as refused:
        measure(Full(clock), 0.01, clock)
    assert refused.value.hint
    assert_golden_row("messages", str(refused.value))


class FakeCuda:
    """What torch says of one or two H100s, with the data on the processor: the code for GPUs, run
    without one.
    """

    def __init__(self, torch, devices: int, hip: str | None = None) -> None:
        self._torch, self.devices = torch, devices
        self.version = SimpleNamespace(hip=hip)
        self.waits = 0
        self.cuda = SimpleNamespace(
            device_count=lambda: devices,
            synchronize=self._wait,
            get_device_capability=lambda _: (9, 0),
            get_device_properties=lambda _: SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=80 * 2**30),
            OutOfMemoryError=torch.cuda.OutOfMemoryError,
        )

    def __getattr__(self, name):
        found = getattr(self._torch, name)
        if name not in ("ones", "randn", "empty_like"):
            return found
        return lambda *a, device=None, **more: found(*a, **more)

    def _wait(self, _: int) -> None:
        self.waits += 1


def test_the_code_for_gpus_runs_on_torch_as_it_is() -> None:
    fake = FakeCuda(pytest.importorskip("torch"), 2)
    found = measure(TorchMachine(fake, "cuda", scale=0.004, local=1), 0.01)
    assert ("h100", 2) == (found.sheet.name, found.devices)
    assert all(found.value(f"matmul_{form}") for form in ("fp32", "bf16", "fp16", "fp8"))
    assert fake.waits > 6 * LEAST_RUNS
    assert ("fp32", "bf16", "fp16") == TorchMachine(FakeCuda(fake._torch, 1, hip="6.2"), "cuda").formats()
