"""The actions ls, get and multi-get of documents: lists and texts.

Resolution of texts to documents: by docid, URI, path or glob. No guesses are served; near names are suggested.

The action get: a record or a document, by any name for it. Readers of documents and git are imported on demand."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from unicodedata import normalize
from urllib.parse import quote, unquote

from msgspec import Struct

from duckkb.documents import glob
from duckkb.documents.document import find_inner_path, format_of, place_path, read_document
from duckkb.documents.extraction_result import extractor
from duckkb.engine.base import Base
from duckkb.ontology.model import NodeType
from duckkb.operations.document_collections import URI, describe_folders, documents_of, list_left_out, source_of
from duckkb.operations.name_resolution import GivenIdentity
from duckkb.operations.record_lookup import get
from duckkb.review.report_markup import many
from duckkb.storage.layout import read_regular
from duckkb.storage.part import Part, StoredRow
from duckkb.types.errors import NotFound, Refused, UsageError, shell_word

SHORTEST = 6
"""The number of digits of a docid as shown, and the least to give."""
_DOCID = re.compile(rf"#?([0-9a-f]{{{SHORTEST},64}})", re.IGNORECASE)
_LINE = re.compile(r"(.+):([1-9][0-9]{0,8})")
_GLOB = re.compile(r"[*?\[{]")
_SPECIAL = re.compile(r"[\x00-\x20%#?@,\"<>\\^`|]")
_MOST_NEAR = 5
_NEAR = 3
"""The number of letters by which a suggested name may differ."""


class CollectionDocument(Struct, frozen=True):
    """A file of a collection: its path there, the SHA-256 of its content in hex, and its size in bytes."""

    kind: NodeType
    path: str
    digest: str
    size: int

    @property
    def name(self) -> str:
        """The name that `ls` shows: COLLECTION/PATH."""
        return f"{self.kind.name}/{self.path}"

    @property
    def uri(self) -> str:
        """The URI duckkb://COLLECTION/PATH, percent-encoded where a list or a URI would read it otherwise."""
        return URI + _SPECIAL.sub(lambda match: quote(match[0]), self.name)

    def row(self, base: Base) -> StoredRow:
        """Return the document's record."""
        stored_row = base.tree.get(self.kind, (self.path,))
        assert stored_row is not None, "a document of the tree has its record"
        return stored_row


class Named(Struct, frozen=True):
    """A document, and the line named with it."""

    document: CollectionDocument
    line: int | None = None


def catalogue(base: Base, kinds: Iterable[NodeType] | None = None) -> list[CollectionDocument]:
    """Return the documents of collections, by collection and path."""
    node_types = documents_of(base) if kinds is None else kinds
    return [_build_document(kind, part) for kind in node_types for part in base.tree.parts_of(kind) if part.rows]


def list_refused(base: Base, kinds: Iterable[NodeType]) -> list[tuple[CollectionDocument, tuple[str, ...]]]:
    """Return the files that could not be read completely and are no documents, with the problems of each."""
    refusals = []
    for kind in kinds:
        for part in (part for part in base.tree.parts_of(kind) if not part.rows and not part.findings):
            entry, source = _build_document(kind, part), source_of(kind)
            try:
                raw = read_regular(base.whole.root / part.path)[0]
            except OSError:
                raw = None
            warnings = (
                read_document(entry.path, raw, source.extraction).fields.get("warnings", ())
                if raw is not None
                else ("failed",)
            )
            refusals.append((entry, tuple(warnings)))
    return refusals


def _build_document(kind: NodeType, part: Part) -> CollectionDocument:
    return CollectionDocument(
        kind, find_inner_path(source_of(kind), part.path) or part.path, part.digest, part.stamp.size
    )


def document_at(base: Base, kind: NodeType, path: str) -> CollectionDocument:
    """Return the document at a path of a collection."""
    part = base.tree.parts.get(place_path(source_of(kind), path))
    if part is None:  # the file's name is not in NFC
        row = base.tree.get(kind, (path,))
        assert row is not None, "a document of the tree has its record"
        part = base.tree.parts[row.path]
    return _build_document(kind, part)


def docids(base: Base, documents: Iterable[CollectionDocument]) -> dict[str, str]:
    """Return the docids of documents by name: `#` and the first six digits of the SHA-256 of the content.

    Where other content of the base shares these digits, there are as many as tell them apart.
    """
    contents = sorted({part.digest for kind in documents_of(base) for part in base.tree.parts_of(kind) if part.rows})
    docids_by_name = {}
    for entry in documents:
        at = bisect_left(contents, entry.digest)
        near = (*contents[max(at - 1, 0) : at], *contents[at + 1 : at + 2])
        digits = SHORTEST
        while any(neighbor.startswith(entry.digest[:digits]) for neighbor in near):
            digits += 1
        docids_by_name[entry.name] = f"#{entry.digest[:digits]}"
    return docids_by_name


