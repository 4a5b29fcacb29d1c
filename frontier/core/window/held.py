"""Results that are worked out once: held by what they are worked out of, a window or a series.

A search replays its whole history at every step.
"""

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar

_Of = TypeVar("_Of")
_P = ParamSpec("_P")
_T = TypeVar("_T")


class _InSeries(Protocol):
    @property
    def alone(self) -> Self: ...


_Window = TypeVar("_Window", bound=_InSeries)


def held(function: Callable[Concatenate[_Of, _P], _T]) -> Callable[Concatenate[_Of, _P], _T]:
    """The function, whose result is worked out once and then held by its first argument: a window,
    or the windows of a series.

    The result goes when the window goes. It must not be the window itself, or hold it.
    """

    @functools.wraps(function)
    def result(of: _Of, /, *values: _P.args, **named: _P.kwargs) -> _T:
        known: dict[Any, _T] = of.__dict__.setdefault("known", {})
        if (key := (function, values, *named.items())) not in known:
            known[key] = function(of, *values, **named)
        return known[key]

    return result


def held_alone(function: Callable[Concatenate[_Window, _P], _T]) -> Callable[Concatenate[_Window, _P], _T]:
    """`held`, for what does not depend on what a series shows of its windows: it is worked out
    once, as often as that changes.
    """
    known = held(function)

    @functools.wraps(function)
    def result(of: _Window, /, *values: _P.args, **named: _P.kwargs) -> _T:
        return known(of.alone, *values, **named)

    return result
