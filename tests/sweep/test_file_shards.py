"""Shards that only share a timetable and a directory: the load of one process, and a merge of all
or nothing."""

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
import yaml

from frontier.client.http.http_client import run
from frontier.client.load.pipeline import Share
from frontier.config import Config, load_config
from frontier.errors import StoreError, UsageError
from frontier.plan import make_plan
from frontier.run import load
from frontier.simulator.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from frontier.store.run_dir import RunDirectory
from frontier.sweep import file_shards
from frontier.sweep.backend import HttpBackend
from frontier.sweep.file_shards import ShardOf, merge_shards, run_shard, shard_facts, timetable
from tests.commands import frontier
from tests.golden import assert_golden_row
from tests.neutral import neutral, without_numbers

pytestmark = pytest.mark.process

GRID = """\
endpoint: {url}
shapes: [32/16]
concurrency: [1, 5]
repeats: 1
warmup: 700ms
max_time: 2s
"""


@pytest.fixture(scope="module")
def simulator() -> Iterator[SimulatorProcess]:
    spec = EngineSpec.from_mapping({"step_base": "4ms", "per_decode": "20us", "per_prefill_token": "5us"})
    with SimulatorProcess(spec) as running:
        yield running


def opened(config: Config, text: str, shard: ShardOf, folder: Path) -> RunDirectory:
    return RunDirectory.open_for_sweep(
        folder / shard.name,
        identity=config.identity(),
        canonical=config.canonical(),
        config_text=text,
        facts={"shard": shard_facts(shard)},
    )


