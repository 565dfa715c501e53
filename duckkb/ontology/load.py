"""Reads the ontology from YAML documents: all types and policies, and every problem at once with file and line."""

from collections.abc import Iterator, Mapping, Sequence

from duckkb.errors import Finding
from duckkb.ontology.check import check
from duckkb.ontology.model import NodeType, Ontology, Policy
from duckkb.ontology.names import name_known
from duckkb.ontology.rules import shown
from duckkb.ontology.section import Section, root_section
from duckkb.ontology.source import Document
from duckkb.ontology.policies import policy
from duckkb.ontology.types import collection, edge_type, node_type

KEYS = ("nodes", "edges", "policies", "collections", "questions")


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
    ontology = Ontology(
        _no_name_twice(nodes, usable, collections),
        {name: edge_type(name, section, usable) for name, section in edges.items()},
        policies,
    )
    is_whole = not any(document.broken for document in documents)
    check(ontology, {**nodes, **collections}, edges, is_whole)
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
