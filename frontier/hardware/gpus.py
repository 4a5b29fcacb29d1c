"""Accelerators the roofline knows: memory bandwidth, capacity, dense peak rates, scale-up link.

Figures are the makers' dense peaks per device, each with its source. Where aiconfigurator's system
files and InferenceX's GPU specifications (both public) differ, aiconfigurator's is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from frontier.fields import (
    Bandwidth,
    BandwidthOrBytes,
    Problem,
    Size,
    SizeOrBytes,
    Strict,
    Text,
    number_in,
    read,
    shown,
    without_nulls,
)
from frontier.hardware.known_names import GPU_BY_FIGURES, name_hint

GIB = 2.0**30
"""Bytes of a GiB."""
MIB = 2.0**20
"""Bytes of a MiB."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """One accelerator: bytes per second of memory, bytes of memory, dense FLOP/s per precision, and
    scale-up bytes/s one way. `source` says where its figures are from.
    """

    name: str
    bandwidth: float
    capacity: float
    bf16: float
    fp8: float | None = None
    fp4: float | None = None
    link: float = 32e9
    watts: float | None = None
    source: str = field(default="", compare=False)

    def peak(self, precision: str) -> float:
        """Dense FLOP/s at 'bf16', 'fp8' or 'fp4'; a precision without units of its own computes at
        the next wider.
        """
        if precision == "fp4" and self.fp4 is not None:
            return self.fp4
        if precision in ("fp4", "fp8") and self.fp8 is not None:
            return self.fp8
        return self.bf16


def _gpu(
    name: str, tb_s: float, size: float, tflops: tuple[float, ...], link: float, watts: float | None, source: str
) -> Hardware:
    """`tflops` are those of 16 bits, and of fp8 and fp4 where it has units for them."""
    peaks = dict(zip(("bf16", "fp8", "fp4"), (peak * 1e12 for peak in tflops), strict=False))
    return Hardware(name, tb_s * 1e12, size, **peaks, link=link * 1e9, watts=watts, source=source)


_AIC = "NVIDIA's figures as in aiconfigurator's system files (ai-dynamo/aiconfigurator, systems/*.yaml)"
_IX = "AMD's figures as in InferenceX's GPU specifications (packages/app/src/lib/gpu-specs.ts)"
_GOOGLE = "Google Cloud documentation, docs.cloud.google.com/tpu/docs"
_GAUDI = "Intel, Gaudi 3 AI Accelerator, Hot Chips 2024"
HARDWARE: Mapping[str, Hardware] = {
    gpu.name: gpu
    for gpu in (
        _gpu("t4", 0.320, 16 * GIB, (65,), 16, 70, "NVIDIA T4 data sheet"),
        _gpu("a10", 0.600, 24 * GIB, (125,), 32, 150, "NVIDIA A10 data sheet"),
        _gpu("a10g", 0.600, 24 * GIB, (70,), 32, None, "NVIDIA A10G data sheet"),
        _gpu("a40", 0.696, 48 * GIB, (149.7,), 56.25, 300, "NVIDIA A40 data sheet"),
        _gpu("a100-40gb", 1.555, 40 * GIB, (312,), 300, 400, "NVIDIA A100 data sheet (SXM)"),
        _gpu("a100", 2.039, 80 * GIB, (312,), 300, 400, _AIC),
        _gpu("l4", 0.300, 24 * GIB, (121, 242), 32, 72, _AIC),
        _gpu("l40", 0.864, 48 * GIB, (181.05, 362), 32, 300, "NVIDIA L40 data sheet"),
        _gpu("l40s", 0.864, 46_068 * MIB, (362.05, 733), 32, 350, _AIC),
        _gpu("rtx-a6000", 0.768, 48 * GIB, (154.8,), 56.25, 300, "NVIDIA RTX A6000 data sheet"),
        _gpu("rtx-4090", 1.008, 24 * GIB, (165.2, 330.3), 32, 450, "NVIDIA Ada GPU architecture, FP32 accumulation"),
        _gpu(
            "rtx-5090",
            1.792,
            32 * GIB,
            (209.5, 419, 1676),
            64,
            575,
            "NVIDIA RTX Blackwell GPU architecture, FP32 accumulation",
        ),
        _gpu("rtx-pro-6000", 1.792, 97_887 * MIB, (467.8, 935.6, 1871), 64, 600, _AIC),
        _gpu("h20", 4.0, 96e9, (148, 296), 450, 400, "NVIDIA H20 product brief"),
        _gpu("h100", 3.35, 80 * GIB, (989, 1978), 450, 700, _AIC),
        _gpu("h100-pcie", 2.0, 80 * GIB, (756.5, 1513), 64, 350, _AIC),
        _gpu("h100-nvl", 3.938, 94e9, (835.5, 1671), 300, 400, "NVIDIA H100 NVL product brief"),
        _gpu("h200", 4.8, 141 * GIB, (989, 1978), 450, 700, _AIC),
        _gpu("b200", 7.7, 180 * GIB, (2250, 4500, 9000), 900, 1000, _AIC),
        _gpu("b300", 7.75, 275_040 * MIB, (2250, 4500, 14_000), 900, 1100, _AIC),
        _gpu("gb200", 8.0, 189_471 * MIB, (2500, 5000, 10_000), 900, 1200, _AIC),
        _gpu("gb300", 8.0, 284_208 * MIB, (2500, 5000, 15_000), 900, 1400, _AIC),
        _gpu("mi250x", 1.638, 64e9, (191.5,), 200, 280, "AMD Instinct MI250X data sheet, by its two dies"),
        _gpu("mi300x", 5.3, 192e9, (1307, 2615), 448, None, _IX),
        _gpu("mi325x", 6.0, 256e9, (1307, 2615), 448, None, _IX),
        _gpu("mi355x", 8.0, 288e9, (2516, 5033, 10_066), 576, None, _IX),
        _gpu("gaudi2", 2.46, 96e9, (432,), 262.5, 600, _GAUDI),
        _gpu("gaudi3", 3.67, 128e9, (1835, 1835), 525, 900, _GAUDI),
        _gpu("tpu-v5e", 0.819, 16e9, (197,), 200, None, f"{_GOOGLE}/v5e"),
        _gpu("tpu-v5p", 2.765, 95 * GIB, (459, 459), 600, None, f"{_GOOGLE}/v5p"),
        _gpu("tpu-v6e", 1.638, 32e9, (918,), 400, None, f"{_GOOGLE}/v6e"),
        _gpu("trainium2", 2.9, 96 * GIB, (667, 1299), 1280, None, "AWS Neuron documentation, Trainium2 architecture"),
    )
}
"""Scale-up links count one way: half of the figure for both directions. For Gaudi the 21 of 24
ports count that stay in the node. An MI250X is two devices to its driver, and here too. Google
states 8-bit integers and no FP8 for v5e and v6e; these are left out, as is every figure that a
source does not state."""


Tera = Annotated[float, number_in(0.001, 1e7)]


class GpuFields(Strict):
    """The figures of one GPU as a person writes them; those of a known `name` come from its data
    sheet.
    """

    name: Text | None = None
    memory_bandwidth: Bandwidth | None = None
    memory: Size | None = None
    tflops: Tera | None = None
    tflops_fp8: Tera | None = None
    tflops_fp4: Tera | None = None
    link: Bandwidth | None = None

    def figures(self) -> dict[str, Any]:
        """The given fields of a `Hardware`."""
        plain = {"bandwidth": self.memory_bandwidth, "capacity": self.memory, "link": self.link}
        peaks = {"bf16": self.tflops, "fp8": self.tflops_fp8, "fp4": self.tflops_fp4}
        return without_nulls(plain | {key: peak and peak * 1e12 for key, peak in peaks.items()})

    def gpu(self) -> Hardware | None:
        """One GPU: a known name's data sheet with the given figures in its place; None when too
        little is known.
        """
        figures = self.figures()
        try:
            return replace(hardware(self.name or ""), **figures)
        except ValueError:
            known = {"bandwidth", "capacity", "bf16"} <= figures.keys()
            return Hardware(self.name or "custom", **figures) if known else None


class _GpuMapping(GpuFields):
    """As `GpuFields`, without a data sheet: the necessary figures must be there."""

    memory_bandwidth: BandwidthOrBytes
    memory: SizeOrBytes
    tflops: Tera
    link: BandwidthOrBytes | None = None
    watts: Annotated[float, number_in(0, 1e7)] | None = None


def hardware(what: str | Mapping[str, Any]) -> Hardware:
    """The GPU called `what` ('h100', 'H200 SXM', 'mi300x'), or one described by a mapping.

    A mapping needs `memory_bandwidth` ('4.8TB/s'), `memory` ('80GiB') and `tflops` (bf16, dense),
    and may give `name`, `tflops_fp8`, `tflops_fp4`, `link` ('450GB/s') and `watts`. ValueError
    otherwise: a `Problem`, or pydantic's with one for each key that is wrong or missing.
    """
    if not isinstance(what, str | Mapping):
        raise Problem(f"{{key}} is a GPU's name or its figures; this is {shown(what)}", "write h100")
    if not isinstance(what, str):
        gpu = read(_GpuMapping, without_nulls(what))
        return Hardware(gpu.name or "custom", **gpu.figures(), watts=gpu.watts)
    name = what.strip().lower().replace("_", "-").replace(" ", "-").removesuffix("-sxm").removesuffix("-sxm5")
    for maker in ("nvidia-", "geforce-", "amd-", "instinct-", "intel-", "google-", "aws-"):
        name = name.removeprefix(maker)
    if name not in HARDWARE:
        raise Problem(f"unknown GPU {what!r}", name_hint(name, HARDWARE, GPU_BY_FIGURES))
    return HARDWARE[name]


def hardware_mapping(gpu: Hardware) -> dict[str, Any]:
    """The mapping `hardware` reads back to the same GPU (for JSON)."""
    return {
        "name": gpu.name,
        "memory_bandwidth": gpu.bandwidth,
        "memory": gpu.capacity,
        "tflops": gpu.bf16 / 1e12,
        "tflops_fp8": None if gpu.fp8 is None else gpu.fp8 / 1e12,
        "tflops_fp4": None if gpu.fp4 is None else gpu.fp4 / 1e12,
        "link": gpu.link,
        "watts": gpu.watts,
    }
