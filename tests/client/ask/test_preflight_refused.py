"""What keeps a deployment from being measured though it could be, or lets one be measured that
cannot: refused fields, streams by another name, replicas behind one address, counts that are none,
contexts that are too short, and what is called cached of new prompts."""

import asyncio
import json
from pathlib import Path

import pytest

from frontier.cli.probe_checklist import probe
from frontier.client import run_trial
from frontier.client.ask.facts import RANKS
from frontier.client.ask.found_servers import ask_server
from frontier.client.ask.new_prompts import settle_cached
from frontier.client.ask.preflight import Check, Preflight, calibrate, preflight
from frontier.client.ask.prompts import Calibration, random_prompts
from frontier.client.ask.target import Target, Timeouts
from frontier.config import load_config
from frontier.core.flags.flags import flags
from frontier.core.model.errors import MeasurementError
from frontier.core.model.shapes import Shape
from frontier.core.model.trials import Phase, Record, Trial
from frontier.core.window.from_records import window_data
from frontier.core.window.window import WindowData
from frontier.planning.context import over_context
from frontier.show.view.limit_lines import knob_sentence
from tests.cases.deployments import (
    CachedAnew,
    Called,
    ConstantCount,
    Preempted,
    SmallContext,
    SomeRanks,
    Strict,
    Unstarted,
)
from tests.cases.http_server import Out, Request, serving
from tests.cases.situation import Call, Refused, Situation
from tests.cases.situations import OneTemperature, TwoProcesses
from tests.kit.commands import frontier
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import neutral

pytestmark = pytest.mark.process


def target(url: str, **more: object) -> Target:
    return Target(f"{url}/v1", timeouts=Timeouts(2.0, 5.0, 2.0, 10.0), **more)  # type: ignore[arg-type]


def look(server: Situation, **more: object) -> Preflight:
    with serving(server) as url:
        return asyncio.run(preflight(target(url, **more)))


def looked(server: Situation, **more: object) -> dict[str, Check]:
    """The lines of a checklist by their names."""
    with serving(server) as url:
        return {check.name: check for check in asyncio.run(probe(target(url, **more)))}


def measured(server: Situation, isl: int = 64, *, settled: bool = True) -> WindowData:
    """A quick look behind a preflight."""
    shape, records = Shape.of(isl, 6), list[Record]()
    trial = Trial("d", shape, 4, 0, Phase.GRID, 40, 7, 0.1, 0.0, 6.0, fingerprint="f")

    async def go() -> WindowData:
        found = await preflight(target(url))
        calibration = await calibrate(found, [isl])
        if settled:
            found, _ = await settle_cached(found, isl, calibration)
        prompts = random_prompts(shape, 7, calibration)
        return window_data(await run_trial(trial, found.target, prompts, on_record=records.append), records)

    with serving(server) as url:
        return asyncio.run(go())


def raised(sample: WindowData) -> set[str]:
    return {flag.name for flag in flags(sample) if flag.name in ("cache_contaminated", "recomputed")}


# ---- what is called cached of new prompts


@pytest.mark.parametrize("how", ["all", "blocks"])
def test_a_count_that_calls_new_prompts_cached_is_not_used(how: str) -> None:
    """vllm-project/vllm #43370, vllm-project/router #193."""
    assert raised(measured(CachedAnew(how=how), settled=False)) == {"cache_contaminated"}
    sample = measured(CachedAnew(how=how))
    assert raised(sample) == set()
    assert bool((sample.cached_tokens != sample.cached_tokens).all())


@pytest.mark.parametrize("tokens", [5, 21, 48])
def test_a_constant_count_is_the_template_and_taken_off(tokens: int) -> None:
    sample = measured(CachedAnew(how="template", template=tokens, dialect="openai", chat_only=True))
    assert raised(sample) == set()
    assert not sample.cached_tokens.any()


@pytest.mark.parametrize(("how", "warm"), [("none", 1), ("none", 36), ("template", 36)])
def test_a_cache_that_is_warm_later_still_excludes(how: str, warm: int) -> None:
    """The very first prompt shows none, or the template alone."""
    server = CachedAnew(how=how, warm=warm, dialect="vllm" if how == "none" else "openai")
    assert raised(measured(server)) == {"cache_contaminated"}


