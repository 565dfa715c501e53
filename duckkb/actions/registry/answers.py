"""Answers of actions as plain objects: each function takes the base, the function's result, and the arguments."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from duckkb.actions.reading import document_types, field_names, identity_fields, list_caller_vectors
from duckkb.actions.registry.projecting import choose_fields, project, say_cut
from duckkb.actions.registry.record_lines import (
    OF_HITS,
    OF_LISTED,
    OF_RECORDS,
    OF_STEPS,
    FieldChoice,
    Projection,
    blame_lines,
    describe_changes,
    describe_documents,
    format_lines,
    hit_lines,
    log_line,
    notice_object,
    receipt_line,
    report_object,
    result_object,
    sql_object,
)
from duckkb.engine import boot
from duckkb.engine.base import Base

Given = Mapping[str, Any]


def as_is(base: Base, value: Any, given: Given) -> dict[str, Any]:
    """Return a result that is a plain object already."""
    return dict(value)


def types(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"types": value}


def format_hits(base: Base, value: Any, given: Given) -> dict[str, Any]:
    choice, origins = _read_choice(given), list[Any]()
    if given.get("provenance"):
        from duckkb.actions.tracing import origins_of  # few ask for them, and it brings what reads git

        origins = origins_of(base, value)
    lines = hit_lines(value, origins, full=given.get("full", False))
    records, notices = project(
        lines, _make_projection(base, choice, OF_HITS, given["type"]), partial(field_names, base)
    )
    result = say_cut(value, records, choice)
    more = [notice for notice in notices if choice is not None]
    return result_object(replace(result, notices=(*result.notices, *more)), records)


def gotten(base: Base, value: Any, given: Given) -> dict[str, Any]:
    """Return a record with the chosen fields, or a document, which has no such choice."""
    if (choice := _read_choice(given)) is None or "_type" not in value:
        return dict(value)
    projection = Projection(choice, OF_RECORDS, identity=identity_fields(base, value["_type"]))
    (line,), _ = project([(value, value)], projection, partial(field_names, base))
    return line


def _read_choice(arguments: Given) -> FieldChoice | None:
    return choose_fields(arguments["fields"]) if "fields" in arguments else None


def count(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"type": value.type, "count": value.count}


def page(base: Base, value: Any, given: Given) -> dict[str, Any]:
    records = _project_listed(base, value.records, given["type"], OF_LISTED, given)
    return {"records": records, "total": value.total, "next": value.next}


def neighbors(base: Base, value: Any, given: Given) -> dict[str, Any]:
    records = _project_listed(base, value.records, "all", OF_STEPS, given)
    return {"records": records, "truncated": value.truncated, "next": value.next}


def project_citing_records(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"records": _project_listed(base, value.records, "all", OF_STEPS, given), "truncated": value.truncated}


def near(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"records": _project_listed(base, value.records, given["type"], (*OF_STEPS, "_score"), given)}


def blame(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"fields": blame_lines(value, given.get("field"))}


def log(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"changes": list(map(log_line, value))}


def path(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return {"path": _project_listed(base, value, "all", OF_STEPS, given)}


def rows(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return sql_object(value)


def documents(base: Base, value: Any, given: Given) -> dict[str, Any]:
    """Return the documents of a search."""
    return describe_documents(value, value)


def several(base: Base, value: Any, given: Given) -> dict[str, Any]:
    """Return the requested documents, and the names that match none."""
    present_documents, lacking = value
    return {"documents": present_documents, "lacking": lacking}


def why(base: Base, value: Any, given: Given) -> dict[str, Any]:
    from duckkb.review.impact.why import convert_why_to_object

    of_base = [notice.message for notice in boot.notices(base)]
    return convert_why_to_object(value) | {"notices": [*value.notices, *of_base]}


def report(base: Base, value: Any, given: Given) -> dict[str, Any]:
    return report_object(value)


def receipt(base: Base, value: Any, given: Given) -> dict[str, Any]:
    """What was written; of a dry run what would be, as git would show it, and by the first records."""
    if not value.dry_run:
        return {**receipt_line(value)}
    return {**receipt_line(value), "dry_run": True, "patch": value.patch, **describe_changes(value.changes)}


def _project_listed(
    base: Base, records: Sequence[Mapping[str, Any]], of: str, own_fields: Sequence[str], arguments: Given
) -> list[dict[str, Any]]:
    """Return the records of a page or walk without given vectors, or with only the requested `fields`."""
    lines = format_lines(records, document_types(base, of), full=arguments.get("full", False))
    projection = _make_projection(base, _read_choice(arguments), own_fields, of)
    return project(lines, projection, partial(field_names, base))[0]


def _make_projection(base: Base, choice: FieldChoice | None, own_fields: Sequence[str], of: str) -> Projection:
    identity = identity_fields(base, of) if choice is not None else {}
    return Projection(choice, own_fields, list_caller_vectors(base, of), identity=identity)


def with_notices(base: Base, value: Any, answer: dict[str, Any]) -> dict[str, Any]:
    """Add notices on the answer, or else on the base, if there are any.

    In a record, which may have a field of that name, they are under `_notices`.
    """
    is_record = "_type" in answer
    if "notices" in answer and not is_record:
        return answer
    notices = [*dict.fromkeys((*boot.notices(base), *getattr(value, "notices", ())))]
    key = "_notices" if is_record else "notices"
    return answer | ({key: [notice_object(notice) for notice in notices]} if notices else {})


def notices_of(answer: Mapping[str, Any]) -> Sequence[Any]:
    """Return the notices that `with_notices` added, objects or texts; never a record's own field."""
    notices: Sequence[Any] = answer.get("_notices" if "_type" in answer else "notices") or ()
    return notices


def plain(value: Any) -> Any:
    """Convert a value to JSON; other values become text, as on the command line."""
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        return [plain(item) for item in value]
    return str(value)
