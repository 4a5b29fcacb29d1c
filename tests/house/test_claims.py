"""Numbers in the documents that follow from other numbers: each is computed again."""

import html
import math
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from frontier.config import load_config
from frontier.core.claim.proof import ALPHA, JUDGED_AFTER
from frontier.core.model.errors import ExitCode
from frontier.fields import parse_size
from frontier.hardware.gpus import HARDWARE
from tests.kit.places import ROOT

DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
README = (ROOT / "README.md").read_text()


def text_of(page: str) -> str:
    """A page of docs/, each paragraph in one line."""
    return re.sub(r"(?<=\S)\n(?=\S)", " ", (DOCS / page).read_text())


ANSWER = re.compile(r"^Run at concurrency (\d+): ([\d,]+) tok/s \(95% CI ([\d,]+) to ([\d,]+)\) +(\S+)$", re.M)
SHOWN = [
    (str(page.relative_to(ROOT)), *match.groups())
    for page in sorted({ROOT / "README.md", *DOCS.rglob("*.md"), *DOCS.rglob("*.txt")})
    for match in ANSWER.finditer(page.read_text())
]
OF = {
    "configs/quickstart.yaml": ("short", ["README.md", "docs/tutorial.md"]),
    "docs/examples/vllm-cpu/sweep.yaml": ("128/64", ["docs/examples/vllm-cpu/README.md", "docs/tutorial.md"]),
}
"""Configs whose answer is shown: its label, and the pages."""


def of(config: str) -> list[tuple[str, ...]]:
    """The answers shown of a config: page, concurrency, rate and its interval."""
    label, pages = OF[config]
    return [answer[:-1] for answer in SHOWN if answer[-1] == label and answer[0] in pages]


@pytest.mark.parametrize("config", OF)
def test_an_answer_keeps_the_law_of_requests_in_flight(config: str) -> None:
    """Requests in flight are the rate times the latency, and the SLA says how long that may be."""
    text = (ROOT / config).read_text()
    (shape,) = load_config(text, config).shapes
    limits = {
        name: float(limit.removesuffix("ms")) for name, limit in yaml.safe_load(text)["sla"].items() if "ms" in limit
    }
    for page, c, rate, *_ in of(config):
        latency = 1e3 * int(c) * shape.osl.mean / float(rate.replace(",", ""))
        assert latency <= limits["p95_ttft"] + (shape.osl.mean - 1) * limits["p95_tpot"], f"{page}: {latency:.0f} ms"


@pytest.mark.parametrize("config", OF)
def test_the_answers_shown_of_a_config_are_of_one_run(config: str) -> None:
    assert [page for page, *_ in of(config)] == sorted(OF[config][1])
    assert len({tuple(answer) for _, *answer in of(config)}) == 1


def test_the_number_under_the_picture_is_that_of_the_study() -> None:
    answers, deployments, broke, tenths = map(
        int,
        re.findall(
            r"Of ([\d,]+) answers on ([\d,]+) simulated deployments (\d+) broke.*\n?.*about (\d) times in 10",
            README.replace("1,", "1"),
        )[0],
    )
    study = (DOCS / "validation" / "calibration.md").read_text()
    (named, wrong) = re.findall(r"^\| \*\*all\*\* \|.*?\| \*\*([\d,]+)\*\* \| \*\*(\d+)\*\* \|", study, re.M)[0]
    assert (answers, broke) == (int(named.replace(",", "")), int(wrong))
    assert f"{deployments:,} simulated deployments" in study
    (share,) = re.findall(r"^\| bisection on the value \| \d+ \| ([\d.]+)% \|", study, re.M)
    assert tenths == round(float(share) / 10)


def found_full(people: int, slots: int, answer: float, think: float) -> float:
    """The share of requests that find all slots taken, of people with exponential times."""
    shares = [1.0]
    for busy in range(people - 1):
        shares.append(shares[-1] * (people - 1 - busy) / think * answer / min(busy + 1, slots))
    return sum(shares[slots:]) / sum(shares)


@pytest.mark.parametrize(("slots", "answer", "law", "one_in_100"), [(48, 4.0, 588, 410), (64, 10.0, 352, 266)])
def test_people_for_requests_in_flight(slots: int, answer: float, law: int, one_in_100: int) -> None:
    page = text_of("capacity.md")
    assert f"{law} people" in page
    assert re.search(rf"\b{one_in_100}\b", page)
    assert law == slots * (answer + 45) / answer
    assert found_full(one_in_100, slots, answer, 45) <= 0.01 < found_full(round(1.02 * one_in_100), slots, answer, 45)
    if law == 352:
        assert found_full(law, slots, answer, 45) == pytest.approx(0.70, abs=0.005)
        assert "in 70% of" in page


def test_the_head_counts_that_kept_the_sla() -> None:
    of, share, stalled, of_stalled, stall_share, others = re.findall(
        r"Of (\d+) such .*? ([\d.]+)% kept .*? (\d+) of (\d+) \((\d+)%\) .*? all (\d+) on",
        text_of("capacity.md"),
    )[0]
    assert int(of) == int(of_stalled) + int(others)
    assert float(share) == pytest.approx(100 * (int(stalled) + int(others)) / int(of), abs=0.05)
    assert int(stall_share) == round(100 * int(stalled) / int(of_stalled))


