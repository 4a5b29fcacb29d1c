"""python -m benchmarks.nights [--count N] [--seed S] [--jobs N] [--night SEED] [--pairs N]

Plays nights by number: a config, its servers, what goes wrong and the commands of a user are drawn
from the seed, run in virtual time, and what must always hold is checked. One line for each night
with a fault, with the command that runs it alone; exit code 0, or 1 where a fault was found.

With --pairs N, plays nights with an interruption and the same without, and says how often each
proves a setting.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.nights.draw import draw
from benchmarks.nights.invariants import INVARIANTS, WAITING, look_further, named, printed_commands_work, too_often
from benchmarks.nights.play import Player, Told, play, playing
from benchmarks.nights.relations import RELATIONS, SWEPT, pairs, proven
from benchmarks.nights.sentences import SENTENCES

MOST_SEEDS = 10**9
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a night: (invariant, what was found) for each fault, and the seconds of
    processor time.
    """

    seed: int
    faults: tuple[tuple[str, str], ...]
    seconds: float
    trials: int
    named: tuple[tuple[str, bool], ...] = ()


def one(seed: int) -> Result:
    """Play the night of a seed and check it."""
    began, night = time.process_time(), draw(seed)
    with playing(night) as (player, told):
        play(player, told)
        look_further(player, told)
        settings, faults = tuple(named(told)), faults_of(player, told)
    faults += [(check.__name__, line) for check in SWEPT for line in check(night)]
    return Result(seed, tuple(faults), time.process_time() - began, player.server.trials, settings)


def faults_of(player: Player, told: Told) -> list[tuple[str, str]]:
    """The invariant and what was found, for each fault of a night that was played."""
    faults = [(check.__name__, line) for check in (*INVARIANTS, *SENTENCES, *RELATIONS) for line in check(told)]
    return faults + [(printed_commands_work.__name__, line) for line in printed_commands_work(player, told)]


def results(work: Callable[[int], T], seeds: Iterable[int], jobs: int) -> Iterator[T]:
    """What comes of the nights of these seeds, in their order."""
    if jobs == 1:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(work, seeds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nights", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="nights")
    parser.add_argument("--seed", type=int, default=0, help="the first night's")
    parser.add_argument("--night", type=int, help="this night alone, with all that was said")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--pairs", type=int, help="so many nights with and without their interruptions")
    options = parser.parse_args()
    first, count = (options.seed, options.count) if options.night is None else (options.night, 1)
    if not 0 <= first <= first + count - 1 <= MOST_SEEDS or count < 1:
        print(f"there is no night {first}: seeds are 0 to {MOST_SEEDS:,}", file=sys.stderr)
        return 2
    if options.night is not None:
        return _alone(options.night)
    if options.pairs is not None:
        return _pairs(first, options.pairs, options.jobs)
    found, bad, seconds, trials = Counter[str](), 0, 0.0, 0
    broken, counts = Counter[str](), Counter[str]()
    for result in results(one, range(first, first + count), options.jobs):
        seconds, trials = seconds + result.seconds, trials + result.trials
        found.update({name for name, _ in result.faults})
        for family, breaks in result.named:
            counts[family] += 1
            broken[family] += breaks
        if failing := [fault for fault in result.faults if fault[0] not in WAITING]:
            bad += 1
            name, line = failing[0]
            print(f"{name}: {line}\n  python -m benchmarks.nights --night {result.seed}", flush=True)
    for name, times in found.most_common():
        print(f"{times:6,} nights: {name}" + (f", which waits: {WAITING[name]}" if name in WAITING else ""))
    often = list(too_often({family: (broken[family], counts[family]) for family in counts}))
    print(*often, f"{broken.total():,} of {counts.total():,} named settings break their SLA", sep="\n")
    print(f"{count:,} nights, {bad:,} with a fault; {trials:,} trials, {seconds / count:.1f} s of a core a night")
    return int(bad > 0 or bool(often))


def _pairs(first: int, count: int, jobs: int) -> int:
    """Play so many pairs and print what they prove; one night in three has an interruption."""
    found = pairs(results(proven, range(first, first + 5 * count), jobs), count)
    played = found.both + found.only_interrupted + found.only_plain + found.neither
    print(
        f"{played:,} pairs: {found.both:,} prove a setting with and without an interruption, "
        f"{found.only_interrupted:,} only with, {found.only_plain:,} only without, {found.neither:,} neither; "
        f"p = {found.chance:.2g} (McNemar, exact)"
    )
    return int(found.chance < 0.01)


def _alone(seed: int) -> int:
    """Play one night and print it whole."""
    night = draw(seed)
    print(night.text, night.families, *night.laws.items(), night.course, sep="\n")
    with playing(night) as (player, told):
        play(player, told)
        look_further(player, told)
        for k, said in enumerate(told.said):
            if "--json" not in said.words and said.words[0] != "report":
                print(f"\n$ {said.line}    (exit {int(said.code)}, {said.trials} trials, {said.seconds:,.0f} s)")
                print(said.err if k < told.looks else "", said.out, said.raised, sep="")
        faults = faults_of(player, told)
    faults += [(check.__name__, line) for check in SWEPT for line in check(night)]
    for name, line in faults:
        print(f"{name}: {line}")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
