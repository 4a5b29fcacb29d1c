"""-q prints the answer alone, -v all there is. Of every command that answers each holds the lines
of the shorter one, and all end alike.
"""

import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from frontier.cli import probe_checklist
from frontier.cli.main import cli
from frontier.client.ask.preflight import Check
from tests.kit import places
from tests.kit.commands import Said, frontier
from tests.kit.sweeps import commands_in_virtual_time

DATA = places.DATA / "runs"
CLOSED = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 60us, per_prefill_token: 20us, noise: 0.05}
shapes: [256/32]
concurrency: [1, 8, 32]
sla: {p90_ttft: 200ms}
requests: 200
repeats: 1
refine: 1
"""
TUNED = """\
shapes: 128/32
sla: {p95_ttft: 500ms, p95_tpot: 20ms}
deployments:
- {name: e, endpoint: simulator, simulator: {noise: 0.03, per_decode: 200us}, vary: {max_num_seqs: [12, 40]}}
"""
MEASURES = pytest.mark.process
"""Whole sweeps and checks, though in virtual time."""
WRITES = ("sweep", "verify", "tune", "import")
ANSWERS = [
    pytest.param("show closed", r"\d+ .* meets   <- run here", id="show"),
    pytest.param("solve closed", r"Run at concurrency \d+", id="solve"),
    pytest.param("solve closed --sla p90_ttft<=1ms", r"No setting .*\bc=\d+", id="solve-no"),
    pytest.param("compare closed stated", r"not resolved .*\n(.*\n)*.*\bc=\d+", id="compare"),
    pytest.param("compare --gate closed stated --spread 1%", r"(no worse|not resolved) .*\n.*\bc=\d+", id="gate"),
    pytest.param("trend closed stated", r"proven.*\n.*\bc=\d+", id="trend"),
    pytest.param("users closed --think 45s --shape short", r"people per replica(.*\n)*.*\bc=\d+ proven", id="users"),
    pytest.param("predict closed --concurrency 24", r"(?m)^ *24 .*\n(.*\n)*.*meet the SLA up to c=\d+", id="predict"),
    pytest.param("status closed", r"finished.* proven: .*\bc=\d+", id="status"),
    pytest.param("rehearse closed --shape short", r"points?\b.*\n(.*\n)*.*\bOffline", id="rehearse"),
    pytest.param("probe http://here/v1", r"Ready to be measured: .*vllm", id="probe"),
    pytest.param("ceilings one.json two.json", r"2 hosts", id="ceilings"),
    pytest.param("import files/a.json -o imported", r"1 file of .*\n.*c=\d+", id="import"),
    pytest.param("workload log.jsonl", r"shapes:", id="workload"),
    pytest.param("workload log.jsonl --beside closed", r"Production beside short", id="beside"),
    pytest.param("sweep sweep.yaml --dry-run", r"Plan: find and prove", id="dry-run"),
    pytest.param("sweep sweep.yaml -o swept", r"Run at concurrency \d+", id="sweep", marks=MEASURES),
    pytest.param("verify closed --shape short", r"meets, .*\bc=\d+", id="verify", marks=MEASURES),
    pytest.param("verify closed --shape short --find", r"proven, .* at \d+ in flight", id="find", marks=MEASURES),
    pytest.param("verify closed --shape short --for 2min", r"Concurrency \d+ keeps the SLA", id="hold", marks=MEASURES),
    pytest.param("quick simulator", r"fit a chat", id="quick", marks=MEASURES),
    pytest.param("tune tune.yaml -o tuned", r"(?s)12|40.*Run it with", id="tune", marks=MEASURES),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recorded runs, configs and files that the commands read."""
    here = tmp_path_factory.mktemp("detail")
    with tarfile.open(DATA / "runs-1.0.0.tar.xz") as archive:
        archive.extractall(here, filter="data")
    (here / "sweep.yaml").write_text(CLOSED)
    (here / "tune.yaml").write_text(TUNED)
    fleet = DATA.parent.parent.parent / "docs" / "examples" / "fleet"
    for name, file in (("one.json", "node-1.json"), ("two.json", "node-2.json")):
        shutil.copy(fleet / file, here / name)
    (here / "files").mkdir()
    shutil.copy(DATA.parent / "exchange" / "glm-5" / "c4.json", here / "files" / "a.json")
    lines = (
        f'{{"time": {1_700_000_000 + i}, "input_tokens": {200 + i % 7}, "output_tokens": {20 + i % 3}}}\n'
        for i in range(200)
    )
    (here / "log.jsonl").write_text("".join(lines))
    return here


@pytest.fixture
def stood_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server for `probe`, and engines in virtual time."""

    async def probe(*_: object, **__: object) -> list[Check]:
        return [Check("engine", "ok", "vllm 0.32.0"), Check("cache", "note", "on"), Check("streams", "ok", "by token")]

    monkeypatch.setattr(probe_checklist, "probe", probe)
    with commands_in_virtual_time():
        yield


def lines(said: Said) -> list[str]:
    return [line.rstrip() for line in said.out.splitlines() if line.strip()]


@pytest.mark.usefixtures("stood_in")
@pytest.mark.parametrize(("command", "answer"), ANSWERS)
def test_the_answer_is_in_the_usual_and_that_in_all_there_is(
    made: Path, tmp_path: Path, command: str, answer: str
) -> None:
    said = {}
    for flag in ("-q", "", "-v"):
        here = made
        if command.split()[0] in WRITES:
            here = shutil.copytree(made, tmp_path / f"run{flag}")
        said[flag] = frontier(*command.split(), *filter(None, [flag]), cwd=here, here=True)
    assert re.search(answer, said["-q"].out), said["-q"]
    assert len({each.code for each in said.values()}) == 1, said
    assert [line for line in lines(said["-q"]) if line not in lines(said[""])] == []
    assert [line for line in lines(said[""]) if line not in lines(said["-v"])] == []


@pytest.mark.parametrize("flags", ["-v -q", "-v --json", "-q --json"])
def test_two_forms_of_one_answer_are_refused(made: Path, flags: str) -> None:
    for command in ("solve closed", "status closed", "verify closed --find", "sweep sweep.yaml", "quick simulator"):
        refused = frontier(*command.split(), *flags.split(), cwd=made, here=True)
        assert (2, "") == (refused.code, refused.out)
        assert len(refused.err.splitlines()) == 2


def test_every_command_that_answers_has_both() -> None:
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        options = {option for each in command.params for option in each.opts}
        assert ("--json" in options) == ({"-v", "-q"} <= options), name
