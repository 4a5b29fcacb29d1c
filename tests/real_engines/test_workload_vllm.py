"""vLLM on the CPU under a known load: its counters say within 10% what was sent, and the config of
them is swept."""

import json
import random
import threading
from pathlib import Path

import numpy as np
import pytest

from frontier.config.config_file import load_config_file
from frontier.read_run import load
from tests.kit.commands import frontier, start

pytestmark = [pytest.mark.engine, pytest.mark.nightly, pytest.mark.timeout(900)]


def test_a_known_load_is_described_and_swept(tmp_path: Path, vllm: str) -> None:
    rng = random.Random(1)
    pairs = [
        (min(300, max(8, round(rng.lognormvariate(4, 0.7)))), min(60, max(2, round(rng.lognormvariate(2.5, 0.5)))))
        for _ in range(100)
    ]
    (tmp_path / "load.yaml").write_text(
        f"endpoint: {vllm}/v1\nshapes: [{{name: known, pairs: {' '.join(f'{a}/{b}' for a, b in pairs)}}}]\n"
        "concurrency: [4]\nrequests: 100000\nmax_time: 60s\nrefine: 0\n"
    )
    loading = start("sweep", "load.yaml", "-o", "load", cwd=tmp_path)
    try:
        quiet = threading.Event()
        quiet.wait(12.0)  # the sweep asks a few things before its load
        said = frontier("workload", f"{vllm}/metrics", "--over", "30s", "--json", cwd=tmp_path, timeout=300)
        loading.communicate(timeout=300)
    finally:
        if loading.poll() is None:
            loading.kill()
            loading.communicate()
    assert said.code == 0, said.err
    tree = json.loads(said.out)
    assert tree["model"] == "tiny"
    assert 3.2 <= tree["running"]["value"] <= 4.4
    (tmp_path / "mine.yaml").write_text(tree["config"].replace("\nconcurrency: [", "\nrequests: 50\nmax_time: 8s\n# ["))
    shape = load_config_file(tmp_path / "mine.yaml").shapes[0]
    for side, true in ((shape.isl, [p[0] for p in pairs]), (shape.osl, [p[1] for p in pairs])):
        assert side.mean == pytest.approx(np.mean(true), rel=0.1)
    sample = load(tmp_path / "load").points()[0]
    for name in ("p50_ttft", "p99_ttft", "p50_tpot", "p99_tpot"):
        figure = tree["figures"][name]
        assert figure["low"] * 0.9 <= sample.metrics[name].value, name
    swept = frontier("sweep", "mine.yaml", "-o", "mine", "--set", "concurrency=[1, 4]", cwd=tmp_path, timeout=300)
    if swept.code == 5 and "machine was busy" in swept.err:
        pytest.skip("this machine is too busy to measure on; the workload was described")
    assert swept.code == 0, swept.err
    assert {p.load for p in load(tmp_path / "mine").points()} >= {1, 4}
