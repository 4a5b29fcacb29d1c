"""Measured links between devices: all_reduce, all_to_all and point to point over message sizes.

Figures are those of nccl-tests:

- a message is `size` bytes on every rank;
- the algorithm bandwidth is size over time (the mean over the ranks);
- the bus bandwidth is what each rank sends or receives: the algorithm bandwidth times 2 (n - 1) / n
  for all_reduce, (n - 1) / n for all_to_all, and 1 for point to point.

Point to point, each rank sends to the next and receives from the one before.

Every rank runs this module: started here on one machine, or by torchrun on several. A rank that
does not come to an operation within its time is named, with its host.
"""

import contextlib
import datetime as dt
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from frontier.core.model.errors import MeasurementError
from frontier.core.model.text import clean_name
from frontier.core.model.units import format_bytes, whole_number
from frontier.extras.predict.ceilings import MOST_AT_ONCE, ROUNDS, Ceiling

SMALLEST = 8
"""Bytes of the message whose time is the latency; it carries next to nothing."""
MESSAGES = tuple(2**power for power in range(15, 33))
"""Bytes of a message: 32 KB to 4 GB, as far as memory and time allow."""
OF_MEMORY = 1 / 8
"""Share of a device's memory that one message may take: an operation has two, and needs room."""
PATIENCE = 60.0
"""Seconds within which every rank must come to an operation; a slow rank takes some seconds."""
LEAVES = 5.0
"""Seconds that a process started here has to end by itself after the group is left."""
_SIZE = 2
"""Bytes of an element."""
_WORDS = {"all_reduce": "all-reduce", "all_to_all": "all-to-all", "send": "point to point"}


def bus_factor(operation: str, ranks: int) -> float:
    """The bus bandwidth over the algorithm bandwidth, as nccl-tests defines it."""
    factors = {"all_reduce": 2 * (ranks - 1) / ranks, "all_to_all": (ranks - 1) / ranks}
    return factors.get(operation, 1.0)


@dataclass(frozen=True, slots=True)
class Place:
    """A rank among all: the address of the first rank, `device` and its `memory`, and the name of
    its host.
    """

    rank: int
    ranks: int
    address: str
    port: int
    device: str
    memory: float
    host: str


