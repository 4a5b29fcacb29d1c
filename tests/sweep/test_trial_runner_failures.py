"""What a sweep keeps of requests that failed: the server counts what it got, and the run has all
of it, in files or as a named gap.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from aiohttp import web

from frontier.core.model.trials import Outcome, Record
from frontier.read_run import load
from frontier.store.run_dir import RunDirectory
from tests.kit import servers
from tests.kit.commands import Said, frontier

pytestmark = pytest.mark.process

CONFIG = """\
endpoint: {url}
model: sim
dialect: openai
shapes: [8/4]
concurrency: {settings}
refine: 0
repeats: 1
ignore_eos: false
warmup: 100ms
{more}
"""
TOKENS = 4


@dataclass
class Failing:
    """A server that answers slowly and well, but where `fails` says how."""

    fails: Callable[["Failing"], web.Response | str | None]
    in_flight: int = 0
    got: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.got.append(str(body.get("max_tokens")))
        self.in_flight += 1
        try:
            return await self._answer(request, len(str(body["prompt"]).split()))
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.Request, words: int) -> web.StreamResponse:
        failure = self.fails(self)
        if isinstance(failure, web.Response):
            return failure
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        if failure == "silent":
            await asyncio.sleep(60)
        for i in range(TOKENS):
            await asyncio.sleep(0.01)
            if failure is not None and i == 1:
                await response.write(f'data: {{"error":{{"message":"{failure}"}}}}\n\n'.encode())
                return response
            end = '"length"' if i == TOKENS - 1 else "null"
            await response.write(f'data: {{"choices":[{{"index":0,"text":"w ","finish_reason":{end}}}]}}\n\n'.encode())
        usage = f'{{"prompt_tokens":{words},"completion_tokens":{TOKENS}}}'
        await response.write(f'data: {{"choices":[],"usage":{usage}}}\n\n'.encode())
        await response.write(b"data: [DONE]\n\n")
        return response


def refused(status: int, words: str, **headers: str) -> web.Response:
    return web.json_response({"error": {"message": words}}, status=status, headers=headers)


def swept(server: Failing, tmp_path: Path, settings: str, more: str, *options: str) -> tuple[Said, Path]:
    with servers.serving(servers.completing(server.answer)) as url:
        (tmp_path / "sweep.yaml").write_text(CONFIG.format(url=url, settings=settings, more=more))
        said = frontier("sweep", "sweep.yaml", "-o", "run", *options, cwd=tmp_path)
    return said, tmp_path / "run"


def causes(run: Path) -> list[str]:
    """Why the answer is what it is."""
    return [reason.cause.value for decision in load(run).solve() for reason in decision.explanation.reasons]


def records_of(run: Path) -> dict[str, list[Record]]:
    directory = RunDirectory.read(run)
    return {key: list(directory.records(key)) for key in directory.finished()}


@pytest.mark.parametrize(
    "failure",
    [refused(500, "slots are full"), refused(429, "quota of 100 tokens"), "Context size exceeded"],
    ids=["500", "429", "event"],
)
def test_a_setting_at_which_every_request_fails_is_measured_and_violates(
    failure: web.Response | str, tmp_path: Path
) -> None:
    """ggml-org/llama.cpp#23652: over its context all answers in flight end with an error."""

    def above_two(server: Failing) -> web.Response | str | None:
        if server.in_flight <= 2:
            return None
        if isinstance(failure, str):
            return failure
        return refused(failure.status, "slots are full" if failure.status == 500 else "quota of 100 tokens")

    sla = "sla: {p90_ttft: 2s}\nrequests: 60\nmax_time: 30s"
    said, run = swept(Failing(above_two), tmp_path, "[2, 12]", sla)
    assert "server_lost" not in Counter(line["event"] for line in RunDirectory.read(run).journal_lines())
    point = next(p for p in load(run).points() if p.load == 12)
    assert point.metrics["error_rate"].value > 0.3
    words = {500: "slots are full", 429: "quota of 100"}.get(getattr(failure, "status", 0), "Context size")
    (errors,) = (flag for flag in point.flags if flag.name == "errors")
    assert words in errors.measured
    text = frontier("show", "run", "-v", cwd=tmp_path).out
    assert words in text
    if not point.fatal:
        assert said.code in (0, 4)
        assert not any(c == "highest_measured" for c in causes(run))