def test_a_share_that_grows_beyond_that_of_new_prompts_still_excludes() -> None:
    class Grows(CachedAnew):
        def usage(self, call: Call) -> dict[str, object]:
            usage, prompt = super().usage(call), call.true.prompt
            return usage | {self.details: {"cached_tokens": prompt // (4 if call.number < 8 else 2)}}

    assert raised(measured(Grows())) == {"cache_contaminated"}


@pytest.mark.parametrize(("preempts", "flag"), [(True, "recomputed"), (False, "cache_contaminated")])
def test_hits_by_counters_beside_preemptions_are_recomputation(preempts: bool, flag: str) -> None:
    """vllm-project/vllm #25780."""
    sample = measured(Preempted(preempts=preempts))
    assert raised(sample) == {flag}
    assert [f.fatal for f in flags(sample) if f.name == flag] == [not preempts]


def test_probe_shows_both_readings_of_the_cache() -> None:
    checks = looked(CachedAnew())
    assert checks["prefix cache"].state == "warn"
    assert "511 of 512" in checks["prefix cache"].detail
    assert "511 the first time" in checks["prefix cache"].detail
    template = looked(CachedAnew(how="template", template=21, dialect="openai"))["prefix cache"]
    assert template.state == "note"
    assert_golden_row("messages", checks["prefix cache"].detail, "all")
    assert_golden_row("messages", template.detail, "template")


# ---- refused fields


@pytest.mark.parametrize("says", ["loc", "mistral", "param", "words", "text"])
@pytest.mark.parametrize("status", [400, 422])
def test_a_request_is_asked_again_without_the_field_that_is_refused(says: str, status: int) -> None:
    """openai/openai-agents-python #442."""
    server = Strict(says=says, status=status)
    found = look(server)
    assert found.target.omitted == {"stream_options"}
    assert found.probe.completion_tokens == 16
    refused = [tree for tree in server.asked if "stream_options" in tree and "temperature" in tree]
    assert len(refused) == len(server.asked) - sum(one.status == 200 for one in server.served) or refused


@pytest.mark.parametrize(
    ("fields", "words"),
    [(("stream_options",), "streamOptions is no field"), (("max_tokens",), "max_tokens is deprecated")],
)
def test_a_field_is_known_by_another_spelling_and_a_limit_that_is_gone_by_its_words(
    fields: tuple[str, ...], words: str
) -> None:
    class Worded(Strict):
        def refusal(self, call: Call) -> Refused | None:
            return super().refusal(call) and Refused(400, {"error": {"message": words}})

    found = look(Worded(fields=fields))
    assert fields[0] in found.target.omitted or found.target.dialect == "openai_reasoning"


def test_refused_length_fields_leave_the_length_open() -> None:
    server = Strict(fields=("min_tokens", "ignore_eos"), dialect="vllm")
    found = look(server)
    assert found.target.omitted == {"min_tokens", "ignore_eos"}
    assert not found.target.forces_length
    assert {c.name: c.state for c in found.checks}["request"] == "note"
    assert look(Strict(fields=("min_tokens",), dialect="vllm")).target.forces_length


def test_a_field_that_only_the_repeated_request_names_is_kept() -> None:
    class Repeats(Situation):
        def refusal(self, call: Call) -> object:  # type: ignore[override]
            from tests.cases.situation import Refused

            return Refused(422, {"detail": [{"loc": ["body", "tools"], "msg": "Field required", "input": call.tree}]})

    server = Repeats()
    with pytest.raises(MeasurementError, match="tools: Field required"):
        look(server)
    assert {len(server.asked)} <= {1, 2}, "once for each api"


def test_a_refused_temperature_names_its_cure() -> None:
    """artokun/comfyui-mcp #2535, QwenLM/qwen-code #921."""
    for server in (OneTemperature(), Strict(fields=("temperature",)), Strict(fields=("temperature",), says="param")):
        with pytest.raises(MeasurementError) as error:
            look(server)
        assert_golden_row("messages", neutral(str(error.value)), server.says if isinstance(server, Strict) else "plain")
        assert "temperature" in error.value.what
        assert "extra_body: {temperature: 1}" in (error.value.hint or "")
        assert "openai_reasoning" in (error.value.hint or "")
    assert look(Strict(fields=("temperature",)), dialect="openai_reasoning").probe.completion_tokens == 16
    assert look(Strict(fields=("temperature",)), extra_body={"temperature": None}).probe.completion_tokens == 16


def test_a_refused_field_of_the_users_own_stays_and_is_named() -> None:
    with pytest.raises(MeasurementError) as error:
        look(Strict(fields=("top_k",)), extra_body={"top_k": 1})
    assert "top_k" in (error.value.hint or "")
    assert "extra_body" in (error.value.hint or "")


def test_null_leaves_out_what_is_always_sent() -> None:
    server = Strict()
    assert look(server, extra_body={"stream_options": None, "top_k": None}).probe.prompt_tokens
    assert not [tree for tree in server.asked if "stream_options" in tree and "usage" not in json.dumps(tree)]
    assert all("top_k" in tree for tree in server.asked), "what is not ours is sent as it is"


# ---- streams by another name


@pytest.mark.parametrize("name", ["application/json", "text/plain; charset=utf-8", "application/octet-stream", "x/y"])
def test_an_event_stream_is_one_whatever_it_is_called(name: str) -> None:
    """vllm-project/vllm-ascend #5033."""
    assert look(Called(name=name)).probe.completion_tokens == 16


def test_a_body_of_json_with_an_error_stays_an_error() -> None:
    class Says(Situation):
        async def stream(self, call: Call, out: object) -> None:  # type: ignore[override]
            await out.whole(200, {"error": {"message": "no GPU is free"}})  # type: ignore[attr-defined]

    with pytest.raises(MeasurementError) as error:
        look(Says())
    assert_golden_row("messages", neutral(str(error.value)))


# ---- replicas behind one address


@pytest.mark.parametrize("server", [TwoProcesses, Unstarted])
def test_replicas_behind_one_address_are_seen_before_the_sweep(server: type[Situation]) -> None:
    """BerriAI/litellm #10595."""
    found = {check.name: check for check in look(server()).checks}["replicas"]
    assert found.state == "warn"
    assert "metrics: none" in found.detail
    assert_golden_row("messages", neutral(found.detail), server.__name__)
    assert "replicas" in looked(server())
    assert "replicas" not in {check.name for check in look(server(), metrics_urls=None).checks}
    assert "replicas" not in {check.name for check in look(Situation()).checks}


# ---- counts and contexts


def test_a_count_that_does_not_grow_is_no_count() -> None:
    """BerriAI/litellm #36114."""
    for name, server, counted in (
        ("constant", ConstantCount(), False),
        ("share", ConstantCount(constant=None, share=0.1), False),
        ("cut", ConstantCount(constant=None, cut=48), True),
        ("right", ConstantCount(constant=None), True),
    ):
        with serving(server) as url:
            found = asyncio.run(preflight(target(url)))
            calibration = asyncio.run(calibrate(found, [256]))
        assert (calibration.counted, calibration.words(256)) == (counted, 256)
        assert (calibration.doubt is None) is (name == "right")
        assert_golden_row("messages", calibration.doubt or "", name)


def test_a_count_that_is_none_is_the_cause_that_a_flag_gives() -> None:
    for server, none in ((ConstantCount(), True), (ConstantCount(constant=None, cut=48), False)):
        (flag,) = [each for each in flags(measured(server)) if each.name == "wrong_input_length"]
        assert flag.fatal
        assert (none, not none) == ("no count" in flag.advice, "cuts prompts" in flag.advice)


def test_what_stands_in_the_place_of_a_list_of_models_is_shown() -> None:
    class Page(Situation):
        async def answer(self, request: Request, out: Out) -> None:
            page = "<html><title>Chat of ours</title></html>"
            await (out.whole(200, page, "text/html") if request.method == "GET" else super().answer(request, out))

    with pytest.raises(MeasurementError, match="Chat of ours"):
        look(Page())


def test_a_usage_without_numbers_is_shown() -> None:
    class Texts(Situation):
        def usage(self, call: Call) -> dict[str, object]:
            return {name: str(count) for name, count in super().usage(call).items()}

    with pytest.raises(MeasurementError, match="'completion_tokens': '16'"):
        look(Texts())


def test_tokens_that_the_server_adds_are_the_cause_that_a_flag_gives() -> None:
    (flag,) = [each for each in flags(measured(Situation(template=300))) if each.name == "wrong_input_length"]
    assert flag.fatal
    assert "301" in flag.advice


def test_a_count_below_that_of_any_tokenizer_is_said() -> None:
    with serving(ConstantCount(constant=None, share=0.5)) as url:
        found = asyncio.run(preflight(target(url)))
        assert "0.5 tokens a word" in (asyncio.run(calibrate(found, [256])).doubt or "")
    assert Calibration().doubt is None


@pytest.mark.parametrize("tells", ["props", "max_model_len", "context_length", "context_window"])
def test_a_context_is_known_wherever_it_is_told(tells: str) -> None:
    """arbs-io/github-copilot-llm-gateway #55."""
    assert look(SmallContext(tells=tells)).max_model_len == 512
    with serving(SmallContext(tells=tells)) as url:
        facts = asyncio.run(ask_server(f"{url}/v1"))
    assert facts is not None
    assert facts.max_model_len == 512


def test_a_shape_that_does_not_fit_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with serving(SmallContext()) as url:
        config = f"endpoint: {url}/v1\nshapes: [1024/32]\nconcurrency: [2]\nsla: {{p90_ttft: 1s}}\n"
        (tmp_path / "sweep.yaml").write_text(config)
        said = frontier("sweep", "sweep.yaml", "--dry-run", cwd=tmp_path)
        assert said.code == 2
        assert_golden_row("messages", neutral(said.error))
        for words in ("1024/32", "1,056", "512", "[256/32]"):
            assert words in said.error
        fits = frontier("sweep", "sweep.yaml", "--dry-run", "--set", "shapes=[256/32]", cwd=tmp_path)
        assert fits.code == 0, fits.err
        written = frontier("init", f"{url}/v1", cwd=tmp_path)
        (tmp_path / "own.yaml").write_text(written.out)
        assert frontier("sweep", "own.yaml", "--dry-run", cwd=tmp_path).code == 0
        for use in ("rag", "agent"):
            assert "context of 512 tokens" in frontier("init", f"{url}/v1", "--for", use, cwd=tmp_path).out


@pytest.mark.parametrize(
    ("shape", "tokens"),
    [
        ("1024/32", 1056),
        ("100-900/100", 1000),
        ("500~100/100", 800),
        ("{name: a, turns: 3, first: 1000, per_turn: 100/50}", 1350),
        ("{name: m, pairs: 100/10 900/100}", 1000),
    ],
)
def test_the_longer_requests_of_a_shape_have_to_fit(shape: str, tokens: int) -> None:
    config = load_config(f"endpoint: simulator\nshapes: [{shape}]\nconcurrency: [2]\n", "s.yaml")
    (shape_,) = config.shapes
    assert over_context([shape_], tokens, "x") is None
    over = over_context([shape_], tokens - 1, "x")
    assert over is not None
    assert f"{tokens:,}" in over[0]
    assert over_context([shape_], None, "x") is None


# ---- the limit of ranks


@pytest.mark.parametrize(
    ("ranks", "concurrency", "each", "in_all"), [(4, 45, 11, 44), (2, 8, 4, 8), (3, 8, 2, 6), (8, 8, 1, 8)]
)
def test_the_limit_is_divided_by_the_ranks(ranks: int, concurrency: int, each: int, in_all: int) -> None:
    """vllm-project/vllm #36748."""
    said = knob_sentence("vllm", concurrency, ranks)
    assert f"--max-num-seqs {each} " in said
    assert f"{in_all} in all" in said
    assert "--max-num-seqs" not in knob_sentence("sglang", concurrency, ranks)
    assert f"--max-running-requests {concurrency}" in knob_sentence("sglang", concurrency, ranks)
    assert f"--max-num-seqs {concurrency};" in knob_sentence("vllm", concurrency)


def test_fewer_in_flight_than_ranks_is_no_limit_of_theirs() -> None:
    said = knob_sentence("vllm", 3, 4)
    assert "gateway to 3 " in said
    assert "4 ranks" in said


@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_ranks_are_those_that_the_metrics_name(ranks: int) -> None:
    assert ranks == measured(SomeRanks(ranks=ranks)).server[0].get(RANKS, 1)
