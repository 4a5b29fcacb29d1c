"""What goes first where time runs out, where nothing is proven, and where a server is full below
its limit."""

import dataclasses
import math

import pytest

from frontier.core.claim.proof import candidates
from frontier.core.model.decisions import Limit, Verdict
from frontier.core.model.trials import Phase
from frontier.search import options, scan
from frontier.search.next_trial import Ask, Done
from frontier.search.place import State, forecast
from frontier.search.scan import SearchPolicy
from frontier.search.series_history import SeriesHistory
from tests.kit.made import SHAPE, Server, loads, trial

TTFT = (Limit("p99_ttft", 0.5),)
POLICY = SearchPolicy(loads(1, 2, 4, 6, 8))
CLOSE = {1: 0.1, 2: 0.15, 3: 0.17, 4: 0.2, 5: 0.3, 6: 0.312, 8: 0.6}
"""Median TTFT, of which the p99 is 1.592 times: 0.497 at c=6, where some 40 windows prove it."""


def law(c):
    return CLOSE.get(c, 0.1 * c)


def ran(server, history, c, phase, count=1, requests=334):
    for _ in range(count):
        repeat = 1 + sum((t.load, t.phase) == (c, phase) for t, _ in history)
        t = trial(c, phase, repeat, requests)
        history.append((t, server.run(t)))
    return history


def ask(history, within=math.inf, policy=POLICY, limits=TTFT):
    return scan.next_ask(policy, SHAPE, [("", limits)], history, within=within)


def close_by(windows, seed=1):
    """The history of a search that is proving c=6, too close to its limit to be proven soon."""
    server, history = Server(law, seed=seed), []
    for c in (1, 4, 8, 6):
        ran(server, history, c, Phase.SCAN, requests=60)
    return server, ran(server, history, 6, Phase.PROVE, windows)


@pytest.fixture(scope="module")
def going():
    """A server, and the history of its proof of c=6 after five windows, which goes on."""
    for seed in range(1, 40):
        server, history = close_by(5, seed)
        if candidates(history, TTFT)[0].verdict is Verdict.UNPROVEN:
            return server, history
    raise AssertionError("no seed goes on")


def test_a_candidate_that_had_a_third_of_the_time_gives_way_to_what_can_be_proven_in_the_rest(going):
    server, history = going
    took = State.of(SeriesHistory.of(TTFT, history)).spent[6]
    assert 6 == ask(history).load, "without a budget it goes on"
    assert 6 == ask(history, within=20 * took).load, "it had less than a third"
    other = ask(history, within=1.5 * took)
    assert (Phase.PROVE, True) == (other.phase, other.load < 6)
    history = ran(server, list(history), other.load, Phase.PROVE, 2)
    assert other.load == ask(history, within=took).load, "what was begun for it goes on"
    history = ran(server, history, other.load, Phase.PROVE, 1)
    first, second = candidates(history, TTFT)
    assert ((6, Verdict.UNPROVEN), other.load) == ((first.load, first.verdict), second.load)
    assert second.windows == 3, "it was judged"
    assert 6 == ask(history, within=100 * took).load, "the first goes on where time is left"
    nowhere = ask(going[1], within=1.0)
    assert 6 == nowhere.load, "nothing else fits either"


def test_the_error_of_a_candidate_that_gave_way_stays_spent(going):
    server, history = going
    after = ran(server, list(history), 4, Phase.PROVE, 3)
    first, second = candidates(after, TTFT)
    assert second.alpha == pytest.approx(0.05 * 0.75 * 0.25), "one judgement of the first was made"
    assert first.alpha == pytest.approx(0.05 * 0.25)


@pytest.mark.slow
def test_the_lower_setting_is_named_in_nearly_all_nights_of_a_short_budget():
    named = 0
    for seed in range(20):
        server, history, budget = Server(law, seed=seed), [], 3_000.0
        while isinstance(step := ask(history, budget - server.clock), Ask) and server.clock < budget:
            ran(server, history, step.load, step.phase, requests=step.requests)
        named += any(k.verdict is Verdict.MEETS for k in candidates(history, TTFT))
    assert named >= 19


