"""The actions search, vsearch and query: documents by words, by meaning, and by both.

Hints from the base's graphs of code beside the answers to a question; the answers and their order stay."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from operator import itemgetter
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from duckkb.documents.document_chunks import heading_path, page
from duckkb.engine import find, graph_walk, typed_questions
from duckkb.engine.base import Base
from duckkb.engine.rank_fusion import Intent, snippet
from duckkb.engine.rerank import ModelBudget, lexical_score, query, vector_score
from duckkb.ontology.model import EdgeType, NodeType
from duckkb.operations.code_graph import graphs, home_of
from duckkb.operations.document_collections import describe_folders, documents_of, source_of
from duckkb.operations.document_lookup import CollectionDocument, docids, document_at
from duckkb.operations.name_resolution import positive, text_or_none
from duckkb.storage.part import StoredRow
from duckkb.types.errors import NotFound, UsageError, shell_word
from duckkb.types.queries import FindResult, Hit, Mode, Notice, SequenceMeta

How = Literal["search", "vsearch", "query"]
_MODES: dict[How, Mode] = {"search": "match", "vsearch": "similar"}
_ALL = 1 << 30


class SearchOptions(Struct, frozen=True):
    """The options of a document search.

    `collections` are those searched (empty: all included). At most `limit` documents (None: all) with a score
    of at least `min_score` are returned, with `full` texts instead of snippets; `explain` adds why each ranks
    where it does. At most `candidates` are reranked, within a time in milliseconds (None: as in the settings).
    `arch_hints` adds neighbours in graphs of code.
    """

    collections: tuple[str, ...] = ()
    limit: int | None = 5
    min_score: float = 0.0
    full: bool = False
    explain: bool = False
    candidates: int | None = None
    rerank_timeout_ms: int | None = None
    arch_hints: bool = False


class DocumentHits(Struct, Sequence[dict[str, Any]], frozen=True, metaclass=SequenceMeta):
    """Hits, best first, with notices and hints from graphs of code.

    A hit has docid, score, file, title, context, line, snippet (or body), where (heading and page), _filled and
    explain, without empty fields.
    """

    hits: tuple[dict[str, Any], ...]
    notices: tuple[Notice, ...] = ()
    hints: tuple[dict[str, Any], ...] = ()

    def __len__(self) -> int:
        return len(self.hits)

    def __getitem__(self, index: Any) -> Any:
        return self.hits[index]


def search_documents(
    base: Base, question: str, how: How = "query", options: SearchOptions | None = None
) -> DocumentHits:
    """Answer a question from document collections. Scores lie in 0..1.

    By words the score is |s|/(1+|s|) of the BM25 score s, by meaning 1/(1+d) of the cosine distance d. Raises
    `errors.UsageError`, `errors.NotFound`, `errors.Unavailable`.
    """
    options = options or SearchOptions()
    text = text_or_none(question, "a question") or ""
    for kind in map(base.ontology.find, options.collections):
        if kind is not None and kind.source is None:
            message = f"{kind.name} has no folder of files; `find` asks its records"
            raise UsageError(message, suggestion=f"duckkb find {kind.name} {shell_word(text or 'a question')}")
    kinds = documents_of(base, options.collections, included=True)
    if not kinds:
        message = "no document collection to search; `find` searches records, `duckkb collection add FOLDER` adds one"
        raise UsageError(message, suggestion=f"duckkb find {_find_sole_type(base)} {shell_word(text or 'a question')}")
    limit = _ALL if options.limit is None else positive(options.limit)
    result = _run_query(base, kinds, text, how, options, limit)
    scored_hits = [(hit, score) for hit in result if (score := _score(hit, how)) >= options.min_score]
    documents = [document_at(base, base.ontology.nodes[hit.type], str(hit.identity)) for hit, _ in scored_hits]
    docid = docids(base, documents)
    hits = tuple(
        _format_hit(base, document, docid[document.name], replace(hit, score=round(score, 6)), options)
        for (hit, score), document in zip(scored_hits, documents, strict=True)
    )
    if not options.arch_hints:
        return DocumentHits(hits, result.notices)

    return DocumentHits(hits, result.notices, hints(base, text, documents))


def _find_sole_type(base: Base) -> str:
    """Return the only type with records; `all` where several or none have any."""
    type_names = [kind.name for kind in base.ontology.nodes.values() if base.tree.count(kind)]
    return type_names[0] if len(type_names) == 1 else "all"


def query_documents(
    base: Base,
    question: str = "",
    *,
    searches: Sequence[Mapping[str, str]] = (),
    intent: str = "",
    collections: Sequence[str] = (),
    limit: int = 10,
    min_score: float = 0.0,
    full: bool = False,
    explain: bool = False,
    candidates: int | None = None,
    rerank_timeout_ms: int | None = None,
    arch_hints: bool = False,
) -> DocumentHits:
    """Search by words and meaning as `search_documents`: a question, or `searches` with an `intent`.

    A search is {type: lex, vec or hyde, query}.
    """
    if searches:
        question = _build_question(question, searches, intent)
    elif intent:
        raise UsageError("intent: goes with `searches`", "E_ARGUMENT")
    options = SearchOptions(
        tuple(collections), limit, min_score, full, explain, candidates, rerank_timeout_ms, arch_hints
    )
    return search_documents(base, question, "query", options)


def _build_question(question: str, searches: Sequence[Mapping[str, str]], intent: str) -> str:
    if question:
        raise UsageError("question and searches exclude each other; give one of them", "E_ARGUMENT")
    for number, search in enumerate(searches):
        for name in ("type", "query"):
            if name not in search:
                raise UsageError(f"searches/{number}/{name}: is required", "E_ARGUMENT")
    return typed_questions.to_lines(searches, intent)


def find_words(
    base: Base,
    question: str,
    *,
    collections: Sequence[str] = (),
    limit: int = 10,
    min_score: float = 0.0,
    full: bool = False,
    explain: bool = False,
) -> DocumentHits:
    """Search by words alone, as `search_documents`."""
    options = SearchOptions(tuple(collections), limit, min_score, full, explain)
    return search_documents(base, question, "search", options)


def _run_query(
    base: Base, kinds: Sequence[NodeType], text: str, how: How, options: SearchOptions, limit: int
) -> FindResult:
    intent = Intent(text, _MODES.get(how), limit=limit, explain=options.explain, kinds=tuple(kinds))
    if how == "query":
        return query(base, intent, ModelBudget(options.candidates, options.rerank_timeout_ms))
    return find.find(base, intent)


def _score(hit: Hit, how: How) -> float:
    """Return the displayed score of a hit."""
    raw = hit.score or 0.0
    if how == "query":
        return raw
    return lexical_score(raw) if how == "search" else vector_score(raw)


def _format_hit(
    base: Base, document: CollectionDocument, docid: str, hit: Hit, options: SearchOptions
) -> dict[str, Any]:
    """Return a hit as it is given, with its score."""
    context, fields = describe_folders(base, document.kind, document.path), hit.record
    line = {"docid": docid, "score": hit.score, "file": document.uri, "title": fields.get("title", "")}
    if context:
        line["context"] = context
    assert hit.excerpt is not None and hit.excerpt.line is not None, "a document is shown from a line"
    if where := _describe_place(fields, hit.excerpt.start):
        line["where"] = where
    if hit.is_filled:
        line["_filled"] = True
    if options.full:
        line["body"] = fields.get("text", "")
        line["line"] = fields.get("text_line", 1)
    else:
        line["line"], line["snippet"] = hit.excerpt.line, snippet(fields.get("text", "")[hit.excerpt.start :])
    if options.explain:
        line["explain"] = hit.trace
    return line


def _describe_place(fields: Mapping[str, Any], start: int) -> str:
    """Return the page and headings of a place in a document's text."""
    number = page(fields.get("pages", ()), start)
    above = heading_path(fields.get("text", ""), start) if fields.get("headings") else []
    return ", ".join(filter(None, (f"page {number}" if number else "", f"§ {' > '.join(above)}" if above else "")))


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
    steps, most = graph_walk.Steps("both", frozenset({links.name})), 2 * base.tree.count(links)
    for step in graph_walk.neighbors(base.tree, graph_walk.Node(kind, row), steps, 1, most)[0]:
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
