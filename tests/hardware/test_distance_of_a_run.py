"""The distance of a whole run from its roofline, where the config describes its hardware."""

import json
from pathlib import Path

import pytest

from frontier import load
from frontier.core.model.points import FLAG_WORDS
from frontier.show.view.selection import views_of
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.sweeps import sweep_in_virtual_time

TEXT = """\
endpoint: simulator
simulator: {model: llama-3.1-8b, hardware: h100, efficiency: 0.5, overhead: 0, ingest: 0}
shapes: [512/64]
concurrency: [1, 8, 32]
requests: 100
repeats: 1
refine: 0
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("roofline")
    (here / "runs").mkdir()
    sweep_in_virtual_time(here / "runs" / "own", TEXT)
    faster = "hardware: {name: mine, memory_bandwidth: 300GB/s, memory: 80GB, tflops: 100, model: llama-3.1-8b}\n"
    sweep_in_virtual_time(here / "runs" / "wrong", TEXT + faster)
    return here


def test_an_engine_at_half_of_the_roofline_is_found_there(runs: Path) -> None:
    # A client that saw everything at half the roofline's speed: MBU 50%; a prompt's step also
    # reads the weights.
    for point in load(runs / "runs" / "own").points():
        assert point.roofline_distance is not None
        assert point.roofline_distance.mbu is not None
        assert point.roofline_distance.mfu is not None
        assert 0.38 < point.roofline_distance.share.value <= 0.5
        assert 0.38 < point.roofline_distance.mbu.value <= 0.51
        assert (
            point.roofline_distance.share.low
            <= point.roofline_distance.share.value
            <= point.roofline_distance.share.high
        )
        assert "faster_than_light" not in {f.name for f in point.flags}


def test_hardware_described_as_slower_than_what_was_measured_flags_every_point(runs: Path) -> None:
    said = frontier("show", "runs/wrong", "-v", cwd=runs)
    assert said.code == 5, "no point is valid"
    assert FLAG_WORDS["faster_than_light"] in said.out
    assert "tokens are miscounted" in " ".join(said.out.split())


def test_show_report_and_picture_say_how_far_from_light_the_run_is(runs: Path) -> None:
    first = json.loads(frontier("show", "runs/own", "--json", cwd=runs).out)["points"][0]["light"]
    assert {"ceiling", "share", "binds", "mbu", "mfu"} == set(first)
    assert "decode bandwidth" == first["binds"]
    report = frontier("report", "runs/own", "-o", "-", cwd=runs).out
    assert "| roofline bound by |" in report
    assert frontier("plot", "runs/own", "-o", "far.svg", cwd=runs).code == 0
    picture = (runs / "far.svg").read_text()
    assert "roofline" in picture
    assert "roofline" in load(runs / "runs" / "own").picture()._repr_svg_()
    assert "Llama-3.1-8B" in picture


def test_a_server_that_speculates_is_no_impossible_one_where_the_config_says_so(tmp_path: Path) -> None:
    engine = (
        "simulator: {model: llama-3.1-8b, hardware: h100, efficiency: 0.9, overhead: 0, ingest: 0, "
        "speculation: {tokens: 4, acceptance: 90%, draft: 0}}"
    )
    text = TEXT.replace(TEXT.splitlines()[1], engine).replace("[1, 8, 32]", "[4]")
    plain = "hardware: {name: h100, model: llama-3.1-8b}\n"
    sweep_in_virtual_time(tmp_path / "own", text)
    sweep_in_virtual_time(tmp_path / "silent", text + plain)
    sweep_in_virtual_time(tmp_path / "said", text + plain.replace("}", ", speculation: {tokens: 4}}"))
    flags = {}
    for name in ("own", "silent", "said"):
        (point,) = load(tmp_path / name).points()
        flags[name] = {flag.name: flag.advice for flag in point.flags if flag.name == "faster_than_light"}
        if name != "silent":
            assert point.roofline_distance is not None
            assert point.roofline_distance.share.value < 1
    assert {} == flags["own"] == flags["said"]
    assert "hardware: {speculation: {tokens: 4}}" in flags["silent"]["faster_than_light"]
    assert_golden_row("flags", flags["silent"]["faster_than_light"])
    page = frontier("report", "own", "-o", "-", cwd=tmp_path).out
    (row,) = (line for line in page.splitlines() if "speculating" in line and line.startswith("|"))
    assert_golden_row("pages", row)


def test_where_requests_are_counted_the_roofline_is_of_requests(runs: Path) -> None:
    run = load(runs / "runs" / "own")
    rooflines = {
        up: views_of(run, (), (up, "p50_tpot"))[0].roofline for up in ("output_throughput", "request_throughput")
    }
    of_tokens, of_requests = rooflines["output_throughput"], rooflines["request_throughput"]
    assert of_tokens is not None
    assert of_requests is not None
    assert of_tokens.ceiling == pytest.approx(64 * of_requests.ceiling)
    assert [(x, pytest.approx(y / 64)) for x, y in of_tokens.curve] == list(of_requests.curve)
    assert views_of(run, (), ("total_throughput", "p50_tpot"))[0].roofline is None


def test_measured_ceilings_are_drawn_beside_those_of_the_data_sheet(runs: Path) -> None:
    hardware = "hardware={name: h100, memory_bandwidth: 3TB/s, tflops: 800, model: llama-3.1-8b}"
    (measured,) = views_of(load(runs / "runs" / "own", (hardware,)), (), None)
    assert measured.roofline is not None
    assert measured.roofline.stated is not None
    assert measured.roofline.ceiling < measured.roofline.stated.ceiling
    (stated,) = views_of(load(runs / "runs" / "own", ("hardware={name: h100, model: llama-3.1-8b}",)), (), None)
    assert stated.roofline is not None
    assert stated.roofline.stated is None
    assert stated.roofline.ceiling == measured.roofline.stated.ceiling
    page = frontier("report", "runs/own", "--set", hardware, "-o", "-", cwd=runs).out
    assert page
    frontier("plot", "runs/own", "--set", hardware, "-o", "both.svg", cwd=runs)
    assert "by the data sheet" in (runs / "both.svg").read_text().replace("\u00a0", " ")
