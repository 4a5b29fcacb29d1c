"""Drawing is the dearest part of looking at a run again: a picture once drawn is kept, and an unchanged one is copied.

A file is kept by a digest of all that decides its bytes: the picture as data, how it was asked for, the code that draws
it and the versions of what it draws with. It cannot go stale, as anything else has another name. It is kept with the
user and not in the run: a run may come from a stranger, and what it holds must not pass for our drawing.
"""

import functools
import hashlib
import os
import re
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from frontier.plot.picture_model import FORMATS, Picture, Theme
from frontier.store.files import write_output, write_whole

MOST = 40
"""Files kept; the oldest go first."""
_NAME = re.compile(rf"[0-9a-f]{{64}}\.(?:{'|'.join(FORMATS)})(?:\.\d+\.tmp)?")
"""What is kept here is called so. The directory is the user's to name, and may hold other things."""


def save(
    picture: Picture, path: Path, *, width: int | None = None, theme: Theme = "light", cache: Path | None = None
) -> None:
    """Write the picture as the path's suffix says (png, svg, pdf), from `cache` where it was drawn before.

    `width` in pixels enlarges a PNG for slides. ValueError for another suffix. A cache that cannot be read or written,
    or that others may write to, is none.
    """
    form = path.suffix.removeprefix(".").lower()
    kept = None if cache is None else cache / f"{key(picture, form, width, theme)}.{form}"
    data = None if kept is None else _read(kept)
    if data is None:
        from frontier.plot.draw import render  # half a second, most of it matplotlib's own

        data = render(picture, form, width=width, theme=theme)
        if kept is not None:
            _keep(kept, data)
    write_output(path, data)


def key(picture: Picture, form: str, width: int | None, theme: Theme) -> str:
    """Names the bytes that drawing this would give. Pictures are tuples of numbers and text, so their repr is whole."""
    return hashlib.sha256(repr((_drawn_with(), picture, form, width, theme)).encode()).hexdigest()


@functools.cache
def _drawn_with() -> tuple[str, ...]:
    """The whole room's code, as nobody keeps a list of what a drawing calls."""
    code = b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
    return (sys.version, version("matplotlib"), version("numpy"), version("pillow"), hashlib.sha256(code).hexdigest())


def _read(kept: Path) -> bytes | None:
    """The bytes behind their own digest: a disk that filled up or a hand that edited gives none."""
    with suppress(OSError):
        if not _own(kept.parent):
            return None
        data = kept.read_bytes()
        if data[:32] == hashlib.sha256(data[32:]).digest():
            return data[32:]
    return None


def _keep(kept: Path, data: bytes) -> None:
    with suppress(OSError):
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _own(kept.parent):
            return
        write_whole(kept, hashlib.sha256(data).digest() + data)
        ours = [file for file in kept.parent.iterdir() if _NAME.fullmatch(file.name)]
        for file in sorted(ours, key=lambda file: file.lstat().st_mtime)[:-MOST]:
            file.unlink(missing_ok=True)


def _own(directory: Path) -> bool:
    """Nobody else may put anything there."""
    found = directory.stat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o022
