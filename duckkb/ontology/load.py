"""Reads the ontology from YAML documents: all types, policies and judged questions, and every problem at once with file and
line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from duckkb.errors import Finding
from duckkb.ontology.model import EdgeType, NodeType, Ontology, Policy, RecordType
from duckkb.ontology.names import is_inside, name_known
from duckkb.ontology.policies import policy
from duckkb.ontology.rules import MODES, Choice, Rule, Text, Whole, shown
from duckkb.ontology.source import Document, Section, root_section
from duckkb.ontology.types import LONGEST_CONTEXT, collection, edge_type, links_of, node_type
from duckkb.records import FROM, TO

KEYS = ("nodes", "edges", "policies", "collections", "questions", "context")


def load(documents: Sequence[Document]) -> tuple[Ontology, list[Finding]]:
    """The ontology that the documents declare together, and what is wrong with them, in the order of files and lines.

    The documents' own YAML findings are among these. An ontology that comes with findings must not be used.
    """
    found = [finding for document in documents for finding in document.findings]
    roots = [root_section(document, "E_ONTOLOGY", found) for document in documents]
    for root in roots:
        root.refuse_unknown(KEYS)
    policies = {name: policy(name, section) for name, section in _declared("policies", roots).items()}
    nodes = _declared("nodes", roots)
    edges = _declared("edges", roots)
    collections = _declared("collections", roots)
    usable = _with_presets(policies, {**nodes, **edges})
    every_node = _no_name_twice(nodes, usable, collections)
    ontology = Ontology(
        every_node,
        {name: edge_type(name, section, usable) for name, section in edges.items()} | _links(every_node.values()),
        policies,
        next((text for root in roots if (text := root.get("context", Text(LONGEST_CONTEXT), ""))), ""),
    )
    is_whole = not any(document.broken for document in documents)
    _check(ontology, {**nodes, **collections}, edges, is_whole)
    if is_whole:
        _check_policies(usable, {**nodes, **edges})
    return ontology, in_order(found, documents)


def _no_name_twice(
    nodes: Mapping[str, Section], policies: Mapping[str, Policy], collections: Mapping[str, Section]
) -> dict[str, NodeType]:
    """Node types, then collections, which are node types that carry their own policy."""
    for name in nodes.keys() & collections.keys():
        collections[name].problem(f"{shown(name)} is declared already at {nodes[name].place()}", remedy="rename one")
    own = {name: collection(name, section) for name, section in collections.items() if name not in nodes}
    return {name: node_type(name, section, policies) for name, section in nodes.items()} | own


def _links(nodes: Iterable[NodeType]) -> dict[str, EdgeType]:
    """The links between documents, of each collection that has a folder."""
    return {links.name: links for links in (links_of(kind) for kind in nodes if kind.source is not None)}


def in_order(found: Sequence[Finding], documents: Sequence[Document]) -> list[Finding]:
    """Findings in the order of the documents and their lines, each once."""
    rank = {document.path: index for index, document in enumerate(documents)}
    return sorted(dict.fromkeys(found), key=lambda finding: (rank.get(finding.path, -1), finding.line))


def _declared(key: str, roots: Sequence[Section]) -> dict[str, Section]:
    """The mappings under a top-level key of all documents by name; a name declared twice is a finding."""
    declared: dict[str, Section] = {}
    for root in roots:
        for name, section in _mappings(root, key):
            if name in declared:
                section.problem(f"{shown(name)} is declared already at {declared[name].place()}", remedy="rename one")
            else:
                declared[name] = section
    return declared


def _mappings(root: Section, key: str) -> Iterator[tuple[str, Section]]:
    """Only what is a mapping: a type that is none has its finding and would only cause more of them."""
    for name, section in root.each(key):
        if section.value:
            yield name, section
        elif root.sub(key).value[name] in (None, {}):
            section.problem("declares nothing", remedy="fill it in, or remove it")


def _with_presets(policies: Mapping[str, Policy], types: Mapping[str, Section]) -> dict[str, Policy]:
    """The policies by every name that a type uses for one, those of the package included where one asks for them."""
    named = {section.value["policy"] for section in types.values() if isinstance(section.value.get("policy"), str)}
    if named <= policies.keys():
        return dict(policies)
    from duckkb.ontology.presets import find_policy

    return dict(policies) | {name: found for name in sorted(named) if (found := find_policy(name, policies))}


def _check_policies(policies: Mapping[str, object], types: Mapping[str, Section]) -> None:
    for section in types.values():
        name = section.value.get("policy")
        if isinstance(name, str) and name and name not in policies:
            section.problem(f"unknown policy {shown(name)}", "policy", remedy=name_known(name, policies))


def _check(ontology: Ontology, nodes: Mapping[str, Section], edges: Mapping[str, Section], is_whole: bool) -> None:
    """Note problems between types in their sections. Unknown ends say nothing while a file could not be read to its
    end (`is_whole` is false)."""
    declared = {"node": nodes, "edge": edges}
    sections = [(kind, found) for kind in ontology if (found := _declaration(kind, declared))]
    _check_tables(sections)
    _check_folders(ontology, nodes)
    _check_names(sections)
    _check_scopes(ontology, nodes)
    if is_whole:
        for name, section in edges.items():
            _check_ends(section, ontology.edges[name].from_types, FROM, ontology)
            _check_ends(section, ontology.edges[name].to_types, TO, ontology)


def _declaration(kind: RecordType, declared: Mapping[str, Mapping[str, Section]]) -> Section | None:
    """The mapping that declares a type; for links of documents, that of their collection."""
    if kind.kind == "edge" and kind.source is not None and kind.name not in declared["edge"]:
        return declared["node"].get(kind.from_types[0])
    return declared[kind.kind][kind.name]


def _check_folders(ontology: Ontology, nodes: Mapping[str, Section]) -> None:
    """A file is a document of one collection alone: no folder of one lies in that of another."""
    found = [(kind, kind.source.path) for kind in ontology.nodes.values() if kind.source is not None]
    for index, (kind, path) in enumerate(found):
        for other, theirs in found[:index]:
            if is_inside(path, theirs) or is_inside(theirs, path):
                said = (
                    f"{path} and {theirs}, the folder of {other.name}, overlap: a file is a document of one collection"
                )
                remedy = "name folders beside each other, or have one collection with several patterns"
                nodes[kind.name].problem(said, "source", remedy=remedy)


def _check_scopes(ontology: Ontology, nodes: Mapping[str, Section]) -> None:
    """The memories of a scope lie in one collection."""
    first: dict[str, str] = {}
    for kind in ontology.nodes.values():
        if kind.scope is not None and first.setdefault(kind.scope, kind.name) != kind.name:
            said = f"the memories of {shown(kind.scope)} lie in {first[kind.scope]} already"
            nodes[kind.name].problem(said, "policy", remedy="give it another scope, or remove one of the two")


def _check_tables(sections: list[tuple[RecordType, Section]]) -> None:
    first: dict[str, tuple[RecordType, Section]] = {}
    for kind, section in sections:
        other, declared = first.setdefault(kind.table, (kind, section))
        if kind.table and other is not kind:
            key = _table_key(kind)
            message = (
                f"the {key} {shown(kind.table)} is that of {other.name} ({declared.place(_table_key(other))}) already"
            )
            section.problem(message, key, remedy=f"give {kind.name} another {key}")


def _check_names(sections: list[tuple[RecordType, Section]]) -> None:
    """A command takes a type by name or table, in any case, so no two types may answer to one word."""
    first: dict[str, tuple[RecordType, Section]] = {}
    for kind, section in sections:
        other, declared = first.setdefault(kind.name.casefold(), (kind, section))
        if other is not kind:
            message = f"{kind.kind} type {shown(kind.name)} has the name of the {other.kind} type at {declared.place()}"
            section.problem(message, remedy="rename one of them")
    for kind, section in sections:
        other, declared = first.get(kind.table, (kind, section))
        if (
            kind.table
            and other is not kind
            and other.table != kind.table
            and other.name.casefold() != kind.name.casefold()
        ):
            key = _table_key(kind)
            message = f"the {key} {shown(kind.table)} is the name of another type ({declared.place()})"
            section.problem(message, key, remedy=f"rename that type, or give {kind.name} another {key}")


def _table_key(kind: RecordType) -> str:
    return "table" if kind.kind == "node" else "label"


def _check_ends(section: Section, names: tuple[str, ...], key: str, ontology: Ontology) -> None:
    for index, name in enumerate(names):
        if name in ontology.nodes:
            continue
        found = ontology.find(name)
        hint = name_known(name, ontology.nodes)
        if found is not None and found.kind == "node":
            hint = f"did you mean `{found.name}`?"
        is_list = isinstance(section.value.get(key), list)
        section.problem(f"unknown node type {shown(name)}", *((key, index) if is_list else (key,)), remedy=hint)


_LONGEST = 2_000
_QUESTION: Mapping[str, Rule | None] = {
    "question": Text(_LONGEST), "type": Text(), "mode": Choice(MODES), "where": Text(_LONGEST), "expected": None,
}  # fmt: skip
_GRADE = Whole(0, 10)


def questions(documents: Sequence[Document], ontology: Ontology) -> tuple[tuple[Mapping[str, Any], ...], list[Finding]]:
    """The questions of all documents as they stand there, and what is wrong with them.

    Each is `{question, type, mode?, where?, expected}`; `expected` is a list of identities or grades by identity.
    """
    found: list[Finding] = []
    kept: list[Mapping[str, Any]] = []
    is_whole = not any(document.broken for document in documents)
    for document in documents:
        root = root_section(document, "E_ONTOLOGY", found)
        for index, item in root.items("questions"):
            if isinstance(item, dict):
                _check_question(root.entry("questions", index, item), ontology if is_whole else None)
                kept.append(item)
            else:
                root.problem(f"must be a mapping, is {shown(item)}", "questions", index)
    return tuple(kept), found


def questions_in(document: Document) -> Sequence[Mapping[str, Any]]:
    """The questions that stand in a document, as they stand there."""
    found = document.value.get("questions", ())
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else ()


def _check_question(section: Section, ontology: Ontology | None) -> None:
    for key in ("question", "type", "expected"):
        if key not in section:
            section.problem(f"needs `{key}`")
    name = section.read(_QUESTION)["type"]
    if ontology and name and ontology.find(name) is None:
        remedy = name_known(name, [kind.name for kind in ontology])
        section.problem(f"unknown type {shown(name)}", "type", remedy=remedy)
    expected = section.value.get("expected")
    if isinstance(expected, dict):
        for identity in expected:
            section.sub("expected").get(identity, _GRADE, 0)
    elif "expected" in section and (not isinstance(expected, list) or not expected):
        section.problem(f"must list identities, or grade them, is {shown(expected)}", "expected")
