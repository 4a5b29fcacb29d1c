"""`frontier ceilings` on this machine's processor."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from frontier.config import load_config
from frontier.core.model.errors import install_command
from frontier.extras.predict.link_ceilings import place_of
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row


@pytest.mark.process
def test_the_ceilings_of_this_processor_are_answered_and_stored(tmp_path: Path) -> None:
    said = frontier("ceilings", "--device", "cpu", "--seconds", "0.01", "-o", "c.yaml", "--json", cwd=tmp_path)
    assert said.code == 0, said.err
    tree = json.loads(said.out)
    assert "frontier.ceilings/1" == tree["schema"]
    measured = {line["name"]: line["measured"] for line in tree["ceilings"]}
    assert {"memory_bandwidth", "matmul_fp32", "attention"} <= set(measured)
    assert min(measured.values()) > 0
    assert "wrote c.yaml" in said.err
    text = "endpoint: http://h:8000\nmodel: qwen3-0.6b\nshapes: [64/16]\n" + (tmp_path / "c.yaml").read_text()
    roofline = load_config(text, "s.yaml").deployments[0].roofline()
    assert roofline is not None
    assert roofline.token_seconds(load_config(text, "s.yaml").shapes[0], 1) == pytest.approx(
        0.44e9 * 2 / measured["memory_bandwidth"], rel=0.6
    )


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch may find a GPU")
def test_a_gpu_without_torch_is_refused_with_the_way_out(tmp_path: Path) -> None:
    said = frontier("ceilings", "--device", "cuda", cwd=tmp_path)
    assert (said.code, said.out) == (2, "")
    assert install_command("torch") in said.err
    assert_golden_row("messages", said.err.replace(sys.executable, "PYTHON"))


@pytest.mark.skipif(importlib.util.find_spec("torch") is not None, reason="torch would measure them")
def test_links_without_torch_are_refused_with_the_way_out(tmp_path: Path) -> None:
    said = frontier("ceilings", "--links", cwd=tmp_path)
    assert (said.code, said.out) == (2, "")
    assert install_command("torch") in said.err


@pytest.mark.parametrize(
    ("given", "rank"),
    [
        ({}, None),
        ({"WORLD_SIZE": "2"}, None),
        ({"WORLD_SIZE": "many", "RANK": "0", "MASTER_PORT": "1", "MASTER_ADDR": "a"}, None),
        ({"WORLD_SIZE": "1", "RANK": "0", "MASTER_PORT": "1", "MASTER_ADDR": "a"}, None),
        ({"WORLD_SIZE": "4", "RANK": "4", "MASTER_PORT": "1", "MASTER_ADDR": "a"}, None),
        ({"WORLD_SIZE": "4", "RANK": "3", "MASTER_PORT": "29500", "MASTER_ADDR": "node-1"}, 3),
    ],
)
def test_a_rank_has_its_place_of_torchrun_where_all_of_it_is_given(given: dict[str, str], rank: int | None) -> None:
    place = place_of(given, "cpu", 1e9, "here")
    assert (place and place.rank) == rank
