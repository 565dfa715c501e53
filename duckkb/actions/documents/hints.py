"""Hints from the base's graphs of code beside the answers to a question; the answers and their order stay."""

import os
import re
from collections.abc import Iterable, Iterator, Set
from operator import itemgetter
from typing import Any

from duckkb.actions.documents.arch.building import graphs, home_of
from duckkb.actions.documents.collections import source_of
from duckkb.actions.documents.naming import CollectionDocument
from duckkb.actions.resolve import text_or_none
from duckkb.engine import graph
from duckkb.engine.base import Base
from duckkb.errors import NotFound
from duckkb.ontology.model import EdgeType, NodeType
from duckkb.truth.files.part import StoredRow

_SHORTEST = 3  # letters of a label
_WORDS = re.compile(r"[\w./-]+")
_PARTS = re.compile("[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def hints(base: Base, question: str, found: Iterable[CollectionDocument]) -> tuple[dict[str, Any], ...]:
    """The neighbours, `arch.hints` at most, of what the question names by label, its parts or file, then of what stands in the files found:
    `of`, `relation`, `direction`, `label`, `file`, `confidence`, which is at least `arch.min_confidence`. Those in other files
    come first, then the surest."""
    words = {word.strip("./-").casefold() for word in _WORDS.findall(question)}
    words |= {re.split(r"[./]", word)[-1] for word in words} | {word.rpartition("/")[2] for word in words}
    home, files = home_of(base.root), set()
    for document in found:
        path = os.path.realpath(base.root / source_of(document.kind).path / document.path)
        files.add(path.removeprefix(f"{home}/"))
    hints_by_edge: dict[tuple[str, int], tuple[Any, dict[str, Any]]] = {}
    for kind, links in graphs(base):
        for row in base.tree.rows(kind):
            names = {_normalize_label(row), str(row.record.fields.get("file", "")).casefold()} - {""}
            is_match = not words.isdisjoint(names) or _has_parts(words, _label(row))
            if is_match or row.record.fields.get("file") in files:
                for rank, edge, line in _iter_neighbors(base, kind, row, links):
                    if (line["confidence"] or 1) < base.settings.arch.min_confidence:
                        continue
                    hint = ((not is_match, *rank), line)
                    hints_by_edge[links.name, edge] = min(
                        hints_by_edge.get((links.name, edge), hint), hint, key=itemgetter(0)
                    )
    return tuple(line for _, line in sorted(hints_by_edge.values(), key=itemgetter(0))[: base.settings.arch.hints])


def arch_query(base: Base, question: str) -> dict[str, Any]:
    """Return the hints of a question alone. Raises `errors.NotFound` (E_UNKNOWN_TYPE) without a graph."""
    if next(graphs(base), None) is None:
        raise NotFound("no code graph exists", "E_UNKNOWN_TYPE", "`duckkb arch import FILE`, or `duckkb arch build`")
    return {"hints": list(hints(base, text_or_none(question, "a question") or "", ()))}


def _iter_neighbors(
    base: Base, kind: NodeType, row: StoredRow, links: EdgeType
) -> Iterator[tuple[Any, int, dict[str, Any]]]:
    """Yield the neighbours of a node: the rank of each, the edge to it, and the hint."""
    steps, most = graph.Steps("both", frozenset({links.name})), 2 * base.tree.count(links)
    for step in graph.neighbors(base.tree, graph.Node(kind, row), steps, 1, most)[0]:
        assert step.edge is not None, "a neighbour is reached over an edge"
        edge, way, near = step.edge[1].record, step.edge[2], step.node.row.record.fields
        sure, file = edge.fields.get("confidence"), near.get("file")
        line = {
            "of": _label(row),
            "relation": edge.fields["relation"],
            "direction": way,
            "label": _label(step.node.row),
            "file": file,
            "confidence": sure,
        }
        rank = (file == row.record.fields.get("file"), 1 if sure is None else -sure, edge.identity, way == "in")
        yield rank, edge.id, line


def _label(row: StoredRow) -> str:
    return str(row.record.fields.get("label", row.record.identity[0]))


def _has_parts(words: Set[str], label: str) -> bool:
    """Whether a label has several parts, as `renew_certificate()` and `getUserName` have, and all are among the words."""
    parts = {part.lower() for part in _PARTS.findall(label) if len(part) > 1}
    return len(parts) > 1 and parts <= words


def _normalize_label(row: StoredRow) -> str:
    """Return a label as questions write it, without brackets; empty where it is too short to be specific."""
    plain = _label(row).removesuffix("()").strip(".").casefold()
    return plain if len(plain) >= _SHORTEST else ""
