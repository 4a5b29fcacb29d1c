"""What deploy/ ships: manifests by the schema of Kubernetes, the Slurm script run by stand-ins, the
container file."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from frontier.model import Phase
from frontier.run import load
from frontier.simulator.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from tests.commands import frontier

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(DEPLOY.glob("kubernetes-*.yaml"))
KUBERNETES = "1.29"
"""The oldest release whose schema is asked: podFailurePolicy and indexed Jobs are stable there or
behind no switch."""


def container(manifest: Path) -> dict:
    (only,) = yaml.safe_load(manifest.read_text())["spec"]["template"]["spec"]["containers"]
    return only


def test_there_are_manifests() -> None:
    assert ["kubernetes-job.yaml", "kubernetes-sweep.yaml"] == [path.name for path in MANIFESTS]


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_the_manifests_are_valid_by_the_schema_of_kubernetes(manifest: Path) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate: no schema is here")
    for document in yaml.safe_load_all(manifest.read_text()):
        validator.validate(document, KUBERNETES, strict=True)
        document["spec"]["template"]["spec"]["containers"][0]["arguments"] = []
        with pytest.raises(validator.ValidationError):
            validator.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_every_volume_is_mounted_and_no_container_is_root(manifest: Path) -> None:
    pod = yaml.safe_load(manifest.read_text())["spec"]["template"]["spec"]
    assert {v["name"] for v in pod["volumes"]} == {m["name"] for m in container(manifest)["volumeMounts"]}
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert str(pod["securityContext"]["runAsUser"]) == user_of_the_image()
    assert container(manifest)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize(("name", "config"), [("job", "grid.yaml"), ("sweep", "sweep.yaml")])
def test_the_commands_of_the_manifests_are_understood(name: str, config: str, tmp_path: Path) -> None:
    text = (DEPLOY / "grid.yaml").read_text()
    (tmp_path / config).write_text(text.replace("http://llm.default.svc:8000/v1", "http://127.0.0.1:1/v1"))
    words = {"$(JOB_COMPLETION_INDEX)": "3", "START_AT": str(int(time.time()) + 600), f"/config/{config}": config}
    given = [words.get(word, word) for word in container(DEPLOY / f"kubernetes-{name}.yaml")["args"]]
    assert config in given
    said = frontier(*[word.replace("/runs/", "").replace("/shared/", "") for word in given], "--dry-run", cwd=tmp_path)
    assert 0 == said.code, said.err


SRUN = """\
#!/bin/sh
# Stands in for srun: the command once per task, at one time, each with its rank; fails as any of them does.
rank=0 pids=
while [ "$rank" -lt "$SLURM_NTASKS" ]; do
  SLURM_PROCID=$rank "$@" & pids="$pids $!"
  rank=$((rank + 1))
done
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit $code
"""
GRID = """\
endpoint: {url}
shapes: [32/16]
concurrency: [6]
repeats: 1
refine: 0
warmup: 700ms
max_time: 3s
"""


@pytest.mark.process
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_slurm_script_is_a_shell_script(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    said = subprocess.run([shell, "-n", DEPLOY / "slurm.sh"], capture_output=True, text=True, check=False)
    assert (0, "") == (said.returncode, said.stderr)


def test_the_slurm_script_asks_for_as_many_tasks_as_shards() -> None:
    options = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", (DEPLOY / "slurm.sh").read_text(), re.MULTILINE))
    assert int(options["ntasks"]) == int(options["nodes"]) * int(options["ntasks-per-node"])


def run_slurm(folder: Path, url: str, tasks: int, srun: str = SRUN) -> subprocess.CompletedProcess[str]:
    """The script as sbatch runs it, in a directory that has deploy/, with a small grid, begun
    soon.
    """
    shutil.copytree(DEPLOY, folder / "deploy")
    (folder / "deploy" / "grid.yaml").write_text(GRID.format(url=url))
    script = folder / "deploy" / "slurm.sh"
    text = script.read_text()
    assert text.count("+ 60))") == 1
    script.write_text(text.replace("+ 60))", "+ 20))"))
    tools = folder / "bin"
    tools.mkdir()
    (tools / "srun").write_text(srun)
    (tools / "frontier").write_text(f'#!/bin/sh\nexec {sys.executable} -m frontier "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    environ = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(folder), "SLURM_NTASKS": str(tasks), "SLURM_JOB_ID": "17"}
    return subprocess.run(["sh", script], cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_the_slurm_script_measures_with_two_tasks_and_merges(tmp_path: Path) -> None:
    spec = EngineSpec.from_mapping({"step_base": "4ms", "per_decode": "20us", "per_prefill_token": "5us"})
    with SimulatorProcess(spec) as simulator:
        said = run_slurm(tmp_path, simulator.url, 2)
    assert 0 == said.returncode, said.stderr
    assert "1 trial merged" in said.stderr
    assert {"shard-0000-of-0002", "shard-0001-of-0002"} == {p.name for p in (tmp_path / "shared" / "night").iterdir()}
    run = load(tmp_path / "runs" / "night")
    (point,) = run.points()
    assert (6, True, Phase.GRID) == (point.concurrency, point.n > 50, next(iter(run.histories.values()))[0][0].phase)


@pytest.mark.process
@pytest.mark.slow
def test_a_task_that_fails_ends_the_slurm_script_before_the_merge(tmp_path: Path) -> None:
    said = run_slurm(tmp_path, "http://127.0.0.1:9/v1", 1, "#!/bin/sh\nexit 7\n")
    assert 7 == said.returncode
    assert not (tmp_path / "runs").exists()


IMAGE = (DEPLOY / "Dockerfile").read_text()


def user_of_the_image() -> str:
    """The user that the last stage ends with."""
    return re.findall(r"^USER (\S+)$", IMAGE, re.MULTILINE)[-1]


def test_the_image_is_pinned_and_not_root() -> None:
    bases = re.findall(r"^FROM (\S+)", IMAGE, re.MULTILINE)
    assert 2 == len(bases)
    assert 1 == len(set(bases))
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", bases[0]), "a full version: the same image tomorrow"
    last = IMAGE[IMAGE.rindex("FROM ") :]
    user = user_of_the_image()
    assert user.isdigit(), "runAsNonRoot cannot check a name"
    assert 0 < int(user)
    assert f"--uid {user} " in last
    assert last.index("\nRUN ") < last.index("\nUSER ") < last.index("\nENTRYPOINT ")
    assert not re.search(r"\b(sudo|curl|wget|ADD)\b", IMAGE)


@pytest.mark.process
@pytest.mark.slow
def test_what_the_image_copies_is_enough_to_build_the_package(tmp_path: Path) -> None:
    for line in re.findall(r"^COPY (?!--from)(.+)$", IMAGE, re.MULTILINE):
        *sources, target = line.split()
        place = tmp_path / target.strip("/")
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                place.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, place)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "wheels"]
    said = subprocess.run(command, cwd=tmp_path / "src", capture_output=True, text=True, check=False)
    assert 0 == said.returncode, said.stderr
    assert 1 == len(list((tmp_path / "wheels").glob("llm_frontier-*.whl")))
