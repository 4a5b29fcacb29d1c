import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from frontier.config import load_config
from frontier.core.errors import MeasurementError
from frontier.extras.predict import ceilings
from frontier.extras.predict.ceilings import (
    LEAST_RUNS,
    MESSAGES,
    MOST_AT_ONCE,
    Ceilings,
    NumpyMachine,
    TorchMachine,
    Work,
    attention_bytes,
    data_sheet,
    least_time,
    measure,
)
from frontier.extras.predict.prediction_tables import ceilings_json, ceilings_table, ceilings_yaml
from frontier.hardware.gpus import HARDWARE
from frontier.hardware.roofline import ModelRoofline
from tests.golden import assert_golden_row


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


class Pair:
    """Two GPUs at known speeds: 4 TB/s, 700 TFLOP/s in bf16, all-reduces with a latency of 20 us at
    400 GB/s.
    """

    name, backend, devices, memory = "NVIDIA H200", "fake", 2, 150e9
    no_room = MemoryError

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def _at(self, amount: float, seconds: float) -> Work:
        return Work(self.clock.takes(seconds).run, amount)

    def formats(self):
        return ("fp32", "bf16", "fp8")

    def copy(self):
        return self._at(4e9, 1e-3)

    def matmul(self, form):
        return self._at({"fp32": 5e10, "bf16": 7e11, "fp8": 1.3e12}[form], 1e-3)

    def attention(self):
        return self._at(3e9, 1e-3)

    @property
    def links(self):
        return self

    def all_reduce(self, size):
        return self._at(size, 20e-6 + size / 400e9)

    def send(self, size):
        return self._at(size, size / 350e9)


def both() -> Ceilings:
    clock = Clock()
    return measure(Pair(clock), 0.01, clock)


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
    assert (4e12, 3e12) == pytest.approx((found.bandwidth, found.attention))
    assert {"fp32": 5e13, "bf16": 7e14, "fp8": 1.3e15} == pytest.approx(found.matmul)
    assert MESSAGES == tuple(found.all_reduce)
    assert (32_768, 2**30) == (MESSAGES[0], MESSAGES[-1])
    assert found.all_reduce[MESSAGES[0]] < 0.01 * found.all_reduce[MESSAGES[-1]], "small messages are all latency"
    assert found.send == pytest.approx(350e9)
    assert found.sheet is HARDWARE["h200"]


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
    assert gpu.link == pytest.approx(max(both().all_reduce.values()), rel=1e-3)
    assert (
        roofline.decode(64, 1024).seconds > ModelRoofline.of(roofline.model, HARDWARE["h200"]).decode(64, 1024).seconds
    )


def test_the_table_and_json_set_the_measured_beside_the_data_sheet() -> None:
    shown = ceilings_table(both()).splitlines()
    assert_golden_row("pages", ceilings_table(both()))
    rows = [" ".join(line.split()) for line in shown]
    assert "memory, copying 4.00 TB/s 4.80 TB/s 83.3%" in rows
    assert "matmul, bf16 700 TFLOP/s 989 TFLOP/s 70.8%" in rows
    assert "matmul, fp32 50.0 TFLOP/s – –" in rows
    tree = ceilings_json(both())
    assert ("frontier.ceilings/1", 2) == (tree["schema"], tree["devices"])
    (copy,) = (line for line in tree["ceilings"] if line["name"] == "memory_bandwidth")
    assert (4e12, 4.8e12) == (pytest.approx(copy["measured"]), copy["data_sheet"])
    assert len([line for line in tree["ceilings"] if line["name"].startswith("all_reduce")]) == len(MESSAGES)


def test_the_processor_is_measured_with_numpy() -> None:
    found = measure(NumpyMachine(scale=0.05), 0.01)
    assert 1e8 < found.bandwidth < 1e13
    assert 1e8 < found.matmul["fp32"] < 1e14
    assert 1e7 < found.attention < 1e13
    assert ({}, None, 1) == (found.all_reduce, found.send, found.devices)
    assert found.hardware()["name"] == found.name


def test_attention_decode_reads_keys_and_values_once() -> None:
    machine = NumpyMachine(scale=0.05)
    assert machine.attention().amount == attention_bytes(4, int(2048 * 0.05), 4) == 2 * 4 * 102 * 8 * 128 * 4
    answer = machine.attention().run()
    assert answer.shape == (4, 8, 4, 128)
    assert answer == pytest.approx(0.01), "equal scores average equal values"


def test_the_processor_is_measured_with_torch_where_it_is_installed() -> None:
    torch = pytest.importorskip("torch")
    found = measure(TorchMachine(torch, "cpu", scale=0.05), 0.01)
    assert {"fp32", "bf16"} == set(found.matmul)
    assert found.bandwidth > 1e8
    assert found.attention > 1e7


def test_memory_that_is_taken_is_said_with_the_way_out() -> None:
    class Full(Pair):
        def attention(self):
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
            nccl=SimpleNamespace(all_reduce=self._all_reduce),
            OutOfMemoryError=torch.cuda.OutOfMemoryError,
        )

    def __getattr__(self, name):
        found = getattr(self._torch, name)
        if name not in ("ones", "randn", "empty_like"):
            return found
        return lambda *a, device=None, **more: found(*a, **more)

    def _wait(self, _: int) -> None:
        self.waits += 1

    def _all_reduce(self, parts) -> None:
        assert self.devices == len(parts)
        for part in parts[1:]:
            part += parts[0]


@pytest.mark.parametrize("devices", [1, 2])
def test_the_code_for_gpus_runs_on_torch_as_it_is(devices: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeCuda(pytest.importorskip("torch"), devices)
    monkeypatch.setattr(ceilings, "MESSAGES", (2**15, 2**20))
    found = measure(TorchMachine(fake, "cuda", scale=0.004), 0.01)
    assert ("h100", devices) == (found.sheet.name, found.devices)
    assert {"fp32", "bf16", "fp8"} == set(found.matmul)
    assert (devices > 1) == bool(found.all_reduce) == (found.send is not None)
    assert fake.waits > 6 * LEAST_RUNS
    assert ("fp32", "bf16") == TorchMachine(FakeCuda(fake._torch, 1, hip="6.2"), "cuda").formats()
