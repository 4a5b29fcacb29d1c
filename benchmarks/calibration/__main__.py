"""python -m benchmarks.calibration [--deployments N] [--engine N] [--family NAME] [--rule NAME]
[--jobs N] [--results FILE] [--tables]

Draws deployments by number, so the same numbers are the same deployments. Each finished one is a
line of the results file; started again with the same file, the study goes on, whatever stopped it.
The tables go to standard output.
"""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.calibration import study, tables
from benchmarks.calibration.servers import EVERY, FAMILIES


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("--deployments", type=int, default=140, help="of the process model (default 140)")
    parser.add_argument("--engine", type=int, default=0, help="of the engine itself, many times slower (default 0)")
    parser.add_argument("--family", action="append", default=[], choices=EVERY, help="only this one")
    parser.add_argument("--rule", action="append", default=[], help="only this rule; 'intervals': their coverage")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1: this one)")
    parser.add_argument("--results", type=Path, help="a file of results to go on from and add to")
    parser.add_argument("--tables", action="store_true", help="only print the tables of what the file holds")
    asked = parser.parse_args()
    families = asked.family or FAMILIES
    wanted = [
        (kind, families[i % len(families)], i // len(families))
        for kind, count in (("process", asked.deployments), ("engine", asked.engine))
        for i in range(count)
    ]
    results = known(asked.results)
    done = {(r["kind"], r["family"], r["seed"]) for r in results}
    todo = [] if asked.tables else [(*job, tuple(asked.rule)) for job in wanted if job not in done]
    for number, result in enumerate(run(todo, asked.jobs), 1):
        results.append(result)
        if asked.results is not None:
            with asked.results.open("a") as sink:
                sink.write(json.dumps(result) + "\n")
        print(f"\r{number}/{len(todo)}", end="", file=sys.stderr, flush=True)
    chosen = set(wanted)
    print(tables.tables([r for r in results if (r["kind"], r["family"], r["seed"]) in chosen]))


def known(file: Path | None) -> list[study.Result]:
    """The results a file holds. A last line that was cut off by a kill is taken off the file, to be
    made again.
    """
    if file is None or not file.exists():
        return []
    text = file.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        file.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def by_seed(
    name: str, about: str | None, deployments: int, job: Callable[[int], Any], table: Callable[[list[Any]], str]
) -> None:
    """The command of a study of its own: run what a file of results lacks, seed by seed, and print
    the table.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.calibration.{name}", description=about)
    parser.add_argument("--deployments", type=int, default=deployments)
    parser.add_argument("--results", type=Path, help="a file of results to go on from and add to")
    asked = parser.parse_args()
    study.quiet()
    results: list[Any] = known(asked.results)
    done = {r["seed"] for r in results}
    for seed in range(asked.deployments):
        if seed not in done:
            results.append(job(seed))
            if asked.results is not None:
                with asked.results.open("a") as sink:
                    sink.write(json.dumps(results[-1]) + "\n")
    print(table([r for r in results if r["seed"] < asked.deployments]))


def run(todo: list[tuple[str, str, int, tuple[str, ...]]], jobs: int) -> Iterator[study.Result]:
    """Each deployment as it is finished, here or in processes of their own."""
    if jobs == 1:
        study.quiet()
        yield from map(study.job, todo)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=study.quiet) as pool:
        yield from pool.imap_unordered(study.job, todo)


if __name__ == "__main__":
    main()
