"""The examples that need no server, swept in virtual time and drawn; the quickstart and under-load
over HTTP, which needs an idle machine:

    python docs/examples/make.py [NAME ...]      all of them in about 10 minutes

glm-5 is drawn from files of InferenceX (its README.md names them): --glm-5 FOLDER.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.text import Text
from terminal import picture, screen, typed

import frontier

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SWEPT = {
    "quickstart": (
        "configs/quickstart.yaml",
        {
            "quickstart/frontier.png": (),
            "quickstart/frontier.svg": (),
            "quickstart/tails.svg": ("--figure", "tails"),
            "quickstart/throughput.svg": ("--figure", "throughput"),
            "quickstart/timeline.png": ("--figure", "timeline"),
        },
    ),
    "night": ("docs/examples/night/sweep.yaml", {"night/frontier.svg": ()}),
    "mix": ("configs/mix.yaml", {"mix/frontier.svg": ()}),
    "sessions": ("configs/sessions.yaml", {"sessions/frontier.svg": ()}),
    "contexts": (
        "docs/examples/contexts/sweep.yaml",
        {f"contexts/contexts.{kind}": ("--figure", "contexts") for kind in ("png", "svg")},
    ),
    "time": ("docs/examples/time.yaml", {"time-breakdown.png": ("--figure", "time")}),
    "precisions": (
        "docs/examples/precisions.yaml",
        {
            "quality-cost.png": ("--objectives", "quality,cost"),
            "energy.png": ("--objectives", "output_throughput,energy", "--overlay"),
        },
    ),
    "under-load": (
        "docs/examples/under-load.yaml",
        {"under-load.png": ("--objectives", "output_throughput,agreement")},
    ),
}
"""name -> config, and the options of `frontier plot` for each picture."""
ASKED = {"under-load": ("verify", "runs/under-load", "--quality", "--under-load")}
"""Swept in real time -> what is then asked of the server."""
TYPED = {"quickstart": ("quickstart/answer.txt", "quickstart/terminal.svg")}
"""Swept as a reader does, in real time -> the answer, and the terminal; the README shows both."""
PAGES = {"quickstart": ("quickstart/review.html", "quickstart/review.md")}
"""name -> pages of `frontier report`."""
IMPORTED = {
    "minimax-m2.5": ("--sla", "p99_ttft<=1s"),
    "glm-5": ("--objectives", "output_throughput,p99_e2e"),
}
"""name -> options of its picture and page."""


def command(here: Path, *words: str) -> str:
    """The output of a frontier command in a folder."""
    done = subprocess.run(
        [sys.executable, "-m", "frontier", *words], cwd=here, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in (0, 4):
        raise SystemExit(done.returncode)
    return done.stdout


def sweep(name: str, here: Path) -> None:
    """Sweep an example, and draw it."""
    config, pictures = SWEPT[name]
    if name in TYPED:
        answer, terminal = (HERE / file for file in TYPED[name])
        (here / "configs").symlink_to(ROOT / "configs")
        words = [sys.executable, "-m", "frontier", "sweep", config, "-o", f"runs/{name}"]
        written, code = typed(words, here)
        if code != 0:
            print("\n".join(screen(written)), file=sys.stderr)
            raise SystemExit("no answer: this needs an idle machine")
        terminal.write_text(picture(f"frontier sweep {config}", screen(written)))
        lines = [Text.from_ansi(line).plain.rstrip() for line in screen(written)]
        first = next(i for i, line in enumerate(lines) if line.split()[:2] == ["c", "tok/s"])
        last = next(i for i, line in enumerate(lines) if line.startswith("Next   "))
        answer.write_text("\n".join(lines[first:last]).strip("\n") + "\n")
    elif name in ASKED:
        command(ROOT, "sweep", config, "-o", str(here / "runs" / name))
        command(here, *ASKED[name])
    else:
        frontier.run_sweep(config, here / "runs" / name, virtual=True)
    for file, options in pictures.items():
        command(here, "plot", f"runs/{name}", *options, "-o", str(HERE / file))
    for file in PAGES.get(name, ()):
        command(here, "report", f"runs/{name}", "-o", Path(file).name)
        (HERE / file).write_text((here / Path(file).name).read_text())
    if name == "night":
        (HERE / "night" / "answer.txt").write_text(command(here, "solve", f"runs/{name}"))


def bring(name: str, folder: Path, here: Path) -> None:
    """Import an example's files, draw it, and write its page."""
    (here / "files").symlink_to(folder)
    files = sorted(str(path.relative_to(here)) for path in (here / "files").glob("*.json"))
    command(here, "import", *files, "-o", f"runs/{name}")
    for words in (("plot", f"runs/{name}", "-o", "frontier.svg"), ("report", f"runs/{name}", "-o", "review.html")):
        command(here, *words[:2], *IMPORTED[name], *words[2:])
        (HERE / name / words[-1]).write_text((here / words[-1]).read_text())


def main() -> None:
    """Make the examples that are asked for."""
    parser = argparse.ArgumentParser(prog="python docs/examples/make.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join([*SWEPT, *IMPORTED]))
    parser.add_argument("--glm-5", type=Path, dest="glm", help="the folder of its files")
    asked = parser.parse_args()
    os.chdir(ROOT)  # a run and its page name its config as it was given
    folders = {"minimax-m2.5": ROOT / "notebooks" / "minimax-m2.5", "glm-5": asked.glm and asked.glm.resolve()}
    for name in asked.names or [*SWEPT, *(name for name, folder in folders.items() if folder)]:
        with tempfile.TemporaryDirectory() as here:
            print(name, flush=True)
            if name in SWEPT:
                sweep(name, Path(here))
            else:
                bring(name, folders[name], Path(here))


if __name__ == "__main__":
    main()
