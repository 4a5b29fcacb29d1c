"""InferenceX's agg_*.json: one operating point each, in seconds, with rates per GPU."""

from frontier.extras.exchange.results import LONGEST_NAME, NO_LENGTHS, ImportedFile, Result, figure, merged, statistics
from frontier.store.documents import INCOMPLETE, Document, Node

_LATENCIES = {"ttft": ("ttft",), "tpot": ("tpot",), "itl": ("itl",), "e2e": ("e2el", "ttlt")}
_RATES = {
    "output": ("output_tput_tps", "output_tput_per_gpu"),
    "input": ("input_tput_tps", "input_tput_per_gpu"),
    "total": ("total_tput_tps", "tput_per_gpu"),
}
_NAME = {
    **dict.fromkeys(("model", "hw", "framework", "precision", "spec_decoding"), ""),
    "tp": "tp",
    "pp": "pp",
    "ep": "ep",
    "dp_attention": "dpa",
    "prefill_tp": "ptp",
    "decode_tp": "dtp",
    "offload_mode": "offload",
}
"""The fields that name a deployment, each with its abbreviation."""
_OFF = ("", "false", "none", "off")
NOTES = (
    "rates are given per GPU and multiplied by the GPUs the file names (disaggregated: decode and prefill apart)",
    "throughput is over the whole run with ramp and drain; failed requests count as no tokens and leave no latency",
    "stored interactivity is not imported: it is the inverse of TPOT's percentile, and computed from that",
)


def detect(document: Document) -> bool:
    """Whether it looks like agg_*.json, or a list of such objects."""
    return document.kind in ("json", "lines") and any(_is_aggregate(node) for node in document.objects[:3])


def read(document: Document) -> ImportedFile:
    """Every point of the file."""
    results = []
    for node in document.objects:
        if not _is_aggregate(node):
            raise node.error(f"{node.where or 'the file'} is no aggregate of InferenceX", "leave it out")
        results.append(_result(node))
    return ImportedFile(document.file, "InferenceX", tuple(results), NOTES)


def _is_aggregate(node: Node) -> bool:
    keys = node.tree.keys()
    return {"hw", "framework", "tput_per_gpu"} <= keys and bool({"conc", "users"} & keys)


def _result(node: Node) -> Result:
    concurrency = node.count("conc") or node.count("users")
    if not concurrency:
        raise node.error("conc is missing", INCOMPLETE)
    gpus, rates = _rates(node)
    called = ((quantity, name) for quantity, names in _LATENCIES.items() for name in names)
    figures = rates | merged(statistics(node, quantity, key=f"{{}}_{name}") for quantity, name in called)
    ok, sent = node.count("num_requests_successful"), node.count("num_requests_total")
    asked = node.number("isl"), node.number("osl")
    came = node.number("mean_input_tokens"), node.number("mean_output_tokens_actual")
    return Result(
        concurrency,
        figures,
        ok or 0,
        sent - ok if ok is not None and sent is not None and sent >= ok else None,
        asked,
        NO_LENGTHS if all(asked) else came,
        _name(node),
        node.text("model", LONGEST_NAME),
        gpus,
        notes=() if ok is not None else ("the number of requests is not in the file",),
        place=node.where,
    )


def _name(node: Node) -> str:
    """The model and how it is served: 'Kimi-K2.5-mi355x-vllm-int4-mtp-tp8-ep1'."""
    facts = {key: (node.text(key, LONGEST_NAME) or "").rpartition("/")[2] for key in _NAME}
    return "-".join(_NAME[key] + fact for key, fact in facts.items() if fact not in _OFF)


def _rates(node: Node) -> tuple[int | None, dict[str, float]]:
    """The number of GPUs, and the throughput of the whole deployment. In a disaggregated one,
    output is per decode GPU and input per prefill GPU.
    """
    prefill, decode = node.count("num_prefill_gpu"), node.count("num_decode_gpu")
    if prefill and decode and (node.tree.get("is_multinode") is True or node.tree.get("disagg") is True):
        gpus: int | None = prefill + decode
        split = {"output": decode, "input": prefill, "total": prefill + decode}
    else:
        tp = node.count("tp")
        gpus = tp * (node.count("pp") or 1) if tp and node.tree.get("is_multinode") is not True else None
        split = dict.fromkeys(_RATES, gpus or 0)
    rates: dict[str, float] = {}
    for side, (total, per_gpu) in _RATES.items():
        name = f"{side}_throughput"
        rates |= figure(node, per_gpu, name, split[side]) if split[side] else {}
        rates |= figure(node, total, name)
    return gpus, rates
