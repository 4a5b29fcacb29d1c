"""python -m tests.cases [NAME...]: compare the cases with what is expected. Exit 1 where one
differs.

-v prints what was said of a case that differs."""

import sys

from tests.cases.comparer import compare
from tests.cases.table import CASES


def main(words: list[str]) -> int:
    """The exit code."""
    names = [word for word in words if not word.startswith("-")] or list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        print(f"no case {', '.join(unknown)}; there are: {', '.join(CASES)}")
        return 2
    states = []
    for name in names:
        result = compare(CASES[name])
        states.append(result.state)
        print(f"{result.state:8} {name:28} {result.seconds:5.1f} s", flush=True)
        if result.state != "ok":
            print("".join(f"    {text}\n" for text in (*result.wrong, *result.missing)), end="", flush=True)
            if "-v" in words:
                print(result.words)
    print(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    return int("DIFFERS" in states)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
