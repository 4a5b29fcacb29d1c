"""Power of devices: an exporter on loopback, NVML, and the rules for when readings count."""

import asyncio
import dataclasses
import sys
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiohttp import web

from frontier.client.ask import evidence
from frontier.client.ask.evidence import Evidence, parse_metrics
from frontier.client.ask.facts import Readings, window_facts
from frontier.client.ask.target import Target
from frontier.client.http.http_client import run
from frontier.core.flags import flags
from frontier.core.model.points import Flag, Power
from frontier.core.model.trials import SourceReadings
from frontier.extras.cluster.gpu_readers import GpuClocks
from frontier.hardware import device_power
from frontier.show.view import costs
from tests.kit.golden import assert_golden_row
from tests.kit.made import Server, trial
from tests.kit.servers import serving

LABELS = (
    'gpu="{i}",UUID="GPU-1b2c{i}",pci_bus_id="00000000:{i}8:00.0",device="nvidia{i}",'
    'modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-box",DCGM_FI_DRIVER_VERSION="550.54.15"'
)


def dcgm(power: Sequence[float], reasons: int = 0) -> bytes:
    """The text of NVIDIA's exporter, as it comes."""
    lines = []
    for name, kind, help_text, values in (
        ("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", [1980] * len(power)),
        ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", power),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "gauge", "Current clock throttle reasons.", [reasons] * len(power)),
    ):
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{{{LABELS.format(i=i)}}} {value}" for i, value in enumerate(values)]
    return ("\n".join(lines) + "\n").encode()


def window(*texts: bytes, every: float = 1.0) -> dict[str, float]:
    """The facts of texts that were read at this pace."""
    readings = Readings("metrics")
    for i, text in enumerate(texts):
        readings.add(parse_metrics(text), i * every)
    return window_facts(readings.stored())


def steady(watts: float, seconds: int, count: int = 2) -> list[bytes]:
    """Readings once a second of an exporter."""
    return [dcgm([watts] * count)] * (seconds + 1)


@pytest.mark.process
def test_a_real_exporter_is_read_beside_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "_EVERY", 0.04)
    asked: list[float] = []

    async def exporter(_: web.Request) -> web.Response:
        asked.append(time.perf_counter())
        # Every third reading finds the clocks held down by heat.
        reasons = 0x40 if len(asked) % 3 == 0 else 0
        return web.Response(body=dcgm([500, 540], reasons))

    async def window_of(url: str) -> tuple[SourceReadings, ...]:
        async with Evidence(Target(url, metrics_urls=(url.replace("/v1", "/metrics"),), dialect="vllm")) as kept:
            await asyncio.sleep(0.1)
            kept.opened.set()
            while len(asked) < 35:  # noqa: ASYNC110 - on a busy machine it takes longer, and they are in a thread
                await asyncio.sleep(0.05)
            kept.closed.set()
            await kept.settle()
            return kept.readings()

    with serving({"GET /metrics": exporter}) as url:
        facts = window_facts(run(window_of(url)))
    assert (2, pytest.approx(1040)) == (facts["gpu_count"], facts["gpu_power"])
    assert 0.25 < facts["gpu_clocks_heat"] == facts["gpu_clocks_held"] < 0.4
    power = device_power.measured([(1.4, facts)], gpus=2)
    assert power == Power(pytest.approx(1040), "measured")
    assert_golden_row("answers", costs.power_text([dataclasses.replace(power, watts=1040.0)]))


AMD_LABELS = (
    'gpu_id="{i}",card_model="102-G36224-0C",gpu_compute_partition_type="spx",gpu_memory_partition_type="nps1",'
    'gpu_partition_id="0",hostname="gpu-box",serial_number="69240{i}"'
)
AMD_HELD = ("ppt", "socket_thermal", "hbm_thermal", "vr_thermal", "processor_hot")


