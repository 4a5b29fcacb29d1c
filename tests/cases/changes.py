"""Cases of a server that is another one later: resumed, restarted, or one of several by turns."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.cases import situations as s
from tests.cases.allowed import MEETS, NATURAL
from tests.cases.comparer import FAILED, KILLED, UNPROVEN, YES, Case, Expected, Seen
from tests.cases.http_server import Out, Request
from tests.cases.situation import Call, Situation


@dataclass
class Listed(s.Fallback):
    """The list of models names the other one, too, from then on."""

    def pages(self) -> dict[str, Any]:
        pages = super().pages()
        if self.after is not None and self.step >= self.after:
            pages["/v1/models"]["data"][0]["id"] = "tiny"
        return pages


@dataclass
class ByConnections(Situation):
    """A balancer with two deployments behind it: each new connection goes to the next."""

    reports = ("BerriAI/litellm #10595", "huggingface/inference-benchmarker #14")
    dialect: str = "openai"
    chat_only: bool = True

    def model(self, call: Call, chunk: int) -> str:
        return ("m", "tiny")[call.request.connection % 2]

    async def hold(self, call: Call, chunk: int) -> float:
        return 0.01 * (call.request.connection % 2)


@dataclass
class TwoEndpoints(Situation):
    """Two deployments at /a and /b, whose models are named so."""

    reports = ("BerriAI/litellm #10572",)
    dialect: str = "openai"
    chat_only: bool = True
    asked_at: str = "a"

    async def answer(self, request: Request, out: Out) -> None:
        _, self.asked_at, path = request.path.split("/", 2)
        if request.method == "POST":
            await self._generate(request, f"/{path}", out)
        else:
            await super().answer(replace(request, path=f"/{path}"), out)

    def pages(self) -> dict[str, Any]:
        pages = super().pages()
        pages["/v1/models"]["data"][0]["id"] = self.asked_at
        return pages

    def model(self, call: Call, chunk: int) -> str:
        return call.request.path.split("/")[1]


@dataclass
class Restarted(s.Fallback):
    """In the second trial another process answers: it was begun since the first (`anew`), or long
    before.
    """

    reports = ("BerriAI/litellm #10595",)
    anew: bool = True

    def pages(self) -> dict[str, Any]:
        before = self.trial
        pages = super().pages()
        if self.trial == 1 and before == 0:
            self.boot = time.time() if self.anew else self.boot - 1000
            self.generated = self.prompted = 0
        return pages


RESUMED = (("kill", "sweep", "{config}", "-o", "{run}"), ("sweep", "{config}", "-o", "{run}"))
THREE = {"concurrency": "[2, 3, 4]"}
LEFT_OUT = r"excluded: [^\n]*the server changed"
MEANT = ("Corrected:", "would have been seen")
"""What is said of a setting whose data do not keep the SLA, and of one that is chosen."""


def _valid(*concurrencies: int, not_at: tuple[int, ...] = ()) -> Callable[[Seen], list[str]]:
    """Points that have to be valid, and some that may not be."""

    def check(seen: Seen) -> list[str]:
        wrong = [f"no valid point at c={c}" for c in concurrencies if not seen.point(c).get("valid")]
        return wrong + [f"a valid point at c={c}" for c in not_at if seen.point(c).get("valid")]

    return check


def resumed(name: str, situation: Callable[[], Situation]) -> Case:
    """A case of a sweep that is killed in its second trial, and resumed with another model."""
    expected = Expected(
        (KILLED,),
        ("meets", "unproven", "marginal", "invalid"),
        then=((YES, UNPROVEN, FAILED),),
        words=("tiny", "(server changed|another server|it served m)"),
        not_words=("Run at concurrency 4",),
    )
    return Case(name, situation, expected, {"concurrency": "[2, 4]"}, commands=RESUMED, check=_valid(not_at=(4,)))


CHANGES = (
    resumed("resumed_with_another_model", lambda: s.Fallback(after=1)),
    resumed("resumed_with_another_model_listed", lambda: Listed(after=1)),
    Case(
        "resumed_with_the_same",
        Situation,
        Expected((KILLED,), ("meets",), then=((YES,),), no_flags=("server_changed",), true=("p50_tpot",)),
        {"concurrency": "[2, 4]"},
        commands=RESUMED,
    ),
    Case(
        "two_deployments_by_connections",
        ByConnections,
        Expected((FAILED,), ("invalid",), flags=("server_changed",), words=("tiny",)),
        NATURAL,
    ),
    Case(
        "two_deployments_named",
        TwoEndpoints,
        Expected(**MEETS, no_flags=("server_changed",), true=("p50_tpot",)),
        {**NATURAL, "endpoint": "URL/a/v1", "deployments": "[{name: a}, {name: b, endpoint: URL/b/v1}]"},
    ),
    *(
        Case(
            name,
            lambda fallen_in=fallen_in: s.Fallback(fallen_in=fallen_in),  # type: ignore[misc]
            # The trials of the other model are left out, and others measured in their place.
            Expected(**MEETS, flags=("server_changed",), words=(LEFT_OUT,), true=("p50_tpot",)),
            THREE,
            check=_valid(2, 3, 4),
        )
        for name, fallen_in in (("a_name_comes_back", (1,)), ("a_name_comes_back_at_the_end", (1, 4)))
    ),
    Case(
        "another_model_stays",
        # It answers a setting that the first one answered, and none after that.
        lambda: s.Fallback(fallen_in=(1, *range(4, 40))),
        Expected(
            (FAILED,), ("invalid",), flags=("server_changed",), words=(LEFT_OUT, "since then, at c=4"), not_words=MEANT
        ),
        THREE,
        check=_valid(not_at=(2, 3, 4)),
    ),
    Case(
        "falls_back_at_the_highest_setting",
        lambda: s.Fallback(fallen_in=(2, 3, 4)),
        Expected(**MEETS, flags=("server_changed",), words=(LEFT_OUT, "Run at concurrency 3")),
        THREE,
        check=_valid(2, 3, not_at=(4,)),
    ),
    Case(
        "restarted_between_settings",
        Restarted,
        Expected(**MEETS, true=("p50_tpot",)),
        THREE,
        check=_valid(2, 3, 4),
    ),
    Case(
        "an_older_process_later",
        lambda: Restarted(anew=False),
        Expected((YES, UNPROVEN, FAILED), (), flags=("server_changed",)),
        THREE,
    ),
)
