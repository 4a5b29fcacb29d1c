"""What deploy/ ships: manifests and CI files by their schemas, the Slurm script run by stand-ins,
the container file."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import yaml
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner

from tests.kit.commands import frontier
from tests.kit.places import ROOT

DEPLOY = ROOT / "deploy"
MANIFESTS = sorted(DEPLOY.glob("kubernetes-*.yaml"))
KUBERNETES = "1.29"
"""The oldest release whose schema is asked: podFailurePolicy is stable there, or behind no
switch."""
SWEEP = """\
endpoint: http://127.0.0.1:1/v1
shapes: [32/16]
concurrency: [6]
"""

FIND_SPEC = "frontier.extras.cluster.ray_workers.importlib.util.find_spec"


def documents(manifest: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a manifest has: the claim of the volume, and the sweep."""
    claim, sweep = yaml.safe_load_all(manifest.read_text())
    return claim, sweep


def document(name: str) -> dict[str, Any]:
    """The sweep of a manifest."""
    return documents(DEPLOY / f"kubernetes-{name}.yaml")[1]


def pods(manifest: Path) -> list[dict[str, Any]]:
    """The pods that a manifest asks for: of a Job, or the head and the workers of a Ray cluster."""
    spec = documents(manifest)[1]["spec"]
    cluster = spec.get("rayClusterSpec")
    owners = [spec] if cluster is None else [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [owner["template"]["spec"] for owner in owners]


def test_there_are_manifests() -> None:
    assert ["kubernetes-ray.yaml", "kubernetes-sweep.yaml"] == [path.name for path in MANIFESTS]


def test_the_manifest_of_a_job_is_valid_by_the_schema_of_kubernetes() -> None:
    manifest = document("sweep")
    kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
    manifest["spec"]["template"]["spec"]["containers"][0]["arguments"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_the_pods_are_valid_by_the_schema_of_kubernetes(manifest: Path) -> None:
    """Those of a Ray cluster, too, whose own kind Kubernetes has no schema of."""
    for spec in pods(manifest):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate({**pod, "spec": {**spec, "volume": []}}, KUBERNETES, strict=True)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_the_volume_that_the_runs_are_on_is_claimed(manifest: Path) -> None:
    claim, _ = documents(manifest)
    kubernetes_validate.validate(claim, KUBERNETES, strict=True)
    mounted = [volume["persistentVolumeClaim"] for pod in pods(manifest) for volume in pod.get("volumes", ())[1:]]
    assert [{"claimName": claim["metadata"]["name"]}] == mounted


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_the_name_of_an_image_is_a_placeholder_that_says_so(manifest: Path) -> None:
    images = re.findall(r"^ +image: (\S+) +# (.*)$", manifest.read_text(), re.MULTILINE)
    assert [container["image"] for pod in pods(manifest) for container in pod["containers"]] == [i for i, _ in images]
    assert {name.partition("/")[0] for name, _ in images} == {"registry.example"}, "reserved: it cannot exist"
    assert "placeholder" in images[0][1]


WORKFLOWS = [DEPLOY / "ci" / "github.yml", *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]


def by_schema(schema: str, file: Path) -> int:
    """The exit code of check-jsonschema, which brings the schema with it."""
    return CliRunner().invoke(check_jsonschema, ["--builtin-schema", f"vendor.{schema}", str(file)]).exit_code


@pytest.mark.parametrize(
    ("schema", "file"),
    [("gitlab-ci", DEPLOY / "ci" / "gitlab.yml"), *(("github-workflows", file) for file in WORKFLOWS)],
    ids=lambda value: value if isinstance(value, str) else str(value.relative_to(ROOT)),
)
def test_a_ci_file_is_valid_by_the_schema_of_its_service(schema: str, file: Path, tmp_path: Path) -> None:
    assert by_schema(schema, file) == 0
    spoilt = tmp_path / file.name
    spoilt.write_text(file.read_text().replace("timeout", "time-out"))
    assert by_schema(schema, spoilt) == 1


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_every_volume_is_mounted_and_no_container_is_root(manifest: Path) -> None:
    image = "Dockerfile.ray" if "ray" in manifest.stem else "Dockerfile"
    for pod in pods(manifest):
        (container,) = pod["containers"]
        assert {v["name"] for v in pod.get("volumes", ())} == {m["name"] for m in container.get("volumeMounts", ())}
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert str(pod["securityContext"]["runAsUser"]) == user_of_the_image(image)
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@pytest.mark.process
@pytest.mark.parametrize("name", ["ray", "sweep"])
def test_the_commands_of_the_manifests_are_understood(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FIND_SPEC, lambda _: SimpleNamespace(origin="x"))
    spec = document(name)["spec"]
    workers = 'workers: {ray: "127.0.0.1:6379"}'
    if name == "ray":
        assert workers in (DEPLOY / "kubernetes-ray.yaml").read_text()
        words = spec["entrypoint"].removeprefix("frontier ").split()
    else:
        words = spec["template"]["spec"]["containers"][0]["args"]
    assert "/config/sweep.yaml" in words
    (tmp_path / "sweep.yaml").write_text(SWEEP + (workers if name == "ray" else ""))
    given = [word.replace("/config/", "").replace("/runs/", "") for word in words]
    said = frontier(*given, "--dry-run", cwd=tmp_path, here=True)
    assert 0 == said.code, said.err
    assert ("Ray (127.0.0.1:6379)" in said.out) is (name == "ray")


def test_only_the_worker_pods_of_the_ray_cluster_send_load_and_nobody_else_may_use_it() -> None:
    """A node without processors gets no client process; the sweep waits for all of the others."""
    cluster = document("ray")["spec"]["rayClusterSpec"]
    assert "0" == cluster["headGroupSpec"]["rayStartParams"]["num-cpus"]
    assert "token" == cluster["authOptions"]["mode"]
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"] > 1
    assert f"FROM rayproject/ray:{cluster['rayVersion']}-" in (DEPLOY / "Dockerfile.ray").read_text()


STANDS_IN = {
    "scontrol": 'printf "node-1\\nnode-2\\n"',
    # The command once per task, each with its rank; fails as any of them does.
    "srun": """\
rank=0 pids=
while [ "$rank" -lt "$SLURM_NTASKS" ]; do
  SLURM_PROCID=$rank "$@" & pids="$pids $!"
  rank=$((rank + 1))
done
code=0
for pid in $pids; do wait "$pid" || code=$?; done
exit $code""",
    # The sweep on the first node alone, while Ray would run on all.
    "ray": """\
[ "$RAY_AUTH_MODE" = token ] && [ "${#RAY_AUTH_TOKEN}" = 64 ] || exit 98
[ "$1 $2 $3 $4 $5" = "symmetric-run --address node-1:6379 --min-nodes 2" ] || exit 97
[ "$SLURM_PROCID" = 0 ] || exit 0
while [ "$1" != -- ]; do shift; done
shift
exec "$@" """,
}
"""Commands of Slurm and of Ray, as far as the script goes."""


@pytest.mark.process
@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_the_slurm_script_is_a_shell_script(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    said = subprocess.run([shell, "-n", DEPLOY / "slurm.sh"], capture_output=True, text=True, check=False)
    assert (0, "") == (said.returncode, said.stderr)


def run_slurm(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """The script as sbatch runs it on two nodes, with `command` in the place of frontier."""
    tools = folder / "bin"
    tools.mkdir()
    for name, script in {**STANDS_IN, "frontier": command}.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    slurm = {"SLURM_NTASKS": "2", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "node-[1-2]"}
    environ = {"PATH": f"{tools}:/usr/bin:/bin", "HOME": str(folder), "SLURM_CPUS_PER_TASK": "2", **slurm}
    script = ["sh", DEPLOY / "slurm.sh"]
    return subprocess.run(script, cwd=folder, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.process
def test_the_slurm_script_sweeps_from_the_ray_on_its_nodes(tmp_path: Path) -> None:
    said = run_slurm(tmp_path, "printf '%s\\n' \"$@\"")
    assert 0 == said.returncode, said.stderr
    words = said.stdout.splitlines()
    assert ["sweep", "sweep.yaml", "--set", "workers={ray: node-1:6379}", "-o", "runs/night"] == words


@pytest.mark.process
def test_the_command_of_the_slurm_script_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FIND_SPEC, lambda _: SimpleNamespace(origin="x"))
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    words = run_slurm(tmp_path, "printf '%s\\n' \"$@\"").stdout.splitlines()
    said = frontier(*words, "--dry-run", cwd=tmp_path, here=True)
    assert 0 == said.code, said.err
    assert "Ray (node-1:6379)" in said.out


@pytest.mark.process
def test_the_slurm_script_ends_with_the_exit_code_of_the_sweep(tmp_path: Path) -> None:
    assert 4 == run_slurm(tmp_path, "exit 4").returncode


IMAGE = (DEPLOY / "Dockerfile").read_text()


def user_of_the_image(name: str = "Dockerfile") -> str:
    """The user that the last stage of a container file ends with."""
    return re.findall(r"^USER (\S+)$", (DEPLOY / name).read_text(), re.MULTILINE)[-1]


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
