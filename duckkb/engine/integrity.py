"""The integrity rules of records and their files. Writes, `check`, `check --since` and merges apply them.

A rule is a function that yields the findings of a type in a view of the base, and a line in `RULES`, at the end.

Integrity rules, and the views of a base that they check: as it is, or as it would be after a write.

Suggestions of edge types that a base lacks, from the types that records' edges would join."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.ontology.model import EdgeType, RecordType
from duckkb.ontology.names import describe_reservation
from duckkb.ontology.validation import Validator
from duckkb.ontology.yaml_source import pointer
from duckkb.storage import layout
from duckkb.storage.document_parts import file_of
from duckkb.storage.part import Part, StoredRow
from duckkb.storage.tree import Ambiguous, End, Ref, Tree, end_identity
from duckkb.types.codes import CODES
from duckkb.types.errors import Finding, Refused
from duckkb.types.invisible_characters import describe_mixed_scripts, invisible_fields, may_hold_invisible
from duckkb.types.records import (
    FROM,
    TO,
    Changeset,
    Component,
    Identity,
    Record,
    TypedEnd,
    component_of,
    identity_text,
    record_arguments,
)
from duckkb.types.settings import Shrink


class BaseView:
    """The view of a whole base.

    Subclasses view less of it. They override `parts` (the files), `rows` (records by themselves), `linked`
    (records whose ends are followed) and `select_rows_to_check` (records compared with the others of their type).
    """

    is_write = False

    def __init__(
        self,
        tree: Tree,
        validator: Callable[[RecordType], Validator],
        lengths: Callable[[RecordType], Mapping[str, int]],
    ) -> None:
        """Make a view of a tree. `lengths` returns the lengths of a type's given vectors by field."""
        self.tree, self.validator, self.lengths = tree, validator, lengths
        self._all: tuple[str, Sequence[StoredRow]] = ("", ())

    @property
    def kinds(self) -> Iterable[RecordType]:
        """The types with something to check."""
        return self.tree.ontology

    def parts(self, kind: RecordType) -> Sequence[Part]:
        return self.tree.parts_of(kind)

    def rows(self, kind: RecordType) -> Iterable[StoredRow]:
        return self.select_rows_to_check(kind)

    def select_edges_to_check(self, kind: EdgeType) -> Iterable[StoredRow]:
        return self.select_rows_to_check(kind)

    def select_rows_to_check(self, kind: RecordType) -> Iterable[StoredRow]:
        if self._all[0] != kind.name:
            self._all = kind.name, list(self.tree.rows(kind))
        return self._all[1]

    def duplicates(self, kind: RecordType) -> Mapping[Identity, Sequence[StoredRow]]:
        """Return the identities that are in several lines, with those lines in path order."""
        return self.tree.duplicates(kind)

    def ends(self, kind: EdgeType, edge: Identity) -> tuple[End, End]:
        """Return the nodes at the two ends of an edge."""
        return self.tree.ends(kind, edge)

    def has_more_edges(self, kind: EdgeType, side: int, node: Ref) -> bool:
        """Return whether edges outside `select_rows_to_check` have this node on a side (0 from, 1 to)."""
        return False

    def holder(self, kind: RecordType, text: str) -> Record | None:
        """Return a record outside `select_rows_to_check` that holds this text, for a type that makes its keys of texts."""
        return None

    def get_previous_record(self, row: StoredRow) -> Record | None:
        """Return the record before the write; None where it is new, or nothing is written."""
        return None

    def list_dangling_edges(self, kind: EdgeType) -> Iterator[tuple[StoredRow, Ref]]:
        """Yield the edges that a write leaves unchanged although it deletes a node that they name, with that node."""
        yield from ()


