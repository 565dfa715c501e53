"""The integrity rules of records and their files. Writes, `check`, `check --since` and merges apply them.

A rule is a function that yields the findings of a type in a view of the base, and a line in `RULES`, at the end.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from duckkb.errors import Finding, Refused
from duckkb.ontology.model import EdgeType, RecordType
from duckkb.ontology.names import describe_reservation
from duckkb.ontology.source import pointer
from duckkb.records import FROM, TO, Record, TypedEnd, component_of, identity_text, record_arguments
from duckkb.rules.edge_types import suggest_edge_type
from duckkb.rules.invisible import describe_mixed_scripts, invisible_fields, may_hold_invisible
from duckkb.rules.view import BaseView, IntegrityRule, make_finding
from duckkb.settings import Shrink
from duckkb.truth import layout
from duckkb.truth.files.part import StoredRow
from duckkb.truth.files.tree import Ambiguous, Ref, end_identity


def type_names(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Check that the names of a type and of its folder are not reserved.

    The name may have been reserved after the base was made, or a write was never checked.
    """
    path, _, line = kind.place.rpartition(":")
    if kind.is_collection and (why := describe_reservation(kind.name)):
        remedy = f"duckkb col rename {kind.name} NEW"
        yield Finding("E_RESERVED", f"{kind.name!r} {why}", path, int(line), remedy=remedy, type=kind.name)
    elif why := describe_reservation(kind.table):
        key, folder = ("label", "edges") if kind.kind == "edge" else ("table", "nodes")
        remedy = f"git mv data/{folder}/{kind.table} data/{folder}/NEW, and {key}: NEW"
        yield Finding("E_RESERVED", f"the {key} {kind.table!r} {why}", path, int(line), remedy=remedy, type=kind.name)


