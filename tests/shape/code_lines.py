"""Lines of code as budgets count them, whatever their length and however much is said about them."""

import ast
from collections import Counter
from pathlib import Path

WIDTH = 120
_BESIDE = {".js", ".ts", ".html", ".css", ".yaml", ".yml", ".jinja"}
"""Endings of what counts line by line, but for blank ones."""


def code_lines(source: str, tree: ast.Module | None = None) -> int:
    """Return how many lines of a Python file hold code, each as many times as it has 120 characters or begins them. Docstrings,
    comments and blank lines are none. `tree` is the file parsed, where it is at hand."""
    docstrings, strings = _string_lines(tree or ast.parse(source))
    return sum(
        -(-len(line) // WIDTH)
        for number, line in enumerate(source.splitlines(), 1)
        if (text := line.strip()) and number not in docstrings and (number in strings or not text.startswith("#"))
    )


def _string_lines(tree: ast.Module) -> tuple[set[int], set[int]]:
    """Return the lines of docstrings, and those of other strings of several lines, where `#` begins no comment."""
    docstrings: set[int] = set()
    strings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            strings.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return docstrings, strings


def beside_by_room(package: Path) -> Counter[str]:
    """Return the lines of what lies beside the Python of each folder, but blank ones; `.` are the files in no folder."""
    counts: Counter[str] = Counter()
    for path in package.rglob("*"):
        if path.suffix in _BESIDE:
            counts[room(path, package)] += sum(bool(line.strip()) for line in path.read_text("utf-8").splitlines())
    return counts


def room(path: Path, package: Path) -> str:
    return path.relative_to(package).parts[0] if path.parent != package else "."
