"""Transcripts in the documents: console blocks taken apart, typed, and compared with what comes
back, numbers aside."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from frontier.simulator.http.process import SimulatorProcess
from frontier.simulator.spec import EngineSpec
from tests.kit.commands import Said, frontier
from tests.kit.places import ROOT
from tests.kit.sweeps import ENGINES, commands_in_virtual_time, config_text, sweep_in_virtual_time

HOST = "http://localhost:8000"
"""The address of a server in the documents."""


JOURNEYS = {
    "quickstart": ("tutorial.md", "A first sweep"),
    "review": ("tutorial.md", "The review"),
    "key": ("troubleshooting.md", "The server wants a key"),
    "model": ("troubleshooting.md", "A wrong model name"),
    "import": ("troubleshooting.md", "A point is excluded"),
    "percentile": ("troubleshooting.md", "My p99 is not proven"),
    "killed": ("troubleshooting.md", "The sweep is dead in the morning"),
    "precisions": ("compare.md", "Two precisions"),
    "gate": ("compare.md", "Gate"),
    "slow": ("bottlenecks.md", "A planted case"),
}
"""Sections of docs/ whose commands are shown with their answers: typed in order by
tests/journeys/test_journeys.py."""


def section(text: str, heading: str) -> str:
    """The part of a page below a heading of the second level, up to the next one."""
    after = text.partition(f"\n## {heading}\n")[2]
    assert after, f"no section {heading!r}"
    return after.partition("\n## ")[0]


@contextmanager
def workplace(here: Path) -> Iterator[str]:
    """Make a directory what a reader has: the configs, finished runs, a sweep.yaml. The address of
    a server.
    """
    shutil.copytree(ROOT / "configs", here / "configs")
    shutil.copytree(ROOT / "deploy", here / "deploy")
    shutil.copytree(ROOT / "tests" / "data" / "exchange", here / "results")
    shutil.copytree(ROOT / "docs" / "examples" / "fleet", here / "fleet")
    (here / "runs").mkdir()
    text = config_text(ENGINES["smooth"])
    sweep_in_virtual_time(here / "runs" / "night", text)
    for name in ("before", "after"):
        shutil.copytree(here / "runs" / "night", here / "runs" / name)
    (here / "sweep.yaml").write_text(text)
    with SimulatorProcess(EngineSpec.from_mapping({"step_base": "2ms"})) as simulator:
        yield simulator.url


@dataclass(frozen=True, slots=True)
class Step:
    """A line after a `$`, and the lines that the document shows below it."""

    command: str
    shown: str


def blocks(text: str, kind: str) -> list[str]:
    """What stands in the fenced blocks of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def steps(text: str) -> list[Step]:
    """The commands of a text's console blocks, in order."""
    parts = [part for block in blocks(text, "console") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [Step(*(s.strip() for s in part.partition("\n")[::2])) for part in parts]


def masked(text: str) -> str:
    """The words of a text: no numbers, no lengths of lists of them, no units of a time, no line
    ends.
    """
    text = re.sub(r"-[0-9a-f]{6}\b", "-0", text)  # of a run's name: its config
    text = re.sub(r"(?<![A-Za-z])\d[\d,.:]*(?<![,.:])", "0", text)
    text = re.sub(r"\b0(?:[ ]0)+\b", "0", re.sub(r"\s+", " ", text))
    return re.sub(r"(?:\b0 (?:h|min|s|ms)\b ?)+", "T ", text).strip()


def alike(shown: str, said: str) -> bool:
    """Whether `said` has the words that are shown; a line `...` stands for any lines."""
    pieces = [masked(piece) for piece in re.split(r"^\.\.\.$", shown, flags=re.MULTILINE)]
    return re.fullmatch(r"\s*.*\s*".join(map(re.escape, pieces)).strip(), masked(said)) is not None


@dataclass(slots=True)
class Shell:
    """Where commands are typed: a directory and a server. `virtual`: simulated engines take no
    time.
    """

    here: Path
    server: str
    virtual: bool = False
    environ: dict[str, str] = field(default_factory=dict)
    code: int = 0

    def type(self, command: str) -> str:
        """What a terminal shows: the conversation, then the answer. The exit code is kept for `echo
        $?`.
        """
        line = command.replace(HOST, self.server)
        if line == "echo $?":
            return str(self.code)
        if export := re.fullmatch(r"export (\w+)=(\S+)", line):
            self.environ[export[1]] = export[2]
            return ""
        plain = line.startswith("frontier ") and not re.search(r" [>&|] ?", line)
        said = self._frontier(line) if plain else self._shell(line)
        self.code = said.code
        return (said.err + said.out).replace(self.server, HOST)

    def _frontier(self, line: str) -> Said:
        words = shlex.split(line)[1:]
        simulated = words[0] == "sweep" and "simulator" in (self.here / words[1]).read_text()
        here = True if self.virtual and simulated else None
        time: AbstractContextManager[object] = commands_in_virtual_time() if here else nullcontext()
        with time:
            return frontier(*words, cwd=self.here, here=here, timeout=1200, **self.environ)

    def _shell(self, line: str) -> Said:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ended = subprocess.run(
            ["bash", "-c", line],
            cwd=self.here,
            env=os.environ | {"PATH": path, "NO_COLOR": "1"} | self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )
        return Said(ended.returncode, ended.stdout, ended.stderr)
