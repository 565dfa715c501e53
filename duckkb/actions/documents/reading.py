"""The actions ls, get and multi-get of documents: lists and texts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unicodedata import normalize

from duckkb.actions.documents.collections import describe_folders, documents_of, list_left_out
from duckkb.actions.documents.naming import (
    CollectionDocument,
    catalogue,
    docids,
    find_document,
    find_matching_documents,
    list_refused,
)
from duckkb.documents.document import format_of
from duckkb.documents.extract.libraries import extractor
from duckkb.engine.base import Base
from duckkb.errors import NotFound, UsageError
from duckkb.review.reports.markup import many

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
        raise UsageError(f"{text} already names a line", suggestion="leave out --from")
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
