"""Say what pip-audit found: `advisories.py FOUND.json`; exit 1 for a known advisory, else 0.

It says "No known vulnerabilities" also when the index told it nothing about any package, so what
was really audited is counted here.
"""

import collections
import json
import sys
from pathlib import Path
from typing import Any


def told(found: dict[str, Any]) -> tuple[str, int]:
    """The lines to print and the exit code, for the tree of `pip-audit -f json`."""
    audited = [d for d in found["dependencies"] if "skip_reason" not in d]
    reasons = collections.Counter(
        d["skip_reason"].partition(":")[0] for d in found["dependencies"] if "skip_reason" in d
    )
    known = [
        f"{d['name']} {d['version']}: {v['id']}, mended in {', '.join(v['fix_versions']) or 'no release yet'}"
        for d in audited
        for v in d["vulns"]
    ]
    lines = [f"SKIPPED for {times} packages: {reason}" for reason, times in reasons.most_common()]
    count = f"{len(known)} known {'advisory' if len(known) == 1 else 'advisories'}"
    lines.append(f"{len(audited)} packages audited, {count}" if audited else "nothing was audited")
    return "\n".join([*lines, *known]), 1 if known else 0


if __name__ == "__main__":
    text, code = told(json.loads(Path(sys.argv[1]).read_text()))
    print(text)
    sys.exit(code)