@pytest.fixture(scope="module")
def night(simulator: SimulatorProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the three shards of one sweep, run at one time in one process."""
    folder, text = tmp_path_factory.mktemp("night"), GRID.format(url=simulator.url)
    config = load_config(text, "grid.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_shards, "LEAST_HOLD", 1.0)
        patch.setattr(file_shards, "PAUSE", 0.5)
        slots = timetable(config, make_plan(config))

        async def all_shards(start_at: float) -> None:
            shards = [ShardOf(Share(i, 3), start_at) for i in range(3)]
            runs = [opened(config, text, shard, folder) for shard in shards]
            await asyncio.gather(
                *(
                    run_shard(config, HttpBackend(config, {}, 7), slots, shard, directory, lambda _: None)
                    for shard, directory in zip(shards, runs, strict=True)
                )
            )
            for directory in runs:
                directory.close()

        run(all_shards(time.time() + 3.0))
    return folder


def shards_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.startswith("shard"))


def test_the_merged_run_has_every_record_of_every_shard_once_on_one_clock(night: Path, tmp_path: Path) -> None:
    assert 2 == merge_shards(night, tmp_path / "run", {}, pytest.fail)
    merged, parts = RunDirectory.read(tmp_path / "run"), [RunDirectory.read(path) for path in shards_in(night)]
    for key, measurement in merged.finished().items():
        records = list(merged.records(key))
        theirs = [record for part in parts if key in part.finished() for record in part.records(key)]
        assert sorted(records, key=lambda r: r.index) == sorted(theirs, key=lambda r: r.index)
        assert len({r.index for r in records}) == len(records)
        assert [r.end for r in records] == sorted(r.end for r in records)
        concurrency = measurement.trial.concurrency
        assert {r.stream for r in records} == set(range(concurrency))
        assert concurrency == sum(worker.streams for worker in measurement.workers)
        start, end = measurement.window.start, measurement.window.end
        assert (start, end) == pytest.approx((0.7, 2.0))
        in_flight = sum(max(0.0, min(r.end, end) - max(r.sent, start)) for r in records) / (end - start)
        assert in_flight == pytest.approx(concurrency, rel=0.1)
    assert [1, 5] == [point.concurrency for point in load(tmp_path / "run").points()]
    assert load(tmp_path / "run").points()[1].metrics["output_throughput"].value > 500


def copied(night: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(night, tmp_path / "shards"))


@pytest.mark.fault("a shard missing, doubled, unfinished or of another sweep", times=1)
def test_a_missing_shard_is_named(night: Path, tmp_path: Path) -> None:
    folder = copied(night, tmp_path)
    shutil.rmtree(shards_in(folder)[1])
    with pytest.raises(StoreError) as refused:
        merge_shards(folder, tmp_path / "run", {}, pytest.fail)
    assert not (tmp_path / "run").exists()
    assert_golden_row("messages", neutral(str(refused.value), tmp_path))


@pytest.mark.fault("a shard missing, doubled, unfinished or of another sweep", times=1)
def test_a_shard_that_is_there_twice_is_named(night: Path, tmp_path: Path) -> None:
    folder = copied(night, tmp_path)
    shutil.copytree(shards_in(folder)[2], folder / "shard-retried")
    with pytest.raises(StoreError) as refused:
        merge_shards(folder, tmp_path / "run", {}, pytest.fail)
    assert_golden_row("messages", neutral(str(refused.value), tmp_path))


@pytest.mark.fault("a shard missing, doubled, unfinished or of another sweep", times=1)
def test_a_shard_of_another_sweep_is_named(night: Path, tmp_path: Path) -> None:
    folder = copied(night, tmp_path)
    stranger = shards_in(folder)[0]
    manifest = orjson.loads((stranger / "manifest.json").read_bytes())
    manifest["shard"]["start_at"] += 86_400
    (stranger / "manifest.json").write_bytes(orjson.dumps(manifest))
    with pytest.raises(StoreError) as refused:
        merge_shards(folder, tmp_path / "run", {}, pytest.fail)
    assert_golden_row("messages", neutral(str(refused.value), tmp_path))


@pytest.mark.fault("a shard missing, doubled, unfinished or of another sweep", times=1)
def test_a_shard_that_was_not_finished_is_named(night: Path, tmp_path: Path) -> None:
    folder = copied(night, tmp_path)
    journal = shards_in(folder)[1] / "journal.jsonl"
    journal.write_bytes(b"\n".join(line for line in journal.read_bytes().split(b"\n") if b"shard_finished" not in line))
    with pytest.raises(StoreError, match="shard-0001-of-0003 was not finished"):
        merge_shards(folder, tmp_path / "run", {}, pytest.fail)


def test_hosts_whose_clocks_are_not_known_to_be_right_are_named(night: Path, tmp_path: Path) -> None:
    folder = copied(night, tmp_path)
    for path, host, error in zip(shards_in(folder), "abc", (0.001, 0.2, None), strict=True):
        manifest = orjson.loads((path / "manifest.json").read_bytes())
        manifest["shard"] |= {"host": host, "clock_error": error}
        (path / "manifest.json").write_bytes(orjson.dumps(manifest))
    with pytest.raises(StoreError) as refused:
        merge_shards(folder, tmp_path / "run", {}, pytest.fail)
    assert_golden_row("messages", neutral(str(refused.value), tmp_path))


@pytest.mark.parametrize("more", ["sla: {p99_ttft: 1s}", "max_time: null", "budget: {requests: 100}"])
def test_what_a_shard_alone_cannot_do_is_refused_with_what_to_use_instead(more: str) -> None:
    text = GRID.format(url="http://127.0.0.1:1/v1").replace(
        "max_time: 2s\n", "" if "max_time" in more else "max_time: 2s\n"
    )
    config = load_config(text + ("" if "max_time" in more else more), "grid.yaml")
    with pytest.raises(UsageError) as refused:
        timetable(config, make_plan(config))
    assert_golden_row("messages", str(refused.value))


def test_the_example_grid_has_a_timetable() -> None:
    """Of what the manifests in deploy/ run."""
    folder = Path(__file__).parents[2] / "deploy"
    config = load_config((folder / "grid.yaml").read_text(), "grid.yaml")
    assert [(60.0, 240.0, 330.0)] * 3 == [(s.opens, s.closes, s.ends) for s in timetable(config, make_plan(config))]
    job = yaml.safe_load((folder / "kubernetes-job.yaml").read_text())["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert container["args"][container["args"].index("--of") + 1] == str(job["completions"]) == str(job["parallelism"])
    assert job["backoffLimit"] == 0


def test_the_timetable_is_the_same_for_all_shards_and_printed(tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(GRID.format(url="http://127.0.0.1:1/v1"))
    said = [
        frontier(
            "shard",
            "grid.yaml",
            "--index",
            str(i),
            "--of",
            "3",
            "--start-at",
            "2026-11-22T07:00:00Z",
            "-o",
            "night",
            "--dry-run",
            cwd=tmp_path,
        )
        for i in range(3)
    ]
    assert [0, 0, 0] == [s.code for s in said]
    assert_golden_row("answers", said[0].out)
    assert ["2 streams here", "2 streams here", "1 streams here"] == [s.out.split("; ")[-1].strip() for s in said]
    assert not (tmp_path / "night").exists()


@pytest.mark.slow
def test_the_real_commands_run_and_merge_two_shards(simulator: SimulatorProcess, tmp_path: Path) -> None:
    (tmp_path / "grid.yaml").write_text(GRID.format(url=simulator.url))
    start_at = str(time.time() + 8.0)
    shards = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "frontier",
                "shard",
                "grid.yaml",
                "--index",
                str(i),
                "--of",
                "2",
                "--start-at",
                start_at,
                "-o",
                "night",
            ],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(2)
    ]
    for shard in shards:
        assert (shard.communicate(timeout=90), 0)[1] == shard.returncode
    said = frontier("merge", "night", "-o", "runs/night", cwd=tmp_path)
    assert (0, True) == (said.code, "2 trials merged" in said.err)
    assert " 5 " in frontier("show", "runs/night", cwd=tmp_path).out
    late = frontier(
        "shard", "grid.yaml", "--index", "0", "--of", "2", "--start-at", start_at, "-o", "again", cwd=tmp_path
    )
    assert 5 == late.code
    assert_golden_row("messages", without_numbers(late.err))