def amd(
    seconds: float, held: Sequence[Sequence[float]], *, prefix: str = "", clock_type: str = "system", power: float = 410
) -> bytes:
    """The text of AMD's exporter after so many seconds, by its documented names: for each GPU the
    shares of its firmware's samples, one a millisecond, in which each limit held its clocks down;
    None has no such counters.
    """
    lines = []
    for i, shares in enumerate(held):
        labels, samples = AMD_LABELS.format(i=i), 1e7 + 1e3 * seconds
        values = {
            "gpu_package_power": power,
            "gpu_junction_temperature": 71,
            "gpu_gfx_activity": 97,
            "gpu_violation_current_accumulated_counter": samples,
            **{
                f"gpu_violation_{name}_residency_accumulated": 5e4 + 1e3 * share * seconds
                for name, share in zip(AMD_HELD, shares, strict=False)
            },
        }
        for name, value in values.items():
            lines += [f"# HELP {prefix}{name} x", f"# TYPE {prefix}{name} gauge"] if not i else []
            lines.append(f"{prefix}{name}{{{labels}}} {value!r}")
        for index, (kind, mhz) in enumerate(((clock_type, 2100), (clock_type, 2080), ("memory", 900))):
            lines.append(f'{prefix}gpu_clock{{{labels},clock_index="{index}",clock_type="{kind}"}} {mhz}')
    return ("\n".join(lines) + "\n").encode()


