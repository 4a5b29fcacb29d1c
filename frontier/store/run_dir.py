"""The run directory: its file names, how it is created, resumed and listed, and its lock.

    runs/NAME/
        manifest.json  config.yaml  journal.jsonl  lock
        trials/KEY.jsonl  evidence/KEY.json  logs/  derived/
        verify/         the open-loop checks of the operating point, laid out as the run is
        answers/        the answers of its deployments to common prompts, for their quality
        under-load/     the same at several settings, among the load of each
        arrivals.txt    only where a trace is played: its times, as a column of seconds
        imported.jsonl  only in a run made by `frontier import`: one aggregated Point a line

A trial exists when `trials/KEY.jsonl` does. Its records are written to `KEY.jsonl.part` while it
runs, its evidence is put in place, and only then is the part renamed. A kill before the rename
loses that one trial; nothing is ever half there. No claim about a setting needs the journal. It is
for people and for `status`, and it tells a resumed command what no trial says: how often a setting
was repeated, how far a race of `tune` is, and the windows of `verify --for`.
"""

import math
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

import orjson

from frontier.client.secrets import redact
from frontier.core.model.errors import StoreError, UsageError
from frontier.core.model.shapes import file_label
from frontier.core.model.trials import Phase, Trial
from frontier.store import lock
from frontier.store.files import CONFIG_BYTES, Folder, writing
from frontier.store.journal import Journal
from frontier.store.records import build, stored_tree
from frontier.store.trial_files import EVIDENCE_BYTES, TrialFiles, TrialWriter
from frontier.world import world

T = TypeVar("T")
SCHEMA = "frontier.run/1"
RUNS = Path("runs")
"""The folder of runs that are not named."""
MANIFEST_BYTES = 128 * 2**20
ARRIVALS_BYTES = 256 * 2**20
_ANSWERS, _UNDER_LOAD = "answers", "under-load"
_KEY = rf".+-.+-(?:c\d{{4,}}|q[0-9.e+-]+)-(?:{'|'.join(Phase)})-r\d+"
_TEMPORARY = r"\.\d+\.tmp"
_LEFTOVERS = {
    (): re.compile(rf"(?:manifest\.json|config\.yaml|arrivals\.txt|imported\.jsonl){_TEMPORARY}"),
    ("trials",): re.compile(rf"{_KEY}\.jsonl\.part"),
    ("evidence",): re.compile(rf"(?:{_KEY}|imported)\.json{_TEMPORARY}"),
    ("derived",): re.compile(rf"[a-z-]+(?:-\d+)?\.(?:png|svg|pdf){_TEMPORARY}"),
    ("derived", "samples"): re.compile(rf"{_KEY}\.sample{_TEMPORARY}"),
}
"""The names that a killed process of this program may leave, by directory. All other names belong
to the user."""


