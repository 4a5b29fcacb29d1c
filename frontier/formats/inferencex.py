"""InferenceX's agg_*.json: one operating point each, in seconds, with rates per GPU."""

from frontier.formats.documents import INCOMPLETE, Document, Node
from frontier.formats.results import ImportedFile, Result
from frontier.formats.statements import Stated, agreed, statements, statistics

_LATENCIES = {"ttft": ("ttft",), "tpot": ("tpot",), "itl": ("itl",), "e2e": ("e2el", "ttlt")}
_RATES = {
    "output": ("output_tput_tps", "output_tput_per_gpu"),
    "input": ("input_tput_tps", "input_tput_per_gpu"),
    "total": ("total_tput_tps", "tput_per_gpu"),
}
_FACTS = (
    "model",
    "hw",
    "framework",
    "precision",
    "spec_decoding",
    "tp",
    "pp",
    "ep",
    "dp_attention",
    "disagg",
    "offload_mode",
    "prefill_tp",
    "prefill_ep",
    "prefill_num_workers",
    "decode_tp",
    "decode_ep",
    "decode_num_workers",
    "scenario_type",
    "image",
)
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
    loads = [s for key in ("conc", "users") if node.count(key) for s in statements(node, key, "concurrency")]
    concurrency = round(agreed(node, loads).get("concurrency", 0))
    if not concurrency:
        raise node.error("conc is missing", INCOMPLETE)
    gpus, rates = _rates(node)
    stated = []
    for quantity, names in _LATENCIES.items():
        for name in names:
            stated += statistics(node, quantity, name=f"{{}}_{name}")
    ok, sent = node.count("num_requests_successful"), node.count("num_requests_total")
    isl, osl = node.number("isl"), node.number("osl")
    if not (asked := bool(isl and osl)):
        isl, osl = node.number("mean_input_tokens"), node.number("mean_output_tokens_actual")
    failed = sent - ok if ok is not None and sent is not None and sent >= ok else None
    return Result(
        concurrency,
        agreed(node, stated + rates),
        ok or 0,
        failed,
        isl,
        osl,
        asked,
        facts=node.facts(*_FACTS),
        gpus=gpus,
        notes=() if ok is not None else ("the number of requests is not in the file",),
        place=node.where,
    )


def _rates(node: Node) -> tuple[int | None, list[Stated]]:
    """GPUs, and the throughput of the whole deployment. Disaggregated, output is per decode GPU,
    input per prefill.
    """
    prefill, decode = node.count("num_prefill_gpu"), node.count("num_decode_gpu")
    if prefill and decode and (node.tree.get("is_multinode") is True or node.tree.get("disagg") is True):
        gpus: int | None = prefill + decode
        split = {"output": decode, "input": prefill, "total": prefill + decode}
    else:
        tp = node.count("tp")
        gpus = tp * (node.count("pp") or 1) if tp and node.tree.get("is_multinode") is not True else None
        split = dict.fromkeys(_RATES, gpus or 0)
    rates = []
    for side, (total, per_gpu) in _RATES.items():
        name = f"{side}_throughput"
        rates += statements(node, total, name) or (statements(node, per_gpu, name, split[side]) if split[side] else [])
    return gpus, rates
