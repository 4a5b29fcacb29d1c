"""The keys `hardware`, `gpus` and `price`: what a deployment runs on, and the divisors of its
numbers.
"""

import re
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationInfo

from frontier.config.uses import PLAIN
from frontier.fields import Problem, Size, SmallSize, Text, is_number, one_of, read, shown, whole, whole_in
from frontier.hardware.gpus import GpuFields, hardware
from frontier.hardware.models import KV_BYTES, WEIGHT_BYTES, ModelCard, card
from frontier.hardware.roofline import GivenRoofline, ModelRoofline, Roofline
from frontier.simulator.spec import Speculation


@dataclass(frozen=True, slots=True)
class Watts:
    """A power: of the whole deployment, or of each of its GPUs."""

    value: float
    per_gpu: bool

    def whole(self, gpus: int) -> float:
        """Watts of the whole deployment."""
        return self.value * gpus if self.per_gpu else self.value


_POWER = re.compile(r"(\d{1,9}(?:\.\d*)?|\.\d+)\s*(k)?W\s*(/\s*gpu)?")


def _power(value: Any) -> Watts:
    """Watts of '5600W', '5.6kW' or '700W/gpu'."""
    match = _POWER.fullmatch(value) if isinstance(value, str) else None
    if match is None or float(match[1]) <= 0:
        what = "{key} needs a unit" if is_number(value) else f"{{key}}: {shown(value)} is not a power"
        raise Problem(what, "write 5600W for the whole deployment, or 700W/gpu")
    return Watts(float(match[1]) * (1e3 if match[2] else 1.0), match[3] is not None)


def named_hardware(value: Any) -> Any:
    """`hardware: h200` is short for `hardware: {name: h200}`, and then the name must be known."""
    return {"name": hardware(value).name} if isinstance(value, str) else value


class HardwareConfig(GpuFields):
    """One GPU and the model's needs, in bytes and bytes per second: divisors of the numbers, and
    the basis of the roofline.

    - `name`: a known name brings the data sheet's figures; figures that are given replace them.
    - `model`: a model card (default: the deployment's model where its name is known). The roofline
      is then a whole one, at `precision` (default: the model's own).
    - `weights`, `kv_per_token`: without a card, the bytes of all weights that a step reads over all
      GPUs, and the bytes of KV per token. Where `weights` is given, these are used rather than the
      card.
    - `pp`, `ep`: the GPUs are one tensor-parallel group, or `pp` of them as the stages of a
      pipeline; experts are spread over `ep`.
    - `speculation`: how the server speculates. The bounds then allow for drafts that are all
      accepted; a prediction assumes its acceptance.
    - `power`: the power drawn under load, for the energy per token where nothing measured it.
    """

    name: Annotated[Text, PLAIN] | None = None
    gpus: Annotated[int, whole_in(1, 100_000)] | None = None
    pp: Annotated[int, whole_in(1, 1_000)] = 1
    ep: Annotated[int, whole_in(1, 100_000)] = 1
    model: Annotated[ModelCard, PlainValidator(card), PLAIN] | None = None
    precision: Annotated[str, one_of(*WEIGHT_BYTES), PLAIN] | None = None
    kv_precision: Annotated[str, one_of(*KV_BYTES), PLAIN] | None = None
    max_num_seqs: Annotated[int, whole_in(1, 1_000_000)] | None = None
    weights: Size | None = None
    kv_per_token: SmallSize | None = None
    speculation: Annotated[Speculation, PlainValidator(lambda value: read(Speculation, value)), PLAIN] | None = None
    power: Annotated[Watts, PlainValidator(_power), PLAIN] | None = None

    def uneven(self, gpus: int) -> Problem | None:
        """The problem of stages or expert groups that do not divide the GPUs; None where
        they do.
        """
        if gpus % self.pp:
            return Problem(f"pp is {self.pp}, and {gpus} GPUs are not so many equal stages", None, "hardware", "pp")
        if gpus // self.pp % self.ep:
            what = f"ep is {self.ep}, and a stage of {gpus // self.pp} GPUs is not so many equal groups"
            return Problem(what, None, "hardware", "ep")
        return None

    def roofline(self, model: str | None, gpus: int | None) -> Roofline | None:
        """The roofline of `model` on `gpus` of these; None when too little is given."""
        gpu = self.gpu()
        drafts = self.speculation.tokens if self.speculation is not None else 0
        if self.weights is not None:
            bandwidth = self.memory_bandwidth or (gpu.bandwidth if gpu else None)
            memory = self.memory or (gpu.capacity if gpu else None)
            if bandwidth is None:
                return None
            return GivenRoofline(bandwidth, self.weights, self.kv_per_token or 0.0, gpus or 1, memory, drafts)
        sizes = self.model or _known(model)
        if gpu is None or sizes is None:
            return None
        tp = (gpus or 1) // self.pp
        roofline = ModelRoofline.of(sizes, gpu, tp, self.precision, self.kv_precision, drafts, self.max_num_seqs)
        return replace(roofline, pp=self.pp, ep=self.ep)


def _known(model: str | None) -> ModelCard | None:
    try:
        return card(model) if model else None
    except ValueError:
        return None


_PRICE = re.compile(r"\$\s*(\d{1,9}(?:\.\d*)?|\.\d+)\s*(/\s*gpu)?\s*/\s*h")


def read_price(value: Any, info: ValidationInfo) -> float | None:
    """Dollars per hour of the whole deployment, of '$12/h' or '$3/gpu/h'."""
    if value is None:
        return None
    match = _PRICE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        what = "{key} needs a unit" if is_number(value) else f"{{key}}: {shown(value)} is not a price"
        raise Problem(what, "write $12/h for the whole deployment, or $3/gpu/h")
    gpus: Any = info.data.get("gpus")
    if match[2] is not None and gpus is None:
        raise Problem("{key} is per GPU, and the number of GPUs is not given", "add  gpus: 8,  or write $12/h for all")
    return float(match[1]) * (1 if match[2] is None else gpus)


def read_gpus(value: Any, info: ValidationInfo) -> int | None:
    """The number of GPUs of the key `gpus`, otherwise of `hardware`."""
    hardware = info.data.get("hardware")
    within = hardware.gpus if hardware is not None else None
    if value is None:
        return within
    count = whole(value, 1, 100_000)
    if within is not None and within != count:
        raise Problem(f"gpus is {count} here and {within} under hardware", "keep one of the two")
    return count
