"""Reads the ontology from YAML documents: all types, policies and judged questions.

All problems are reported at once, with file and line.

A collection's definition: the chosen policy, resolved with its parameters, as a file of its own."""

import copy
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from duckkb.ontology.declarations import LONGEST_CONTEXT, collection, edge_type, links_of, node_type
from duckkb.ontology.model import EdgeType, NodeType, Ontology, Policy, RecordType
from duckkb.ontology.names import (
    MODES,
    Choice,
    Rule,
    Text,
    Whole,
    collection_table,
    is_inside,
    show_value,
    suggest_known_names,
)
from duckkb.ontology.policies import POLICY_KEYS, policy
from duckkb.ontology.yaml_source import THIS_MACHINE, Document, Section, read_yaml, root_section
from duckkb.types.errors import Finding, UsageError
from duckkb.types.records import FROM, TO

KEYS = ("nodes", "edges", "policies", "collections", "questions", "context")


def load(documents: Sequence[Document]) -> tuple[Ontology, list[Finding]]:
    """Return the ontology that the documents declare together, and the findings, in the order of files and lines.

    The findings include the documents' own YAML findings. An ontology that comes with findings must not be used.
    """
    findings = [finding for document in documents for finding in document.findings]
    roots = [root_section(document, "E_ONTOLOGY", findings) for document in documents]
    for root in roots:
        root.refuse_unknown(KEYS)
    policies = {name: policy(name, section) for name, section in _collect_sections("policies", roots).items()}
    nodes = _collect_sections("nodes", roots)
    edges = _collect_sections("edges", roots)
    collections = _collect_sections("collections", roots)
    usable = _with_presets(policies, {**nodes, **edges})
    every_node = _read_node_types(nodes, usable, collections)
    ontology = Ontology(
        every_node,
        {name: edge_type(name, section, usable) for name, section in edges.items()}
        | _derive_links(every_node.values()),
        policies,
        next((text for root in roots if (text := root.get("context", Text(LONGEST_CONTEXT), ""))), ""),
    )
    is_whole = not any(document.broken for document in documents)
    _check(ontology, {**nodes, **collections}, edges, is_whole)
    if is_whole:
        _check_policies(usable, {**nodes, **edges})
    return ontology, sort_findings(findings, documents)


def _read_node_types(
    nodes: Mapping[str, Section], policies: Mapping[str, Policy], collections: Mapping[str, Section]
) -> dict[str, NodeType]:
    """Read node types, then collections, which are node types that carry their own policy."""
    for name in nodes.keys() & collections.keys():
        collections[name].problem(
            f"{show_value(name)} is declared already at {nodes[name].place()}", remedy="rename one"
        )
    collection_types = {name: collection(name, section) for name, section in collections.items() if name not in nodes}
    return {name: node_type(name, section, policies) for name, section in nodes.items()} | collection_types


def _derive_links(nodes: Iterable[NodeType]) -> dict[str, EdgeType]:
    """Return the edge types of links between documents, for each collection that has a folder."""
    return {links.name: links for links in (links_of(kind) for kind in nodes if kind.source is not None)}


def sort_findings(found: Sequence[Finding], documents: Sequence[Document]) -> list[Finding]:
    """Return the findings in the order of the documents and their lines, each once."""
    rank = {document.path: index for index, document in enumerate(documents)}
    return sorted(dict.fromkeys(found), key=lambda finding: (rank.get(finding.path, -1), finding.line))


def _collect_sections(key: str, roots: Sequence[Section]) -> dict[str, Section]:
    """Return the mappings under a top-level key of all documents by name; a name declared twice is a finding."""
    sections: dict[str, Section] = {}
    for root in roots:
        for name, section in _iter_mappings(root, key):
            if name in sections:
                section.problem(
                    f"{show_value(name)} is declared already at {sections[name].place()}", remedy="rename one"
                )
            else:
                sections[name] = section
    return sections


def _iter_mappings(root: Section, key: str) -> Iterator[tuple[str, Section]]:
    """Yield the mappings under a key by name.

    A value that is no mapping is left out: it has its finding already, and would only cause more of them.
    """
    for name, section in root.each(key):
        if section.value:
            yield name, section
        elif root.sub(key).value[name] in (None, {}):
            section.problem("declares nothing", remedy="fill it in, or remove it")


