"""What a GPU is and what a model takes of it, as the config describes them, and the speed of light that follows."""

from dataclasses import replace
from typing import Annotated, Any

from pydantic import PlainValidator

from frontier.config import quantities, values
from frontier.config.faults import fault
from frontier.config.kinds import Strict, Text, one_of, whole_in
from frontier.config.uses import PLAIN
from frontier.hardware.gpus import Hardware, hardware
from frontier.hardware.models import KV_BYTES, WEIGHT_BYTES, ModelCard, card
from frontier.hardware.roofline import Carded, Light, Roofline, Stated
from frontier.simulator.spec import Speculation, speculation_value


def _card(value: Any) -> ModelCard:
    """A shipped model by name, or one described by a mapping (a Hugging Face config.json's keys, or a card's)."""
    if not isinstance(value, str | dict):
        raise fault("{key} is a model's name or its sizes", "write llama-3.1-8b")
    try:
        return card(value)
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        what, _, hint = str(error).partition("; ")
        raise fault(what, hint or "write the model's config.json here, or a name as llama-3.1-8b") from None


def named_hardware(value: Any) -> Any:
    """`hardware: h200` is short for `hardware: {name: h200}`, and then the name must be known."""
    if not isinstance(value, str):
        return value
    try:
        return {"name": hardware(value).name}
    except ValueError as error:
        what, _, hint = str(error).removeprefix("hardware: ").partition("; ")
        raise fault(what, hint) from None


Tera = Annotated[float, PlainValidator(lambda v: values.number(v, 0.001, 1e7))]


def _speculation(value: Any) -> Speculation:
    try:
        found: Speculation = speculation_value("speculation", value)
    except ValueError as error:
        what, _, hint = str(error).partition("; ")
        raise fault(what, hint or "write  speculation: {tokens: 4}") from None
    return found


class HardwareConfig(Strict):
    """What one GPU is, and what the model takes: bytes, bytes per second. Used to divide by and for the speed of light.

    A known `name` brings the data sheet's figures; those given replace them. `model` (default: the deployment's model
    where its name is known) is a model card: the speed of light is then a whole roofline, at `precision` (default: the
    model's own). Without a card, `weights` are the bytes of all weights read per step over all GPUs and `kv_per_token`
    the bytes of KV per token; where `weights` is given these are believed rather than the card. `speculation` says how
    the server speculates: the bounds then allow for drafts that are all accepted; a prediction assumes its acceptance.
    `power` is a flat figure for what it draws under load, for the energy per token where nothing measured it.
    """

    name: Text | None = None
    gpus: Annotated[int, whole_in(1, 100_000)] | None = None
    memory_bandwidth: Annotated[float, PlainValidator(quantities.bandwidth)] | None = None
    memory: Annotated[float, PlainValidator(quantities.size)] | None = None
    tflops: Tera | None = None
    tflops_fp8: Tera | None = None
    tflops_fp4: Tera | None = None
    link: Annotated[float, PlainValidator(quantities.bandwidth)] | None = None
    model: Annotated[ModelCard, PlainValidator(_card), PLAIN] | None = None
    precision: Annotated[str, one_of(*WEIGHT_BYTES), PLAIN] | None = None
    kv_precision: Annotated[str, one_of(*KV_BYTES), PLAIN] | None = None
    max_num_seqs: Annotated[int, whole_in(1, 1_000_000)] | None = None
    weights: Annotated[float, PlainValidator(quantities.size)] | None = None
    kv_per_token: Annotated[float, PlainValidator(quantities.small_size)] | None = None
    speculation: Annotated[Speculation, PlainValidator(_speculation), PLAIN] | None = None
    power: Annotated[quantities.Watts, PlainValidator(quantities.power), PLAIN] | None = None

    def gpu(self) -> Hardware | None:
        """One GPU: a known name's data sheet with the given figures in its place; None when too little is known."""
        given = {
            "bandwidth": self.memory_bandwidth,
            "capacity": self.memory,
            "bf16": _tera(self.tflops),
            "fp8": _tera(self.tflops_fp8),
            "fp4": _tera(self.tflops_fp4),
            "link": self.link,
        }
        found: dict[str, Any] = {key: figure for key, figure in given.items() if figure is not None}
        try:
            return replace(hardware(self.name or ""), **found)
        except ValueError:
            if {"bandwidth", "capacity", "bf16"} - found.keys():
                return None
            return Hardware(self.name or "custom", **found)

    def light(self, model: str | None, gpus: int | None) -> Light | None:
        """The speed of light of `model` on `gpus` of these; None when too little is said."""
        gpu = self.gpu()
        drafts = self.speculation.tokens if self.speculation is not None else 0
        if self.weights is not None:
            bandwidth = self.memory_bandwidth or (gpu.bandwidth if gpu else None)
            memory = self.memory or (gpu.capacity if gpu else None)
            if bandwidth is None:
                return None
            return Stated(bandwidth, self.weights, self.kv_per_token or 0.0, gpus or 1, memory, drafts)
        sizes = self.model or _known(model)
        if gpu is None or sizes is None:
            return None
        of = Roofline.of(sizes, gpu, gpus or 1, self.precision, self.kv_precision, drafts)
        return Carded(of, self.max_num_seqs)


def _tera(figure: float | None) -> float | None:
    return None if figure is None else figure * 1e12


def _known(model: str | None) -> ModelCard | None:
    try:
        return card(model) if model else None
    except ValueError:
        return None
