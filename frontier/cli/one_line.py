"""One line in the place of a config file: `frontier sweep URL --shape 1024/256 --sla chat`.

The line is a config of one key, its endpoint, and its options are settings of others. So all that
holds for a file with --set holds for it: complaints name the option, and the run keeps the whole.
"""

import json
import re
import shlex
from collections.abc import Sequence
from urllib.parse import urlsplit

from frontier.cli.given_server import read_url
from frontier.config import Setting
from frontier.config.connection import SIMULATOR, names_server
from frontier.core.model.errors import UsageError


def read_line(url: str) -> str:
    """The config of a line, without its options. UsageError where the address is none."""
    return f"endpoint: {json.dumps(read_url(url))}\n"


def name_of(url: str) -> str:
    """A name for the run of a line: 'localhost-8000'."""
    return re.sub(r"[^\w.-]+", "-", urlsplit(url).netloc) or SIMULATOR


def line_settings(source: str, shapes: Sequence[str], sla: str | None, budget: str | None) -> list[Setting]:
    """The settings of --shape, --sla and --budget. UsageError where a file says these."""
    given = [
        *([Setting(f"--shape {' '.join(shapes)}", "shapes", f"[{', '.join(shapes)}]")] if shapes else []),
        *([Setting(f"--sla {sla!r}", "sla", sla)] if sla is not None else []),
        *([Setting(f"--budget {budget}", "budget.time", budget)] if budget is not None else []),
    ]
    if given and not names_server(source):
        option, setting = given[0].said.split()[0], shlex.quote(f"{given[0].key}={given[0].value}")
        raise UsageError(f"{option} goes with a URL, and {source} is a file", f"change its key:  --set {setting}")
    return given


def require_line(url: str, settings: Sequence[Setting]) -> None:
    """UsageError for a line without a shape or an SLA, with two that are whole."""
    keys = {setting.key.partition(".")[0] for setting in settings}
    missing = [what for key, what in (("shapes", "a shape"), ("sla", "an SLA")) if key not in keys]
    if missing:
        shape = next((setting.value.strip("[]") for setting in settings if setting.key == "shapes"), "1024/256")
        sla = next((setting.value for setting in settings if setting.key == "sla"), None)
        examples = (
            shlex.join(["frontier", "sweep", url, "--shape", shape, "--sla", limits])
            for limits in list(dict.fromkeys(filter(None, (sla, "p99_ttft<=500ms, p99_tpot<=30ms", "chat"))))[:2]
        )
        raise UsageError(f"{url} alone says no {' and no '.join(w.split()[1] for w in missing)}", "\n  ".join(examples))
