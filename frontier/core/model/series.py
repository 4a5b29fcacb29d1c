"""Series: a deployment with one workload, over its loads."""

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeVar

from frontier.core.model.groups import by_key
from frontier.core.model.loads import Load
from frontier.core.model.shapes import DEFAULT_DEPLOYMENT, Shape
from frontier.core.model.text import clean_name


class Series(NamedTuple):
    """One deployment with one shape: the key of all its concurrencies. Equal to the plain tuple of
    the two.
    """

    deployment: str
    shape: Shape

    def label(
        self,
        among: Collection["Series"] | None = None,
        *,
        join: str = " · ",
        longest: int = 60,
        keep_shape: bool = False,
    ) -> str:
        """The name of this series in a table or a plot, each part cleaned and cut to `longest`
        characters.

        Alone ('fp8 · 1024/256') it hides a deployment that was never named ("default" or "").
        `among` others it names only what differs: no deployment when all have the same, no shape
        when all have the same (but `keep_shape`), and the shape when nothing differs.

        >>> a, b = Series("default", Shape.of(1024, 256)), Series("fp8", Shape.of(1024, 256))
        >>> a.label(), b.label(), a.label([a, b]), b.label([a, b]), b.label([b])
        ('1024/256', 'fp8 · 1024/256', 'default', 'fp8', '1024/256')
        """
        deployment, shape = clean_name(self.deployment, longest), clean_name(self.shape.label, longest)
        if among is None:
            return shape if unnamed(self.deployment) else f"{deployment}{join}{shape}"
        if len({series.deployment for series in among}) <= 1:
            return shape
        deployment = deployment or DEFAULT_DEPLOYMENT
        one_shape = len({series.shape for series in among}) <= 1
        return deployment if one_shape and not keep_shape else f"{deployment}{join}{shape}"


def unnamed(deployment: str) -> bool:
    """Whether a deployment was never given a name, so that labels need not show it."""
    return deployment in ("", DEFAULT_DEPLOYMENT)


class HasSeries:
    """Something of one series: a trial, a point, a frontier, a decision."""

    __slots__ = ()
    deployment: str
    shape: Shape

    @property
    def series(self) -> Series:
        """Its deployment and shape."""
        return Series(self.deployment, self.shape)


class HasLoad(HasSeries):
    """Something of one setting: a trial, a window, a point."""

    __slots__ = ()
    load: Load

    def __post_init__(self) -> None:
        """Read a load that was stored or worked out as a plain number as one of the shape."""
        object.__setattr__(self, "load", self.shape.load(self.load))


_T = TypeVar("_T", bound=HasSeries)


def by_series(items: Iterable[_T]) -> dict[Series, list[_T]]:
    """The items (trials, points, frontiers, decisions) of each series, series and items in order of
    appearance.
    """
    return by_key((item.series, item) for item in items)