class Links:
    """The links of this rank with the others, once all are there. `store` is rank 0's store, where
    each rank writes how far it is.
    """

    def __init__(self, torch: Any, place: Place, store: Any, patience: float = PATIENCE) -> None:
        self._torch, self._dist, self.place, self._store = torch, torch.distributed, place, store
        self._at = 0
        self._gpu = place.device.startswith("cuda")
        if self._gpu:
            torch.cuda.set_device(place.device)
        store.set(f"host/{place.rank}", place.host)
        limit = dt.timedelta(seconds=patience)
        with self._named("joining"):
            self._dist.init_process_group(
                "nccl" if self._gpu else "gloo",
                store=torch.distributed.PrefixStore("ranks", store),
                rank=place.rank,
                world_size=place.ranks,
                timeout=limit,
            )

    def close(self) -> None:
        """Leave the group; a rank that hangs is not waited for."""
        if self._dist.is_initialized():
            self._dist.destroy_process_group()

    def hosts(self) -> tuple[str, ...]:
        """The host of each rank, by number."""
        return tuple(self._store.get(f"host/{rank}").decode() for rank in range(self.place.ranks))

    def measure(self, seconds: float) -> list[Ceiling]:
        """Every operation at every size, `seconds` for each; the same on all ranks."""
        least = self._torch.tensor([self.place.memory], dtype=self._torch.float64, device=self.place.device)
        with self._named("the first operation"):
            self._dist.all_reduce(least, op=self._dist.ReduceOp.MIN)
            memory = float(least)  # of the smallest device, as all ranks must stop at the same size
        groups = [("", "", None, self.place.ranks), *self._inside()]
        lines: list[Ceiling] = []
        for prefix, words, group, ranks in groups:
            for operation in _WORDS:
                key, what = f"{prefix}{operation}", f"{_WORDS[operation]}{words}"
                lines += self._sizes(key, what, operation, group, ranks, memory, seconds)
        return lines

    def _inside(self) -> list[tuple[str, str, Any, int]]:
        """The group of the ranks on this host, where there are several hosts with several each."""
        hosts = self.hosts()
        of_host = {host: [r for r, h in enumerate(hosts) if h == host] for host in dict.fromkeys(hosts)}
        if len(of_host) < 2 or min(map(len, of_host.values())) < 2:
            return []
        groups = {host: self._dist.new_group(ranks) for host, ranks in of_host.items()}  # all ranks make all
        mine = self.place.host
        return [("node_", " in one host", groups[mine], len(of_host[mine]))]

    def _sizes(
        self, key: str, what: str, operation: str, group: Any, ranks: int, memory: float, seconds: float
    ) -> Iterator[Ceiling]:
        """An operation at each size, as far as memory and one run in `seconds` allow."""
        factor = bus_factor(operation, ranks)
        for asked in (SMALLEST, *MESSAGES):
            size = -(-asked // (_SIZE * ranks)) * _SIZE * ranks
            if size > OF_MEMORY * memory:
                return
            with self._named(f"{what} of {format_bytes(size)}"):
                times = self._rounds(operation, size, group, seconds / ROUNDS)
            best = min(times)
            if asked == SMALLEST:
                yield Ceiling(f"{key}_latency", f"{what}, latency", "1/s", "", tuple(1 / t for t in times), best)
                continue
            rates = tuple(factor * size / t for t in times)
            yield Ceiling(f"{key}_{size}", f"{what} {format_bytes(size)}", "B/s", "link", rates, best, size / best)
            if best > seconds:
                return

    def _rounds(self, operation: str, size: int, group: Any, seconds: float) -> list[float]:
        """The mean time of one operation over the ranks, in each round."""
        torch, device = self._torch, self.place.device
        data = torch.ones(size // _SIZE, dtype=torch.bfloat16, device=device)
        other = torch.empty_like(data)
        run = self._operation(operation, data, other, group)
        self._timed(run, 1, group)
        runs = max(1, min(MOST_AT_ONCE, int(seconds / max(1e-9, self._timed(run, 1, group)))))
        return [self._timed(run, runs, group) for _ in range(ROUNDS)]

    def _operation(self, operation: str, data: Any, other: Any, group: Any) -> Callable[[], None]:
        dist = self._dist
        if operation == "all_reduce":
            return lambda: dist.all_reduce(data, group=group)
        if operation == "all_to_all":
            return lambda: dist.all_to_all_single(other, data, group=group)
        ranks = dist.get_process_group_ranks(group) if group is not None else list(range(self.place.ranks))
        at = ranks.index(self.place.rank)
        after, before = ranks[(at + 1) % len(ranks)], ranks[at - 1]

        def send() -> None:
            pair = [
                dist.P2POp(dist.isend, data, after, group=group),
                dist.P2POp(dist.irecv, other, before, group=group),
            ]
            for work in dist.batch_isend_irecv(pair):
                work.wait()

        return send

    def _timed(self, run: Callable[[], None], runs: int, group: Any) -> float:
        """Seconds of one run, over `runs` of them, as the mean over the ranks: the same number on
        all ranks.
        """
        torch, dist, device = self._torch, self._dist, self.place.device
        mean = torch.zeros(1, dtype=torch.float64, device=device)
        dist.all_reduce(mean, group=group)
        self._wait()
        start = time.perf_counter()
        for _ in repeat(None, runs):
            run()
        self._wait()
        mean += (time.perf_counter() - start) / runs
        dist.all_reduce(mean, group=group)
        return float(max(1e-9, float(mean) / dist.get_world_size(group)))

    def _wait(self) -> None:
        if self._gpu:
            self._torch.cuda.synchronize(self.place.device)

    @contextlib.contextmanager
    def _named(self, what: str) -> Iterator[None]:
        """One operation of all ranks together. MeasurementError with the names of missing ranks."""
        self._at += 1
        self._store.set(f"at/{self.place.rank}", str(self._at))
        try:
            yield
        except RuntimeError as error:
            try:
                missing = self._missing()
            except RuntimeError:
                missing = [f"rank 0 at {self.place.address}"]
            who = ", ".join(missing) or "every rank came, and the operation did not end"
            raise MeasurementError(f"{what} did not end: {who}", "look at that host, or leave it out") from error

    def _missing(self) -> list[str]:
        """The ranks that have not come to this operation, each with its host."""
        behind = [r for r in range(self.place.ranks) if int(self._told(f"at/{r}") or 0) < self._at]
        return [f"rank {r} on {clean_name(self._told(f'host/{r}') or 'a host that never came')}" for r in behind]

    def _told(self, key: str) -> str:
        """The store's value under a key; '' without one. Never waits for it."""
        return self._store.get(key).decode() if self._store.check([key]) else ""


# --- the processes of one machine, and those of torchrun


def place_of(environ: Mapping[str, str], device: str, memory: float, host: str) -> Place | None:
    """The place that torchrun, or the process that started this one, gave it. None: this process is
    alone, even where a cluster sets some of these variables for other purposes.
    """
    names = ("RANK", "WORLD_SIZE", "MASTER_PORT")
    rank, ranks, port = (whole_number(environ.get(name, ""), 0, 100_000) for name in names)
    address = environ.get("MASTER_ADDR")
    if rank is None or ranks is None or port is None or not address or not rank < ranks > 1:
        return None
    return Place(rank, ranks, address, port, device, memory, host)


def joined(torch: Any, place: Place, owns_store: bool, patience: float = PATIENCE) -> Links:
    """The links of one of several ranks, once every rank is there. MeasurementError where one is
    missing.
    """
    limit = dt.timedelta(seconds=patience)
    try:
        store = torch.distributed.TCPStore(
            place.address, place.port, place.ranks, owns_store, timeout=limit, wait_for_workers=False
        )
    except RuntimeError as error:
        what = f"rank {place.rank} does not reach rank 0 at {clean_name(place.address)}:{place.port}"
        raise MeasurementError(what, "look at the address and at that host") from error
    return Links(torch, place, store, patience)


@contextlib.contextmanager
def started_here(
    torch: Any, command: Sequence[str], place: Place, environ: Mapping[str, str], patience: float = PATIENCE
) -> Iterator[Links]:
    """The links of this process with others that it starts on this machine, one for each device."""
    limit = dt.timedelta(seconds=patience)
    store = torch.distributed.TCPStore(place.address, 0, place.ranks, True, timeout=limit, wait_for_workers=False)
    given = {"WORLD_SIZE": place.ranks, "MASTER_ADDR": place.address, "MASTER_PORT": store.port}
    others = [
        subprocess.Popen(  # noqa: S603  # this program itself
            [*command],
            env={**environ, **{k: str(v) for k, v in given.items()}, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(1, place.ranks)
    ]
    try:
        links = Links(torch, place, store, patience)
        try:
            yield links
        finally:
            links.close()
    finally:
        for other in others:
            with contextlib.suppress(subprocess.TimeoutExpired):
                other.wait(timeout=LEAVES)
            other.kill()
            other.wait()
