"""Quality under load: what is asked and when, what is claimed, and how a user meets it."""

import asyncio
import dataclasses
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web

from frontier.config import parse_sla
from frontier.core.model.errors import UsageError
from frontier.core.model.shapes import Shape
from frontier.extras.verify.replies import GreedyReplies, GreedyReply
from frontier.extras.verify.under_load import agreements, beside_alone, loaded_checks, prompts_needed
from frontier.read_run import load
from frontier.store.run_dir import RunDirectory
from tests.kit import servers
from tests.kit.commands import Said, frontier
from tests.kit.golden import assert_golden_row
from tests.kit.neutral import neutral
from tests.kit.sweeps import sweep_in_virtual_time

CONFIG = """\
endpoint: simulator
simulator: {step_base: 3ms, per_decode: 40us, token_noise: 0.2%, flips: {batch: 0.5%}}
shapes: [32/12]
concurrency: [1, 2, 4, 8, 16]
sla: {p90_ttft: 1s, p90_tpot: 3.5ms}
requests: 150
repeats: 1
refine: 0
"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of virtual time, whose journal names no server that another engine could differ
    from.
    """
    path = tmp_path_factory.mktemp("swept") / "run"
    sweep_in_virtual_time(path, CONFIG)
    journal = path / "journal.jsonl"
    lines = [line for line in journal.read_text().splitlines() if json.loads(line)["event"] != "server"]
    journal.write_text("\n".join(lines) + "\n")
    return path


def test_as_many_prompts_are_needed_as_would_show_one_that_differs() -> None:
    assert [149, 59, 299] == [prompts_needed(share) for share in (0.98, 0.95, 0.99)]


def test_it_asks_alone_at_the_operating_point_and_beside_it(swept: Path) -> None:
    measured = load(swept)
    (decision,) = measured.solve()
    assert decision.load is not None
    known = sorted(point.load for point in measured.points())
    place = known.index(decision.load)
    (check,) = loaded_checks(measured, measured.limits(), (), None)
    assert (200, tuple(sorted({1, *known[place - 1 : place + 2]}))) == (check.prompts, check.settings)
    (named,) = loaded_checks(measured, measured.limits(), (8, 5), 50)
    assert (50, (1, 5, 8)) == (named.prompts, named.settings)
    assert named.seconds is not None
    assert check.seconds is not None
    assert named.seconds < check.seconds


def test_where_it_cannot_be_asked_it_says_why(swept: Path) -> None:
    measured = load(swept)
    with pytest.raises(UsageError) as undecided:
        loaded_checks(measured, parse_sla("p90_ttft<=1us"), (), None)
    assert_golden_row("messages", neutral(str(undecided.value), swept), "undecided")
    session = dataclasses.replace(Shape.of(32, 12), session=SimpleNamespace())  # type: ignore[arg-type]
    talk = measured.config.model_copy(update={"given_shapes": (session,)})
    with pytest.raises(UsageError, match="single requests"):
        loaded_checks(dataclasses.replace(measured, config=talk), measured.limits(), (4,), None)


@pytest.mark.parametrize(
    "words",
    [("--quality", "--under-load", "8,x"), ("--under-load", "8"), ("--quality", "--under-load", "0"),
     ("--quality", "--under-load", "8", "--find"), ("--quality", "--under-load", "8", "--load", "80%")],
    ids="-".join,
)  # fmt: skip
def test_a_mistake_is_named(words: tuple[str, ...], swept: Path) -> None:
    said = frontier("verify", swept, *words, cwd=swept.parent, here=True)
    assert 2 == said.code
    assert_golden_row("messages", said.error)


# --- what is claimed


def replies(c: int, flips: float, seed: int = 0, prompts: int = 200, length: int = 32) -> GreedyReplies:
    rng = random.Random(f"{c} {seed}")

    def reply() -> GreedyReply:
        return GreedyReply(" ".join("1" if rng.random() < flips else "0" for _ in range(length)))

    passes = tuple(tuple(reply() for _ in range(prompts)) for _ in range(2))
    return GreedyReplies("d", "s", c, "asked", passes, prompts)


