"""Files as parts: a document is a part with one record, and what it links to another part, of edges.

A part of edges is called as its file with `#links` behind the name. Nothing of either is stored: what a file says is its
record. A file that cannot be read as what it should be is a record that says so, never a part that stops the base.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from duckkb.codes import CODES
from duckkb.documents import document
from duckkb.documents.source import enters, is_document, placed, within
from duckkb.errors import Finding
from duckkb.ontology.model import DocumentSource, Ontology, RecordType
from duckkb.records import CREATED_AT, FROM, ID, TO, UPDATED_AT
from duckkb.truth.files.ids import hash_id, scalar_problem
from duckkb.truth.files.line import Limits, LineShape, encode
from duckkb.truth.files.part import Part, PartRows, Stamp, StoredRow, part_of, record_of
from duckkb.truth.layout import Listing, listing, parse_part
from duckkb.values import dataclass

LINKS = "#links"
_EPOCH = "1970-01-01T00:00:00.000000Z"
"""The times of a document: git keeps none of files, and a record is the same in every clone. Its history says more."""

Seen = tuple[str, os.stat_result]


def file_of(path: str) -> str:
    """The file of a part."""
    return path.removesuffix(LINKS)


def type_at(ontology: Ontology, path: str) -> RecordType | None:
    """The type whose records a path holds, by where it lies; None for what is no part of any."""
    if address := parse_part(path):
        kind = ontology.by_table(address.kind, address.table)
        return kind if kind is not None and kind.source is None else None
    wanted = "edge" if path.endswith(LINKS) else "node"
    for kind in ontology:
        if kind.source is not None and kind.kind == wanted:
            inner = within(kind.source, file_of(path))
            if inner is not None and is_document(kind.source, inner):
                return kind
    return None


def parts_in(ontology: Ontology, path: str) -> Iterator[tuple[str, RecordType]]:
    """The parts that a file holds, with their types."""
    for part in (path, path + LINKS):
        if kind := type_at(ontology, part):
            yield part, kind


def part_named(kind: RecordType, file: str) -> str | None:
    """The part that a file is of a type of documents, or of their links; None where it is none of its documents."""
    assert kind.source is not None, "asked of documents"
    inner = within(kind.source, file_of(file))
    if inner is None or not is_document(kind.source, inner):
        return None
    return file_of(file) + LINKS if kind.kind == "edge" else file_of(file)


def folders(kinds: Iterable[RecordType]) -> tuple[str, ...]:
    """Where the documents of some types lie that git may know: those of folders in the base."""
    sources = (kind.source for kind in kinds)
    return tuple(dict.fromkeys(one.path for one in sources if one is not None and not one.is_outside))


def walk(root: Path, source: DocumentSource, listed: dict[str, Listing] | None = None) -> Iterator[Seen | Finding]:
    """The documents of a source in the order of their paths, as parts name them, with what the file system says of each; and
    findings for links, which are not followed, and for what else is no file. A folder that is not there has none. What lies
    in each folder is put into `listed`. Raises OSError for one that cannot be listed."""
    yield from _walk(root / source.path, source, "", {} if listed is None else listed)


def _walk(folder: Path, source: DocumentSource, inner: str, listed: dict[str, Listing]) -> Iterator[Seen | Finding]:
    try:
        entries, listed[str(folder)] = listing(folder)
    except NotADirectoryError:
        return
    for entry in entries:
        path = f"{inner}/{entry.name}" if inner else entry.name
        if entry.is_dir(follow_symlinks=False):
            if enters(source, path):
                yield from _walk(folder / entry.name, source, path, listed)
        elif not is_document(source, path) or path.endswith(LINKS):
            continue
        elif problem := scalar_problem(path):
            said = f"the name {problem}, so that the file is no record"
            yield Finding("W_DOCUMENT", said, placed(source, path), remedy="rename the file")
        elif entry.is_file(follow_symlinks=False):
            try:
                yield placed(source, path), entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
        else:
            is_link = entry.is_symlink()
            said = (
                "a link; links are not followed, and what it leads to is no document" if is_link else "no regular file"
            )
            yield Finding("W_DOCUMENT", said, placed(source, path), remedy=CODES["W_DOCUMENT"].remedy)


@dataclass(frozen=True, slots=True)
class DocumentLines:
    """What a part of a document holds, as a part of records would, and for each line the one of the file where that stands: it
    belongs to no record, as it moves with the text above it. There are none for a part of records."""

    data: bytes
    numbers: tuple[int, ...]


def lines_of(wanted: Mapping[str, RecordType], raw: bytes) -> dict[str, DocumentLines]:
    """What the bytes of a file of documents are at the paths of its parts."""
    return {
        path: DocumentLines(part.rows.content.text, tuple(row.line_no for row in part.rows))
        for path, part in _documents(wanted, raw, Stamp(-1, 0, 0, 0))
    }


def placed_in_file(rows: Iterable[StoredRow], numbers: Sequence[int] | None) -> list[StoredRow]:
    """Rows of the lines that `lines_of` gives, where they stand in the file; as they are for a part of records (None)."""
    return [row.at_line(numbers[row.line_no - 1]) for row in rows] if numbers else [*rows]


def parts_at(wanted: Mapping[str, RecordType], raw: bytes, limits: Limits, stamp: Stamp) -> dict[str, Part]:
    """The parts that the bytes of one file make, at their paths and of their types: one of records, or of a document that
    and its links."""
    if any(kind.source is not None for kind in wanted.values()):
        return dict(_documents(wanted, raw, stamp))
    return {path: part_of(path, kind, raw, limits, stamp) for path, kind in wanted.items()}


def _documents(wanted: Mapping[str, RecordType], raw: bytes, stamp: Stamp) -> Iterator[tuple[str, Part]]:
    told, digest = None, hashlib.sha256(raw).hexdigest()
    for path, kind in wanted.items():
        assert kind.source is not None, "asked of documents"
        inner, how = within(kind.source, file_of(path)), kind.source.extraction
        assert inner is not None, f"{path} lies elsewhere"
        told = told or document.read(inner, raw, how)
        rows = list[StoredRow]()
        if how.strict and not document.is_whole(told.fields):
            pass  # no record, and what is none links to nothing
        elif kind.kind == "edge":
            links = {to: lines[0] for to, lines in sorted(told.links.items()) if is_document(kind.source, to)}
            rows = [_row(kind, path, {FROM: inner, TO: to}, line) for to, line in links.items()]
        else:
            rows = [_row(kind, path, {"path": inner, **told.fields}, 1)]
        yield path, Part(path, kind, stamp, digest, PartRows.of(kind, path, rows))


def _row(kind: RecordType, path: str, values: dict[str, Any], number: int) -> StoredRow:
    identity = tuple(values[name] for name in kind.identity_fields)
    named = {ID: hash_id(kind.kind, kind.table, identity), **values, CREATED_AT: _EPOCH, UPDATED_AT: _EPOCH}
    line = encode(named, LineShape(kind.identity_fields))
    return StoredRow(record_of(kind, named), line, path, number)
