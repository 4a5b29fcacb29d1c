"""Notes on a server's metrics: gauges that are not used, and streams that a reading holds up."""

from collections.abc import Sequence

from frontier.core.model.units import format_seconds, format_share
from frontier.core.window.gauges import HELD, SAID
from frontier.core.window.standstill import DURING, ELSE, SHARE
from frontier.core.window.time_breakdown import SERIES, WindowFacts, finished, totals


def contradiction(windows: Sequence[WindowFacts]) -> str:
    """Why the gauges of a setting are not used, with both numbers; '' where they are."""
    wrong = [facts for facts in windows if SAID in facts]
    if not wrong:
        return ""
    said, held = (sum(facts[name] for facts in wrong) / len(wrong) for name in (SAID, HELD))
    numbers = f"the server's metrics say {round(said, 1):,g} requests running and waiting, {round(held, 1):,g} were"
    return f"{numbers} in flight: {_why(wrong)}"


def notes(windows: Sequence[WindowFacts]) -> tuple[str, ...]:
    """What a reader of a setting should know of its server's metrics."""
    wrong = contradiction(windows)
    return (*([f"{wrong}; not used"] if wrong else []), *_standstill(windows))


def _why(windows: Sequence[WindowFacts]) -> str:
    """Why the server says more: others use it if it finished more requests than ours; otherwise
    several series are one number.
    """
    series = max(facts.get(SERIES, 1.0) for facts in windows)
    one = "they count one number several times" if series > 1 else "others use it"
    done = finished(totals(windows))
    if done is None:
        return f"{one}, or others use it" if series > 1 else one
    if done.server > done.client + done.room + done.edge and not done.times(series):
        return f"others use it, as {done}"
    return one


def _standstill(windows: Sequence[WindowFacts]) -> tuple[str, ...]:
    """The note on how long streams stood still; empty where they did not."""
    seen = [facts for facts in windows if DURING in facts]
    if not seen:
        return ()
    during, other, share = (sum(facts[name] for facts in seen) / len(seen) for name in (DURING, ELSE, SHARE))
    gap = f"{format_seconds(during)} from chunk to chunk, {format_seconds(other)} otherwise"
    text = f"streams stand still while the server's metrics are read, {format_share(share)} of the time: {gap}"
    return (f"{text} (metrics: none  leaves the readings out)",)
