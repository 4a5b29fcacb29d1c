"""aiconfigurator's silicon_sample.csv: a measured setting a row, TTFT and TPOT in milliseconds.

The concurrency stands in the text of a row's source. Throughput is not in the table: it follows
from the others by Little's law.
"""

import math
import re

from frontier.extras.exchange.results import LONGEST_NAME, ImportedFile, Result, figure
from frontier.store.documents import Document, Node

_CONCURRENCY = re.compile(r"silicon_concurrency=(\d{1,7})\b")
_NAME = ("system", "backend", "backend_version", "precision")
_SIZES = {"tp_size": "tp", "pp_size": "pp", "attention_dp_size": "dp", "moe_tp_size": "mtp", "moe_ep_size": "ep"}
NOTES = (
    "throughput is computed from concurrency, TTFT and TPOT by Little's law; it was not measured",
    "whether TTFT and TPOT are means or medians is not said: they are called means; nor of how many requests they are",
)


def detect(document: Document) -> bool:
    """Whether it is such a table."""
    return document.kind == "table" and {"silicon_data_source", "silicon_ttft_ms"} <= document.top.tree.keys()


def read(document: Document) -> ImportedFile:
    """Every row that states its concurrency."""
    results = tuple(filter(None, map(_result, document.objects)))
    without = len(document.objects) - len(results)
    left = (f"{without:,} rows without a concurrency, TTFT, TPOT or lengths are left out",) if without else ()
    return ImportedFile(document.file, "aiconfigurator", results, (*NOTES, *left))


def _result(row: Node) -> Result | None:
    stated = _CONCURRENCY.search(str(row.tree.get("silicon_data_source")))
    isl, osl = row.number("isl"), row.number("osl")
    figures = figure(row, "silicon_ttft_ms", "mean_ttft", 1e-3) | figure(row, "silicon_tpot_ms", "mean_tpot", 1e-3)
    if stated is None or not isl or not osl or len(figures) < 2:
        return None
    figures["mean_e2e"] = figures["mean_ttft"] + (osl - 1) * figures["mean_tpot"]
    figures["request_throughput"] = int(stated[1]) / figures["mean_e2e"]
    figures["output_throughput"] = osl * figures["request_throughput"]
    model = row.text("model_path", LONGEST_NAME)
    facts = [row.text(key, LONGEST_NAME) or "" for key in _NAME]
    return Result(
        int(stated[1]),
        figures,
        0,
        asked=(isl, osl),
        came=(None, osl),
        deployment="-".join(filter(None, ((model or "").rpartition("/")[2], *facts, *_parallel(row)))),
        model=model,
        gpus=_gpus(row),
        place=row.where,
    )


def _parallel(row: Node) -> list[str]:
    """How the model is split, as 'tp4', 'ep16'; of a disaggregated one for both sides."""
    sides = {"": ""} if row.text("mode") != "disagg" else {"prefill_": "p", "decode_": "d"}
    sizes = {**_SIZES, "num_workers": "x"}
    found = [
        (f"{short}{name}", row.count(f"{side}{key}")) for side, short in sides.items() for key, name in sizes.items()
    ]
    return [f"{name}{size}" for name, size in found if size and size > 1]


def _gpus(row: Node) -> int | None:
    """TP x PP x attention DP; of a disaggregated one those of all workers."""
    sides = [""] if row.text("mode") != "disagg" else ["prefill_", "decode_"]
    keys = ("tp_size", "pp_size", "attention_dp_size", "num_workers")
    sizes = [[row.count(f"{side}{key}") for key in keys] for side in sides]
    return sum(math.prod(size or 1 for size in of) for of in sizes) if all(of[0] for of in sizes) else None
