"""Files of other tools that contradict themselves or lose half of their data by their names, on the
real command."""

from pathlib import Path

import pytest

from frontier.read_run import load
from tests.kit.commands import frontier

HEAD = "concurrency,isl,osl,n,output_throughput"
ROW = "8,64,8,100,900"


@pytest.mark.parametrize(
    ("name", "text", "places"),
    [
        ("units.csv", f"{HEAD},p99_ttft_ms,p99_ttft_s\n{ROW},950,0.130\n", ("'p99_ttft_ms'", "'p99_ttft_s'")),
        ("spelling.csv", f"{HEAD},p99_ttft,P99 TTFT\n{ROW},0.95,0.130\n", ("two columns are p99_ttft", "'P99 TTFT'")),
        ("heads.csv", f"{HEAD},p99_ttft,p99_ttft\n{ROW},0.95,0.130\n", ("two columns",)),
        ("torn.csv", f"{HEAD},p99_ttft\n{ROW},0.1\n16,64,8\n", ("line 3", "fewer cells than the header")),
    ],
)
@pytest.mark.fault("a foreign file that contradicts itself")
def test_a_file_that_contradicts_itself_is_refused(
    tmp_path: Path, name: str, text: str, places: tuple[str, ...]
) -> None:
    (tmp_path / name).write_text(text)
    said = frontier("import", name, "-o", "run", cwd=tmp_path)
    assert (2, "") == (said.code, said.out)
    assert said.err.startswith(f"error: {name}: ")
    assert [] == [place for place in places if place not in said.err], said.err
    assert len(said.err.splitlines()) <= 3
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("alike", [60, 80, 300])
@pytest.mark.fault("deployments of a foreign file whose long names begin alike")
def test_no_data_are_lost_by_long_names(tmp_path: Path, alike: int) -> None:
    rows = [f"{c},64,8,100,{speed},0.1,{'n' * alike}{end}" for end, speed in (("x", 900), ("y", 700)) for c in (8, 16)]
    (tmp_path / "t.csv").write_text("\n".join([f"{HEAD},p99_ttft,deployment", *rows]) + "\n")
    said = frontier("import", "t.csv", "-o", "run", cwd=tmp_path)
    assert 0 == said.code, said.err
    points = load(tmp_path / "run").points()
    assert [900, 900, 700, 700] == [p.metrics["output_throughput"].value for p in points]
    assert 2 == len({p.deployment for p in points})