NOTHING_HELD = (0.0, 0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(("prefix", "clock_type"), [("", "system"), ("amd_", "GPU_CLOCK_TYPE_SYSTEM")])
def test_amds_exporter_has_the_power_and_the_clock_of_the_engine(prefix: str, clock_type: str) -> None:
    facts = window(*(amd(t, [NOTHING_HELD], prefix=prefix, clock_type=clock_type) for t in range(31)))
    assert device_power.measured([(30.0, facts)], gpus=1) == Power(pytest.approx(410), "measured")
    assert (facts["gpu_sm_clock"], facts["gpu_utilization"]) == (2.08e9, pytest.approx(0.97))


def test_a_mi2xx_tells_its_average_power() -> None:
    text = b'gpu_average_package_power{gpu_id="0"} 300\n'
    assert window(text, text)["gpu_power"] == 300


@pytest.mark.parametrize(
    ("held", "share", "heat"),
    [
        ([NOTHING_HELD], 0.0, 0.0),
        ([(0.4, 0.0, 0.0, 0.0, 0.0)], 0.4, 0.0),
        ([(0.1, 0.0, 0.3, 0.0, 0.0)], 0.3, 0.3),  # they may hold at the same time: at least the longer of the two
        ([(0.4, 0.2, 0.0, 0.0, 0.0), NOTHING_HELD], 0.2, 0.1),
        ([(0.0, 0.0, 0.0, 0.25, 0.0)], 0.25, 0.25),
        ([(0.0, 0.0, 0.0, 0.0, 0.5)], 0.5, 0.5),
        ([(0.4,)], 0.4, 0.0),
    ],
)
def test_amds_counters_tell_the_share_of_time_in_which_clocks_were_held_down(
    held: Sequence[Sequence[float]], share: float, heat: float
) -> None:
    for every in (1, 15):  # seconds between two readings of the exporter
        facts = window(*(amd(t // every * every, held) for t in range(31)))
        assert (facts["gpu_clocks_held"], facts["gpu_clocks_heat"]) == (pytest.approx(share), pytest.approx(heat))


def test_amds_counters_that_stand_still_fell_or_are_missing_tell_nothing() -> None:
    half = (0.5, 0.0, 0.0, 0.0, 0.0)
    for texts in (
        [amd(5, [half])] * 5,  # a partition without counters of its own
        [amd(t, [half]) for t in (5, 6, 1, 2)],
        [amd(5, [half])],
        [amd(t, [()]) for t in range(5)],
    ):
        assert not {"gpu_clocks_held", "gpu_clocks_heat"} & window(*texts).keys()


RULES: dict[str, tuple[list[bytes], int | None]] = {
    "one is missing": ([*steady(700, 15), *steady(700, 30, count=1)[16:]], 2),
    "another number": (steady(700, 30), 4),
}


@pytest.mark.parametrize("case", RULES)
def test_what_cannot_be_relied_on_does_not_count_and_says_why(case: str) -> None:
    texts, gpus = RULES[case]
    facts = window(*texts)
    assert device_power.measured([(30.0, facts)], gpus) is None
    (flag,) = device_power.power_flag([(30.0, facts)], gpus, None)
    assert ("power_unmeasured", False) == (flag.name, flag.fatal)
    assert_golden_row("flags", f"{flag.measured}\n{flag.advice}")


def test_too_few_samples_do_not_count_and_several_windows_add_up() -> None:
    def sampled(readings: int) -> dict[str, float]:
        names = ("gpu_power", "gpu_count", "gpu_count_min", "gpu_power_readings")
        facts = window(*(dcgm([300]) for _ in range(readings)))
        return {name: facts[name] for name in names}

    assert device_power.measured([(5.0, sampled(6))], gpus=1) is None
    (flag,) = device_power.power_flag([(5.0, sampled(6))], 1, Power(1.0, "stated"))
    assert ("6 readings", "10") == (flag.measured, flag.limit)
    assert device_power.measured([(5.0, sampled(6)), (5.0, sampled(6))], gpus=1) == Power(300.0, "measured")


def test_a_window_without_power_is_named_and_no_device_at_all_is_silent() -> None:
    facts = window(*steady(700, 30))
    (flag,) = device_power.power_flag([(30.0, facts), (30.0, {})], 2, None)
    assert ("power_unmeasured", False) == (flag.name, flag.fatal)
    assert_golden_row("flags", flag.measured)
    assert [] == list(device_power.power_flag([(30.0, {})], 2, None))


@pytest.mark.parametrize(
    ("reasons", "held", "heat"),
    [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0x10, 0, 0), (4, 1, 0), (8, 1, 0), (0x20, 1, 1), (0x40, 1, 1), (0x84, 1, 0)],
)
def test_reasons_for_which_clocks_are_held_down(reasons: int, held: float, heat: float) -> None:
    facts = window(dcgm([1, 1], reasons))
    assert (held, heat) == (facts["gpu_clocks_held"], facts["gpu_clocks_heat"])


def test_clocks_that_are_held_down_are_a_warning() -> None:
    sample = Server(ttft=lambda c: 0.01 * c).run(trial(8, requests=100))

    def raised(**server: float) -> list[Flag]:
        return [f for f in flags.flags(dataclasses.replace(sample, server=(server,))) if "clocks" in f.name]

    assert [] == raised(gpu_clocks_held=0.1, gpu_clocks_heat=0.0)
    for cause, heat in (("not heat", 0.0), ("heat", 0.3)):
        (flag,) = raised(gpu_clocks_held=0.4, gpu_clocks_heat=heat)
        assert not flag.fatal
        assert_golden_row("flags", flag.measured, cause)


class NVMLError(Exception):
    """As pynvml's."""


def nvml(monkeypatch: pytest.MonkeyPatch, **functions: Callable[..., Any]) -> None:
    """A driver of two GPUs in the place of nvidia-ml-py."""

    def nothing(_: int) -> int:
        raise NVMLError("not supported")

    usual: dict[str, Callable[..., Any]] = {
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda i: i,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda i: 4 if i else nothing(i),
    }
    module = types.SimpleNamespace(NVMLError=NVMLError, **usual | functions)
    monkeypatch.setitem(sys.modules, "pynvml", module)  # type: ignore[arg-type]


HERE, ELSEWHERE = Target("http://127.0.0.1:1/v1"), Target("http://elsewhere:1/v1")


def test_nvml_is_read_and_what_it_does_not_tell_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml(monkeypatch)
    assert {("clocks_reasons", (("index", "1"),)): 4.0} == GpuClocks(HERE).read()


def test_without_nvml_or_a_driver_or_a_gpu_here_there_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise NVMLError("no driver")

    nvml(monkeypatch)
    others = [GpuClocks(ELSEWHERE)]
    nvml(monkeypatch, nvmlInit=fails)
    others.append(GpuClocks(HERE))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    others.append(GpuClocks(HERE))
    for clocks in others:
        assert not clocks.read()
