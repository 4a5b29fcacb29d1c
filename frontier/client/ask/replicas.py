"""Replicas behind one address: whether several processes answer by turns where a server's metrics
are."""

from frontier.client.ask.evidence import scrape
from frontier.client.ask.facts import FACTS, START, facts_at
from frontier.client.ask.target import Target
from frontier.client.http.http_client import Client

_LOOKS = 5
"""Number of readings. Where two replicas answer at random, one of them answers all readings once in
16 times."""


async def several_processes(target: Target) -> str | None:
    """The warning that several processes answer by turns at the address of the metrics, and what to
    do. They show by different starting times, or by counts that fall from one reading to the next.
    None: one process answers.

    Each reading has a connection of its own, as a balancer may choose a replica for each of them.
    """
    starts, before = set(), dict[str, float]()
    for _ in range(_LOOKS):
        async with Client(target) as client:
            reading = await scrape(client)
        if reading is None:
            return None
        starts.add(frozenset(series for series in reading[0].items() if series[0][0] == START))
        now = {name: value for name, value in facts_at(reading[0]).items() if _only_grows(name)}
        if len(starts) > 1 or any(value < before.get(name, 0.0) for name, value in now.items()):
            where = ", ".join(target.metrics_urls or (target.url(target.engine.metrics),))
            return (
                f"several processes answer by turns at {target.cleaned(where)}: name the metrics of each  "
                "(metrics: [URL, URL]),  or do without  (metrics: none);  else settings may be excluded"
            )
        before = now
    return None


def _only_grows(name: str) -> bool:
    """It is a count; a sum of seconds may be rounded."""
    return FACTS[name].time == "increase" and not name.endswith("_sum")