class Episodes(Server):
    """Half as fast in these of its runs."""

    def __init__(self, slow):
        super().__init__(lambda c: 0.01 * c)
        self.slow, self.runs = set(slow), 0

    def run(self, t):
        self.runs += 1
        self.ttft = (lambda c: 0.6) if self.runs in self.slow else (lambda c: 0.01 * c)
        return super().run(t)


def windows_of(*slow, count=5):
    return ran(Episodes(slow), [], 8, Phase.PROVE, count)


@pytest.mark.parametrize(
    ("slow", "verdict"),
    [
        ((2,), Verdict.UNPROVEN),  # one of five
        ((1, 4), Verdict.UNPROVEN),
        ((1, 3, 4), Verdict.VIOLATES),  # most of them
        ((1, 2, 3, 4, 5), Verdict.VIOLATES),
    ],
)
def test_a_setting_that_is_over_in_a_few_of_its_windows_is_measured_longer(slow, verdict):
    (found,) = candidates(windows_of(*slow), TTFT)
    assert verdict is found.verdict
    assert not found.reason or "over its limit" in found.reason


def test_a_server_that_wanders_is_given_up_by_the_second_judgement():
    (found,) = candidates(windows_of(2, 5, count=8), TTFT)
    assert (Verdict.VIOLATES, 8) == (found.verdict, found.windows)
    assert "over its limit" in found.reason


def test_what_is_proven_on_a_server_that_wanders_is_measured_longer_before_anything_else():
    server, history = Server(lambda c: 0.01 * c), []
    for c in (1, 4, 8, 16, 24, 40):
        ran(server, history, c, Phase.SCAN, requests=60)
    aside = ran(Episodes((2,)), [], 24, Phase.PROVE, 2)
    proven = ran(server, history, 16, Phase.PROVE, 3)
    calm, wandering = (
        ask(found, policy=SearchPolicy(loads(1, 4, 8, 16, 24, 40))) for found in (proven, [*proven, *aside])
    )
    assert (Phase.PROVE, 24) == (wandering.phase, wandering.load), "what is begun goes on"
    worse = ran(Episodes((1, 2, 3)), [*proven, *aside], 24, Phase.PROVE, 3)
    then = ask(worse, policy=SearchPolicy(loads(1, 4, 8, 16, 24, 40)))
    assert (Phase.VISIT, 16) == (then.phase, then.load)
    assert calm.phase is Phase.PROVE


def test_a_setting_set_aside_after_one_window_may_go_on():
    (aside,) = candidates(windows_of(1, count=1), TTFT)
    (after,) = candidates(windows_of(1, count=2), TTFT)
    assert (Verdict.VIOLATES, Verdict.UNPROVEN) == (aside.verdict, after.verdict)


def wandered():
    """A night like one on a busy machine: every proof meets an episode, other trials do not."""
    server, history = Episodes(range(100)), []
    for c, phase, slow in (
        *((c, Phase.SCAN, False) for c in (1, 2, 4, 8, 6)),
        *((c, Phase.PROVE, True) for c in (6, 4, 2, 1)),
    ):
        server.slow = set(range(100)) if slow else set()
        ran(server, history, c, phase, requests=334 if slow else 60)
    return server, history


def test_while_nothing_is_proven_what_could_be_goes_before_the_picture():
    server, history = wandered()
    assert {Verdict.VIOLATES} == {k.verdict for k in candidates(history, TTFT)}
    step = ask(history)
    assert isinstance(step, Ask)
    assert (Phase.PROVE, 8) == (step.phase, step.load), "all of its data are inside, and it gives most"
    server.slow = set()
    history = ran(server, history, 8, Phase.PROVE, 3)
    assert Verdict.MEETS is candidates(history, TTFT)[-1].verdict


def test_the_looks_take_a_quarter_of_the_time_where_a_setting_is_inside():
    server, history = Server(lambda c: 0.06 * c), []
    for c in (1, 4, 16):
        ran(server, history, c, Phase.SCAN, requests=60)
    assert Phase.SCAN is ask(history).phase
    assert Phase.SCAN is ask(history, within=4 * server.clock).phase
    assert Phase.PROVE is ask(history, within=2 * server.clock).phase


