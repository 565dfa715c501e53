"""Finds the best places to cut code: before classes, functions and import blocks, by the grammar of the language.

The extra `code` installs the grammars. Without them, for other languages and for very long files there are no
break points here; lines alone decide.
"""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from typing import TYPE_CHECKING

from duckkb.installed import version_of

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

CLASS, FUNCTION, IMPORTS = 100, 90, 60
LONGEST = 1_000_000
"""The most characters of a file that is parsed."""

_GRAMMARS = {
    "py": ("python", "language"),
    "js": ("javascript", "language"),
    "ts": ("typescript", "language_typescript"),
    "tsx": ("typescript", "language_tsx"),
    "java": ("java", "language"),
    "go": ("go", "language"),
    "rs": ("rust", "language"),
    "cs": ("c_sharp", "language"),
    "c": ("c", "language"),
}
_ENDINGS = {"pyi": "py", "jsx": "js", "mjs": "js", "cjs": "js", "h": "c"} | {ending: ending for ending in _GRAMMARS}


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CLASSES = _split_names(
    "class_definition class_declaration abstract_class_declaration interface_declaration enum_declaration record_declaration "
    "struct_declaration namespace_declaration file_scoped_namespace_declaration internal_module type_alias_declaration "
    "annotation_type_declaration type_declaration struct_item enum_item union_item trait_item impl_item mod_item "
    "struct_specifier union_specifier enum_specifier type_definition"
)
_FUNCTIONS = _split_names(
    "function_definition function_declaration generator_function_declaration method_definition method_declaration "
    "constructor_declaration function_item function_signature_item macro_definition operator_declaration "
    "property_declaration arrow_function function_expression"
)
_IMPORTS = _split_names(
    "import_statement import_from_statement future_import_statement import_declaration use_declaration using_directive "
    "extern_crate_declaration preproc_include package_declaration package_clause"
)
_AROUND = _split_names(
    "decorated_definition export_statement lexical_declaration variable_declarator expression_statement declaration block "
    "class_body interface_body enum_body enum_body_declarations declaration_list statement_block preproc_ifdef preproc_if "
    "preproc_else linkage_specification ERROR"
)
"""Nodes that may contain scored nodes without being scored themselves."""
_SHELLS = _split_names(
    "decorated_definition export_statement lexical_declaration variable_declarator expression_statement declaration"
)
"""Nodes that begin with the node they contain."""
_ABOVE = _split_names("comment line_comment block_comment attribute_item attribute_list decorator")
"""Nodes that belong to the node below them."""
_DEEPEST = 12


def break_points(path: str, text: str) -> dict[int, int]:
    """Return the base scores of the lines at which a class, a function or an import block begins, by place in
    characters. Comments directly above belong to it. Broken code has the break points of the parts that could
    be parsed.
    """
    language = _ENDINGS.get(path.rpartition(".")[2].lower(), "")
    parser = _make_parser(language) if language and len(text) <= LONGEST else None
    if parser is None:
        return {}
    starts = list(accumulate(map(len, text.split("\n")), lambda at, length: at + length + 1, initial=0))
    tree = parser.parse(text.encode("utf-8", "replace"))
    scores: dict[int, int] = {}
    for row, score in _iter_marks(tree.root_node, None, 0):
        scores[starts[row]] = max(score, scores.get(starts[row], 0))
    return scores


@cache
def fingerprint() -> str:
    """Return a name for the installed grammars; empty without the extra."""
    if find_spec("tree_sitter") is None:
        return ""
    modules = dict.fromkeys(f"tree_sitter_{name}" for name, _ in _GRAMMARS.values())
    return ", ".join(f"{module} {_version(module)}" for module in ("tree_sitter", *modules) if find_spec(module))


def _version(module: str) -> str:
    try:
        return version_of(module, module)
    except ImportError:  # nothing else tells its version
        return ""


@cache
def _make_parser(language: str) -> "Parser | None":
    name, make = _GRAMMARS[language]
    try:
        from tree_sitter import Language, Parser

        return Parser(Language(getattr(import_module(f"tree_sitter_{name}"), make)()))
    except (ImportError, OSError, ValueError):  # not installed, or incompatible with the installed tree-sitter
        return None


def _iter_marks(parent: "Node", row: int | None, depth: int) -> Iterator[tuple[int, int]]:
    """Yield the lines and scores of the children of a node. `row` is the line at which the construct around the
    node begins.
    """
    above: tuple[int, int] | None = None
    is_import = False
    for node in parent.children:
        first, last = node.start_point[0], node.end_point[0]
        first_row = above[0] if above and first <= above[1] + 1 else first
        if node.type in _ABOVE:
            above = first_row, last - (node.end_point[1] == 0)
            continue
        above, kind = None, node.type
        at = first_row if row is None else row
        if kind in _IMPORTS:
            if not is_import:
                yield at, IMPORTS
        elif kind in _CLASSES or kind in _FUNCTIONS:
            yield at, CLASS if kind in _CLASSES else FUNCTION
        if depth < _DEEPEST and (kind in _CLASSES or kind in _AROUND):
            yield from _iter_marks(node, at if kind in _SHELLS else None, depth + 1)
        is_import = kind in _IMPORTS
