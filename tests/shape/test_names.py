"""Names of the package say what they hold and what they do."""

import ast
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WORDS = {
    kind: frozenset(words.split())
    for kind, words in tomllib.loads((Path(__file__).parent / "words.toml").read_text("utf-8")).items()
}
PROPERTIES = frozenset(["property", "cached_property", "setter", "overload"])


def test_no_more_names_say_nothing_than_the_budget_has() -> None:
    names = Counter(name for module in read_modules() for name in read_names(module) if name in WORDS["empty"])
    assert names.total() <= read_budget()["empty"], names.most_common(20)


def test_few_variables_have_an_empty_word_or_a_participle_for_a_name() -> None:
    names = [name for module in read_modules() for name in read_names(module)]
    empty = sum(name in WORDS["empty"] or is_participle(name) for name in names)
    assert round(100 * empty / len(names), 1) <= read_budget()["empty_or_participle"]


def test_the_count_sees_variables_parameters_and_attributes() -> None:
    module = "def load(one, *, found=1):\n    said = [kept for kept in one]\n    self.told = lambda given: found\n"
    assert Counter(read_names(module)) == Counter(("one", "found", "said", "kept", "told", "given"))


def test_functions_are_named_by_verbs_and_seldom_by_participles_or_prepositions() -> None:
    budget, shares = read_budget(), measure_functions(read_modules())
    assert shares["verbs"] >= budget["verbs"], shares
    for kind in ("participles", "prepositions", "properties"):
        assert shares[kind] <= budget[kind], (kind, shares)


def test_the_count_of_functions_tells_verbs_participles_prepositions_and_properties_apart() -> None:
    functions = """
class Table:
    def load_rows(self): ...
    async def reload(self): ...
    def rows_given(self): ...
    def opened(self): ...
    def _of(self): ...
    def list_warning(self): ...
    def embed(self): ...
    def size(self): ...
    def __len__(self): ...
    @property
    def told(self): ...
"""
    assert measure_functions([functions]) == {"verbs": 50.0, "participles": 25.0, "prepositions": 25.0, "properties": 1}


def read_budget() -> dict[str, float]:
    budget: dict[str, float] = tomllib.loads((ROOT / "tests/shape/budgets.toml").read_text("utf-8"))["names"]
    return budget


def read_modules() -> Iterator[str]:
    """The text of each module of the package."""
    return (path.read_text("utf-8") for path in sorted((ROOT / "duckkb").rglob("*.py")))


def read_names(module: str) -> Iterator[str]:
    """The names that a module binds: variables, parameters, attributes."""
    for node in ast.walk(ast.parse(module)):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name.strip("_")


def measure_functions(modules: Iterable[str]) -> dict[str, float]:
    """How many of a hundred functions begin with a verb, have a participle first or last, and begin with a preposition or end
    in -ing; and the number of properties, which are no functions here."""
    kinds: Counter[str] = Counter()
    verbs = WORDS["verbs"]
    for node in (node for module in modules for node in ast.walk(ast.parse(module))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("__"):
            continue
        if PROPERTIES & {getattr(item, "id", getattr(item, "attr", "")) for item in node.decorator_list}:
            kinds["properties"] += 1
            continue
        first, *_, last = 2 * node.name.strip("_").lower().split("_")
        kinds["functions"] += 1
        kinds["verbs"] += first in verbs or (first.startswith(("re", "un")) and first[2:] in verbs)
        if is_participle(first) or is_participle(last):
            kinds["participles"] += 1
        elif first in WORDS["prepositions"] or (last.endswith("ing") and len(last) > 5):
            kinds["prepositions"] += 1
    shares = {
        kind: round(100 * kinds[kind] / kinds["functions"], 1) for kind in ("verbs", "participles", "prepositions")
    }
    return {**shares, "properties": kinds["properties"]}


def is_participle(word: str) -> bool:
    """Whether a word is a past participle by its form."""
    is_regular = len(word) > 3 and word.endswith("ed") and word not in WORDS["ed"]
    return is_regular or word in WORDS["participles"]