def kept(*answers: GreedyReplies) -> Any:
    return SimpleNamespace(answers=lambda _, under_load: answers)


def test_each_setting_is_beside_the_deployment_alone() -> None:
    found = beside_alone(kept(replies(8, 0.03), replies(1, 0.002), replies(4, 0.002)))[("d", "s")]
    assert [1, 4, 8] == list(found)
    assert found[1].of is found[1].reference
    assert found[8].agreement.low <= 0.97 * 0.998 + 0.03 * 0.002 <= found[8].agreement.high
    assert found[8].loss.lower > 0 >= found[4].loss.lower
    assert found[8].agreement == agreements(kept(replies(8, 0.03), replies(1, 0.002)))[("d", "s", 8)]
    assert {} == beside_alone(kept(replies(8, 0.03)))


def test_no_more_is_claimed_than_so_many_prompts_could_show() -> None:
    for prompts, proven in ((148, False), (149, True)):
        found = beside_alone(kept(replies(1, 0.0, prompts=prompts), replies(8, 0.0, prompts=prompts)))
        assert proven == (found[("d", "s")][8].agreement.lower >= 0.98)


def test_what_was_asked_otherwise_is_not_compared() -> None:
    other = dataclasses.replace(replies(8, 0.0), asked="others")
    assert [1, 4] == list(beside_alone(kept(replies(1, 0.0), replies(4, 0.0), other))[("d", "s")])


@pytest.mark.parametrize("seeds", [20, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.nightly])])
def test_a_loss_of_two_points_under_load_is_found_and_none_is_invented(seeds: int) -> None:
    """Three settings beside c=1, 200 prompts of 32 tokens."""
    found = invented = 0
    for seed in range(seeds):
        alone, alike = replies(1, 0.004, seed), (replies(2, 0.004, seed), replies(4, 0.004, seed))
        compared = beside_alone(kept(alone, *alike, replies(8, 0.024, seed)))[("d", "s")]
        found += compared[8].loss.lower > 0
        invented += any(compared[c].loss.lower > 0 for c in (2, 4))
    assert found >= 0.95 * seeds
    assert invented <= 0.05 * seeds + 2 * (0.05 * 0.95 * seeds) ** 0.5


# --- on a server


