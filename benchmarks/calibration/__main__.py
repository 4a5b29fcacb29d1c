"""python -m benchmarks.calibration [--deployments N] [--engine N] [--jobs N] [--results FILE]

Draws deployments by number, so the same numbers are the same deployments. Each finished one is a line of the results
file; started again with the same file, the study goes on. The tables go to standard output.
"""

import argparse
import json
import multiprocessing
import sys
from pathlib import Path

from benchmarks.calibration import study
from benchmarks.calibration.servers import FAMILIES


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("--deployments", type=int, default=140, help="of the process model (default 140)")
    parser.add_argument(
        "--engine", type=int, default=0, help="of the engine itself, a hundred times slower (default 0)"
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--results", type=Path, help="a file of results to go on from and add to")
    asked = parser.parse_args()
    wanted = [
        (kind, FAMILIES[i % len(FAMILIES)], i // len(FAMILIES))
        for kind, count in (("process", asked.deployments), ("engine", asked.engine))
        for i in range(count)
    ]
    results: list[study.Result] = []
    if asked.results is not None and asked.results.exists():
        results = [json.loads(line) for line in asked.results.read_text().splitlines()]
    known = {(r["kind"], r["family"], r["seed"]) for r in results}
    todo = [job for job in wanted if job not in known]
    sink = asked.results.open("a") if asked.results is not None else None
    with multiprocessing.get_context("spawn").Pool(asked.jobs, initializer=study.quiet) as pool:
        for number, result in enumerate(pool.imap_unordered(study.job, todo), 1):
            results.append(result)
            if sink is not None:
                sink.write(json.dumps(result) + "\n")
                sink.flush()
            print(f"\r{number}/{len(todo)}", end="", file=sys.stderr)
    if sink is not None:
        sink.close()
    chosen = set(wanted)
    print(study.tables([r for r in results if (r["kind"], r["family"], r["seed"]) in chosen]))


if __name__ == "__main__":
    main()
