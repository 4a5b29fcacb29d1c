"""The pages made of docstrings, modules.md and thresholds.md: conf.py writes them beside the others
when the site is built, and git ignores them."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "frontier"
DECIDING = ("core", "search", "planning", "hardware", "extras")
"""Where constants decide something for a user. Elsewhere they bound sizes and waits."""


def modules() -> str:
    """The page with each module of the package and the first paragraph of its docstring."""
    lines = ["# Modules", "", "The first lines of each module's docstring."]
    for path in sorted(PACKAGE.rglob("*.py"), key=lambda path: (path.parent, path.name != "__init__.py", path.stem)):
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        first = " ".join(text.partition("\n\n")[0].split())
        if path.name == "__init__.py":
            lines += ["", f"## {path.parent.relative_to(PACKAGE.parent)}/", "", first, ""]
        else:
            lines += [f"- `{path.stem}`: {first}"]
    return "\n".join(lines) + "\n"


def thresholds() -> str:
    """The page with each constant that decides something for a user."""
    lines = [
        "# Thresholds",
        "",
        "Each constant that decides something for a user: where it stands, its value, what it means and why. Seconds,",
        "bytes and shares from 0 to 1 unless stated otherwise. Those that a user meets are in",
        "[flags](flags.md), too.",
    ]
    for folder in DECIDING:
        lines += ["", f"## {folder}/", "", "| where | name | value | meaning |", "|---|---|---|---|"]
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            module = ".".join(path.relative_to(PACKAGE / folder).with_suffix("").parts)
            for name, value, text in constants(path):
                cell = " ".join(text.split()).replace("|", "or")
                lines.append(f"| `{module}` | `{name}` | {value} | {cell} |")
    return "\n".join(lines) + "\n"


def constants(path: Path) -> Iterator[tuple[str, str, str]]:
    """The public numbers of a module, each with its docstring, which is empty where it has none."""
    body = ast.parse(path.read_text()).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)):
            continue
        name = node.targets[0].id
        kinds = (ast.Constant, ast.Tuple, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)
        plain = all(isinstance(part, kinds) for part in ast.walk(node.value))
        numbers = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
        if name != name.upper() or name.startswith("_") or not plain or not numbers:
            continue
        if not all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in numbers):
            continue
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        yield name, ast.unparse(node.value), str(text)


PAGES = {"modules.md": modules, "thresholds.md": thresholds}


def write() -> None:
    """Write the pages, where they changed: Sphinx builds anew what is newer."""
    for name, page in PAGES.items():
        path, text = Path(__file__).parent / name, page()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
