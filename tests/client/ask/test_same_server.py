"""The server of a deployment: who answers in a later window is compared with who answered in the
first, by name, version and process."""

import json
from dataclasses import replace

import pytest

from frontier.client.ask.same_server import Identity, journalled, with_others
from frontier.client.ask.target import Target
from frontier.client.load.pipeline import Named
from frontier.core.claim.proof import by_concurrency
from frontier.core.estimates.estimate import point
from frontier.core.flags.flags import flags
from frontier.core.model.trials import Trial
from frontier.core.window.window import WindowData, join
from tests.core.flags.test_flags import healthy
from tests.kit import made

BEGUN = 1_700_000_000.0


def window(
    *models: str, identity: str | None = None, at: float = BEGUN, changed: str | None = None, prints: int = 1
) -> WindowData:
    """A healthy window, begun at a time, whose answers named these models."""
    one = healthy()
    named = {"asked": {"m": 0}, "model": dict.fromkeys(models, 30)} if models else {}
    if models:
        named["system_fingerprint"] = {f"fp{i}": 15 for i in range(prints)}
    moved = at - float(one.starts[0])
    return replace(
        one,
        starts=one.starts + moved,
        ends=one.ends + moved,
        sent=one.sent + moved,
        named=(named,),
        server_identities=(identity,),
        changed=(changed,),
    )


def changed(*windows: WindowData) -> list[bool]:
    """Of each window of one deployment, in their order, whether another server answered."""
    first, found = Identity(), []
    for each in windows:
        first, compared = first.with_window(each)
        raised = {flag.name: flag for flag in flags(compared)}
        found.append("server_changed" in raised)
        assert all(flag.fatal for name, flag in raised.items() if name == "server_changed")
    return found


V, W = "vllm 0.31.0 (uvicorn)", "vllm 0.32.0 (uvicorn)"


@pytest.mark.parametrize(
    ("windows", "another"),
    [
        ([window("m"), window("m"), window("m")], [False, False, False]),
        # A fallback for a whole window, for all that follow, and for one in between.
        ([window("m"), window("m"), window("tiny")], [False, False, True]),
        ([window("m"), window("tiny"), window("tiny")], [False, True, True]),
        ([window("m"), window("tiny"), window("m")], [False, True, False]),
        # For a part of the answers of a later window; of the first, which is then no measure.
        ([window("m"), window("m", "tiny")], [False, True]),
        ([window("m", "tiny"), window("m"), window("m")], [True, False, False]),
        ([window("m", "tiny"), window("tiny"), window("m")], [True, True, False]),
        # Each answer has both names: one server, whose names later answers have too.
        ([window("gateway/m + m"), window("gateway/m + m")], [False, False]),
        ([window("gateway/m + m"), window("m + tiny")], [False, True]),
        ([window("m"), window("m + tiny")], [False, True]),
        # An alias that stays is none of it, nor a fingerprint that changes.
        ([window("m-2026-08-06"), window("m-2026-08-06")], [False, False]),
        ([window("m", prints=2), window("m", prints=3)], [False, False]),
        # Windows of versions that kept no names say nothing, and are no measure.
        ([window(), window("m"), window()], [False, False, False]),
        ([window(), window("m"), window("tiny")], [False, False, True]),
        # Versions.
        ([window("m", identity=V), window("m", identity=V)], [False, False]),
        ([window("m", identity=V), window("m", identity=W)], [False, True]),
        ([window("m", identity=None), window("m", identity=V), window("m", identity=W)], [False, False, True]),
        # The server said it itself within the second.
        ([window("m"), window("m", changed="it lists lora")], [False, True]),
    ],
)
def test_who_answers_is_compared_with_the_first_window(windows: list[WindowData], another: list[bool]) -> None:
    assert another == changed(*windows)


@pytest.mark.parametrize(
    ("first", "later", "after", "another"),
    [
        (-5000, -5000, 600, False),
        (-5000, 300, 600, False),  # restarted since: no other server
        (-5000, -4000, 600, True),  # a replica that ran beside it
        (-4000, -5000, 600, True),
        (-5000, -4000, 86_400 * 3, True),
        (-5000, 86_400, 86_400 * 3, False),
        (-100, -59, 600, False),  # clocks may be off by a minute
    ],
)
def test_a_process_that_ran_beside_the_first_is_another_and_a_restarted_one_is_not(
    first: int, later: int, after: float, another: bool
) -> None:
    one = window("m", identity=f"{V}, started {BEGUN + first:.0f}")
    other = window("m", identity=f"{V}, started {BEGUN + later:.0f}", at=BEGUN + after)
    assert [False, another] == changed(one, other)


