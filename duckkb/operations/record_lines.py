"""Records, hits, receipts and findings as plain objects, the same at every door. Keys with _ are duckkb's own.

The fields of records in an answer of any door: the default form, or those that a caller names."""

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import accumulate, takewhile, zip_longest
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import asdict, replace

from duckkb.engine.rank_fusion import LONGEST, snippet
from duckkb.types.errors import UsageError, shell_word
from duckkb.types.queries import Notice
from duckkb.types.records import CREATED_AT, ID, UPDATED_AT, identity_value

if TYPE_CHECKING:
    from duckkb.review.change_findings import CheckReport
    from duckkb.review.history import FieldOrigin, LogEntry, Origin
    from duckkb.storage.revisions import Signature
    from duckkb.types.errors import Finding
    from duckkb.types.queries import ChunkRef, Excerpt, FindResult, Hit, Receipt, SqlResult
    from duckkb.types.records import Change

Line = Mapping[str, Any]
_READ = ("__id", "__created_at", "__updated_at", "_type", "_etag", "_commit")  # the last only for published bases
OF_RECORDS = (*_READ, "_chunk", "_since")  # for cited records
OF_LISTED = (*_READ, "_line")
OF_HITS = (*_READ, "_score", "_engine", "_scores", "_chunk", "_line", "_degraded", "_filled")
OF_STEPS = (*OF_LISTED, "_depth", "_edge")
_UNASKED = ("_degraded", "_filled", "_explain", "_provenance")  # notices, and fields with an option of their own


class FieldChoice(Struct, frozen=True):
    """The names behind --fields, as typed: dotted paths into nested values.

    With a `+` in front they are added to the default form.
    """

    paths: tuple[str, ...] = ()
    are_more: bool = True


class Projection(Struct, frozen=True):
    """The fields to print.

    `asked` are those of --fields, among duckkb's `own`; without them, all but given vectors, by type `given`.
    In `rows` a dotted path is a column; otherwise values are nested, and a line begins with what names its
    record, unless requested: the fields of `identity`, by type, and `_type` where there are several.
    """

    asked: FieldChoice | None = None
    own: Sequence[str] = ()
    given: Mapping[str, Sequence[str]] = {}
    rows: bool = False
    identity: Mapping[str, Sequence[str]] = {}

    def project(self, whole: Line, form: Line) -> dict[str, Any]:
        """Return a line with the chosen fields; `whole` has every field, `form` those of the default form.

        A line that lacks fields of its record, or has cut ones, says so in `_partial`, so that `put` does not
        take it for the record.
        """
        vector_names = self.given.get(whole.get("_type", ""), ())
        are_more = self.asked is None or self.asked.are_more
        line = {name: value for name, value in form.items() if name not in vector_names} if are_more else {}
        paths = (*self._list_naming_fields(whole), *self.asked.paths) if self.asked else ()
        for path in paths:
            steps = _split_path(path, whole)
            inner_value = _read_path(whole, steps)
            if inner_value is not None:
                (line.__setitem__(path, inner_value) if self.rows else _add(line, steps, inner_value))
        line |= {name: form[name] for name in _UNASKED if name in form}
        business = [name for name in whole if not name.startswith("_")]
        parts = [name for name in business if name in line and line[name] != whole[name]]
        if not self.rows and (parts or any(name not in line for name in business)):
            line["_partial"] = parts
        return line

    def _list_naming_fields(self, whole: Line) -> tuple[str, ...]:
        """Return the fields that name the record of a line, without requested ones."""
        if self.rows or self.asked is None or self.asked.are_more:
            return ()
        type_field = ("_type",) if len(self.identity) > 1 else ()
        names = (*type_field, *self.identity.get(whole.get("_type", ""), ()))
        return tuple(name for name in names if name not in self.asked.paths)

    def find_missing_fields(self, wholes: Sequence[Line]) -> list[str]:
        """Return the names that no line has."""
        return [path for path in self.asked.paths if not _has(wholes, path, self.own)] if self.asked else []

    def left_out(self, wholes: Sequence[Line]) -> str:
        """Return the given vectors that the default form left out, as --fields names them."""
        if self.asked and not self.asked.are_more:
            return ""
        requested_paths = self.asked.paths if self.asked else ()
        vector_names = dict.fromkeys(
            name for whole in wholes for name in self.given.get(whole.get("_type", ""), ()) if name in whole
        )
        return ",".join(name for name in vector_names if name not in requested_paths)


