"""Integrity rules, and the views of a base that they check: as it is, or as it would be after a write."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial

from msgspec import Struct
from msgspec.structs import replace

from duckkb.codes import CODES
from duckkb.errors import Finding
from duckkb.ontology.model import EdgeType, RecordType
from duckkb.ontology.validate import Validator
from duckkb.records import Changeset, Component, Identity, Record, TypedEnd, identity_text
from duckkb.truth.files.document_parts import file_of
from duckkb.truth.files.part import Part, StoredRow
from duckkb.truth.files.tree import Ambiguous, End, Ref, Tree, end_identity


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