def _with_presets(policies: Mapping[str, Policy], types: Mapping[str, Section]) -> dict[str, Policy]:
    """Return the policies by every name that a type uses, with the presets where a type names one."""
    names = {section.value["policy"] for section in types.values() if isinstance(section.value.get("policy"), str)}
    if names <= policies.keys():
        return dict(policies)
    from duckkb.ontology.presets import find_policy

    return dict(policies) | {name: preset for name in sorted(names) if (preset := find_policy(name, policies))}


def _check_policies(policies: Mapping[str, object], types: Mapping[str, Section]) -> None:
    for section in types.values():
        name = section.value.get("policy")
        if isinstance(name, str) and name and name not in policies:
            section.problem(f"unknown policy {show_value(name)}", "policy", remedy=suggest_known_names(name, policies))


def _check(ontology: Ontology, nodes: Mapping[str, Section], edges: Mapping[str, Section], is_whole: bool) -> None:
    """Note problems between types in their sections.

    Unknown ends are not reported while a file could not be read to its end (`is_whole` is false).
    """
    sections_by_kind = {"node": nodes, "edge": edges}
    sections = [(kind, kind_section) for kind in ontology if (kind_section := _find_section(kind, sections_by_kind))]
    _check_tables(sections)
    _check_folders(ontology, nodes)
    _check_names(sections)
    _check_scopes(ontology, nodes)
    if is_whole:
        for name, section in edges.items():
            _check_ends(section, ontology.edges[name].from_types, FROM, ontology)
            _check_ends(section, ontology.edges[name].to_types, TO, ontology)


def _find_section(kind: RecordType, sections_by_kind: Mapping[str, Mapping[str, Section]]) -> Section | None:
    """Return the mapping that declares a type; for links of documents, that of their collection."""
    if kind.kind == "edge" and kind.source is not None and kind.name not in sections_by_kind["edge"]:
        return sections_by_kind["node"].get(kind.from_types[0])
    return sections_by_kind[kind.kind][kind.name]


def _check_folders(ontology: Ontology, nodes: Mapping[str, Section]) -> None:
    """Check that no document folder lies inside that of another collection: a file belongs to one collection
    alone.
    """
    folders = [(kind, kind.source.path) for kind in ontology.nodes.values() if kind.source is not None]
    for index, (kind, path) in enumerate(folders):
        for sibling, theirs in folders[:index]:
            if is_inside(path, theirs) or is_inside(theirs, path):
                message = f"{path} and {theirs}, the folder of {sibling.name}, overlap: a file is a document of one collection"
                remedy = "name folders beside each other, or have one collection with several patterns"
                nodes[kind.name].problem(message, "source", remedy=remedy)


def _check_scopes(ontology: Ontology, nodes: Mapping[str, Section]) -> None:
    """Check that the memories of a scope lie in one collection."""
    first: dict[str, str] = {}
    for kind in ontology.nodes.values():
        if kind.scope is not None and first.setdefault(kind.scope, kind.name) != kind.name:
            message = f"the memories of {show_value(kind.scope)} are already in {first[kind.scope]}"
            nodes[kind.name].problem(message, "policy", remedy="give it another scope, or remove one of the two")


def _check_tables(sections: list[tuple[RecordType, Section]]) -> None:
    first: dict[str, tuple[RecordType, Section]] = {}
    for kind, section in sections:
        first_kind, first_section = first.setdefault(kind.table, (kind, section))
        if kind.table and first_kind is not kind:
            key = _choose_table_key(kind)
            message = f"the {key} {show_value(kind.table)} is that of {first_kind.name} ({first_section.place(_choose_table_key(first_kind))}) already"
            section.problem(message, key, remedy=f"give {kind.name} another {key}")


def _check_names(sections: list[tuple[RecordType, Section]]) -> None:
    """Check that no two types answer to one word: commands take a type by name or table, in any case."""
    first: dict[str, tuple[RecordType, Section]] = {}
    for kind, section in sections:
        first_kind, first_section = first.setdefault(kind.name.casefold(), (kind, section))
        if first_kind is not kind:
            message = f"{kind.kind} type {show_value(kind.name)} has the name of the {first_kind.kind} type at {first_section.place()}"
            section.problem(message, remedy="rename one of them")
    for kind, section in sections:
        first_kind, first_section = first.get(kind.table, (kind, section))
        if (
            kind.table
            and first_kind is not kind
            and first_kind.table != kind.table
            and first_kind.name.casefold() != kind.name.casefold()
        ):
            key = _choose_table_key(kind)
            message = f"the {key} {show_value(kind.table)} is the name of another type ({first_section.place()})"
            section.problem(message, key, remedy=f"rename that type, or give {kind.name} another {key}")