def test_the_arithmetic_of_how_it_proves() -> None:
    page = text_of("how-it-proves.md")
    (lifetimes,) = re.findall(r"A proof of (\d+) lifetimes misses .*? in 30 lifetimes", page)
    assert int(lifetimes) == math.ceil(math.log(0.05) / math.log(29 / 30))
    least = {99: 299, 95: 59, 90: 29}
    assert all((p / 100) ** n <= 0.05 < (p / 100) ** (n - 1) for p, n in least.items())
    assert re.search(r"least 299 .*? p95 at least 59\b", page)
    assert re.search(r"at least 299 .*?,\s+a\s+p95\s+59,", README)
    assert f"is at most {100 * ALPHA:g}%" in page
    (judged,) = re.findall(r"judged after ([\d, and]+) windows", page)
    assert tuple(map(int, re.findall(r"\d+", judged))) == JUDGED_AFTER
    assert round(100 * 0.99**100) == 37
    assert "in 37 of 100" in page
    assert round(100 * 0.8**12) == 7
    assert "chance of 7%" in page


def test_the_arithmetic_of_the_roofline_and_of_hosts() -> None:
    page = text_of("hardware.md")
    (took,) = re.findall(r"16 GB at 4\.8 TB/s take ([\d.]+) ms", page)
    assert float(took) == round(16e9 / 4.8e12 * 1e3, 1)
    (chance,) = re.findall(r"once in (\d+)", page)
    assert int(chance) == math.comb(12, 6)


def test_the_memory_of_an_h200_is_that_of_the_table() -> None:
    capacity = HARDWARE["h200"].capacity
    for file in ("docs/config.md", "configs/gpt-oss-120b.yaml", "frontier/cli/init_template.py"):
        sizes = re.findall(r"memory_bandwidth: 4\.8TB/s, memory: (\w+)", (ROOT / file).read_text())
        assert sizes, file
        assert {parse_size(size) for size in sizes} == {capacity}, file
    assert f"NVIDIA H200 ({capacity / 2**30:.0f} GiB," in (EXAMPLES / "h200" / "README.md").read_text()
    gb = [f"{HARDWARE[name].capacity / 1e9:.3g}" for name in ("h100", "h200")]
    assert f"{gb[0]} and {gb[1]} GB" in text_of("hardware.md")


def test_the_h200s_shares_of_its_data_sheet() -> None:
    gpu = HARDWARE["h200"]
    rows = re.findall(
        r"^\| ([^|]+) \| ([\d.,]+) (TB/s|TFLOP/s) \| (\d+)% \|$", (EXAMPLES / "h200" / "README.md").read_text(), re.M
    )
    assert len(rows) == 8
    for name, value, unit, share in rows:
        peak = gpu.bandwidth if unit == "TB/s" else gpu.fp8 if "fp8" in name else gpu.bf16
        assert peak is not None
        assert round(100 * float(value.replace(",", "")) * 1e12 / peak) == int(share), name


def reproduced(page: Path) -> tuple[str, str]:
    """The commands and the config under *How to reproduce* of a page."""
    blocks = re.findall(r"<pre>(.*?)</pre>", page.read_text().partition('id="reproduce"')[2], re.S)
    return html.unescape(blocks[0]), html.unescape(blocks[1])


@pytest.mark.parametrize("name", ["quickstart", "vllm-cpu", "h200"])
def test_a_page_reproduces_the_config_that_is_here(name: str) -> None:
    commands, config = reproduced(EXAMPLES / name / "review.html")
    (file,) = re.findall(r"^frontier sweep (\S+)", commands, re.M)
    assert yaml.safe_load(config) == yaml.safe_load((ROOT / file).read_text())


def test_no_example_has_a_path_of_the_machine_that_made_it() -> None:
    made = [path for path in EXAMPLES.rglob("*") if path.suffix in {".html", ".svg", ".md", ".csv", ".json", ".txt"}]
    assert len(made) > 20
    assert [path for path in made if re.search(r"(?<![\w.])/(?:tmp|home|root|work|Users)/", path.read_text())] == []


def test_install_names_each_extra_that_a_user_may_want() -> None:
    extras: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    page = (DOCS / "install.md").read_text()
    assert [name for name in extras if name not in {"docs", "notebook", "test"} and f"'.[{name}]'" not in page] == []


def test_the_readme_has_each_exit_code_and_the_quickstarts_budget() -> None:
    line = README.partition("**Exit codes**: ")[2].partition("\n\n")[0]
    assert {int(code) for code in re.findall(r"(?:^|; ?|;\n)(\d+) ", line)} == {*ExitCode}
    budget = yaml.safe_load((ROOT / "configs" / "quickstart.yaml").read_text())["budget"]["time"]
    assert re.search(rf"at most {budget.removesuffix(chr(115))} s", README)
