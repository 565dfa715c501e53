"""ls, get and multi-get of documents: what there is, and what it says."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unicodedata import normalize

from duckkb.actions.documents.collections import about, documents_of, left_out
from duckkb.actions.documents.naming import CollectionDocument, catalogue, docids, matching, named, refused
from duckkb.documents.document import format_of
from duckkb.documents.extract.libraries import extractor
from duckkb.engine.base import Base
from duckkb.errors import NotFound, UsageError
from duckkb.review.reports.markup import many

LARGEST = 10 * 1024
"""Bytes of a file that `multi_get` prints, where the caller names no others."""


def ls(base: Base, place: str = "", *, long: bool = False) -> list[dict[str, Any]]:
    """The documents of a collection, or of a folder in it (`NAME/PREFIX`); with `long` what was found when each was read, then
    what else lies there with the reason why it is `left_out`. An empty `place` lists those of all. Raises `errors.NotFound`."""
    name, _, prefix = normalize("NFC", place).removeprefix("duckkb://").strip("/").partition("/")
    kinds = documents_of(base, [name] if name else [])
    within = [
        one for one in catalogue(base, kinds) if not prefix or one.path == prefix or one.path.startswith(f"{prefix}/")
    ]
    unread = (
        [(one, said) for one, said in refused(base, kinds) if f"{one.path}/".startswith(f"{prefix}/" if prefix else "")]
        if long
        else []
    )
    others = [
        {"path": f"{kind.name}/{path}", "left_out": why}
        for kind in (kinds if long else ())
        for path, why in left_out(base, kind)
        if why != "too_large" and f"{path}/".startswith(f"{prefix}/" if prefix else "")
    ]
    if prefix and not within and not unread and not others:
        raise NotFound(f"{name} has no folder or document {prefix!r}", suggestion=f"duckkb ls {name}")
    shown = docids(base, within)
    return (
        [_line(base, one, shown[one.name]) | (_diagnosed(base, one) if long else {}) for one in within]
        + [
            {
                "path": one.name,
                "format": format_of(one.path),
                "bytes": one.size,
                "sha256": one.digest,
                "warnings": list(said),
                "refused": True,
            }
            for one, said in unread
        ]
        + others
    )


def get_document(base: Base, text: str, *, first: int | None = None, lines: int | None = None) -> dict[str, Any]:
    """One document by docid, URI or path, from a line of its file on (`PATH:LINE`, or `first`), so many `lines`: docid, file,
    title, context, line and text. Raises `errors.NotFound`, `errors.Refused` (E_AMBIGUOUS_KEY), `errors.UsageError`."""
    found = named(base, text)
    if first is not None and found.line is not None:
        raise UsageError(f"{text} names a line already", suggestion="leave --from out")
    return _read(base, found.document, docids(base, [found.document])[found.document.name], first or found.line, lines)


def multi_get(
    base: Base, pattern: str, *, lines: int | None = None, most: int = LARGEST
) -> tuple[list[dict[str, Any]], list[str]]:
    """The documents of a list or glob as `get_document` has them, and what of a list there is not; one whose file has more
    than `most` bytes comes as `skipped`, with why. Raises `errors.NotFound` where there is none at all."""
    found, lacking = matching(base, pattern)
    if not found:
        raise NotFound(
            lacking[0].partition("; ")[0] if lacking else f"no document matches {pattern!r}", suggestion="duckkb ls"
        )
    shown = docids(base, found)
    made = []
    for one in found:
        if one.size > most:
            why = f"{one.size:,} bytes, over the {most:,} of --max-bytes"
            made.append({**_named(base, one, shown[one.name]), "skipped": why})
        else:
            made.append(_read(base, one, shown[one.name], None, lines))
    return made, lacking


def _named(base: Base, one: CollectionDocument, docid: str) -> dict[str, Any]:
    """What every line of a document begins with; without what it has none of."""
    context = about(base, one.kind, one.path)
    title = one.row(base).record.fields.get("title", "")
    return {"docid": docid, "file": one.uri, "title": title, **({"context": context} if context else {})}


def _line(base: Base, one: CollectionDocument, docid: str) -> dict[str, Any]:
    fields = one.row(base).record.fields
    return {
        "path": one.name,
        "docid": docid,
        "title": fields.get("title", ""),
        "format": fields["format"],
        "bytes": one.size,
    }


def _diagnosed(base: Base, one: CollectionDocument) -> dict[str, Any]:
    """What was found when a file was read."""
    fields = one.row(base).record.fields
    return {
        "sha256": one.digest,
        "extractor": extractor(fields["format"]),
        "warnings": list(fields.get("warnings", ())),
        "context": about(base, one.kind, one.path),
    }


def _read(base: Base, one: CollectionDocument, docid: str, first: int | None, most: int | None) -> dict[str, Any]:
    fields = one.row(base).record.fields
    numbered = list(source_lines(fields))
    begins = first if first is not None else (numbered[0][0] if numbered else 1)
    if first is not None and numbered and first > numbered[-1][0]:
        said = f"{one.name} has {many(numbered[-1][0], 'line')}, none from {first} on"
        raise NotFound(said, suggestion=f"duckkb get {one.uri}:{numbered[-1][0]}")
    chosen = [text for number, text in numbered if number >= begins][:most]
    if most is not None and most < 1:
        raise UsageError(f"-l must be 1 or more, not {most}")
    warnings = list(fields.get("warnings", ()))
    return {
        **_named(base, one, docid),
        "line": max(begins, numbered[0][0]) if numbered else 1,
        "text": "".join(chosen),
        **({"warnings": warnings} if warnings else {}),
    }


def source_lines(fields: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """The lines of a document's text with their ends, numbered as in its file: front matter is no text and counts."""
    yield from enumerate(_split(fields.get("text", "")), fields.get("text_line", 1))


def _split(text: str) -> Sequence[str]:
    lines = text.split("\n")
    kept = [f"{line}\n" for line in lines[:-1]]
    return [*kept, lines[-1]] if lines[-1] else kept