def test_a_trial_with_failures_stays_and_is_not_measured_again(tmp_path: Path) -> None:
    """sgl-project/genai-bench#155: what failed is in no result."""

    def in_turn(server: Failing) -> web.Response | None:
        return refused(503, "overloaded") if len(server.got) % 20 == 7 else None

    server = Failing(in_turn)
    _, run = swept(server, tmp_path, "[2]", "sla: {p50_ttft: 2s}\nrequests: 150\nmax_time: 20s")
    again = [line for line in RunDirectory.read(run).journal_lines() if line["event"] == "measured_again"]
    assert not [line for line in again if "failed" in line["reason"]]
    kept = [record for records in records_of(run).values() for record in records]
    failed = [record for record in kept if record.outcome is Outcome.HTTP_ERROR]
    assert len(failed) >= 5
    assert server.got.count(str(TOKENS)) == len(kept), "every request is in a file"
    (point,) = load(run).points()
    (flagged,) = (flag for flag in point.flags if flag.name == "errors")
    assert flagged.measured.endswith("HTTP 503: overloaded")
    assert point.metrics["error_rate"].value == pytest.approx(0.05, abs=0.02)


def test_requests_that_nothing_comes_of_are_given_up_and_kept(tmp_path: Path) -> None:
    """vllm-project/vllm#41402: some requests hang above one in flight."""

    def some(server: Failing) -> str | None:
        return "silent" if len(server.got) in (60, 80) else None

    server, began = Failing(some), time.monotonic()
    _, run = swept(server, tmp_path, "[4]", "sla: {p90_ttft: 2s}\nrequests: 150\nmax_time: 20s")
    assert time.monotonic() - began < 60
    kept = [record for records in records_of(run).values() for record in records]
    assert 2 == sum(record.outcome is Outcome.TIMEOUT for record in kept)
    assert any("silent for" in (record.error or "") for record in kept)


def test_what_the_budget_cuts_off_stays_and_proves_nothing(tmp_path: Path) -> None:
    def none(_: Failing) -> None:
        return None

    said, run = swept(
        Failing(none), tmp_path, "[2]", "sla: {p90_ttft: 2s}\nrequests: 100000\nmax_time: 60s\nbudget: {time: 6s}"
    )
    assert said.code != 0
    (records,) = records_of(run).values()
    assert len(records) > 50
    (point,) = load(run).points()
    assert "cut_off" in [flag.name for flag in point.fatal]


def test_a_gateway_without_its_server_is_asked_once_more_and_both_trials_stay(tmp_path: Path) -> None:
    """A restart behind a gateway: 502 to everything for a while."""

    def away(server: Failing) -> web.Response | None:
        first = [number for number, tokens in enumerate(server.got) if tokens == "4"]
        if len(first) < 40:
            server.began = time.monotonic()
            return None
        return refused(502, "no upstream") if time.monotonic() - server.began < 7 else None

    _, run = swept(Failing(away), tmp_path, "[8]", "sla: {p90_ttft: 2s}\nrequests: 200\nmax_time: 30s")
    lines = [line for line in RunDirectory.read(run).journal_lines() if line["event"] == "measured_again"]
    assert sum("HTTP 502" in line["reason"] for line in lines) <= 1
    kept = [record for records in records_of(run).values() for record in records]
    assert any(record.status == 502 for record in kept), "the failures are in a file"
    (point,) = load(run).points()
    assert any(text.endswith("HTTP 502: no upstream") for text in (*point.notes, *(f.measured for f in point.flags)))