def parts(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Check that a part is sorted and not too large, and holds nothing besides its lines."""
    for part in view.parts(kind) if kind.source is None else ():
        if not part.sorted:
            yield Finding("E_NOT_CANONICAL", "the lines are not sorted by identity", part.path, remedy="duckkb fmt")
        if len(part.rows) > layout.PART_RECORDS or part.stamp.size > layout.PART_BYTES:
            message = f"{len(part.rows)} records, {part.stamp.size} bytes"
            yield Finding("W_PART_SIZE", message, part.path, remedy="none needed")
        if not part.canonical and all(row.as_stored for row in part.rows) and not part.findings:
            message = "blank lines, or no LF at the end" if part.rows else "no record is in it"
            yield Finding("E_NOT_CANONICAL", message, part.path, remedy="duckkb fmt")


def documents(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Check that each file of a document collection was read, and read whole."""
    for part in view.parts(kind) if kind.source is not None and kind.kind == "node" else ():
        yield from part.findings
        for row in part.rows:
            problems = row.record.fields.get("front_matter_problems", ())
            for entry in problems:
                finding = make_finding(row, "W_FRONT_MATTER", entry["message"], field=entry["field"])
                yield replace(finding, line=entry["line"])
            warnings = [
                entry for entry in row.record.fields.get("warnings", ()) if entry != "front_matter" or not problems
            ]
            if warnings:
                yield make_finding(row, "W_DOCUMENT", f"was read with warnings: {', '.join(warnings)}")
        if not part.rows and not part.findings:
            yield Finding(
                "E_EXTRACT",
                "could not be read completely, and is no record",
                part.path,
                remedy=f"`duckkb ls {kind.name} --long` shows the reason",
            )


def lines(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Check that a line is complete, canonical, in the folder of its day, and has no invisible characters."""
    for row in (row for part in view.parts(kind) for row in part.rows):
        yield from check_spelling(row)
        if may_hold_invisible(row.line):
            for field, message in invisible_fields(row.record.fields):
                remedy = "" if kind.source is None else "remove them from the file, unless they are intended"
                yield make_finding(row, "W_INVISIBLE", message, remedy, pointer(field))
        if message := describe_mixed_scripts(identity_text(row.record.identity)):
            yield make_finding(row, "W_INVISIBLE", message)
        if message := describe_misplacement(row.path, row.record.created_at):
            yield make_finding(row, "E_MISPLACED", message)


def check_spelling(row: StoredRow) -> Iterator[Finding]:
    """Report what `duckkb fmt` would write otherwise in a line."""
    if not row.complete:
        yield make_finding(row, "E_INCOMPLETE", "the line lacks __id or times", "duckkb fmt")
    elif not row.canonical:
        yield make_finding(row, "E_NOT_CANONICAL", "the line is not in canonical form", "duckkb fmt")


def describe_misplacement(path: str, created_at: str) -> str:
    """Return a sentence on a record that is not in the folder of its day; empty where it is."""
    address, day = layout.parse_part(path), created_at[:10].replace("-", "")
    if address is None or not day or day == address.day:
        return ""
    return f"created on {day}, but is in the folder of {address.day}"


def schema(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Check that a record fits its type."""
    validator = view.validator(kind)
    for row in view.rows(kind):
        if not validator.is_valid(row.record.fields):
            for finding in validator.findings(row.record.fields):
                yield replace(
                    make_finding(row, "E_SCHEMA", finding.message, "change the record or the schema"),
                    field=finding.field,
                )


def lengths(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Check that the given vectors of a field are equally long. The schema reports lengths that the policy fixes."""
    fields = [name for name, field in kind.given_vectors.items() if not field.dimension]
    dimensions = dict(view.lengths(kind)) if fields else {}
    for row in view.select_rows_to_check(kind) if fields else ():
        for name in fields:
            value = row.record.fields.get(name)
            if isinstance(value, list):
                dimensions[name] = dimensions.get(name) or len(value)
                if message := length_problem(value, dimensions[name]):
                    yield make_finding(row, "E_SCHEMA", message, length_remedy(dimensions[name]), f"/{name}")


def length_problem(value: list[Any], expected: int) -> str:
    """Return what is wrong with a vector among vectors of the length `expected`; empty where nothing is."""
    if len(value) == expected:
        return ""
    return f"has {len(value)} numbers, the others have {expected}; only these are searched (rule: vector)"


def length_remedy(expected: int) -> str:
    return f"give {expected} numbers, or use another collection"


def duplicates(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Check that no identity occurs twice."""
    for identity, rows in view.duplicates(kind).items():
        places = ", ".join(f"{row.path}:{row.line_no}" for row in rows)
        message = f"{kind.name} {identity_text(identity)} stands {len(rows)} times: {places}"
        for row in rows[1:]:
            yield make_finding(row, "E_DUP_IDENTITY", message, "duckkb dedupe")


def id_clashes(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Check that an `__id` belongs to one record only.

    Writes never cause a clash: in memory the later record gets a free id.
    """
    for number, rows in view.tree.id_clashes(kind).items():
        names = " and ".join(identity_text(row.record.identity) for row in rows)
        for row in rows[1:]:
            yield make_finding(row, "E_DUP_ID", f"__id {number} is that of {names}", "duckkb dedupe --reassign")


def same_texts(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Check that a text of which keys are made has a single key.

    Records whose text is stored twice already may be rewritten.
    """
    key_field = kind.generated.of if kind.generated is not None else ""
    first: dict[str, Record] = {}
    for row in view.select_rows_to_check(kind) if key_field else ():
        record, was = row.record, view.get_previous_record(row)
        text = read_key_text(kind, record)
        if text is None or (was is not None and read_key_text(kind, was) == text):
            continue
        holder = first.setdefault(text, view.holder(kind, text) or record)
        if holder is record:
            continue
        message = f"the key {identity_text(holder.identity)} has the same {key_field}"
        if view.is_write:
            remedy = "leave the key out, or give that one, to change the record that has it"
            yield make_finding(row, "E_EXISTS", message, remedy, f"/{key_field}")
        else:
            remedy = f"duckkb delete {record_arguments(kind.name, record.identity)}"
            yield make_finding(row, "W_SAME_TEXT", message, remedy, f"/{key_field}")


def read_key_text(kind: RecordType, record: Record) -> str | None:
    """Return the text of which a record's key would be made.

    Returns None where it has no such text, or its type makes no keys of texts.
    """
    generator = kind.generated
    text = record.fields.get(generator.of) if generator is not None and generator.of else None
    return text if isinstance(text, str) else None


def refuse_mass_deletion(deleted: Mapping[str, tuple[int, int]], limit: Shrink) -> None:
    """Raise `errors.Refused` (E_SHRINK) where a change deletes more records of a type than `limit` allows.

    `deleted` has by type how many records of how many are deleted.
    """
    for name, (count, total) in deleted.items():
        if count > limit.most(total):
            raise Refused(
                f"this would delete {count} of {total} {name} records; without asking, at most {limit.most(total)} at once",
                code="E_SHRINK",
                suggestion="repeat the command with --allow-shrink, if this is intended",
            )


def ends(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Check that both ends of an edge exist, each in exactly one of its allowed types."""
    if isinstance(kind, EdgeType):
        dangling_ends = (
            (row, name, end)
            for row in view.select_edges_to_check(kind)
            for name, end in zip((FROM, TO), view.ends(kind, row.record.identity), strict=True)
            if end is None or isinstance(end, Ambiguous)
        )
        yield from (
            _check_links(dangling_ends)
            if kind.source is not None
            else (_report_dangling_end(view, kind, *entry) for entry in dangling_ends)
        )


def _check_links(dangling_ends: Iterable[tuple[StoredRow, str, Ambiguous | None]]) -> Iterator[Finding]:
    """Report links between documents that lead nowhere; report each ambiguous name only once."""
    ambiguous = set[str]()
    for row, name, end in dangling_ends:
        target = identity_text(end_identity(component_of(row.record.fields[name])))
        if end is None:
            yield make_finding(
                row, "W_LINK", f"the link {target} leads to no document of the collection", field=f"/{name}"
            )
        elif target not in ambiguous:
            ambiguous.add(target)
            message = f"the link {target} may lead to {' or '.join(end.types)}"
            yield make_finding(row, "W_LINK", message, "write more of the path, as in [[folder/name]]", f"/{name}")


def _report_dangling_end(view: BaseView, kind: EdgeType, row: StoredRow, name: str, end: Ambiguous | None) -> Finding:
    value = component_of(row.record.fields[name])
    target = identity_text(end_identity(value))
    if end is not None:
        message = f"{target} exists as {' and '.join(end.types)}"
        return make_finding(
            row, "E_AMBIGUOUS_END", message, f'write it as {{"type": "{end.types[0]}", "id": ...}}', f"/{name}"
        )
    types = (value.type,) if isinstance(value, TypedEnd) else kind.from_types if name == FROM else kind.to_types
    ends = f"{kind.name} joins {' or '.join(kind.from_types)} to {' or '.join(kind.to_types)}"
    if command := suggest_edge_type(view.tree, *(row.record.fields[side] for side in (FROM, TO))):
        message = f"no {' or '.join(types)} {target}"
        remedy = f"{ends}; `{command}` makes an edge type for these, to name in the place of {kind.name}"
        return make_finding(row, "E_DANGLING_EDGE", message, remedy, f"/{name}")
    message = f"no {' or '.join(types)} {target}; {ends}, and a file in ontology/ may make an edge type for other ends"
    return make_finding(row, "E_DANGLING_EDGE", message, f"duckkb list {types[0]}", f"/{name}")


def check_left_edges(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Check that no edge remains that names a node which a write deletes."""
    if isinstance(kind, EdgeType):
        for row, (name, identity) in view.list_dangling_edges(kind):
            who = f"{kind.name} {identity_text(row.record.identity)}"
            message = f"{who} would lose its end {name} {identity_text(identity)}"
            yield make_finding(row, "E_EDGES", message, "delete the edge too (--cascade)")


def cardinality(view: BaseView, kind: RecordType) -> Iterator[Finding]:
    """Check the cardinality of edges: 1:N lets a `to` have one `from`, N:1 a `from` one `to`, 1:1 both."""
    if not isinstance(kind, EdgeType) or not (sides := list_limited_ends(kind)):
        return
    seen_nodes: set[tuple[int, Ref]] = set()
    for row in sorted(
        view.select_rows_to_check(kind), key=lambda row: view.get_previous_record(row) is None
    ):  # stored records first
        end_pair = view.ends(kind, row.record.identity)
        nodes = [(side, node) for side in sides if (node := end_pair[side]) and not isinstance(node, Ambiguous)]
        too_many = [
            (side, node) for side, node in nodes if (side, node) in seen_nodes or view.has_more_edges(kind, side, node)
        ]
        for side, node in too_many:
            message = f"{kind.name} is {kind.cardinality}: `{(FROM, TO)[side]}` {identity_text(node[1])} has another edge already"
            yield make_finding(
                row, "E_CARDINALITY", message, f"delete the other {kind.name} edge, or change `cardinality`"
            )
        if not (too_many and view.is_write):  # a refused edge does not count against others
            seen_nodes.update(nodes)


def list_limited_ends(kind: EdgeType) -> tuple[int, ...]:
    """Return the ends (0 from, 1 to) that may be in at most one edge of this type."""
    return {"1:1": (0, 1), "1:N": (1,), "N:1": (0,), "N:N": ()}[kind.cardinality]


RULES = (
    *(IntegrityRule(find, written=False, merged=False) for find in (type_names, parts, documents, lines)),
    IntegrityRule(schema),
    IntegrityRule(lengths),
    IntegrityRule(duplicates),
    IntegrityRule(id_clashes, written=False),
    IntegrityRule(same_texts),
    IntegrityRule(ends),
    IntegrityRule(check_left_edges),
    IntegrityRule(cardinality),
)
AFTER_MERGE = tuple(rule for rule in RULES if rule.merged)
BEFORE_WRITE = tuple(rule for rule in RULES if rule.written)


def findings(view: BaseView, rules: Collection[IntegrityRule] = RULES) -> Iterator[Finding]:
    """Yield every violation of `rules` in a view, type by type."""
    for kind in view.kinds:
        for rule in rules:
            yield from rule.find(view, kind)
