"""The `background` of a config: the load that is held beside one shape, in several amounts."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Protocol

from pydantic import Field, PlainValidator

from frontier.config.connection import read_extra_body
from frontier.config.load_keys import MAX_CONCURRENCY
from frontier.config.shape_keys import one_shape
from frontier.config.uses import PLAIN
from frontier.core.model.loads import Load
from frontier.core.model.shapes import Background, Shape
from frontier.fields import Problem, Strict, read, refuse, repeated, shown, whole_in, without_nulls

MOST_AMOUNTS = 20
_EXAMPLE = "write {shape: 8192/512, concurrency: [0, 8, 16, 32]}"


def _shape(value: Any) -> Shape:
    shape = one_shape(value)
    if shape.kind != "shape" or shape.pairs is not None:
        raise Problem(
            "{key}: the background sends single requests of two lengths", "write input/output tokens: 8192/512"
        )
    return shape


def _amounts(value: Any) -> tuple[int, ...]:
    """Requests in flight of the background, each a series of its own: [0, 8, 16]."""
    listed = value if isinstance(value, list) else [value]
    if not 1 <= len(listed) <= MOST_AMOUNTS or not all(isinstance(each, int) for each in listed):
        raise Problem(f"{{key}}: {shown(value)} is no list of 1 to {MOST_AMOUNTS} numbers", "write [0, 8, 16, 32]")
    amounts = read(tuple[Annotated[int, whole_in(0, MAX_CONCURRENCY)], ...], listed)
    refuse(repeated([str(each) for each in amounts], "{{key}}: {} is given twice", "remove one"))
    return tuple(sorted(amounts))


class BackgroundConfig(Strict):
    """The background: its shape, its amounts of requests in flight, and what is sent with each of
    its requests alone.
    """

    shape: Annotated[Shape, PlainValidator(_shape), PLAIN]
    concurrency: Annotated[tuple[int, ...], PlainValidator(_amounts)]
    extra_body: Annotated[Mapping[str, Any], PlainValidator(read_extra_body), PLAIN] = Field(default_factory=dict)

    def beside(self, shape: Shape) -> tuple[Shape, ...]:
        """The shape beside each amount of the background, named by it."""
        return tuple(
            replace(shape, name=f"{shape.label} background {streams}", background=Background(self.shape, streams))
            for streams in self.concurrency
        )


def read_background(value: Any) -> BackgroundConfig:
    """The `background` key: {shape: 8192/512, concurrency: [0, 8], extra_body: {priority: 10}}."""
    if not isinstance(value, dict):
        raise Problem(f"{{key}} is a shape with amounts of it; this is {shown(value)}", _EXAMPLE)
    config: BackgroundConfig = read(BackgroundConfig, without_nulls(value))
    return config


class _Keys(Protocol):
    """The keys of a config that are seen together with its background."""

    @property
    def background(self) -> BackgroundConfig | None: ...
    @property
    def rate(self) -> Any: ...
    @property
    def traffic(self) -> Mapping[str, Any]: ...
    @property
    def given_shapes(self) -> tuple[Shape, ...]: ...
    @property
    def given_concurrency(self) -> tuple[Load, ...]: ...
    @property
    def limits(self) -> tuple[Any, ...]: ...
    @property
    def ray(self) -> Any: ...


def not_beside(config: _Keys) -> Iterator[Problem]:
    """Problems of keys that do not go with a background: it is beside one number of requests of one
    shape, which an SLA promises something.
    """
    if config.background is None:
        return
    where = {"rate": config.rate is not None, "traffic": bool(config.traffic)}
    for key in (key for key, given in where.items() if given):
        yield Problem(f"{key} and background are two ways to mix loads", f"remove {key}, or the background", key)
    if len(config.given_shapes) > 1 and not config.traffic:
        what = f"background is beside one shape, and there are {len(config.given_shapes)}"
        yield Problem(what, "write a config for each", "shapes", 1)
    elif config.given_shapes[0].has_sessions:
        what = f"background is beside single requests, and {config.given_shapes[0].label} is a session"
        yield Problem(what, "measure sessions in a config of their own", "shapes", 0)
    if config.rate is None and len(config.given_concurrency) != 1:
        written = f"{len(config.given_concurrency)} numbers" if config.given_concurrency else "auto"
        what = f"background is beside one concurrency of the shape, and this is {written}"
        yield Problem(what, "write the one that is promised, as  concurrency: 32", "concurrency", at_key=True)
    if not config.limits:
        yield Problem(
            "background: the SLA that it has to leave is missing", "add  sla: {p99_ttft: 500ms}", "background"
        )
    if config.ray is not None:
        yield Problem("a background is sent from this machine", "leave workers: ray out", "workers")