def find_document(base: Base, text: str) -> Named:
    """Return the document that a text names, and the line behind a colon.

    The text is `#docid`, duckkb://COLLECTION/PATH, COLLECTION/PATH, a path on this machine, PATH, or the end of
    a path after a `/` where it is unique. Raises `errors.NotFound` (E_NOT_FOUND) with the nearest names,
    `errors.Refused` (E_AMBIGUOUS_KEY) with the candidates, `errors.UsageError` for a type of records.
    """
    documents = catalogue(base)
    plain_text = normalize("NFC", text).strip().strip("\"'").strip()
    candidates = list(_iter_candidates(base, documents, plain_text))
    line = None
    if not candidates and (line_match := _LINE.fullmatch(plain_text)):
        candidates, line = list(_iter_candidates(base, documents, line_match[1])), int(line_match[2])
    if len(candidates) == 1:
        return Named(candidates[0], line)
    if candidates:
        names = ", ".join(f"{docid} {name}" for name, docid in docids(base, candidates[:_MOST_NEAR]).items())
        more = f" and {len(candidates) - _MOST_NEAR} more" if len(candidates) > _MOST_NEAR else ""
        message = f"{plain_text} names {len(candidates)} documents: {names}{more}"
        raise Refused(message, code="E_AMBIGUOUS_KEY", suggestion="give the full name of one of them")
    if (kind := base.ontology.find(plain_text)) is not None and kind.source is None:
        raise UsageError(f"{plain_text} is a type: name a record of it", suggestion=f"duckkb list {plain_text}")
    near = _find_nearest(plain_text, documents)
    message = f"; did you mean {' or '.join(near)}?" if near else ""
    if not near and "/" in plain_text and base.ontology.find(plain_text.partition("/")[0]) is None:
        message = f", and no type {plain_text.partition('/')[0]!r}"
    raise NotFound(f"no document {plain_text!r}{message}", suggestion=_suggest_command(base, plain_text, near))


def _suggest_command(base: Base, text: str, near: Sequence[str]) -> str:
    """Return the command that prints the record a text names, else the nearest document.

    A record is named as TYPE/IDENTITY, or by a node's identity after any type. With neither, returns the
    command that lists the documents or types.
    """
    for mark in "/:":
        name, _, identity = text.partition(mark)
        if identity and (kind := base.ontology.find(name)) is not None and kind.source is None:
            return f"duckkb get {kind.name} {shell_word(identity)}"
    kinds = [kind for kind in base.ontology.nodes.values() if kind.source is None and len(kind.identity_fields) == 1]
    for identity in (text, text.partition("/")[2]):
        for kind in kinds:
            if identity and base.tree.get(kind, (identity,)) is not None:
                return f"duckkb get {kind.name} {shell_word(identity)}"
    if near:
        return f"duckkb get {shell_word(near[0])}"
    return "duckkb ls" if documents_of(base) else "duckkb schema"


def names_record(base: Base, text: str) -> bool:
    """Return whether a text is TYPE/IDENTITY with a type whose records are not documents."""
    name, _, identity = text.partition("/")
    kind = base.ontology.find(name) if identity else None
    return kind is not None and kind.source is None


def is_of_documents(base: Base, uri: str) -> bool:
    """Return whether a URI without a commit names a document, not a record of another type."""
    kind = base.ontology.nodes.get(unquote(uri.removeprefix(URI)).strip("/").partition("/")[0])
    return kind is not None and kind.source is not None


def find_matching_documents(base: Base, pattern: str) -> tuple[list[CollectionDocument], list[str]]:
    """Return the documents of a list (`a.md, #abc123`) or glob (`a/**/*.{md,txt}`), and missing list items.

    A comma inside an existing name does not separate. Raises `errors.UsageError` as `glob.parse_glob`.
    """
    documents = catalogue(base)
    try:
        return [find_document(base, pattern).document], []
    except (NotFound, Refused):
        pass
    if _GLOB.search(pattern) and not pattern.lstrip().startswith("#"):
        parsed_glob = glob.parse_glob(normalize("NFC", pattern).strip().removeprefix(URI).lstrip("/"))
        return [
            entry
            for entry in documents
            if glob.matches(parsed_glob, entry.name) or glob.matches(parsed_glob, entry.path)
        ], []
    entries: dict[str, CollectionDocument] = {}
    lacking = []
    for item in filter(None, map(str.strip, pattern.split(","))):
        try:
            entry = find_document(base, item).document
            entries[entry.name] = entry
        except NotFound as problem:
            lacking.append(f"{problem.message}; {problem.suggestion}")
    return list(entries.values()), lacking


