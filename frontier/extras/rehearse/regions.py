"""The regions of concurrency of MLPerf Endpoints, between a lowest and a highest concurrency."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from frontier.extras.rehearse.endpoints_rules import MARGIN, REGIONS, ULTRA_LOW


@dataclass(frozen=True, slots=True)
class Regions:
    """The first and last concurrency of each region, by its name in `REGIONS`; `margin` is the last
    one above the highest that is still allowed.

    A region whose last is below its first has no room.

    >>> Regions.of(1, 64).spans["med_concurrency"], Regions.of(1, 100).margin
    ((6, 17), 111)
    """

    spans: dict[str, tuple[int, int]]
    margin: int

    @classmethod
    def of(cls, lowest: int, highest: int) -> "Regions":
        """The regions of a curve. ValueError, with the reason, where there are none."""
        if not 1 <= lowest <= ULTRA_LOW:
            raise ValueError(f"the lowest concurrency is {lowest}, and a curve begins at 1 to {ULTRA_LOW}")
        if highest <= ULTRA_LOW:
            raise ValueError(f"the highest concurrency is {highest}, and regions need one above {ULTRA_LOW}")
        step = math.log2(highest - lowest) / 3
        low, medium = round(lowest + 2**step), round(lowest + 2 ** (2 * step))
        ends = [1, lowest], [lowest + 1, low], [low + 1, medium], [medium + 1, highest]
        # In floats, as the checker does: for 100 the margin ends at 111.
        return cls(dict(zip(REGIONS, map(tuple, ends), strict=True)), math.ceil(MARGIN * highest))  # type: ignore[arg-type]

    def region(self, concurrency: int) -> str | None:
        """The region of a concurrency; None above the highest."""
        return next((name for name, (low, high) in self.spans.items() if low <= concurrency <= high), None)

    def uncovered(self, concurrencies: Collection[int]) -> list[str]:
        """The regions without a point. A region without room is covered by a point on its edge."""
        return [
            name
            for name, (low, high) in self.spans.items()
            if not any(low <= c <= high or (low > high and c in (low, high)) for c in concurrencies)
        ]
