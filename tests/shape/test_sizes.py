"""Small on purpose: bodies of at most 60 lines, files of at most 600, at most 6 parameters."""

import ast
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import duckkb
from tests.shape.code_lines import beside_by_room, code_lines, room

PACKAGE = Path(duckkb.__file__).parent
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """What the tests here ask of a module; its syntax tree is not kept, which would be half a gigabyte in all."""

    path: Path
    lines: int
    code_lines: int
    classes: list[str]
    functions: list[tuple[str, int, int]]
    """Of each function its place and name, the lines of its body, and its parameters."""


@cache
def _modules() -> list[Module]:
    return [_measure(path) for path in sorted(PACKAGE.rglob("*.py"))]


def _measure(path: Path) -> Module:
    source, name = path.read_text("utf-8"), str(path.relative_to(PACKAGE))
    tree = ast.parse(source)
    nodes = [node for node in ast.walk(tree) if isinstance(node, Function | ast.ClassDef)]
    functions = [
        (f"{name}:{node.lineno} {node.name}", _body_lines(node), _parameters(node, name))
        for node in nodes
        if isinstance(node, Function)
    ]
    classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    return Module(path, len(source.splitlines()), code_lines(source, tree), classes, functions)


def _body_lines(node: Function) -> int:
    """Return the lines of the body without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return 0 if not body else (body[-1].end_lineno or 0) - body[0].lineno + 1


def _parameters(node: Function, name: str) -> int:
    """Return how many parameters a function has. Keyword-only parameters of the public facade, whose methods are use cases,
    and of CLI callbacks do not count."""
    arguments = [arg for arg in (*node.args.posonlyargs, *node.args.args) if arg.arg not in ("self", "cls")]
    return len(arguments) + (0 if name.startswith(("operations/", "app/", "cli/")) else len(node.args.kwonlyargs))


def test_no_function_body_is_longer_than_sixty_lines() -> None:
    functions = [function for module in _modules() for function in module.functions]
    assert functions, "the package was found"
    assert [(place, lines) for place, lines, _ in functions if lines > 60] == []


def test_no_file_is_longer_than_six_hundred_lines() -> None:
    assert {str(module.path): module.lines for module in _modules() if module.lines > 600} == {}


def test_each_folder_of_the_package_keeps_to_its_budget_and_no_budget_is_far_above() -> None:
    budgets = tomllib.loads((Path(__file__).parent / "budgets.toml").read_text("utf-8"))["rooms"]
    counts = beside_by_room(PACKAGE)
    for module in _modules():
        counts[room(module.path, PACKAGE)] += module.code_lines
    assert counts.keys() == budgets.keys()
    assert {name: (count, budgets[name]) for name, count in counts.items() if count > budgets[name]} == {}
    assert {name: (count, budgets[name]) for name, count in counts.items() if count < budgets[name] - 50} == {}


def test_a_line_of_code_counts_once_for_each_120_characters_and_what_is_said_about_it_does_not() -> None:
    quoted = chr(34) * 3
    assert code_lines(f"{quoted}Says{quoted}\n\n# so\nx = [  # and so\n    1,\n]\n") == 3
    assert code_lines(f"text = {quoted}a\n\nb{quoted}\n") == 2
    assert [code_lines(f"x = {'1' * (length - 4)}\n") for length in (120, 121, 240, 241)] == [1, 2, 2, 3]


def test_no_two_classes_have_one_name() -> None:
    """Whoever reads a name must not have to ask which of two it is."""
    counts = Counter(name for module in _modules() for name in module.classes)
    assert {name for name, count in counts.items() if count > 1} == set()


def test_no_function_takes_more_than_six_parameters() -> None:
    functions = [function for module in _modules() for function in module.functions]
    assert [(place, parameters) for place, _, parameters in functions if parameters > 6] == []


def test_the_public_names_are_pinned() -> None:
    assert len(duckkb.__all__) <= 20
    assert sorted(duckkb.__all__) == [
        "Change", "Changeset", "DuckkbError", "Expansion", "FindResult", "Finding", "Fusion", "Hit", "KnowledgeBase", "Notice",
        "Receipt", "Record", "SqlResult", "check", "diff", "init", "open",
    ]  # fmt: skip
    assert all(getattr(duckkb, name) is not None for name in duckkb.__all__)
