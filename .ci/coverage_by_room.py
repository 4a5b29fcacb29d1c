"""Coverage by room: reads `coverage json` and exits 1 where lines or branches of the package are
below their goals, in percent."""

import json
import sys
from collections import defaultdict
from pathlib import Path


def main(file: str, least_lines: float, least_branches: float) -> int:
    rooms: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for name, measured in json.loads(Path(file).read_text())["files"].items():
        parts = Path(name).parts[1:]
        summary = measured["summary"]
        counts = (
            summary["covered_lines"],
            summary["num_statements"],
            summary["covered_branches"],
            summary["num_branches"],
        )
        for room in (parts[0] if len(parts) > 1 else "(top)", "all"):
            rooms[room] = [a + b for a, b in zip(rooms[room], counts, strict=True)]
    print(f"{'room':<12}{'lines':>8}{'branches':>10}")
    for room, (lines, of_lines, branches, of_branches) in sorted(rooms.items(), key=lambda item: item[0] == "all"):
        print(f"{room:<12}{lines / max(1, of_lines):>8.1%}{branches / max(1, of_branches):>10.1%}")
    lines, of_lines, branches, of_branches = rooms["all"]
    enough = lines >= least_lines / 100 * of_lines and branches >= least_branches / 100 * of_branches
    print(f"goals: {least_lines:.0f}% of lines, {least_branches:.0f}% of branches: {'kept' if enough else 'MISSED'}")
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(float, sys.argv[2:])))
