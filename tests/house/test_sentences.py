"""Sentences of docstrings can be read at once: they have at most 40 words, and a module says what
it is within 20."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import frontier

ROOT = Path(frontier.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
MOST_WORDS, MOST_FIRST = 40, 20
_END = re.compile(r"(?<=[.!?])[)\"'`]*\s+(?=[A-Z0-9`'\"(>])|\n\s*\n|\n\s*[-*] |\n {4,}(?=\S)")


def docstrings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the text of every docstring, of constants and fields too."""
    for node in ast.walk(tree):
        for part in getattr(node, "body", ()) if isinstance(getattr(node, "body", ()), list) else ():
            if (
                isinstance(part, ast.Expr)
                and isinstance(part.value, ast.Constant)
                and isinstance(part.value.value, str)
            ):
                yield part.lineno, part.value.value


def sentences(text: str) -> list[str]:
    """The sentences of a text; a paragraph, an item of a list and an indented line begin one. What
    click prints as it stands, as examples, is none.
    """
    text = "\n\n".join(paragraph for paragraph in text.split("\n\n") if not paragraph.startswith("\b"))
    return [" ".join(sentence.split()) for sentence in _END.split(text) if sentence.strip()]


def plain(text: str) -> str:
    """A docstring without the indentation of its place."""
    first, _, rest = text.partition("\n")
    lines = rest.split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join([first, *(line[margin:] for line in lines)])


def test_no_sentence_of_a_docstring_has_over_forty_words() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{line}: {len(sentence.split())} words: {sentence[:60]}"
        for path in FILES
        for line, text in docstrings(ast.parse(path.read_text()))
        for sentence in sentences(plain(text))
        if len(sentence.split()) > MOST_WORDS
    ]
    assert long == []


def test_a_module_says_what_it_is_within_twenty_words() -> None:
    late = {}
    for path in FILES:
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        first = re.split(r"[.!?](?:\s|$)", text, maxsplit=1)[0]
        if len(first.split()) > MOST_FIRST:
            late[str(path.relative_to(ROOT))] = len(first.split())
    assert late == {}


def test_sentences_end_where_a_reader_sees_it() -> None:
    text = plain("""One thing. Another: it goes on; still. `name` begins one.

        - an item of a list
        - and one more
    """)
    assert 5 == len(sentences(text)), sentences(text)
