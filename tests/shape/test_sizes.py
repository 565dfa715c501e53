"""Small on purpose: bodies of at most 60 lines, files of at most 600, at most 6 parameters."""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import duckkb
from tests.shape.code_lines import code_lines, lines_by_room

PACKAGE = Path(duckkb.__file__).parent
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def _defined() -> list[tuple[Path, Function | ast.ClassDef]]:
    parsed = [(path, ast.parse(path.read_text("utf-8"))) for path in sorted(PACKAGE.rglob("*.py"))]
    return [
        (path, node) for path, tree in parsed for node in ast.walk(tree) if isinstance(node, Function | ast.ClassDef)
    ]


def _functions() -> Iterator[tuple[str, Function]]:
    for path, node in _defined():
        if isinstance(node, Function):
            yield f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}", node


def _body_lines(node: Function) -> int:
    """Lines of the body without its docstring and without nested functions' docstrings counted twice."""
    body = node.body
    if ast.get_docstring(node) is not None:
        body = body[1:]
    return 0 if not body else (body[-1].end_lineno or 0) - body[0].lineno + 1


def test_no_function_body_is_longer_than_sixty_lines() -> None:
    assert [(place, lines) for place, node in _functions() if (lines := _body_lines(node)) > 60] == []


def test_no_file_is_longer_than_six_hundred_lines() -> None:
    sizes = {
        str(path.relative_to(PACKAGE)): len(path.read_text("utf-8").splitlines()) for path in PACKAGE.rglob("*.py")
    }
    assert sizes, "the package was found"
    assert {name: size for name, size in sizes.items() if size > 600} == {}


def test_each_folder_of_the_package_keeps_to_its_budget_and_no_budget_is_far_above() -> None:
    budgets = tomllib.loads((Path(__file__).parent / "budgets.toml").read_text("utf-8"))["rooms"]
    counts = lines_by_room(PACKAGE)
    assert counts.keys() == budgets.keys()
    assert {room: (count, budgets[room]) for room, count in counts.items() if count > budgets[room]} == {}
    assert {room: (count, budgets[room]) for room, count in counts.items() if count < budgets[room] - 50} == {}


def test_a_line_of_code_counts_once_for_each_120_characters_and_what_is_said_about_it_does_not() -> None:
    quoted = chr(34) * 3
    assert code_lines(f"{quoted}Says{quoted}\n\n# so\nx = [  # and so\n    1,\n]\n") == 3
    assert code_lines(f"text = {quoted}a\n\nb{quoted}\n") == 2
    assert [code_lines(f"x = {'1' * (length - 4)}\n") for length in (120, 121, 240, 241)] == [1, 2, 2, 3]


def test_no_two_classes_have_one_name() -> None:
    """Whoever reads a name must not have to ask which of two it is."""
    named = Counter(node.name for _, node in _defined() if isinstance(node, ast.ClassDef))
    assert {name for name, times in named.items() if times > 1} == set()


def test_no_function_takes_more_than_six_parameters() -> None:
    """Keyword-only parameters of the public facade, whose methods are use cases, and of CLI callbacks do not count."""
    wide = []
    for place, node in _functions():
        named = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args) if arg.arg not in ("self", "cls")]
        keywords = [] if place.startswith(("actions/", "app/", "cli/")) else node.args.kwonlyargs
        if len(named) + len(keywords) > 6:
            wide.append(place)
    assert wide == []


def test_the_public_names_are_pinned() -> None:
    assert len(duckkb.__all__) <= 20
    assert sorted(duckkb.__all__) == [
        "Change", "Changeset", "DuckkbError", "Expansion", "FindResult", "Finding", "Fusion", "Hit", "KnowledgeBase", "Notice",
        "Receipt", "Record", "SqlResult", "check", "diff", "init", "open",
    ]  # fmt: skip
    assert all(getattr(duckkb, name) is not None for name in duckkb.__all__)