def test_a_window_in_which_the_server_changed_is_no_measure() -> None:
    assert [True, False, False] == changed(window("m", changed="it was version 1"), window("n"), window("n"))


def test_who_answered_first_is_kept_where_the_first_window_is_measured_again() -> None:
    first, _ = Identity().with_window(window("m", identity=f"{V}, started {BEGUN - 500:.0f}"))
    line = {"event": "answered", "deployment": "a", **json.loads(json.dumps(first.facts()))}
    assert {"a": first} == journalled([{"event": "server"}, line])
    nothing = {"event": "answered", "deployment": "a", **Identity().facts()}
    assert {"a": Identity()} == journalled([nothing])


def test_what_is_said_names_both_and_the_point_is_excluded() -> None:
    first, one = Identity().with_window(window("m", identity=V))
    _, other = first.with_window(window("tiny", identity=V, at=BEGUN + 60))
    (flag,) = [flag for flag in flags(join([one, other])) if flag.name == "server_changed"]
    assert "tiny" in flag.measured
    assert "m" in flag.measured.replace("tiny", "").split()
    assert "endpoint:" in flag.advice
    assert not point(join([one, other])).valid


def test_the_names_of_one_answer_are_one_name() -> None:
    named = Named(Target("http://127.0.0.1:1", "m"))
    for _ in range(3):
        named.add({("model", "m"), ("model", "hosted/m")})
    assert {"hosted/m + m": 3} == named.counts()["model"]
    named.add({("model", "m")})
    assert [3, 1] == list(named.counts()["model"].values())
    alias = replace(window(), named=(named.counts() | {"model": {"hosted/m + m": 3}},))
    assert "server_changed" not in {flag.name for flag in flags(alias)}
    assert any("hosted/m" in note for note in point(alias).notes)


TINY = "the answers name tiny"


def history(*windows: tuple[int, str | None]) -> list[tuple[Trial, WindowData]]:
    """Windows of these settings in their order, with what says that another server answered."""
    return [(made.trial(c), replace(window("m", changed=said), load=c)) for c, said in windows]


def raised(past: list[tuple[Trial, WindowData]]) -> dict[int, bool | None]:
    """Whether the flag at each setting is fatal; None: there is none."""
    points = {c: with_others(point(join(parts)), past) for c, parts in by_concurrency(past).items()}
    flagged = {c: [flag for flag in each.flags if flag.name == "server_changed"] for c, each in points.items()}
    return {c: each[0].fatal if each else None for c, each in sorted(flagged.items())}


@pytest.mark.parametrize(
    ("past", "fatal"),
    [
        ([(2, None), (4, None)], {2: None, 4: None}),
        # A fallback for one trial, measured again: left out, and said.
        ([(2, None), (4, TINY), (4, None)], {2: None, 4: False}),
        ([(2, None), (4, None), (4, TINY), (4, None)], {2: None, 4: False}),
        ([(2, None), (4, None), (4, TINY), (2, None)], {2: None, 4: False}),
        # A gateway that falls back under the load of 4 alone, or may.
        ([(2, None), (4, TINY), (4, TINY), (2, None)], {2: None, 4: True}),
        ([(2, None), (4, TINY), (4, TINY)], {2: None, 4: True}),
        # The first server answers no more: no setting was measured of the one that does.
        ([(2, None), (4, None), (4, TINY)], {2: True, 4: True}),
        ([(2, None), (4, None), (2, TINY), (4, TINY)], {2: True, 4: True}),
        ([(2, None), (4, TINY), (4, TINY), (2, TINY)], {2: True, 4: True}),
    ],
)
def test_windows_of_another_server_are_left_out_and_once_the_first_is_gone_nothing_stands(
    past: list[tuple[int, str | None]], fatal: dict[int, bool | None]
) -> None:
    assert fatal == raised(history(*past))


def test_a_setting_without_the_first_server_says_which_trial_shows_it() -> None:
    past = history((2, None), (4, None), (2, TINY))
    flagged = with_others(point(by_concurrency(past)[4][0]), past)
    (flag,) = [flag for flag in flagged.flags if flag.name == "server_changed"]
    assert "c=2" in flag.measured
    assert "tiny" in flag.measured
    assert not flagged.valid
