"""Rules of records: by themselves, beside the others of their type, and of how many may go at once."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from duckkb.errors import Finding, Refused
from duckkb.ontology.model import RecordType
from duckkb.records import Record, identity_text
from duckkb.rules.view import BaseView, IntegrityRule, at
from duckkb.settings import Shrink


def schema(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """A record fits its type."""
    validator = view.validator(kind)
    for row in view.rows(kind):
        if not validator.is_valid(row.record.fields):
            for one in validator.findings(row.record.fields):
                yield replace(at(row, "E_SCHEMA", one.message, "change the record or the schema"), field=one.field)


def lengths(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Given vectors are as long as the others of their field; what the policy fixes the schema says."""
    fields = [name for name, field in kind.given_vectors.items() if not field.dimension]
    expected = dict(view.lengths(kind)) if fields else {}
    for row in view.compared(kind) if fields else ():
        for name in fields:
            value = row.record.fields.get(name)
            if isinstance(value, list):
                expected[name] = expected.get(name) or len(value)
                if said := length_problem(value, expected[name]):
                    yield at(row, "E_SCHEMA", said, length_remedy(expected[name]), f"/{name}")


def length_problem(value: list[Any], expected: int) -> str:
    """What is wrong with the length of a vector, beside vectors of the length `expected`; empty where nothing is."""
    if len(value) == expected:
        return ""
    return f"has {len(value)} numbers, the others have {expected}; only these are searched (rule: vector)"


def length_remedy(expected: int) -> str:
    return f"give {expected} numbers, or use another collection"


def duplicates(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """An identity stands once."""
    for identity, rows in view.duplicates(kind).items():
        places = ", ".join(f"{row.path}:{row.line_no}" for row in rows)
        said = f"{kind.name} {identity_text(identity)} stands {len(rows)} times: {places}"
        for row in rows[1:]:
            yield at(row, "E_DUP_IDENTITY", said, "duckkb dedupe")


def id_clashes(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """An `__id` is that of one record. A write brings none about: in memory the later record has a free one."""
    for number, rows in view.tree.id_clashes(kind).items():
        names = " and ".join(identity_text(row.record.identity) for row in rows)
        for row in rows[1:]:
            yield at(row, "E_DUP_ID", f"__id {number} is that of {names}", "duckkb dedupe --reassign")


def same_texts(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """A text of which keys are made stands under one key alone. Those that have it already may be written as they are."""
    made = kind.generated.of if kind.generated is not None else ""
    first: dict[str, Record] = {}
    for row in view.compared(kind) if made else ():
        record, was = row.record, view.before(row)
        text = keyed_text(kind, record)
        if text is None or (was is not None and keyed_text(kind, was) == text):
            continue
        other = first.setdefault(text, view.holder(kind, text) or record)
        if other is record:
            continue
        said = f"this {made} stands under the key {identity_text(other.identity)} too"
        if view.is_write:
            remedy = "leave the key out, or give that one, to change the record that has it"
            yield at(row, "E_EXISTS", said, remedy, f"/{made}")
        else:
            remedy = f"duckkb delete {kind.name} {identity_text(record.identity)}"
            yield at(row, "W_SAME_TEXT", said, remedy, f"/{made}")


def keyed_text(kind: RecordType, record: Record) -> str | None:
    """The text of which a record's key would be made; None where it has none, or its type makes no keys of texts."""
    made = kind.generated
    text = record.fields.get(made.of) if made is not None and made.of else None
    return text if isinstance(text, str) else None


def refuse_mass_deletion(deleted: Mapping[str, tuple[int, int]], limit: Shrink) -> None:
    """Raise `errors.Refused` (E_SHRINK) where a change, whatever makes it, deletes more records of a type than may go
    unasked: by type how many of how many."""
    for name, (count, total) in deleted.items():
        if count > limit.most(total):
            raise Refused(
                f"this would delete {count} of {total} {name} records; without asking, at most {limit.most(total)} at once",
                code="E_SHRINK",
                suggestion="--allow-shrink if that is meant",
            )


RULES = (
    IntegrityRule(schema),
    IntegrityRule(lengths),
    IntegrityRule(duplicates),
    IntegrityRule(id_clashes, written=False),
    IntegrityRule(same_texts),
)