def _iter_candidates(base: Base, documents: Sequence[CollectionDocument], text: str) -> Iterator[CollectionDocument]:
    """Yield every document that a text may mean, by the first form of name that matches any."""
    plain_name = unquote(text[len(URI) :]).strip("/") if text.startswith(URI) else text.removeprefix("//")
    if exact := [entry for entry in documents if entry.name == plain_name] or [
        entry for entry in documents if entry.path == plain_name
    ]:
        yield from exact
        return
    if text.startswith(URI):
        return
    if digits := _DOCID.fullmatch(text):
        by_id = [entry for entry in documents if entry.digest.startswith(digits[1].lower())]
        yield from by_id
        if by_id:
            return
    # callers who see a part of the base may not learn of links on this machine
    path = Path(plain_name).resolve() if "\0" not in plain_name and not base.is_narrowed else None
    for kind in documents_of(base) if path is not None else ():
        folder = base.root.resolve() / source_of(kind).path
        if path is not None and path.is_relative_to(folder.resolve()):
            inner = normalize("NFC", path.relative_to(folder.resolve()).as_posix())
            exact = [entry for entry in documents if entry.kind is kind and entry.path == inner]
            if exact:
                yield from exact
                return
    if plain_name:
        yield from (entry for entry in documents if entry.path.endswith(f"/{plain_name}"))


def _find_nearest(text: str, documents: Sequence[CollectionDocument]) -> list[str]:
    file_name = text.removeprefix(URI).strip("/").rpartition("/")[2].casefold()
    names: dict[str, list[str]] = {}
    for entry in documents:
        names.setdefault(entry.path.rpartition("/")[2].casefold(), []).append(entry.name)
    close = [
        name
        for name in get_close_matches(file_name, names, 4 * _MOST_NEAR, 0.5)
        if _measure_distance(file_name, name) <= _NEAR
    ]
    return [name for near in close for name in names[near]][:_MOST_NEAR]


def _measure_distance(source: str, target: str) -> int:
    """Return Levenshtein's distance."""
    row = list(range(len(target) + 1))
    for index, letter in enumerate(source, 1):
        before, row[0] = row[0], index
        for place, against in enumerate(target, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (letter != against))
    return row[-1]


LARGEST = 10 * 1024
"""The bytes of a file that `multi_get` prints by default."""


def ls(base: Base, place: str = "", *, long: bool = False) -> list[dict[str, Any]]:
    """List the documents of a collection, or of a folder in it (`NAME/PREFIX`); of all for an empty `place`.

    With `long`, adds the extraction results of each, then the files that are `left_out` with the reason. Raises
    `errors.NotFound`.
    """
    name, _, prefix = normalize("NFC", place).removeprefix("duckkb://").strip("/").partition("/")
    kinds = documents_of(base, [name] if name else [])
    within = [
        document
        for document in catalogue(base, kinds)
        if not prefix or document.path == prefix or document.path.startswith(f"{prefix}/")
    ]
    unread = (
        [
            (document, warnings)
            for document, warnings in list_refused(base, kinds)
            if f"{document.path}/".startswith(f"{prefix}/" if prefix else "")
        ]
        if long
        else []
    )
    omissions = [
        {"path": f"{kind.name}/{path}", "left_out": why}
        for kind in (kinds if long else ())
        for path, why in list_left_out(base, kind)
        if why != "too_large" and f"{path}/".startswith(f"{prefix}/" if prefix else "")
    ]
    if prefix and not within and not unread and not omissions:
        raise NotFound(f"{name} has no folder or document {prefix!r}", suggestion=f"duckkb ls {name}")
    docids_by_name = docids(base, within)
    return (
        [
            _summarize_document(base, document, docids_by_name[document.name])
            | (_describe_extraction(base, document) if long else {})
            for document in within
        ]
        + [
            {
                "path": document.name,
                "format": format_of(document.path),
                "bytes": document.size,
                "sha256": document.digest,
                "warnings": list(warnings),
                "refused": True,
            }
            for document, warnings in unread
        ]
        + omissions
    )


def get_document(base: Base, text: str, *, first: int | None = None, lines: int | None = None) -> dict[str, Any]:
    """Return a document by docid, URI or path: docid, file, title, context, line and text.

    The text starts at a line of its file (`PATH:LINE`, or `first`) and has so many `lines`. Raises
    `errors.NotFound`, `errors.Refused` (E_AMBIGUOUS_KEY), `errors.UsageError`.
    """
    target = find_document(base, text)
    if first is not None and target.line is not None:
        raise UsageError(f"{text} already gives the first line; --from gives another", suggestion="leave out --from")
    return _read(
        base, target.document, docids(base, [target.document])[target.document.name], first or target.line, lines
    )


