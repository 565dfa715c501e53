"""Names of the package say what they hold."""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EMPTY = frozenset(
    [
        "one",
        "ones",
        "what",
        "those",
        "others",
        "other",
        "own",
        "rest",
        "wanted",
        "thing",
        "things",
        "it",
        "found",
        "said",
        "told",
        "kept",
        "given",
        "known",
        "made",
        "held",
        "taken",
        "shown",
        "left",
        "gone",
        "done",
        "seen",
        "lost",
        "named",
        "asked",
        "chosen",
    ]
)


def test_no_more_names_say_nothing_than_the_budget_has() -> None:
    names = Counter(
        name
        for path in sorted((ROOT / "duckkb").rglob("*.py"))
        for name in read_names(path.read_text("utf-8"))
        if name in EMPTY
    )
    budget = tomllib.loads((ROOT / "tests/shape/budgets.toml").read_text("utf-8"))["names"]["empty"]
    assert names.total() <= budget, names.most_common(20)


def test_the_count_sees_variables_parameters_and_attributes() -> None:
    module = "def load(one, *, found=1):\n    said = [kept for kept in one]\n    self.told = lambda given: found\n"
    assert Counter(read_names(module)) == Counter(("one", "found", "said", "kept", "told", "given"))


def read_names(module: str) -> Iterator[str]:
    """The names that a module binds: variables, parameters, attributes."""
    for node in ast.walk(ast.parse(module)):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name.strip("_")