class RunDirectory(TrialFiles):
    """One run on disk. `open_for_sweep` and `open_to_verify` hold its lock until `close`; `read`
    takes none.
    """

    def __init__(
        self, path: Path, manifest: Mapping[str, Any], held: lock.Lock | None = None, folder: Folder | None = None
    ) -> None:
        super().__init__(folder or Folder(path), hashed=manifest.get("hashed") is True)
        self.path = path
        self.manifest = manifest
        self._lock = held
        self._journal = Journal(self._folder)

    # -- opening
    # ----------------------------------------------------------------------------------------------

    @classmethod
    def open_for_sweep(
        cls,
        path: Path,
        *,
        identity: str,
        canonical: Mapping[str, Any],
        config_text: str,
        facts: Mapping[str, Any],
        defaults: Mapping[str, Any] = MappingProxyType({}),
        extend: bool = False,
        arrivals: bytes | None = None,
    ) -> Self:
        """Create the run, or resume it when it is the same sweep. Holds the lock until `close`.

        With `extend` a run whose sweep is the same but for fewer concurrencies goes on as this one.
        The last given config is kept: the keys in which it may differ decide nothing that was
        measured. `defaults` are the values of keys that a config may leave out; they are kept with
        the run, so that a later version resumes it with the same values. A sweep that ended before
        its first trial is replaced. `arrivals` are the times of a trace, which the run keeps.

        AnotherSweepError when the directory holds another sweep; UsageError when the file of its
        prompts changed; StoreError when it is in use by another process, is not a run directory, or
        cannot be written.
        """
        folder = Folder(path)
        _require_place(path)
        held = _take(path, folder)
        try:
            with writing(path, opening=True):
                run = cls(path, read_manifest(path) if folder.exists("manifest.json") else {}, held)
                if run._goes_on(identity):
                    run._resume(identity, canonical, config_text, facts, extend=extend)
                    return run
                run._sweep_leftovers()
                run._journal.forget()
                manifest = {
                    "schema": SCHEMA,
                    "identity": identity,
                    "canonical": canonical,
                    "created": world().wall(),
                    "hashed": True,
                    "defaults": dict(defaults),
                    **stored_tree(facts),
                }
                folder.write_whole("config.yaml", redact(config_text).encode())
                if arrivals is not None:
                    folder.write_whole("arrivals.txt", arrivals)
                folder.write_whole("manifest.json", orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
            run = cls(path, manifest, held)
            run.journal("created")
        except BaseException:
            held.close()
            raise
        return run

    @classmethod
    def require_sweep(
        cls,
        path: Path,
        *,
        identity: str,
        canonical: Mapping[str, Any],
        facts: Mapping[str, Any],
        extend: bool = False,
    ) -> None:
        """Raise what `open_for_sweep` would of the same arguments, but for the lock; nothing is
        written.
        """
        _require_place(path)
        if not Folder(path).exists("manifest.json"):
            return
        run = cls.read(path)
        if run._goes_on(identity):
            run._require_same_sweep(identity, canonical, facts, extend=extend)

    @classmethod
    def open_to_verify(cls, path: Path) -> Self:
        """A place below a run for the trials that check its operating point; holds the run's lock
        until `close`.

        They are kept apart from the sweep's: `verify/` is laid out as a run is, and no estimate is
        made of both.
        """
        manifest = read_manifest(path)
        below = Folder(path / "verify")
        held = _take(path, below, opening=False)
        try:
            run = cls(below.path, manifest, held, below)
            run._sweep_leftovers()
        except BaseException:
            held.close()
            raise
        return run

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open a run for reading, without a lock."""
        return cls(path, read_manifest(path))

    @classmethod
    def read_checks(cls, path: Path) -> Self:
        """The trials below a run that check its operating point, for reading, without a lock."""
        below = Folder(path / "verify")
        return cls(below.path, read_manifest(path), None, below)

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _goes_on(self, identity: str) -> bool:
        """Whether the run on disk stays: as it is of the same sweep, or as it holds results of
        another. A run of another sweep without a result is replaced.
        """
        if not self.manifest:
            return False
        holds_results = self.trials.names(".jsonl") or self._folder.exists("imported.jsonl")
        return self.manifest.get("identity") == identity or bool(holds_results)

    def _require_same_sweep(
        self, identity: str, canonical: Mapping[str, Any], facts: Mapping[str, Any], *, extend: bool
    ) -> None:
        """AnotherSweepError when the run's sweep is not the one of `identity`, nor with `extend` a
        narrower one. UsageError when the file of its prompts has changed: the trials of one setting
        would not have the same load.
        """
        grown = extend and is_narrower(self.manifest, canonical)
        if self.manifest.get("identity") != identity and not grown:
            raise AnotherSweepError(self.path, self.manifest.get("canonical", {}), canonical, len(self.finished()))
        prompts = self.manifest.get("prompts_sha256")
        if prompts is not None and facts.get("prompts_sha256", prompts) != prompts:
            what = f"the file of the prompts has changed since {self.path} was begun"
            raise UsageError(what, "put the earlier file back, or begin another run with  -o DIR")

    def _resume(
        self, identity: str, canonical: Mapping[str, Any], config_text: str, facts: Mapping[str, Any], *, extend: bool
    ) -> None:
        """Go on with the sweep. Errors as of `_require_same_sweep`."""
        self._require_same_sweep(identity, canonical, facts, extend=extend)
        self._sweep_leftovers()
        if self.manifest.get("identity") != identity:
            self._extend(identity, canonical)
        if self.config_text() != redact(config_text):
            self._folder.write_whole("config.yaml", redact(config_text).encode())
        killed = {"killed": str(self._lock.killed)} if self._lock and self._lock.killed else {}
        self.journal("resumed", finished=len(self.finished()), **killed)

    def _extend(self, identity: str, canonical: Mapping[str, Any]) -> None:
        """Become the sweep that has more concurrencies; the finished trials count as they are."""
        before = self.manifest["canonical"].get("concurrency", ())
        added = [c for c in canonical["concurrency"] if c not in before]
        self.manifest = {**self.manifest, "identity": identity, "canonical": canonical}
        self._folder.write_whole("manifest.json", orjson.dumps(self.manifest, option=orjson.OPT_INDENT_2))
        self.journal("extended", concurrency=added)

    def _sweep_leftovers(self) -> None:
        """Remove parts, temporaries and a partial journal line of a killed predecessor: none of
        them is data. Only their exact names in our own directories are removed; all else belongs to
        the user.
        """
        for run in (self._folder, self._folder.at("verify")):
            for inside, ours in _LEFTOVERS.items():
                folder = run.at(*inside)
                for name in folder.names():
                    if ours.fullmatch(name):
                        folder.unlink(name)
        self._journal.mend()

    def held(self) -> bool:
        """Whether a sweep is running on it: a process holds its lock."""
        return lock.held(self.path / "lock")

    def held_elsewhere(self) -> str | None:
        """The process under another host name that the lock names; None without one."""
        holder = lock.holder(self.path / "lock")
        return str(holder) if holder is not None and holder.elsewhere else None

    # -- writing
    # ----------------------------------------------------------------------------------------------

    def journal(self, event: str, **facts: Any) -> None:
        """Append a line to the journal; it is on the disk when this returns."""
        self._journal.append(event, **facts)

    def writer(self, trial: Trial) -> TrialWriter:
        """A place for the records of a trial about to run."""
        return TrialWriter(self, trial, self.journal)

    def write_answers(self, deployment: str, shape: str, answers: Any, *, under: int | None = None) -> None:
        """Keep the answers of a deployment to the prompts of one shape, in the place of earlier
        ones; `under`: those among the load of that concurrency.
        """
        folder, name = self._folder.at(_ANSWERS), f"{file_label(deployment)}-{file_label(shape)}"
        if under is not None:
            folder, name = self._folder.at(_UNDER_LOAD), f"{name}-c{under:04}"
        with writing(folder.path):
            folder.make()
            folder.write_whole(f"{name}.json", orjson.dumps(answers))

    # -- reading
    # ----------------------------------------------------------------------------------------------

    def answers(self, kind: type[T], *, under_load: bool = False) -> tuple[T, ...]:
        """What deployments have answered to the prompts of a quality check, as this dataclass has
        it. StoreError where a file is damaged.
        """
        folder, kept = self._folder.at(_UNDER_LOAD if under_load else _ANSWERS), []
        for name in folder.names(".json"):
            try:
                kept.append(build(kind, orjson.loads(folder.read(name, EVIDENCE_BYTES))))
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                what = f"{folder.path / name} cannot be read: {error}"
                again = "frontier verify --quality --under-load" if under_load else "frontier verify --quality"
                raise StoreError(what, f"remove it, and measure again with  {again}") from error
        return tuple(kept)

    @property
    def has_answers_under_load(self) -> bool:
        """Whether answers among the load of a setting are kept."""
        return bool(self._folder.at(_UNDER_LOAD).names(".json"))

    def journal_lines(self) -> list[dict[str, Any]]:
        """The sound lines of the journal."""
        return self._journal.lines()

    def config_text(self) -> str:
        """The config as the user wrote it."""
        try:
            return self._folder.read("config.yaml", CONFIG_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise StoreError(f"cannot read {self.path / 'config.yaml'}: {error}") from error

    def arrivals(self) -> bytes:
        """The times of the trace that its sweep plays."""
        try:
            return self._folder.read("arrivals.txt", ARRIVALS_BYTES)
        except OSError as error:
            what = f"cannot read {self.path / 'arrivals.txt'}: {error.strerror or error}"
            raise StoreError(what, "put it back, or sweep into another directory with  -o DIR") from error

    def log_file(self, deployment: str) -> Path:
        """The output of a server that the sweep started."""
        return self.path / "logs" / f"{deployment}.log"

    def derived(self, *inside: str) -> Folder:
        """The directory of files that can be made again. NotPlainError where it is no directory."""
        derived = self._folder.at("derived")
        for folder in (derived, derived.at(*inside)):
            folder.require()
        return derived.at(*inside)


class AnotherSweepError(StoreError):
    """The run directory holds another sweep. `theirs` and `ours` are the canonical configs."""

    def __init__(self, path: Path, theirs: Mapping[str, Any], ours: Mapping[str, Any], finished: int) -> None:
        super().__init__(f"{path} holds another sweep; its {finished:,} finished trials are untouched")
        self.path, self.theirs, self.ours, self.finished = path, theirs, ours, finished


def is_narrower(manifest: Mapping[str, Any], canonical: Mapping[str, Any]) -> bool:
    """Whether a run is of the sweep of a canonical config, with fewer concurrencies (or rates)."""
    theirs = manifest.get("canonical", {})
    same = {**theirs, "concurrency": None} == {**canonical, "concurrency": None}
    return same and "imported" not in manifest and set(theirs.get("concurrency", ())) < set(canonical["concurrency"])


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of a run. StoreError when there is no manifest, or it is of a newer schema."""
    file = path / "manifest.json"
    try:
        manifest = orjson.loads(Folder(path).read("manifest.json", MANIFEST_BYTES))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreError(f"{path} is not a run directory", "make one with  frontier sweep CONFIG") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read {file}: {error}") from error
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        schema = manifest.get("schema", "no schema") if isinstance(manifest, dict) else "no object"
        raise StoreError(f"{path} was written by another version of frontier ({schema!r:.40})")
    return manifest


def _require_place(path: Path) -> None:
    """StoreError when no run can be made or resumed there, as something else is."""
    if path.exists() and not path.is_dir():
        raise StoreError(f"{path} is a file, not a run directory", "choose another with  -o DIR")
    if path.is_dir() and not Folder(path).exists("manifest.json") and not _begun_or_empty(path):
        raise StoreError(f"{path} is not empty and not a run directory", "choose another with  -o DIR")


def _take(path: Path, folder: Folder, *, opening: bool = True) -> lock.Lock:
    """The lock of the run in `path`, with the directories of trials made in `folder`."""
    with writing(folder.path, opening=opening):
        path.mkdir(parents=True, exist_ok=True)
        for part in _OWN_DIRECTORIES:
            folder.at(part).make()
        return lock.take(path / "lock")


_OWN_NAMES = {"lock", "config.yaml", "arrivals.txt", "journal.jsonl"}
_OWN_DIRECTORIES = {"trials", "evidence", "derived"}


def _begun_or_empty(path: Path) -> bool:
    """Whether the directory is empty, or holds only what a start leaves when it is killed before
    its manifest is written. That is empty directories; and files, if the lock is there that a start
    takes before it writes any.
    """
    try:
        with Folder(path).reader("lock") as file:
            begun = lock.ours(file)
    except (OSError, StoreError):
        begun = False
    for entry in path.iterdir():
        if entry.is_symlink():
            return False
        if entry.is_dir():
            known = entry.name in _OWN_DIRECTORIES and not any(entry.iterdir())
        else:
            known = begun and (entry.name in _OWN_NAMES or _LEFTOVERS[()].fullmatch(entry.name) is not None)
        if not known:
            return False
    return True


def last_measured(path: Path) -> float | None:
    """Unix time at which the run's last trial was finished, or its points were imported; None when
    it has neither.
    """
    times = []
    for file in (*(path / "trials").glob("*.jsonl"), path / "imported.jsonl"):
        with suppress(OSError):
            if stat.S_ISREG((status := file.lstat()).st_mode):
                times.append(status.st_mtime)
    return max(times, default=None)


def runs_under(root: Path) -> list[Path]:
    """The run directories in `root`: by their last finished trial, newest first; then those without
    one, by start.
    """
    runs = []
    for manifest in root.glob("*/manifest.json"):
        with suppress(OSError):  # it may be removed meanwhile
            runs.append((last_measured(manifest.parent) or -math.inf, manifest.lstat().st_mtime, manifest.parent))
    return [path for *_, path in sorted(runs, reverse=True)]