class WriteView(BaseView):
    """The view of a base after a changeset; only the records that it writes are checked."""

    is_write = True

    def __init__(
        self, base: BaseView, changeset: Changeset, holders: Callable[[RecordType, str], Iterable[StoredRow]]
    ) -> None:
        """Make the view of a changeset. `holders` returns the stored records of a type that hold a text."""
        super().__init__(base.tree, base.validator, base.lengths)
        self._holders, self._changes = holders, changeset.changes
        self._was = {(change.old.type, change.old.id): change.old for change in self._changes if change.old is not None}
        self.lengths = partial(_read_stored_lengths, base, self._was)
        self._becomes = {
            (change.new.type, change.new.id): change.new for change in self._changes if change.new is not None
        }
        self._gone = {(old.type, old.identity) for old in self._was.values()} - self._come if self._was else set()
        self._rows: dict[str, list[StoredRow]] = {}
        for new in self._becomes.values():
            self._rows.setdefault(new.type, []).append(StoredRow(new, b"", "", 0))

    @cached_property
    def _come(self) -> set[tuple[str, Identity]]:
        return {(new.type, new.identity) for new in self._becomes.values()}

    @property
    def kinds(self) -> Iterable[RecordType]:
        names, lost_types = {change.record.type for change in self._changes}, {name for name, _ in self._gone}
        edges = self.tree.ontology.edges.values() if lost_types else ()
        names |= {kind.name for kind in edges if not lost_types.isdisjoint((*kind.from_types, *kind.to_types))}
        return [kind for kind in self.tree.ontology if kind.name in names]

    def parts(self, kind: RecordType) -> Sequence[Part]:
        return ()

    def select_rows_to_check(self, kind: RecordType) -> Iterable[StoredRow]:
        return self._rows.get(kind.name, ())

    def duplicates(self, kind: RecordType) -> Mapping[Identity, Sequence[StoredRow]]:
        """Return the duplicates as stored, records to be deleted included: none of them can be written as it is."""
        rows_by_identity = self.tree.duplicates(kind)
        identities = (
            change.record.identity for change in self._changes if rows_by_identity and change.record.type == kind.name
        )
        return {identity: rows_by_identity[identity] for identity in identities if identity in rows_by_identity}

    def ends(self, kind: EdgeType, edge: Identity) -> tuple[End, End]:
        return self._end(edge[0], kind.from_types), self._end(edge[1], kind.to_types)

    def _end(self, end: Component, type_names: Sequence[str]) -> End:
        identity = end_identity(end)
        candidates = (end.type,) if isinstance(end, TypedEnd) else type_names
        matches = [name for name in type_names if name in candidates and self._has(name, identity)]
        return Ambiguous(tuple(matches)) if len(matches) > 1 else (matches[0], identity) if matches else None

    def _has(self, name: str, identity: Identity) -> bool:
        if (name, identity) in self._come:
            return True
        kind = self.tree.ontology.nodes[name]
        return (name, identity) not in self._gone and self.tree.get(kind, identity) is not None

    def has_more_edges(self, kind: EdgeType, side: int, node: Ref) -> bool:
        way = ("out", "in")[side]
        return any(
            edge_type.name == kind.name and at == way and (kind.name, row.record.id) not in self._was
            for edge_type, row, at in self.tree.edges_at(*node)
        )

    def holder(self, kind: RecordType, text: str) -> Record | None:
        """Return a stored record outside the changeset that keeps the text."""
        key_field = kind.generated.of if kind.generated is not None else ""
        for row in self._holders(kind, text):
            stays = self._becomes.get(key := (kind.name, row.record.id), None if key in self._was else row.record)
            if stays is not None and stays.fields.get(key_field) == text:
                return stays
        return None

    def get_previous_record(self, row: StoredRow) -> Record | None:
        return self._was.get((row.record.type, row.record.id))

    def list_dangling_edges(self, kind: EdgeType) -> Iterator[tuple[StoredRow, Ref]]:
        for name, identity in self._gone:
            if name in (*kind.from_types, *kind.to_types):
                for edge_type, row, _ in self.tree.edges_at(name, identity):
                    if edge_type.name == kind.name and (kind.name, row.record.id) not in self._was:
                        yield row, (name, identity)


def _read_stored_lengths(base: BaseView, was: Collection[tuple[str, int]], kind: RecordType) -> Mapping[str, int]:
    """Return the lengths of stored vectors by field.

    Returns an empty mapping where no record stays as it `was`; then the first new record fixes the length.
    """
    stays = base.tree.count(kind) > sum(name == kind.name for name, _ in was)
    return base.lengths(kind) if stays else {}


class IntegrityRule(Struct, frozen=True):
    """A rule, whose `find` yields its violations among the records of a type in a view.

    `written`, `merged`: whether writes and merges must keep it. A rule with neither concerns files alone.
    """

    find: Callable[[BaseView, RecordType], Iterator[Finding]]
    written: bool = True
    merged: bool = True


def make_finding(row: StoredRow, code: str, message: str, remedy: str = "", field: str = "") -> Finding:
    """Return a finding about a record, at its line if it has one; `remedy` defaults to that of the catalogue."""
    record, remedy = row.record, remedy or CODES[code].remedy
    path, identity = file_of(row.path), identity_text(record.identity)
    return Finding(code, message, path, row.line_no, field, remedy, record.type, identity)


def name_record(finding: Finding) -> Finding:
    """Return the finding with the record named in its message where no line shows which record is meant."""
    who = f"{finding.type} {finding.identity}: " if finding.identity and not finding.path else ""
    return replace(finding, message=who + finding.message)


def suggest_edge_type(tree: Tree, start: Any, end: Any, name: str = "") -> str:
    """Return the command that makes an edge type between the types of two nodes that an edge names.

    Names the edge type `name`, else after its ends. Returns an empty text unless each node exists in exactly
    one type.
    """
    types = [_list_types(tree, value) for value in (start, end)]
    if any(len(names) != 1 for names in types):
        return ""
    from_type, to_type = (names[0] for names in types)
    name = name or f"{from_type}_{to_type}"
    if tree.ontology.find(name) is not None and name not in tree.ontology.nodes:
        return ""
    return f"mkdir -p ontology && echo 'edges: {{{name}: {{from: {from_type}, to: {to_type}}}}}' > ontology/{name}.yaml"


def _list_types(tree: Tree, value: Any) -> list[str]:
    with suppress(ValueError):
        identity = end_identity(component_of(value))
        return [kind.name for kind in tree.ontology.nodes.values() if tree.get(kind, identity) is not None]
    return []


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