def _choose_table_key(kind: RecordType) -> str:
    return "table" if kind.kind == "node" else "label"


def _check_ends(section: Section, names: tuple[str, ...], key: str, ontology: Ontology) -> None:
    for index, name in enumerate(names):
        if name in ontology.nodes:
            continue
        record_type = ontology.find(name)
        hint = suggest_known_names(name, ontology.nodes)
        if record_type is not None and record_type.kind == "node":
            hint = f"did you mean `{record_type.name}`?"
        is_list = isinstance(section.value.get(key), list)
        section.problem(f"unknown node type {show_value(name)}", *((key, index) if is_list else (key,)), remedy=hint)


_LONGEST = 2_000
_QUESTION: Mapping[str, Rule | None] = {
    "question": Text(_LONGEST), "type": Text(), "mode": Choice(MODES), "where": Text(_LONGEST), "expected": None,
}  # fmt: skip
_GRADE = Whole(0, 10)


def questions(documents: Sequence[Document], ontology: Ontology) -> tuple[tuple[Mapping[str, Any], ...], list[Finding]]:
    """Return the judged questions of all documents as they are written, and the findings.

    Each question is `{question, type, mode?, where?, expected}`; `expected` is a list of identities, or grades
    by identity.
    """
    findings: list[Finding] = []
    entries: list[Mapping[str, Any]] = []
    is_whole = not any(document.broken for document in documents)
    for document in documents:
        root = root_section(document, "E_ONTOLOGY", findings)
        for index, item in root.items("questions"):
            if isinstance(item, dict):
                _check_question(root.entry("questions", index, item), ontology if is_whole else None)
                entries.append(item)
            else:
                root.problem(f"must be a mapping, is {show_value(item)}", "questions", index)
    return tuple(entries), findings