def test_a_proof_that_wanders_gives_way_only_to_a_likely_one():
    state = dataclasses.replace(State.of(SeriesHistory.of(TTFT, close_by(4)[1])), wanders=True)
    assert not options.gives_way(dataclasses.replace(state, wanders=False), 6, ())
    unlikely = dataclasses.replace(state, within=1.0)
    assert options.gives_way(unlikely, 6, ())
    assert not options.gives_way(unlikely, 6, (4,)), "something is proven"


def test_on_an_unsteady_server_a_proof_is_forecast_by_its_own_bound_and_gives_way_to_one_that_is_likelier_by_far():
    state = dataclasses.replace(State.of(SeriesHistory.of(TTFT, close_by(4)[1])), wanders=True, within=600.0)
    assert options.gives_way(state, 6, ())
    assert [options.is_overtaken(state, 6, c) for c in (4, 6)] == [True, False]
    (judged,) = state.candidates
    wide = {name: dataclasses.replace(e, upper=2 * e.upper) for name, e in judged.point.metrics.items()}
    further = dataclasses.replace(judged, point=dataclasses.replace(judged.point, metrics=wide))
    far = dataclasses.replace(state, candidates=(further,))
    assert forecast(far, 6, 1.0).chance < forecast(state, 6, 1.0).chance


def test_later_windows_are_longer_where_the_server_wanders_and_time_is_short():
    _, history = close_by(4)
    quick = tuple(Limit("p90_ttft", x.promise) for x in TTFT)  # of 90 requests a window
    state = State.of(SeriesHistory.of(quick, history))
    wanders = dataclasses.replace(state, wanders=True)
    sizes, short = [
        [each.window_size(c) for c in (4, 6)] for each in (wanders, dataclasses.replace(wanders, within=600.0))
    ]
    assert sizes == [state.window_size(c) for c in (4, 6)]
    assert (short[0], short[1] > sizes[1]) == (sizes[0], True), "not the first window"


def test_where_nothing_can_be_inside_the_search_is_over():
    server, history = Server(lambda c: 2.0), []
    for c in (1, 2):
        ran(server, history, c, Phase.SCAN, requests=60)
    ran(server, history, 1, Phase.PROVE, 3)
    assert isinstance(ask(history), Done)
    assert options.soonest(State.of(SeriesHistory.of(TTFT, history))) is None


# --- a server that is full


def full(c, at=50):
    """TTFT of a server with `at` seats: the others wait for one."""
    return 0.05 if c <= at else 0.05 + (c - at) / at


def saturating(settings, at=50, requests=2000):
    server, history = Server(lambda c: full(c, at), lambda c: 0.01, sigma=0.02), []
    for c in settings:
        ran(server, history, c, Phase.SCAN, requests=requests)
    return State.of(SeriesHistory.of((Limit("p99_e2e", 10.0),), history))


def test_the_corner_of_a_full_server_is_looked_at_between_the_settings_around_it():
    state = saturating((16, 32, 64, 128))
    assert options.corner(state, (64,)) in range(48, 55), "the server is full at 50"
    assert options.corner(state, (32,)) in range(48, 55), "above what is proven, for clearly more"
    near = saturating((16, 32, 64, 128), at=68)
    assert options.corner(near, (64,)) is None, "c=128 gives hardly more than what is proven"


def test_a_listed_setting_is_looked_at_first_and_is_the_answer_unless_another_gives_clearly_more():
    wide = saturating((16, 32, 128), at=68)
    assert options.corner(wide, (128,), (16, 32, 64, 128)) == 64
    near = saturating((16, 32, 64, 128), at=68)
    assert options.corner(near, (64, 128), (16, 32, 64, 128)) is None, "6% more is not clearly more"
    assert options.corner(near, (64, 128)) in range(66, 72)


def test_no_corner_is_looked_for_where_throughput_goes_on_growing():
    server, history = Server(lambda c: 0.05, lambda c: 0.01, sigma=0.02), []
    for c in (16, 32, 64, 128):
        ran(server, history, c, Phase.SCAN, requests=2000)
    state = State.of(SeriesHistory.of((Limit("p99_e2e", 10.0),), history))
    assert options.corner(state, (128,)) is None
    again = dataclasses.replace(saturating((16, 32, 64, 128)), looks=dict.fromkeys(range(48, 55), 1))
    assert options.corner(again, (64,)) is None, "it was looked at"
