"""Lines of code as budgets count them, whatever their length and however much is said about them."""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

WIDTH = 120
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_BESIDE = {".js", ".ts", ".html", ".css", ".yaml", ".yml", ".jinja"}
"""Endings of what counts line by line, but for blank ones."""


def code_lines(source: str) -> int:
    """Return how many lines of a Python file hold code, each as many times as it has 120 characters or begins them. Docstrings,
    comments and blank lines are none."""
    lines = source.splitlines()
    numbers = {
        number
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NO_CODE
        for number in range(token.start[0], token.end[0] + 1)
    }
    return sum(
        -(-len(lines[number - 1]) // WIDTH)
        for number in numbers - _docstring_lines(source)
        if lines[number - 1].strip()
    )


def _docstring_lines(source: str) -> set[int]:
    numbers: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for child in body if isinstance(body, list) else ():
            if isinstance(child, ast.Expr) and isinstance(getattr(child.value, "value", None), str):
                numbers.update(range(child.lineno, (child.end_lineno or child.lineno) + 1))
    return numbers


def lines_by_room(package: Path) -> Counter[str]:
    """Return the code lines of each folder of a package, Python and what lies beside it; `.` are the modules in no folder."""
    counts: Counter[str] = Counter()
    for path in sorted(package.rglob("*")):
        room = path.relative_to(package).parts[0] if path.parent != package else "."
        if path.suffix == ".py":
            counts[room] += code_lines(path.read_text("utf-8"))
        elif path.suffix in _BESIDE:
            counts[room] += sum(bool(line.strip()) for line in path.read_text("utf-8").splitlines())
    return counts