@dataclasses.dataclass
class Noting:
    """A server that notes what it is asked for whole, and with how many others. `fails`: then all
    else fails once the first of them has come.
    """

    cached: int = 0
    fails: bool = False
    whole: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    beside: list[int] = dataclasses.field(default_factory=list)
    in_flight: int = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.in_flight += 1
        try:
            return await (self._streamed(request, body) if body.get("stream") else self._whole(body))
        finally:
            self.in_flight -= 1

    async def _whole(self, body: dict[str, Any]) -> web.Response:
        await asyncio.sleep(0.02)
        if body.get("logprobs"):  # of the check, not of what comes before it
            self.whole.append(body)
            self.beside.append(self.in_flight - 1)
        usage = {"prompt_tokens": 8, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": self.cached}}
        choice = {"index": 0, "text": " a b", "logprobs": {"tokens": [" a", " b"], "token_logprobs": [-0.5, -1.0]}}
        return web.json_response({"choices": [choice], "usage": usage})

    async def _streamed(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        if self.fails and len(self.whole) > 12:
            return web.json_response({"error": {"message": "no room"}}, status=500)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        count = body["max_tokens"]
        for i in range(count):
            await asyncio.sleep(0.004)
            end = '"length"' if i == count - 1 else "null"
            await response.write(f'data: {{"choices":[{{"index":0,"text":"w ","finish_reason":{end}}}]}}\n\n'.encode())
        usage = f'{{"prompt_tokens":{len(str(body["prompt"]).split())},"completion_tokens":{count}}}'
        await response.write(f'data: {{"choices":[],"usage":{usage}}}\n\n'.encode())
        await response.write(b"data: [DONE]\n\n")
        return response


SERVED = """endpoint: {url}
model: sim
dialect: vllm
shapes: [8/4]
concurrency: [4]
refine: 0
repeats: 1
requests: 60
warmup: 100ms
metrics: none
"""


def verified(server: Noting, folder: Path, *settings: str) -> list[Said]:
    """A sweep of a server, and what each check under load says, with 10 prompts."""
    with servers.serving(servers.completing(server.answer)) as url:
        (folder / "sweep.yaml").write_text(SERVED.format(url=url))
        assert frontier("sweep", "sweep.yaml", "-o", "run", cwd=folder).code in (0, 5)  # 5: a busy machine
        words = ("--quality", "--requests", "10", "--json", "--under-load")
        return [frontier("verify", "run", *words, each, cwd=folder) for each in settings]


@pytest.mark.process
def test_the_prompts_are_one_more_stream_among_the_load(tmp_path: Path) -> None:
    server = Noting(cached=4)
    (said,) = verified(server, tmp_path, "4")
    assert 0 == said.code, said.err
    (compared,) = json.loads(said.out)["compared"]
    assert [1, 4] == [each["concurrency"] for each in compared["settings"]]
    assert [20, 20] == [each["cached"] for each in compared["settings"]]
    alone, loaded = server.beside[:21], server.beside[21:]  # one more asks whether log-probabilities are known
    assert {0} == set(alone)
    assert 21 == len(loaded)
    assert 2 <= sum(loaded) / len(loaded) <= 3
    salts = [body["cache_salt"] for body in server.whole]
    assert 6 == len(set(salts)), "each pass at each setting meets nothing that was cached of another"
    assert len({(body["cache_salt"], str(body["prompt"])) for body in server.whole[1:21]}) == 20
    (point,) = load(tmp_path / "run").points()
    assert (4, 1.0) == (point.load, point.metrics["agreement"].value)
    assert not list((tmp_path / "run" / "verify" / "trials").glob("*"))


@pytest.mark.process
def test_what_was_asked_is_not_asked_again(tmp_path: Path) -> None:
    server = Noting(fails=True)
    first, *_ = verified(server, tmp_path, "4")
    assert (5, True) == (first.code, "c=4" in first.err), first
    checks = RunDirectory.read_checks(tmp_path / "run")
    assert [1] == [each.concurrency for each in checks.answers(GreedyReplies, under_load=True)]
    asked, server.fails = len(server.whole), False
    with servers.serving(servers.completing(server.answer)) as url:
        for file in (tmp_path / "run" / "config.yaml", tmp_path / "sweep.yaml"):
            file.write_text(SERVED.format(url=url))
        again = frontier("verify", "run", "--quality", "--requests", "10", "--under-load", "4", cwd=tmp_path)
    assert 0 == again.code, again.err
    assert 21 == len(server.whole) - asked, "c=1 was asked before"


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.nightly
def test_the_embedded_engine_loses_what_it_is_told_to_lose(swept: Path) -> None:
    """Each other request in flight changes 0.5% of the tokens."""
    said = frontier("verify", swept, "--quality", "--under-load", "8", "--json", cwd=swept.parent)
    assert 0 == said.code, said.err
    (compared,) = json.loads(said.out)["compared"]
    alone, loaded = compared["settings"]
    assert alone["agreement"]["low"] <= 0.998**2 <= alone["agreement"]["high"]
    truth = 0.998 * (1 - 0.002 - 0.005 * 7)
    assert loaded["agreement"]["low"] - 0.005 <= truth <= loaded["agreement"]["high"] + 0.005
    assert loaded["loss"]["low"] > 0.02
    shown = frontier("show", swept, cwd=swept.parent)
    assert "agreement with c=1" in shown.out
    (decision,) = load(swept).solve(parse_sla("p90_ttft<=1s,agreement>=98%"))
    assert 8 != decision.load
