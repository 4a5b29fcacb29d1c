"""The pictures of the concept pages, proof.svg and staircase.svg:  python docs/pictures.py  draws
both in 10 s."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from frontier.core.model.shapes import Shape
from frontier.core.stats.intervals import rank, upper_rank
from frontier.simulator.spec import EngineSpec
from frontier.simulator.virtual import closed_loop_arrays

HERE = Path(__file__).parent
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
STYLE = {"svg.hashsalt": "frontier", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
ENGINE = {"step_base": "5ms", "per_decode": "30us", "per_prefill_token": "20us", "noise": "0.05"}
SHAPE = Shape.of(256, 32)


def saved(name: str) -> None:
    plt.savefig(HERE / name, bbox_inches="tight", metadata={"Date": None})
    plt.close()


def proof() -> None:
    """Over the number of requests: the value of a p99 and its bound, as shares of the truth."""
    rng, sigma = np.random.default_rng(1), 0.3
    true = float(np.exp(2.3263478740408408 * sigma))
    sizes = [50, 100, 200, 300, 400, 600, 1000, 2000, 4000]
    plt.figure(figsize=(7, 3.4))
    samples = {n: np.sort(rng.lognormal(0, sigma, (1000, n)), axis=1) / true for n in sizes}
    bounds = {n: k for n in sizes if (k := upper_rank(0.99, n, n)) is not None}
    for label, colour, dashes, ranks in (
        ("the value: it may be far below the truth", ORANGE, "--", {n: rank(0.99, n) for n in sizes}),
        ("the bound: above the truth in 95 of 100 samples", BLUE, "-", bounds),
    ):
        band = np.array([np.quantile(samples[n][:, k - 1], [0.05, 0.5, 0.95]) for n, k in ranks.items()])
        plt.fill_between(list(ranks), band[:, 0], band[:, 2], color=colour, alpha=0.2, lw=0)
        plt.plot(list(ranks), band[:, 1], color=colour, ls=dashes, label=label)
    plt.axhline(1, color="black", lw=0.8, ls=":")
    plt.axvline(299, color="grey", lw=0.8, ls="--")
    plt.text(285, 1.2, "no bound", ha="right", color="grey")
    plt.xscale("log")
    plt.xticks([50, 100, 299, 1000, 4000], ["50", "100", "299", "1,000", "4,000"])
    plt.xlabel("independent requests")
    plt.ylabel("p99 / true p99")
    plt.title("Below 299 requests a p99 has no upper bound", loc="left", fontweight="bold", pad=44)
    plt.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0))
    saved("proof.svg")


def staircase() -> None:
    """Throughput over p99 TTFT of an engine in which prompts are read several at a time."""
    spec = EngineSpec.from_mapping(ENGINE)
    measured, between = [2, 4, 8, 16], [9, 10, 11, 12, 13, 14]
    runs = {c: closed_loop_arrays(spec, SHAPE, c, requests=6000) for c in (*measured, *between)}
    where = {
        c: (1000 * np.quantile(run.ttft, 0.99, method="inverted_cdf"), run.output_throughput) for c, run in runs.items()
    }
    x, y = (np.array([where[c][i] for c in measured]) for i in (0, 1))
    plt.figure(figsize=(7, 3.6))
    plt.step(x, y, where="post", color=BLUE, label="frontier (staircase)")
    plt.plot(x, y, color=ORANGE, ls="--", lw=1, label="straight lines")
    plt.plot(x, y, "o", color=BLUE)
    others = zip(*(where[c] for c in between), strict=True)
    plt.plot(*others, "x", color="black", label="concurrencies not in the sweep")
    for c, (latency, rate) in where.items():
        side = (7, 0) if c > 9 else (6, -6) if c in measured else (-14, 0)
        level = "top" if c in measured and c < 10 else "center"
        plt.annotate(str(c), (latency, rate), xytext=side, textcoords="offset points", fontsize=8, va=level)
    plt.title("A straight line promises what no setting gives", loc="left", fontweight="bold")
    plt.ylim(0, 2100)
    plt.xlim(15, 30.5)
    plt.xlabel("p99 TTFT, ms")
    plt.ylabel("output tokens/s")
    plt.legend(frameon=False, loc="upper left")
    saved("staircase.svg")


if __name__ == "__main__":
    plt.switch_backend("svg")
    with plt.rc_context(STYLE):
        proof()
        staircase()
