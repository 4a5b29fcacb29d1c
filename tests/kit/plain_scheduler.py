"""The scheduler written again as plainly as possible: every request counted one by one in every
step.

It shares the price of a step and the random disturbances with the real one, and nothing else.
"""

import math
from dataclasses import dataclass

from frontier.simulator.engine import Disturbance
from frontier.simulator.spec import EngineSpec, kv_blocks, price_of


@dataclass
class Plain:
    name: int
    prompt: int
    output: int
    made: int = 0
    computed: int = 0
    blocks: int = 0
    decoding: bool = False

    @property
    def known(self) -> int:
        """Prompt tokens and generated tokens: what must be in the cache before the next token can
        be made.
        """
        return self.prompt + self.made


@dataclass
class PlainStep:
    start: float
    duration: float
    tokens: list[int]
    first: list[int]
    finished: list[int]
    preempted: list[int]
    prefilled: int
    free: int


class PlainScheduler:
    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.price = price_of(spec)
        self.disturbance = Disturbance(spec)
        self.free = kv_blocks(spec)
        self.reserve = math.ceil(self.free * spec.watermark)
        self.waiting: list[Plain] = []
        self.running: list[Plain] = []

    def submit(self, name: int, prompt: int, output: int) -> None:
        self.waiting.append(Plain(name, prompt, output))

    def cancel(self, name: int) -> None:
        for queue in (self.waiting, self.running):
            for request in list(queue):
                if request.name == name:
                    queue.remove(request)
                    self.free += request.blocks

    def step(self, now: float) -> PlainStep | None:
        if not self.waiting and not self.running:
            return None
        budget, preempted = self.spec.max_batched_tokens, []
        plan: list[tuple[Plain, int]] = []
        at = 0
        while at < len(self.running):
            request = self.running[at]
            chunk = min(budget, request.known - request.computed)
            if self.find_blocks(request, request.computed + chunk, preempted, at):
                plan.append((request, chunk))
                budget -= chunk
                at += 1
        while self.waiting and not preempted and budget > 0 and len(self.running) < self.spec.max_num_seqs:
            request = self.waiting[0]
            need = math.ceil(request.known / self.spec.block_size)
            if self.free - need < self.reserve:
                break
            self.free -= need
            request.blocks = need
            self.running.append(self.waiting.pop(0))
            chunk = min(budget, request.known)
            plan.append((request, chunk))
            budget -= chunk
        return self.execute(now, plan, preempted)

    def find_blocks(self, request: Plain, length: int, preempted: list[int], at: int) -> bool:
        """Blocks for `length` tokens; the last in the batch loses its own until there are
        enough.
        """
        while math.ceil(length / self.spec.block_size) > request.blocks:
            if self.free > 0:
                self.free -= 1
                request.blocks += 1
                continue
            victim = self.running.pop()
            self.free += victim.blocks
            victim.blocks = victim.computed = 0
            victim.decoding = False
            self.waiting.insert(0, victim)
            preempted.append(victim.name)
            if victim is request:
                return False
        return True

    def execute(self, now: float, plan: list[tuple[Plain, int]], preempted: list[int]) -> PlainStep:
        decodes = [request for request, _ in plan if request.decoding]
        reads = [(request, chunk) for request, chunk in plan if not request.decoding]
        context = sum(request.known for request in decodes)
        pairs = 0.0
        for request, chunk in reads:
            pairs += chunk * (request.computed + chunk / 2)
        for request, chunk in plan:
            request.computed += chunk
        first = [request for request, _ in reads if request.computed == request.known]
        prefilled = sum(chunk for _, chunk in reads)
        if prefilled:
            duration = self.price.mixed(len(decodes), context, len(decodes), prefilled, pairs, len(first))
        else:
            duration = self.price.decode(len(decodes), context)
        duration = self.disturbance.apply(now, duration)
        for request in [*decodes, *first]:
            request.made += 1
            request.decoding = True
        finished = [request for request in self.running if request.made == request.output]
        free = self.free
        for request in finished:
            self.running.remove(request)
            self.free += request.blocks
        return PlainStep(
            now,
            duration,
            [r.name for r in [*decodes, *first]],
            [r.name for r in first],
            [r.name for r in finished],
            preempted,
            prefilled,
            free,
        )
