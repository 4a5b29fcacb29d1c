"""How many simulated tokens per second the engine makes in virtual time, on one core; the aim is a
million.

Then a whole night: twelve concurrencies of three shapes with thousands of requests each, as a sweep
would send them.

Run: python benchmarks/engine_speed.py [requests]
"""

import sys
import time

from frontier.core.model.shapes import Shape
from frontier.simulator.spec import EngineSpec, Speculation
from frontier.simulator.virtual import arrays_of, closed_loop_arrays, records_of, simulate

TARGET = 1_000_000
NIGHT = (Shape.of(1024, 256), Shape.of(256, 128), Shape.of(8192, 256))
CONCURRENCIES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
SETTINGS = ((1024, 256, 64), (1024, 256, 128), (1024, 256, 256), (1024, 64, 64), (8192, 512, 64))


def main() -> None:
    """Print a line per setting, arrays and whole records, and the worst ratio to the target."""
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    spec = EngineSpec(noise=0.05, kv_tokens=2_000_000)
    worst = float("inf")
    print(f"{'shape':>10} {'c':>4} {'arrays tok/s':>14} {'records tok/s':>14} {'ratio':>7}")
    for isl, osl, concurrency in SETTINGS:
        rates = []
        for figures_of in (arrays_of, records_of):
            begin = time.process_time()
            figures_of(simulate(spec, Shape.of(isl, osl), concurrency, requests))
            # Warm-up and the hold at the end are simulated as well.
            tokens = (requests + 3 * concurrency) * osl
            rates.append(tokens / (time.process_time() - begin))
        ratio = rates[0] / TARGET
        worst = min(worst, ratio)
        print(f"{isl:>6}/{osl:<4}{concurrency:>4} {rates[0]:>14,.0f} {rates[1]:>14,.0f} {ratio:>7.2f}")
    begin = time.process_time()
    speculating = EngineSpec(noise=0.05, kv_tokens=2_000_000, speculation=Speculation(4))
    closed_loop_arrays(speculating, Shape.of(1024, 256), 64, requests=requests)
    rate = (requests + 3 * 64) * 256 / (time.process_time() - begin)
    print(f"  1024/256   64 {rate:>14,.0f}  speculating")
    settings = [(shape, c) for shape in NIGHT for c in CONCURRENCIES]
    begin = time.process_time()
    runs = [closed_loop_arrays(spec, shape, c, requests=requests) for shape, c in settings]
    seconds = time.process_time() - begin
    hours = sum(run.window.end for run in runs) / 3600
    tokens = sum(run.output_tokens for run in runs) / 1e6
    print(f"a night of {len(settings)} settings with {requests:,} requests each:")
    print(f"{tokens:.1f} million tokens, {hours:.1f} h, in {seconds:.1f} s")
    print(f"worst ratio to {TARGET:,} simulated tokens/s: {worst:.2f}")


if __name__ == "__main__":
    main()
