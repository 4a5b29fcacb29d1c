"""One concurrency for all shapes of a server: the sweep proves it, and says what each gives up."""

import json
from pathlib import Path

from frontier.core.claim.changes import CLAIMED
from frontier.core.model.decisions import Verdict
from tests.kit.commands import frontier
from tests.kit.sweeps import sweep_in_virtual_time

CONFIG = """\
endpoint: simulator
simulator: {step_base: 5ms, per_decode: 100us, per_prefill_token: 20us, noise: 0.05}
shapes: [{name: chat, isl: {uniform: [64, 192]}, osl: 24}, {name: rag, isl: {uniform: [700, 900]}, osl: 24}]
concurrency: [1, 4, 16, 64]
sla: {p95_ttft: 400ms, p95_tpot: 11ms}
"""


def test_the_lowest_of_the_operating_points_is_proven_in_every_shape(tmp_path: Path) -> None:
    run, told, end = sweep_in_virtual_time(tmp_path / "run", CONFIG)
    assert "finished" == end
    (tier,) = run.answers()
    alone = {d.shape.label: d.load for d in tier.decisions}
    assert None not in alone.values()
    low, high = sorted(c for c in alone.values() if c is not None)
    assert low < high  # else there is nothing to share
    assert {"default": low} == dict(tier.common)
    for d in tier.decisions:
        judged = d.judgement(low)
        assert judged is not None
        assert Verdict.MEETS is judged.verdict
    shared = [t for t in told.finished if t.load == low and t.phase in CLAIMED]
    assert {"chat", "rag"} == {t.shape.label for t in shared}
    (most,) = (shape for shape, c in alone.items() if c == high)
    lost = tier.given_up["default"][most]
    assert 0.1 < lost < 1
    said = json.loads(frontier("solve", "run", "--json", cwd=tmp_path, here=True).out)
    assert {"default": low} == said["common"]
    assert lost == said["common_costs"]["default"][most]
