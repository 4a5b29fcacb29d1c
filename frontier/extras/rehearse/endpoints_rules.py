"""The rules of MLPerf Endpoints as data: version and date, points, regions, durations, the detector
of steady state, seeds, benchmarks.

They were read in mlcommons/endpoints_policies (the branch of v1.0, a draft) and in the checker of
endpoints-submission-cli. Both move. Where they differ, this is the checker's, which is newer.
"""

from dataclasses import dataclass

VERSION, STATE, CHECKER, READ = "v1.0", "draft rules", "1.5.3.0", "2026-11-27"
NOTICE = "rehearsal, not an MLPerf result"
BASIS = f"MLPerf Endpoints {VERSION} ({STATE}; checker {CHECKER})"
HEAD = f"Rehearsal for {BASIS}. Not an MLPerf result."

ULTRA_LOW = 32
"""The highest concurrency of ultra low, and of the lowest point."""
MARGIN = 1.10
"""A point above the highest supported concurrency is allowed up to this factor."""
REGIONS = {
    "low_latency": "ultra low",
    "low_concurrency": "low",
    "med_concurrency": "medium",
    "high_concurrency": "high",
}
"""The regions in their order, with their names here."""
POINTS, MOST_POINTS = 7, 32
"""The points of a curve whose highest one is elected as Offline; and the most."""
SHORT, LONG = 600.0, 1200.0
"""Seconds of the steady window up to ULTRA_LOW, and above."""
PASSES, SUPER_PASSES = 5, 4
"""Passes over the dataset that a run with a steady window has, as one is cut off at the beginning;
and those that are left.
"""

CROP, SHIFT = 0.05, 0.05
"""A pass at the beginning, or a later plateau, is another level when it is so far away."""
ALPHA, CHANGE, SPREAD = 0.05, 0.05, 0.08
"""A window is steady without a significant trend of so large a change, and with at most so large a
coefficient of variation."""
RELATIVE_ERROR, LATENCIES = 0.05, 5.0
"""A plateau is long enough for a mean with this error, and for so many latencies."""
BOUND_ERROR = 0.01
"""The error of the bound on a percentile ('early stopping'), of requests taken as independent."""

SEED_SET, COHORTS = "A", "2026-10-C1 to 2026-12-C0"
SEEDS = {
    "scheduler_rng_seed": 10487924139932647040,
    "sample_index_rng_seed": 586478644936801402,
    "model_seed": 9315206023656308754,
}
"""The seeds that a submission of one of the cohorts takes."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The dataset of a curve: `key` is its name in files, `prompts` are those of one pass, and
    `accuracy` are the requests of one run for the accuracy.
    """

    key: str
    name: str
    prompts: int
    accuracy: int


BENCHMARKS = {
    "llama3_1-8b": Dataset("cnn_dailymail", "CNN/DailyMail", 13_368, 13_368),
    "gpt-oss-120b": Dataset("gpt-oss-120b", "the dataset of gpt-oss-120b", 6_396, 4_395),
    "deepseek-r1": Dataset("deepseek-r1", "the dataset of deepseek-r1", 4_388, 4_388),
}
"""The benchmarks of single requests, by their models."""


def least_seconds(concurrency: int) -> float:
    """Seconds of a steady window at a concurrency."""
    return SHORT if concurrency <= ULTRA_LOW else LONG
