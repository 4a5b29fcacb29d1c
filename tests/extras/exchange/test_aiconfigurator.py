"""aiconfigurator's table of measured settings."""

import pytest

from frontier.extras.exchange import formats
from frontier.extras.exchange.assemble import assemble

SIDE = "workers,prefill_tp_size,decode_num_workers,decode_tp_size"
HEADS = (
    "id,silicon_data_source,backend,backend_version,model_path,system,precision,mode,isl,osl,tp_size,pp_size,"
    f"attention_dp_size,moe_ep_size,prefill_num_{SIDE},silicon_ttft_ms,silicon_tpot_ms\n"
)


def row(source: str, mode: str = "agg", sizes: str = "4,1,4,16,,,,") -> str:
    return f"i,{source},vllm,0.19.0,org/M-2,b200_sxm,fp8,{mode},1024,1024,{sizes},400,20\n"


def test_a_row_is_a_setting_whose_throughput_follows_by_littles_law() -> None:
    text = HEADS + row("a; silicon_concurrency=256; measured=x") + row("b.csv")
    read = formats.read_results("silicon_sample.csv", text.encode())
    assembled = assemble([read])
    (point,) = assembled.points
    assert (256, "1024/1024", 16) == (point.load, point.shape.label, assembled.deployments[0].gpus)
    assert "M-2-b200_sxm-vllm-0.19.0-fp8-tp4-dp4-ep16" == point.deployment
    assert pytest.approx(256 * 1024 / (0.4 + 1023 * 0.02)) == point.value("output_throughput")
    assert (0.4, 0.02) == (point.value("mean_ttft"), point.value("mean_tpot"))
    assert any("1 row" in note for note in read.notes)


def test_a_disaggregated_one_has_the_gpus_of_all_workers() -> None:
    text = HEADS + row("silicon_concurrency=8", "disagg", ",,,,3,2,1,4")
    assert 10 == assemble([formats.read_results("s.csv", text.encode())]).deployments[0].gpus
