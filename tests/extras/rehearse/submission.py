"""A submission made of an exported rehearsal, its blanks filled in, and what the checker of MLPerf
Endpoints says of it."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from frontier.extras.rehearse.bundle import bundle
from frontier.extras.rehearse.rehearsal import Rehearsal

PASSES, PROMPTS = 5, 13_368
FILLED: dict[str, Any] = {
    "division": "RDI",
    "model_precision": "FP8",
    "link_to_model": "https://example.org/m",
    "dataset_link": "https://example.org/d",
    "shared_src": "src/toy",
    "shared_docs": "docs",
    "target_cohort": "2026-10-C1",
    "warm-up data_source": "none",
}
SYSTEM = {
    "system_name": "toy",
    "shortened_system_name": "toy",
    "division": "RDI",
    "system_category": "on-premise",
    "system_availability_status": "RDI",
    "max_supported_concurrency": 64,
    "system_size": "1 node",
    "system_node_ensemble_count": 1,
    "system_node_ensemble_total": 1,
    "serving_framework": "vLLM 0.30",
    "node_types": [
        {
            "system_node_ensemble_id": 0,
            "number_of_nodes": 1,
            "host_processor_model_name": "EPYC",
            "host_processors_per_node": 2,
            "host_processor_core_count": 64,
            "host_memory_capacity": "1 TB",
            "host_memory_configuration": "24 x 64 GB",
            "accelerator_info": [{"accelerator_model_name": "H200", "accelerators_per_node": 8}],
            "host_network_card_count": "1",
            "driver": "580",
            "operating_system": "Linux",
            "filesystem": "ext4",
        }
    ],
}
ACCURACY = {"cnn_dailymail::llama3_8b": {"num_samples": PROMPTS, "score": {"rouge1": "38.9"}}}
SCRIPT = """
import json, sys
from pathlib import Path
from submission_checker import SubmissionChecker
from submission_checker.models import compute_regions
report = SubmissionChecker(Path(sys.argv[1])).run()
print(json.dumps([[str(r.severity.value), r.rule, r.message] for r in report.results]))
"""


def filled(value: Any) -> Any:
    """A value of a file with its blanks filled in, as a submitter would."""
    if isinstance(value, dict):
        return {name: filled(each) for name, each in value.items()}
    blank = re.fullmatch(r"<([^:,>]+)(?:[:,]? ?(.*))?>", value) if isinstance(value, str) else None
    if blank is None:
        return value
    name, said = blank.groups()
    given = FILLED.get(name, 0 if name.startswith("warm-up") else said)
    return int(given) if isinstance(given, str) and given.isdecimal() else given


def submit(made: Rehearsal, root: Path) -> Path:
    """The submission of a rehearsal; its runs are lengthened to five passes over the dataset."""
    curve = root / "results" / "toy" / "llama3_1-8b"
    for path, data in bundle(made):
        (curve / path).parent.mkdir(parents=True, exist_ok=True)
        tree = yaml.safe_load(data)
        if path.suffix == ".json":
            factor = PASSES * PROMPTS / tree["n_samples_issued"]
            tree["duration_ns"] *= factor
            tree["output_sequence_lengths"]["total"] *= factor
            tree |= {"n_samples_issued": PASSES * PROMPTS, "n_samples_completed": PASSES * PROMPTS}
            (curve / path).write_text(json.dumps(tree))
        else:
            (curve / path).write_text(yaml.safe_dump(filled(tree)))
    for point in made.points:
        folder = curve / f"r{point.concurrency}"
        (folder / "system_desc.json").write_text(json.dumps(SYSTEM))
        (folder / "config.yaml").write_text("made: by hand\n")
        if point.accuracy:
            (folder / "accuracy_results.json").write_text(json.dumps(ACCURACY))
    (root / "src" / "toy").mkdir(parents=True)
    (root / "src" / "toy" / "README.md").write_text("# toy\n")
    (root / "docs").mkdir()
    return curve


def changed(file: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite a file of the submission."""
    tree = yaml.safe_load(file.read_text())
    change(tree)
    file.write_text(json.dumps(tree) if file.suffix == ".json" else yaml.safe_dump(tree))


def check(python: Path, root: Path) -> list[tuple[str, str, str]]:
    """What the checker says: severity, rule, and words of each finding."""
    done = subprocess.run([python, "-c", SCRIPT, root], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [(severity, rule, words) for severity, rule, words in json.loads(done.stdout.splitlines()[-1])]