def questions_in(document: Document) -> Sequence[Mapping[str, Any]]:
    """Return the judged questions of one document as they are written."""
    items = document.value.get("questions", ())
    return [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else ()


def _check_question(section: Section, ontology: Ontology | None) -> None:
    for key in ("question", "type", "expected"):
        if key not in section:
            section.problem(f"needs `{key}`")
    name = section.read(_QUESTION)["type"]
    if ontology and name and ontology.find(name) is None:
        remedy = suggest_known_names(name, [kind.name for kind in ontology])
        section.problem(f"unknown type {show_value(name)}", "type", remedy=remedy)
    expectation = section.value.get("expected")
    if isinstance(expectation, dict):
        for identity in expectation:
            section.sub("expected").get(identity, _GRADE, 0)
    elif "expected" in section and (not isinstance(expectation, list) or not expectation):
        section.problem(f"must list identities, or grade them, is {show_value(expectation)}", "expected")


FOLDER = "ontology/collections"
_HEAD = "# The collection {name}, with its policy at the time of its creation.\n"
_OWN_TO_PRESETS = ("params", "aliases")


def path_of(name: str) -> str:
    """Return the file that defines a collection, relative to the base."""
    return f"{FOLDER}/{name}.yaml"


def define(name: str, chosen: Policy, params: Mapping[str, Any], source: Mapping[str, Any] | None = None) -> bytes:
    """Return the definition of a new collection as YAML; for documents with the `source` of its files.

    Raises `errors.UsageError` (E_PARAMS) with everything that is wrong with the name or the parameters.
    """
    definition = {"name": chosen.name, **copy.deepcopy(dict(chosen.source))}
    problems = [problem for key, value in params.items() if (problem := _set(definition, chosen, key, value))]
    open_ones = [key for key, at in chosen.params.items() if _is_open(definition, at.split("/")[1:])]
    problems += [f"""needs a {key}, such as --params '{{"{key}": "ann"}}'""" for key in open_ones]
    for key in _OWN_TO_PRESETS:
        definition.pop(key, None)
    _fix_namespace(definition, name)
    folder = {"source": dict(source)} if source else {}
    text = _dump(name, {"table": collection_table(name), **folder, "policy": definition})
    problems += [finding.message for finding in _read(text, _place(source))[1]] if not problems else []
    if problems:
        raise UsageError(
            f"{name}: {problems[0]}" if len(problems) == 1 else f"{len(problems)} problems with the collection {name}",
            code="E_PARAMS",
            suggestion=f"duckkb policy show {chosen.name}",
            findings=() if len(problems) == 1 else tuple(Finding("E_PARAMS", problem) for problem in problems),
        )
    return text


def rename_definition(data: bytes, name: str) -> bytes:
    """Return a definition under another name, with the table of that name. Its records keep their identities."""
    ((_, values),) = dict(read_yaml(data, "definition").value)["collections"].items()
    return _dump(name, {**values, "table": collection_table(name)})


def with_source(data: bytes, name: str, source: Mapping[str, Any]) -> bytes:
    """Return a definition of documents with another `source`; settings equal to their defaults are left out."""
    values = dict(read_yaml(data, _place(source)).value)["collections"][name]
    return _dump(
        name, {**values, "source": {key: value for key, value in source.items() if value not in (None, "", [], {})}}
    )


def values_of(data: bytes, name: str) -> dict[str, Any]:
    """Return a definition as plain values."""
    return dict(dict(read_yaml(data, THIS_MACHINE).value)["collections"][name])


def dump_definition(name: str, values: Mapping[str, Any]) -> bytes:
    """Return plain values as a definition."""
    return _dump(name, values)


def _place(source: Mapping[str, Any] | None) -> str:
    return THIS_MACHINE if source and str(source.get("path", "")).startswith("/") else "definition"


def collection_of(data: bytes, path: str) -> tuple[NodeType | None, list[Finding]]:
    """Return the one collection that a definition must declare alone, and the findings."""
    collections, findings = _read(data, path)
    if not findings and (len(collections) != 1 or read_yaml(data, path).value.keys() != {"collections"}):
        findings = [Finding("E_ONTOLOGY", "does not declare exactly one collection, and nothing else", path)]
    return (next(iter(collections.values())) if not findings else None), findings


def _read(data: bytes, path: str = "definition") -> tuple[Mapping[str, NodeType], list[Finding]]:
    ontology, findings = load([read_yaml(data, path)])
    return {name: kind for name, kind in ontology.nodes.items() if kind.is_collection}, findings


def _dump(name: str, values: Mapping[str, Any]) -> bytes:
    body = yaml.safe_dump(
        {"collections": {name: dict(values)}}, sort_keys=False, allow_unicode=True, width=120, default_flow_style=False
    )
    return (_HEAD.format(name=name) + body).encode()


def _fix_namespace(definition: dict[str, Any], name: str) -> None:
    """Fix the namespace of generated identities, so that they survive renaming and copying the collection."""
    identity = definition.get("identity")
    if isinstance(identity, dict) and isinstance(identity.get("generate"), dict):
        namespace = str(uuid.uuid5(uuid.NAMESPACE_URL, f"duckkb:collection:{name}"))
        definition["identity"] = {**identity, "namespace": identity.get("namespace") or namespace}


def _set(definition: dict[str, Any], policy: Policy, key: str, value: Any) -> str:
    """Set one parameter; return what is wrong with it, empty where nothing is."""
    known_keys = [
        *policy.params,
        *(policy_key for policy_key in POLICY_KEYS if policy_key not in (*_OWN_TO_PRESETS, "description")),
    ]
    if key in policy.params:
        return _set_at(definition, policy.params[key].split("/")[1:], value, key)
    if key not in known_keys:
        return f"unknown parameter {show_value(key)}; {suggest_known_names(key, known_keys)}"
    present = definition.get(key)
    definition[key] = {**present, **value} if isinstance(present, dict) and isinstance(value, dict) else value
    return ""


def _set_at(definition: dict[str, Any], steps: list[str], value: Any, name: str) -> str:
    place: Any = definition
    *before, last = steps
    try:
        for step in before:
            place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
        if isinstance(place, list):
            place[int(last)] = value
        else:
            place[last] = value
    except (AttributeError, IndexError, TypeError, ValueError):
        return f"the parameter {show_value(name)} has no place in this policy"
    return ""


def _is_open(place: Any, steps: list[str]) -> bool:
    """Return whether null stands at the place of a parameter, so that it has to be given."""
    for step in steps:
        if not isinstance(place, dict) or step not in place:
            return False
        place = place[step]
    return place is None
