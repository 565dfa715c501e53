"""Judged questions: what a search should find, kept beside the ontology and used to measure it."""

from collections.abc import Mapping, Sequence
from typing import Any

from duckkb.errors import Finding
from duckkb.ontology.model import Ontology
from duckkb.ontology.names import name_known
from duckkb.ontology.rules import MODES, Choice, Text, Whole, shown
from duckkb.ontology.section import Section, root_section
from duckkb.ontology.source import Document

KEYS = ("question", "type", "mode", "where", "expected")
_LONGEST = 2_000
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
                _check(root.entry("questions", index, item), ontology if is_whole else None)
                kept.append(item)
            else:
                root.problem(f"must be a mapping, is {shown(item)}", "questions", index)
    return tuple(kept), found


def questions_in(document: Document) -> Sequence[Mapping[str, Any]]:
    """The questions that stand in a document, as they stand there."""
    found = document.value.get("questions", ())
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else ()


def _check(section: Section, ontology: Ontology | None) -> None:
    section.refuse_unknown(KEYS)
    for key in ("question", "type", "expected"):
        if key not in section:
            section.problem(f"needs `{key}`")
    section.get("question", Text(_LONGEST), "")
    section.get("mode", Choice(MODES), None)
    section.get("where", Text(_LONGEST), "")
    name = section.get("type", Text(), "")
    if ontology and name and ontology.find(name) is None:
        remedy = name_known(name, [kind.name for kind in ontology])
        section.problem(f"unknown type {shown(name)}", "type", remedy=remedy)
    expected = section.value.get("expected")
    if isinstance(expected, dict):
        for identity in expected:
            section.sub("expected").get(identity, _GRADE, 0)
    elif "expected" in section and (not isinstance(expected, list) or not expected):
        section.problem(f"must list identities, or grade them, is {shown(expected)}", "expected")
