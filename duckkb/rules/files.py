"""Rules of what files alone can have: lines that duckkb would write otherwise, parts in wrong places, names that hide."""

from collections.abc import Iterator

from duckkb.errors import Finding
from duckkb.ontology.model import RecordType
from duckkb.ontology.names import reserved
from duckkb.records import identity_text
from duckkb.rules.homoglyphs import mixed_identity
from duckkb.rules.invisible_fields import invisible_fields, may_hold_invisible
from duckkb.rules.view import BaseView, IntegrityRule, at
from duckkb.truth import layout
from duckkb.truth.files.part import StoredRow


def type_names(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """A type's name and its folder's are not reserved: they were free when the base was made, or nobody asked."""
    path, _, line = kind.place.rpartition(":")
    if kind.is_collection and (why := reserved(kind.name)):
        remedy = f"duckkb col rename {kind.name} NEW"
        yield Finding("E_RESERVED", f"{kind.name!r} {why}", path, int(line), remedy=remedy, type=kind.name)
    elif why := reserved(kind.table):
        key, folder = ("label", "edges") if kind.kind == "edge" else ("table", "nodes")
        remedy = f"git mv data/{folder}/{kind.table} data/{folder}/NEW, and {key}: NEW"
        yield Finding("E_RESERVED", f"the {key} {kind.table!r} {why}", path, int(line), remedy=remedy, type=kind.name)


def parts(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """A part is sorted, not too large, and has nothing beside its lines."""
    for part in view.parts(kind):
        if not part.sorted:
            yield Finding("E_NOT_CANONICAL", "the lines are not sorted by identity", part.path, remedy="duckkb fmt")
        if len(part.rows) > layout.PART_RECORDS or part.stamp.size > layout.PART_BYTES:
            said = f"{len(part.rows)} records, {part.stamp.size} bytes"
            yield Finding("W_PART_SIZE", said, part.path, remedy="none needed")
        if not part.canonical and all(row.as_stored for row in part.rows) and not part.findings:
            said = "blank lines, or no LF at the end" if part.rows else "no record is in it"
            yield Finding("E_NOT_CANONICAL", said, part.path, remedy="duckkb fmt")


def lines(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """A line is complete, in canonical form and in the folder of its day, and shows all that it holds."""
    for row in (row for part in view.parts(kind) for row in part.rows):
        yield from spelling(row)
        yield from _hidden(row)
        if said := misplaced(row.path, row.record.created_at):
            yield at(row, "E_MISPLACED", said)


def spelling(row: StoredRow) -> Iterator[Finding]:
    """What `duckkb fmt` would write otherwise in a line."""
    if not row.complete:
        yield at(row, "E_INCOMPLETE", "the line lacks __id or times", "duckkb fmt")
    elif not row.canonical:
        yield at(row, "E_NOT_CANONICAL", "the line is not in canonical form", "duckkb fmt")


def misplaced(path: str, created_at: str) -> str:
    """A sentence on a record that was not created on the day of its folder, else empty."""
    address, day = layout.parse_part(path), created_at[:10].replace("-", "")
    if address is None or not day or day == address.day:
        return ""
    return f"created on {day}, but stands in the folder of {address.day}"


def _hidden(row: StoredRow) -> Iterator[Finding]:
    if may_hold_invisible(row.line):
        for field, said in invisible_fields(row.record.fields):
            yield at(row, "W_INVISIBLE", said, field=field)
    if said := mixed_identity(identity_text(row.record.identity)):
        yield at(row, "W_INVISIBLE", said)


RULES = tuple(IntegrityRule(find, written=False, merged=False) for find in (type_names, parts, lines))