def multi_get(
    base: Base, pattern: str, *, lines: int | None = None, most: int = LARGEST
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the documents of a list or glob as `get_document` has them, and the missing items of a list.

    A document whose file exceeds `most` bytes comes as `skipped`, with the reason. Raises `errors.NotFound`
    where nothing matches.
    """
    documents, lacking = find_matching_documents(base, pattern)
    if not documents:
        raise NotFound(
            lacking[0].partition("; ")[0] if lacking else f"no document matches {pattern!r}", suggestion="duckkb ls"
        )
    docids_by_name = docids(base, documents)
    entries = []
    for document in documents:
        if document.size > most:
            why = f"{document.size:,} bytes, over the {most:,} of --max-bytes"
            entries.append({**_describe_document(base, document, docids_by_name[document.name]), "skipped": why})
        else:
            entries.append(_read(base, document, docids_by_name[document.name], None, lines))
    return entries, lacking


def _describe_document(base: Base, document: CollectionDocument, docid: str) -> dict[str, Any]:
    """Return the first fields of every line about a document, without empty ones."""
    context = describe_folders(base, document.kind, document.path)
    title = document.row(base).record.fields.get("title", "")
    return {"docid": docid, "file": document.uri, "title": title, **({"context": context} if context else {})}


def _summarize_document(base: Base, document: CollectionDocument, docid: str) -> dict[str, Any]:
    fields = document.row(base).record.fields
    return {
        "path": document.name,
        "docid": docid,
        "title": fields.get("title", ""),
        "format": fields["format"],
        "bytes": document.size,
    }


def _describe_extraction(base: Base, document: CollectionDocument) -> dict[str, Any]:
    """Return what was recorded when a file was read."""
    fields = document.row(base).record.fields
    return {
        "sha256": document.digest,
        "extractor": extractor(fields["format"]),
        "warnings": list(fields.get("warnings", ())),
        "context": describe_folders(base, document.kind, document.path),
    }


def _read(base: Base, document: CollectionDocument, docid: str, first: int | None, most: int | None) -> dict[str, Any]:
    fields = document.row(base).record.fields
    numbered_lines = list(source_lines(fields))
    begins = first if first is not None else (numbered_lines[0][0] if numbered_lines else 1)
    if first is not None and numbered_lines and first > numbered_lines[-1][0]:
        message = f"{document.name} has {many(numbered_lines[-1][0], 'line')}, none from {first} on"
        raise NotFound(message, suggestion=f"duckkb get {document.uri}:{numbered_lines[-1][0]}")
    texts = [text for number, text in numbered_lines if number >= begins][:most]
    if most is not None and most < 1:
        raise UsageError(f"-l must be 1 or more, not {most}")
    warnings = list(fields.get("warnings", ()))
    return {
        **_describe_document(base, document, docid),
        "line": max(begins, numbered_lines[0][0]) if numbered_lines else 1,
        "text": "".join(texts),
        **({"warnings": warnings} if warnings else {}),
    }


def source_lines(fields: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield the lines of a document's text with their ends, numbered as in its file, where front matter counts."""
    yield from enumerate(_split(fields.get("text", "")), fields.get("text_line", 1))


def _split(text: str) -> Sequence[str]:
    lines = text.split("\n")
    whole_lines = [f"{line}\n" for line in lines[:-1]]
    return [*whole_lines, lines[-1]] if lines[-1] else whole_lines


def record_or_document(
    base: Base,
    type: str | None = None,
    identity: GivenIdentity | None = None,
    *,
    citation: str | None = None,
    document: str | None = None,
    first: int | None = None,
    lines: int | None = None,
) -> dict[str, Any]:
    """Return a record by type and identity or by citation, or a document. Raises as their own functions do."""
    if citation is not None and (type, identity, document, first, lines) == (None,) * 5:
        from duckkb.operations.record_origins import resolve_citation  # rarely needed, and it imports git's readers
        from duckkb.review.history import parse

        return resolve_citation(base, parse(citation))
    if (
        citation is None
        and document is None
        and type is not None
        and identity is not None
        and first is None
        and lines is None
    ):
        return get(base, type, identity)
    if citation is None and document is not None and type is None and identity is None:
        return get_document(base, document, first=first, lines=lines)
    raise UsageError(
        "give type and identity, or a citation, or a document with optional first and lines",
        code="E_ARGUMENT",
        suggestion='{"type": TYPE, "identity": IDENTITY}, {"citation": URI}, or {"document": "guide/install.md"}',
    )
