"""What only the whole ontology can tell: names that clash, and edges whose ends do not exist."""

from collections.abc import Mapping

from duckkb.ontology.model import Ontology, RecordType
from duckkb.ontology.names import name_known
from duckkb.ontology.rules import shown
from duckkb.ontology.section import Section
from duckkb.records import FROM, TO


def check(ontology: Ontology, nodes: Mapping[str, Section], edges: Mapping[str, Section], is_whole: bool) -> None:
    """Note problems between types in their sections. Unknown ends say nothing while a file could not be read to its
    end (`is_whole` is false)."""
    sections = [(kind, (nodes if kind.kind == "node" else edges)[kind.name]) for kind in ontology]
    _check_tables(sections)
    _check_names(sections)
    if is_whole:
        for name, section in edges.items():
            _check_ends(section, ontology.edges[name].from_types, FROM, ontology)
            _check_ends(section, ontology.edges[name].to_types, TO, ontology)


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
