"""Points in the Prometheus text format, for node_exporter's textfile collector or a push gateway."""

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from frontier.metrics import Unit, metric
from frontier.model import Decision, Frontier, Point, Verdict

_SUFFIX = {
    Unit.SECONDS: "_seconds",
    Unit.TOKENS_PER_SECOND: "_tokens_per_second",
    Unit.REQUESTS_PER_SECOND: "_requests_per_second",
    Unit.SHARE: "_ratio",
    Unit.TOKENS_PER_SECOND_PER_USER: "_tokens_per_second",
    Unit.DOLLARS_PER_MILLION_TOKENS: "_dollars_per_million_tokens",
    Unit.JOULES_PER_TOKEN: "_joules_per_token",
    Unit.TOKENS_PER_JOULE: "",
}
SETTING = ("deployment", "shape", "concurrency")
_ENDS = {"": "", "_low": " (lower end of the 95 % interval)", "_high": " (upper end of the 95 % interval)"}


def family_name(name: str, end: str = "") -> str:
    """The Prometheus name of a metric: 'p99_ttft' is 'frontier_p99_ttft_seconds'."""
    return f"frontier_{name.replace('.', '_')}{end}{_SUFFIX[metric(name).unit]}"


def prometheus_text(points: Sequence[Point], frontiers: Sequence[Frontier], decisions: Sequence[Decision] = ()) -> str:
    """Gauges by setting, and the operating point of each (deployment, shape) where an SLA decided one."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Points(points, frontiers, decisions))
    return generate_latest(registry).decode()


class _Points(Collector):
    def __init__(self, points: Sequence[Point], frontiers: Sequence[Frontier], decisions: Sequence[Decision]) -> None:
        self.points, self.frontiers, self.decisions = points, frontiers, decisions

    def collect(self) -> Iterable[Metric]:
        """Every family."""
        on = {(f.deployment, f.shape): f for f in self.frontiers}
        requests = GaugeMetricFamily("frontier_point_requests", "Requests behind a point.", labels=SETTING)
        valid = GaugeMetricFamily("frontier_point_valid", "1 when no flag makes it meaningless.", labels=SETTING)
        member = GaugeMetricFamily("frontier_point_on_frontier", "1 when it is not dominated.", labels=SETTING)
        for p in self.points:
            frontier = on.get((p.deployment, p.shape))
            requests.add_metric(_setting(p), p.n)
            valid.add_metric(_setting(p), p.valid)
            member.add_metric(_setting(p), frontier is not None and p.concurrency in frontier.members)
        yield from (requests, valid, member)
        for name in sorted({name for p in self.points for name in p.metrics}):
            yield from self._metric(name)
        yield from self._decided()

    def _metric(self, name: str) -> Iterable[Metric]:
        of = metric(name)
        for end, said in _ENDS.items():
            family = GaugeMetricFamily(family_name(name, end), f"{of.label}{said}.", labels=SETTING)
            for p in self.points:
                if (e := p.metrics.get(name)) is not None:
                    family.add_metric(_setting(p), {"": e.value, "_low": e.low, "_high": e.high}[end])
            yield family

    def _decided(self) -> Iterable[Metric]:
        if not self.decisions:
            return
        labels = ("deployment", "shape")
        chosen = GaugeMetricFamily(
            "frontier_operating_point_concurrency", "The concurrency that keeps the SLA; absent when none does.",
            labels=labels,
        )  # fmt: skip
        verdict = GaugeMetricFamily(
            "frontier_verdict", "1 for the verdict about the SLA, 0 for the others.", labels=(*labels, "verdict")
        )
        for d in self.decisions:
            if d.concurrency is not None:
                chosen.add_metric((d.deployment, d.shape.label), d.concurrency)
            for each in Verdict:
                verdict.add_metric((d.deployment, d.shape.label, each.value), d.verdict is each)
        yield from (chosen, verdict)


def _setting(p: Point) -> tuple[str, str, str]:
    return p.deployment, p.shape.label, str(p.concurrency)
