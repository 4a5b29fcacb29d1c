"""Bars on the page: where value and bound of a limited figure lie beside their limit."""

import math

from frontier.show.view.figures import Figure
from frontier.show.view.wording import deciding_bound

LIMIT_AT = 80
"""The place of a limit on its bar, in percent; the rest has room for values that break it."""


def bar_ends(figure: Figure) -> tuple[int, int] | None:
    """The lower and the upper end of value and bound on a bar, in percent, with the limit at
    LIMIT_AT; None without a limit. A value without a bound may be anything, so it goes to the end.
    """
    limit = figure.limit
    if limit is None or not limit.promise:
        return None
    bound = deciding_bound(figure.estimate, limit)
    shares = [value / limit.promise for value in (figure.estimate.value, math.inf if bound is None else bound)]
    if limit.better == "higher":
        shares = [1 / share if share else math.inf for share in shares]
    low, high = sorted(round(min(100.0, LIMIT_AT * share)) for share in shares)
    return low, high
