"""Resolution of texts to documents: by docid, URI, path or glob. No guesses are served; near names are suggested."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from unicodedata import normalize
from urllib.parse import quote, unquote

from msgspec import Struct

from duckkb.actions.documents.collections import URI, documents_of, source_of
from duckkb.documents import document, glob
from duckkb.documents.source import find_inner_path, place_path
from duckkb.engine.base import Base
from duckkb.errors import NotFound, Refused, UsageError, shell_word
from duckkb.ontology.model import NodeType
from duckkb.truth.files.part import Part, StoredRow
from duckkb.truth.layout import read_regular

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
                document.read(entry.path, raw, source.extraction).fields.get("warnings", ())
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
