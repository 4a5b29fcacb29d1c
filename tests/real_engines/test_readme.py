"""A user who types the tutorial's lines against a real vLLM ends with a proven answer."""

import re
from pathlib import Path

import pytest

from tests.kit.transcripts import HOST, ROOT, Shell, alike, section, steps

pytestmark = [pytest.mark.engine, pytest.mark.nightly, pytest.mark.timeout(1500)]

LINES = steps(section((ROOT / "docs" / "tutorial.md").read_text(), "Your server"))
STARTS = "python tests/real_engines/vllm_cpu.py "
"""Lines that install and serve the engine: `running` does what they do, on a free port."""
NOT_CONCLUSIVE = (4, 5)


def test_the_tutorials_lines_end_in_a_proven_answer_on_a_real_vllm(tmp_path: Path, vllm: str) -> None:
    assert 2 == sum(STARTS in line.command for line in LINES)
    config = Path("docs/examples/vllm-cpu/sweep.yaml")
    shell = Shell(tmp_path, vllm)
    (tmp_path / config.parent).mkdir(parents=True)
    text = (ROOT / config).read_text().replace(HOST, vllm)
    assert "budget" not in text
    # It completes the frontier for minutes after the answer; the gate has no time for that.
    (tmp_path / config).write_text(f"{text}budget: {{time: 4min}}\n")
    for line, shown in ((step.command, step.shown) for step in LINES if STARTS not in step.command):
        said = shell.type(line)
        if line.startswith("frontier sweep") and shell.code in NOT_CONCLUSIVE:
            pytest.skip(f"this machine was too busy to measure on: {said.splitlines()[-1]}")
        assert 0 == shell.code, f"$ {line}\n{said}"
        # A later visit may take a higher setting back, or leave one undecided that may be
        # better: the answer is proven all the same, and says so.
        said = said.replace("Corrected: run at", "Run at")
        assert alike(shown or "...", said), f"$ {line}\n{said}\n\non the page:\n{shown}"
    assert re.search(r"^Run at concurrency \d+\b", said, re.MULTILINE)
