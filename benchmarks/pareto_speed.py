"""How long the non-dominated filter takes beside moocore, on the same points: python
benchmarks/pareto_speed.py"""

import time
from collections.abc import Callable

import moocore
import numpy as np

from frontier.core.claim.pareto import nondominated, nondominated_nd


def best_of(call: Callable[[], object], repeats: int = 7) -> float:
    """The shortest of several runs, in seconds: the one the machine's other work disturbed
    least.
    """
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(1)
    print(f"{'points':>10} {'axes':>4}  {'set':<10} {'frontier':>10} {'moocore':>10} {'ratio':>6}")
    for n in (100, 10_000, 1_000_000):
        uniform = rng.random((n, 2))
        line = np.linspace(0.0, 1.0, n)
        front = np.column_stack((line, line))[rng.permutation(n)]
        for name, table in (("uniform", uniform), ("all on it", front)):
            high, low = table[:, 0].copy(), table[:, 1].copy()
            costs = np.column_stack((-high, low))
            ours = best_of(lambda high=high, low=low: nondominated(high, low))
            theirs = best_of(lambda costs=costs: moocore.is_nondominated(costs, keep_weakly=True))
            print(f"{n:>10,} {2:>4}  {name:<10} {ours * 1e3:>7.2f} ms {theirs * 1e3:>7.2f} ms {ours / theirs:>6.2f}")
    table = rng.random((10_000, 4))
    ours = best_of(lambda: nondominated_nd(table), 3)
    theirs = best_of(lambda: moocore.is_nondominated(table, keep_weakly=True), 3)
    print(f"{10_000:>10,} {4:>4}  {'uniform':<10} {ours * 1e3:>7.2f} ms {theirs * 1e3:>7.2f} ms {ours / theirs:>6.2f}")


if __name__ == "__main__":
    main()