def _split_path(path: str, whole: Line) -> list[str]:
    """Split a path into keys; a field with a dot in its own name takes precedence over a nested one."""
    return [path] if path in whole else path.split(".")


def _read_path(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


def _add(line: dict[str, Any], steps: Sequence[str], value: Any) -> None:
    """Set a value at a path."""
    *outer, last = steps
    for step in outer:
        line = line.setdefault(step, {})
    line[last] = value


def _has(wholes: Sequence[Line], path: str, own_fields: Sequence[str]) -> bool:
    if path in own_fields:
        return True
    return not path.startswith("_") and any(_read_path(whole, _split_path(path, whole)) is not None for whole in wholes)


_LEAST_SHARE = 5  # a chunk above 1/5 of its field is not printed again
_CUT = "…"


_MOST_CHANGES = 10
"""Records that the receipt of a dry run names."""
_BOOKKEEPING = frozenset({ID, CREATED_AT, UPDATED_AT})


def brief(record: Line, excerpt: "Excerpt | None" = None) -> dict[str, Any]:
    """Return a record in brief: the first lines of each long text, and the first items of each long list.

    The text of the `excerpt` starts there; cuts are marked. A document loses what was derived from its text,
    and has its title once.
    """
    starts = {excerpt.field: excerpt.start} if excerpt else {}
    left_out: Collection[str] = ()
    if excerpt is not None and excerpt.line is not None:
        from duckkb.documents.document import DERIVED

        is_repeated = record.get("front_title") == record.get("title")
        left_out = {*DERIVED, "front_title"} if is_repeated else DERIVED
    return {
        name: value if name.startswith("_") else _shorten_value(value, name, starts)
        for name, value in record.items()
        if name not in left_out
    }


def format_lines(
    records: Sequence[Line], document_types: Collection[str] = (), *, full: bool = False
) -> list[tuple[Line, Line]]:
    """Return the records of a page or walk, each whole and in the default form that hits have.

    Records of `document_types` are documents.
    """
    return [_format_line(record, record.get("_type") in document_types, full) for record in records]


def _format_line(record: Line, is_document: bool, full: bool) -> tuple[Line, Line]:
    excerpt = None
    if is_document:
        from duckkb.documents.document_chunks import excerpt_start

        excerpt = excerpt_start(record, LONGEST)
        record = {**record, "_line": excerpt.line}
    form = record if full else brief(record, excerpt)
    return record, {name: value for name, value in form.items() if name not in _BOOKKEEPING}


def _shorten_value(value: Any, path: str = "", starts: Mapping[str, int] = MappingProxyType({})) -> Any:
    if isinstance(value, str):
        return value if len(value) <= LONGEST else _cut(value, starts.get(path, 0))
    if isinstance(value, Mapping):
        return {name: _shorten_value(inner, f"{path}.{name}", starts) for name, inner in value.items()}
    if isinstance(value, list):
        items = list(map(_shorten_value, value))
        lengths = accumulate(len(json.dumps(item, ensure_ascii=False, default=str)) for item in items)
        return [item for item, length in zip(items, lengths, strict=True) if length <= LONGEST]
    return value


def _cut(text: str, start: int) -> str:
    excerpt = snippet(text[start:])
    before, after = text[:start].strip(), text[start + len(excerpt) :].strip()
    return f"{_CUT if before else ''}{excerpt}{_CUT if after else ''}"


def hit_line(
    hit: "Hit", *, degraded: bool, origin: "Origin | None" = None, full: bool = False
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a hit with all fields, and in its default form.

    The default form has the record's fields, long ones in brief (unless `full`), then `_type`, `_etag`,
    `_engine`, `_score`, the place in a longer text, and what options of their own ask for.
    """
    metadata: dict[str, Any] = {"_type": hit.type, "_etag": hit.etag, "_engine": hit.engine}
    metadata |= {} if hit.score is None else {"_score": hit.score}
    metadata |= {"_line": hit.excerpt.line} if hit.excerpt is not None and hit.excerpt.line is not None else {}
    form: dict[str, Any] = {**(hit.record if full else brief(hit.record, hit.excerpt)), **metadata}
    whole = {ID: hit.id, **hit.record, **metadata, CREATED_AT: hit.times[0], UPDATED_AT: hit.times[1]}
    if hit.scores is not None:
        whole["_scores"] = dict(hit.scores)
        form |= {"_scores": whole["_scores"]} if hit.in_collection or hit.trace is not None else {}
    if hit.chunk is not None:
        whole["_chunk"] = {"field": hit.chunk.field, "chunk_seq": hit.chunk.seq, "text": hit.chunk.text}
        form |= _describe_chunk(hit.chunk, hit.record, full)
    extras: dict[str, Any] = {"_degraded": True} if degraded else {}
    extras |= {"_filled": True} if hit.is_filled else {}
    extras |= {} if hit.trace is None else {"_explain": dict(hit.trace)}
    extras |= {} if origin is None else {"_provenance": origin_object(origin)}
    return whole | extras, form | extras


def _describe_chunk(chunk: "ChunkRef", record: Mapping[str, Any], full: bool) -> dict[str, Any]:
    """Return `_chunk` in the default form: nothing where it is the whole field.

    It has the text only where the field is printed whole and the chunk is a small part of it.
    """
    from duckkb.index.text_chunks import field_text, read_value_at

    text = field_text(read_value_at(record, chunk.field))
    if len(chunk.text) >= len(text.strip()):
        return {}
    place: dict[str, Any] = {"field": chunk.field, "chunk_seq": chunk.seq}
    small = full and len(chunk.text) * _LEAST_SHARE <= len(text)
    return {"_chunk": place | ({"text": chunk.text} if small else {})}


def hit_lines(
    result: "FindResult", origins: "Sequence[Origin]" = (), *, full: bool = False
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return the hits of an answer, each whole and in its default form, with origins where given."""
    pairs = zip_longest(result, origins)
    return [hit_line(hit, degraded=result.degraded, origin=origin, full=full) for hit, origin in pairs]


def origin_object(origin: "Origin") -> dict[str, Any]:
    """Return the origin of a record's line; without a commit it is not committed as it is.

    `shallow` means that history ends there, so the line may be older.
    """
    line: dict[str, Any] = {"commit": None, "path": origin.path, "line": origin.line_no}
    if origin.by is None:
        line["uncommitted"] = True
    else:
        line |= {"commit": origin.by.commit, "author": origin.by.author, "date": origin.by.date}
        line |= {"shallow": True} if origin.is_boundary else {}
    return line | {"uri": origin.uri}


def signature_object(by: "Signature | None", is_boundary: bool) -> dict[str, Any]:
    """Return who committed a change; `shallow` means that history ends there."""
    if by is None:
        return {"commit": None, "uncommitted": True}
    line: dict[str, Any] = {"commit": by.commit, "author": by.author, "email": by.email, "date": by.date}
    return line | {"summary": by.summary} | ({"shallow": True} if is_boundary else {})


def blame_lines(origins: "Sequence[FieldOrigin]", field: str | None = None) -> list[dict[str, Any]]:
    """Return the origins of fields as lines; without a named field, duckkb's own times are left out."""
    return [blame_line(origin) for origin in origins if field or origin.name not in _BOOKKEEPING]


def blame_line(one: "FieldOrigin") -> dict[str, Any]:
    """Return a field, its value, and the commit that set it."""
    origin = one.origin
    line = {"field": one.name, "value": json.loads(one.text), **signature_object(origin.by, origin.is_boundary)}
    return line | {"path": origin.path, "line": origin.line_no, "uri": origin.uri}


def log_line(one: "LogEntry") -> dict[str, Any]:
    """Return a change of a record: its commit, and each field before and after, without `__id` and times."""
    change = one.change
    line = {
        **signature_object(one.by, one.is_boundary),
        "op": change.op,
        "type": change.type,
        "identity": change.identity,
    }
    line |= {"was": change.was} if change.was is not None else {}
    line |= {"path": change.place.path, "line": change.place.line_no}
    fields = {}
    for field_change in (each for each in change.fields if each.name not in _BOOKKEEPING):
        sides = {"before": field_change.before, "after": field_change.after}
        fields[field_change.name] = {side: json.loads(text) for side, text in sides.items() if text is not None}
    return line | {"fields": fields}


def result_object(result: "FindResult", lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a whole answer as one object, for `--json`; `lines` are its hits as printed."""
    answer: dict[str, Any] = {
        "results": list(lines),
        "mode": result.mode,
        "engine": result.engine,
        "degraded": result.degraded,
        "notices": [notice_object(notice) for notice in result.notices],
    }
    return answer | ({"explain": dict(result.explain)} if result.explain else {})


def describe_documents(result: Any, lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the result of a document search as one object; `lines` are the documents as printed."""
    notices = [notice_object(notice) for notice in dict.fromkeys(result.notices)]
    return {"results": list(lines), "notices": notices} | ({"hints": list(result.hints)} if result.hints else {})


def notice_object(notice: Any) -> dict[str, str]:
    line = {"code": notice.code, "message": notice.message, "remedy": notice.remedy}
    return line | ({"reason": notice.reason} if notice.reason else {})


def finding_line(finding: "Finding") -> dict[str, Any]:
    """Return the known properties of a finding."""
    return {key: value for key, value in asdict(finding).items() if value}


def receipt_line(receipt: "Receipt", *, named: bool = True) -> Mapping[str, Any]:
    """Return what a write did, as one line.

    `identities`, `ids` and `etags` run in the order of the records given. Large imports omit them (`named`
    False), and have the types of columns and the number of generated ids.
    """
    line: dict[str, Any] = {
        "inserted": receipt.inserted,
        "updated": receipt.updated,
        "unchanged": receipt.unchanged,
        "deleted": receipt.deleted,
        "pending": receipt.pending,
        "files": list(receipt.files),
    }
    if named:
        line["identities"] = [identity_value(identity) for identity in receipt.identities]
        line |= {"ids": list(receipt.ids), "etags": list(receipt.etags)}
    if receipt.imported is not None:
        import_facts = {"types": dict(receipt.imported.types), "generated_ids": receipt.imported.generated_ids}
        line |= {name: value for name, value in import_facts.items() if value}
    return line


def describe_changes(changes: "Sequence[Change]") -> dict[str, Any]:
    """What a write would do to the first records, and of how many more it would; of an update the fields that change."""
    lines = []
    for change in changes[:_MOST_CHANGES]:
        line = {"op": change.op, "type": change.record.type, "identity": identity_value(change.record.identity)}
        if change.old is not None and change.new is not None:
            line["fields"] = _describe_field_changes(change.old.fields, change.new.fields)
        lines.append(line)
    more = len(changes) - len(lines)
    return {"changes": lines, **({"changes_left_out": more} if more else {})}


def _describe_field_changes(old: Line, new: Line) -> dict[str, dict[str, Any]]:
    """The fields that differ, from the line on in which a long text does."""
    changes = {}
    for name in dict.fromkeys((*old, *new)):
        sides = {side: fields[name] for side, fields in (("before", old), ("after", new)) if name in fields}
        if old.get(name) == new.get(name) and len(sides) == 2:
            continue
        texts = [value for value in sides.values() if isinstance(value, str)]
        lines = zip(*(text.splitlines(keepends=True) for text in texts), strict=False) if len(texts) == 2 else ()
        start = sum(len(before) for before, _ in takewhile(lambda pair: pair[0] == pair[1], lines))
        changes[name] = {side: _shorten_value(value, name, {name: start}) for side, value in sides.items()}
    return changes


def sql_object(result: "SqlResult") -> dict[str, Any]:
    """Return rows by the names of their columns."""
    columns = _rename_duplicates(result.columns)
    rows = [dict(zip(columns, row, strict=True)) for row in result.rows]
    return {"columns": columns, "rows": rows, "truncated": result.truncated}


def _rename_duplicates(columns: Sequence[str]) -> list[str]:
    """Return unique names for the keys of a row: a second `a` becomes `a_1`, as in DuckDB's subqueries."""
    names: list[str] = []
    for column in columns:
        free = (
            name for number in itertools.count() if (name := f"{column}_{number}" if number else column) not in names
        )
        names.append(next(free))
    return names


def report_object(report: "CheckReport", fail_on: str = "error") -> dict[str, Any]:
    """Return all findings, each by itself, and equal findings of many records grouped."""
    from duckkb.review.report_formats import judge_findings, list_group_objects

    outcome = judge_findings(report.errors, report.warnings, fail_on=fail_on, is_judged=report.is_judged)
    counts = {"errors": report.errors, "warnings": report.warnings, "records": report.records}
    findings = list(map(finding_line, report.findings))
    return {"outcome": outcome, **counts, "findings": findings, "groups": list_group_objects(report.findings)}


_OPTIONS = {"_explain": "--explain prints it", "_provenance": "--provenance prints it"}


def choose_fields(names: Sequence[str]) -> FieldChoice:
    """Return the choice that names make.

    It is only those fields, or, with a `+` before the first, additions to the default form.

    Raises `errors.UsageError` for a + at another name.
    """
    are_more = bool(names) and names[0].startswith("+")
    paths = tuple(dict.fromkeys(name.strip().removeprefix("+" if are_more else "") for name in names))
    if not all(paths) or not paths:
        raise UsageError("name fields: --fields id,author, or --fields +_chunk")
    if not are_more and any(path.startswith("+") for path in paths):
        every = ",".join(path.removeprefix("+") for path in paths)
        raise UsageError(f"put one + in front of all fields: --fields +{every}")
    return FieldChoice(paths, are_more)


def project(
    lines: Sequence[tuple[Line, Line]],
    wanted: Projection,
    field_names: Callable[[str], Iterable[str]],
) -> tuple[list[dict[str, Any]], list[Notice]]:
    """Project lines, given as (whole, default form), to the wanted fields; return them with notices.

    Notices concern names that no line has, and vectors that the default form left out. `field_names` returns a
    type's fields. Raises `errors.UsageError` for a name that no type has as a field.
    """
    wholes, notices = [whole for whole, _ in lines], list[Notice]()
    if lacking := wanted.find_missing_fields(wholes) if wholes else []:
        kinds = list(wanted.given or dict.fromkeys(whole["_type"] for whole in wholes))
        from duckkb.ontology.names import did_you_mean, paths_inside, paths_to, steps_through_lists

        known_names = [name for kind in kinds for name in field_names(kind)]
        for path in lacking:
            if not {path, path.partition(".")[0]} & {*known_names}:
                raise _make_field_error(path, kinds, (*known_names, *wanted.own), paths_to(wholes, path))
        near = [
            f"{path} is inside a list; --fields {steps[0]} has all of it"
            if len(steps := steps_through_lists(wholes, path)) > 1
            else did_you_mean(path, paths_inside(wholes, path))
            for path in lacking
        ]
        message = f"no printed record has {', '.join(lacking)}"
        notices.append(Notice("W_NO_VALUE", message, " ".join(filter(None, near))))
    if names := wanted.left_out(wholes):
        notices.append(Notice("W_OMITTED", f"vectors are not printed: {names}", f"--fields +{names}"))
    return [wanted.project(whole, form) for whole, form in lines], notices


def say_cut(
    result: "FindResult", lines: Sequence[Line], asked: FieldChoice | None, full: str = "`full`"
) -> "FindResult":
    """Add a notice where `lines`, the hits as given, have long texts in brief: how to get whole records.

    `full` is how the caller asks for whole texts.
    """
    if asked is not None and not asked.are_more:
        return result
    pairs = zip(result, lines, strict=True)
    cut = [hit for hit, line in pairs if any(line.get(name, value) != value for name, value in hit.record.items())]
    if not cut:
        return result
    identity = cut[0].identity
    name = str(identity) if isinstance(identity, str | int) else json.dumps(identity, ensure_ascii=False)
    message = "a long text is shortened" if len(cut) == 1 else f"long texts of {len(cut)} results are shortened"
    get = f"duckkb get {shell_word(cut[0].type)} {shell_word(name)}"
    return replace(
        result,
        notices=(*result.notices, Notice("W_OMITTED", message, f"`{get}` prints one in full, {full} prints all")),
    )


def _make_field_error(
    path: str, kinds: Sequence[str], known_names: Sequence[str], nested_paths: Sequence[str]
) -> UsageError:
    """Return the error for a field that no type has; `nested_paths` are paths in records that end with this name."""
    from duckkb.ontology.names import nearest, suggest_known_names

    head = path.partition(".")[0]
    if head in (*OF_HITS, *_OPTIONS):
        message = f"{head} is not printed here"
        return UsageError(message, suggestion=_OPTIONS.get(head, f"`duckkb find` prints {head}"))
    message = f"{kinds[0]} has no field {path!r}" if len(kinds) == 1 else f"no type has a field {path!r}"
    near = nested_paths[0] if nested_paths else nearest(path, known_names)
    advice = f"did you mean `{nested_paths[0]}`?" if nested_paths else suggest_known_names(path, known_names)
    error = UsageError(message, "E_FIELD", advice)
    error.correction = (path, near) if near else None
    return error
