"""Golden files: what a user sees, whole, one file per medium under tests/golden/.

A change of wording is made on purpose: run the test with WRITE_GOLDEN=1 and read the difference
before committing it.
"""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """`text` is what tests/golden/NAME holds, line by line; with WRITE_GOLDEN=1 the file is written
    instead.
    """
    file = FOLDER / name
    text = "\n".join(line.rstrip() for line in text.strip().splitlines()) + "\n"
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(text, encoding="utf-8")
    assert file.exists(), f"{file} is missing: run this test with WRITE_GOLDEN=1"
    assert text == file.read_text(encoding="utf-8")
