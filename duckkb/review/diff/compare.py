"""Turns two versions of files into changes of records.

Records are matched by `__id` over all touched files, so a record that moved to another part is unchanged. Lines
that are equal in both versions are not decoded: the cost follows the change, not the size of the files.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duckkb.codes import CODES
from duckkb.errors import Finding
from duckkb.ontology.model import Ontology, RecordType
from duckkb.records import ID, UPDATED_AT, Identity, identity_key, identity_text
from duckkb.review.diff.model import Diff, FieldChange, OntologyChange, RecordChange, RecordPlace, Versions
from duckkb.rules.integrity import check_spelling
from duckkb.rules.view import make_finding
from duckkb.truth.files.document_parts import file_of, place_rows_in_file, type_at
from duckkb.truth.files.line import Limits, etag
from duckkb.truth.files.part import Lines, StoredRow
from duckkb.truth.files.source_text import split
from duckkb.truth.layout import DATA, parse_part

Key = tuple[str, str]
"""A table: node or edge, and the table or label."""


class Types(Struct, frozen=True):
    """The ontologies of both sides."""

    old: Ontology
    new: Ontology

    def find_types(self, key: Key) -> tuple[RecordType, RecordType] | None:
        """Return a type as each side has it, or twice as the only side has it; None for a table that neither
        knows.
        """
        old, new = self.old.find_by_table(*key), self.new.find_by_table(*key)
        record_type = new or old
        return (old or record_type, new or record_type) if record_type is not None else None


def compare(versions: Versions, types: Types, limits: Limits, ontology: Iterable[OntologyChange] = ()) -> Diff:
    """Return the changes of records between two versions, by type and identity, and the findings of the changed
    lines.
    """
    findings = list(versions.findings)
    changes: list[RecordChange] = []
    moves: list[RecordChange] = []
    respelled_count = parts = 0
    for key, paths in group_parts_by_table(versions, types):
        record_types = types.find_types(key) if key else None
        parts += len(paths) if key else 0
        if record_types is None:
            findings += _report_unexpected_files(
                [path for path in paths if path in versions.new], has_table=key is not None
            )
            continue
        table = _TableChanges(record_types[1], limits)
        table.read(versions, paths, record_types[0])
        changes += table.changes(versions.renamed)
        moves += table.moves
        respelled_count += table.respelled
        findings += table.findings
    return Diff(
        versions.base,
        versions.head,
        tuple(changes),
        tuple(ontology),
        tuple(findings),
        parts,
        respelled_count,
        tuple(moves),
    )


def _report_unexpected_files(paths: Iterable[str], *, has_table: bool) -> Iterator[Finding]:
    message = "no type of the ontology has this table or label" if has_table else "no part of records"
    remedy = "" if has_table else CODES["E_UNEXPECTED_FILE"].remedy
    return (Finding("E_UNEXPECTED_FILE", message, path, remedy=remedy) for path in paths)


def group_parts_by_table(versions: Versions, types: Types) -> list[tuple[Key | None, list[str]]]:
    """Group the parts by table, in the order of the types; first, under None, other files in `data/`."""
    tables: dict[Key, list[str]] = defaultdict(list)
    strange = []
    for path in versions.paths:
        if (key := _find_table(path, types)) is not None:
            tables[key].append(path)
        elif path.startswith(f"{DATA}/") and not path.startswith((f"{DATA}/indices/", f"{DATA}/FORMAT.json")):
            strange.append(path)
    order = [(kind.kind, kind.table) for kind in (*types.new, *types.old)]
    keys = sorted(tables, key=lambda key: (order.index(key) if key in order else len(order), key))
    return [(None, strange), *((key, tables[key]) for key in keys)]


def _find_table(path: str, types: Types) -> Key | None:
    """Return the table of a part, even where no type declares it any more."""
    if address := parse_part(path):
        return address.kind, address.table
    kind = type_at(types.new, path) or type_at(types.old, path)
    return (kind.kind, kind.table) if kind is not None else None


class _TableChanges:
    """The changes of one type."""

    def __init__(self, kind: RecordType, limits: Limits) -> None:
        self._kind = kind
        self._limits = limits
        self._old: dict[int, StoredRow] = {}
        self._new: dict[int, StoredRow] = {}
        self.findings: list[Finding] = []
        self.moves: list[RecordChange] = []
        self.respelled = 0

    def read(self, versions: Versions, paths: Collection[str], old_kind: RecordType) -> None:
        """Decode the lines that are not equal in both versions."""
        same_lines = alike(versions.old, versions.new, paths)
        for path in paths:
            if (raw := versions.old.get(path)) is not None:
                rows = self._read_lines(path, raw, old_kind, same_lines).rows
                for row in place_rows_in_file(rows, versions.numbers[0].get(path)):
                    self._old.setdefault(row.record.id, row)
            if (raw := versions.new.get(path)) is not None:
                lines = self._read_lines(path, raw, self._kind, same_lines)
                self.findings += lines.findings
                self._take(place_rows_in_file(lines.rows, versions.numbers[1].get(path)))

    def _take(self, rows: Iterable[StoredRow]) -> None:
        for row in rows:
            first = self._new.setdefault(row.record.id, row)
            if first is not row:
                same = first.record.identity == row.record.identity
                code = "E_DUP_IDENTITY" if same else "E_DUP_ID"
                message = f"__id {row.record.id} is also at {first.path}:{first.line_no}"
                self.findings.append(make_finding(row, code, message))
            self.findings += check_spelling(row)

    def _read_lines(self, path: str, raw: bytes, kind: RecordType, same_lines: Collection[bytes]) -> Lines:
        lines = Lines(path, kind, self._limits, same_lines)
        lines.read(raw)
        return lines

    def changes(self, renamed: Mapping[str, str]) -> list[RecordChange]:
        """Return the changes by identity, the new one where there is one; `renamed` has former paths of documents."""
        pairs = [(self._old.get(number), self._new.get(number)) for number in {**self._old, **self._new}]
        pairs = _join_renames(pairs, renamed) if renamed else pairs
        changed_pairs = [(old, new) for old, new in self._join_changed_ids(pairs) if not self._is_same(old, new)]
        changed_pairs.sort(key=lambda pair: identity_key((pair[1] or pair[0]).record.identity))
        return [change_of(self._kind, old, new) for old, new in changed_pairs]

    def _is_same(self, old: StoredRow | None, new: StoredRow | None) -> bool:
        """Return whether a record only moved to another part, or is only spelled otherwise; note it."""
        if old is None or new is None or old.line != new.line:
            return False
        if old.path == new.path:
            self.respelled += 1
        else:
            self.moves.append(replace(change_of(self._kind, old, new), op="move"))
        return True

    def _join_changed_ids(self, pairs: list[tuple[StoredRow | None, StoredRow | None]]) -> list[tuple[Any, Any]]:
        """Join a record that vanished under one `__id` and appeared under another: its id was changed."""
        vanished_rows = {old.record.identity: old for old, new in pairs if old is not None and new is None}
        matches: list[tuple[StoredRow | None, StoredRow | None]] = []
        joined_identities: set[Identity] = set()
        for old, new in pairs:
            if old is None and new is not None and (before := vanished_rows.get(new.record.identity)) is not None:
                message = f"__id was {before.record.id} and is {new.record.id}: citations and edges by id are lost"
                self.findings.append(make_finding(new, "E_ID_CHANGED", message))
                joined_identities.add(new.record.identity)
                matches.append((before, new))
            else:
                matches.append((old, new))
        return [
            (old, new)
            for old, new in matches
            if new is not None or old is None or old.record.identity not in joined_identities
        ]


def _join_renames(
    pairs: list[tuple[StoredRow | None, StoredRow | None]], former: Mapping[str, str]
) -> list[tuple[StoredRow | None, StoredRow | None]]:
    """Join a document that vanished under one file name and appeared under another."""
    removed_rows = {old.path: old for old, new in pairs if old is not None and new is None}
    come = {new.path: former.get(new.path, "") for old, new in pairs if new is not None and old is None}
    joined_rows = {path: removed_rows[was] for path, was in come.items() if was in removed_rows}
    joined_paths = {old.path for old in joined_rows.values()}
    return [
        (joined_rows.get(new.path, old) if new is not None else old, new)
        for old, new in pairs
        if new is not None or old is None or old.path not in joined_paths
    ]


def change_of(kind: RecordType, old: StoredRow | None, new: StoredRow | None) -> RecordChange:
    """Return the change of a record between two lines, of which one may be missing."""
    row = new or old
    assert row is not None, "a change has a side"
    was = identity_text(old.record.identity) if old and new and old.record.identity != new.record.identity else None
    return RecordChange(
        kind.kind,
        kind.name,
        kind.table,
        row.record.id,
        "insert" if old is None else "delete" if new is None else "update" if was is None else "rename",
        identity_text(row.record.identity),
        was,
        _compare_fields(old, new),
        _place(old) if old else None,
        _place(new) if new else None,
        kind.display,
    )


def alike(old: Mapping[str, bytes], new: Mapping[str, bytes], paths: Iterable[str]) -> frozenset[bytes]:
    """Return the lines that both versions have in the same parts alone, and as often."""
    both: set[bytes] = set()
    differing_lines: set[bytes] = set()
    for path in paths:
        before, after = (side.get(path, b"").split(b"\n") for side in (old, new))
        old_lines, holds = set(before), set(after)
        both |= old_lines & holds
        differing_lines |= old_lines ^ holds
        if len(old_lines) < len(before) or len(holds) < len(after):  # some lines occur more than once
            counts = Counter(before), Counter(after)
            differing_lines.update(line for line in old_lines & holds if counts[0][line] != counts[1][line])
    return frozenset(both - differing_lines - {b""})


def _compare_fields(old: StoredRow | None, new: StoredRow | None) -> tuple[FieldChange, ...]:
    before, after = (split(row.line) if row is not None else {} for row in (old, new))
    differences = [
        FieldChange(name, _extract_text(before.get(name)), _extract_text(after.get(name)))
        for name in {**after, **before}
        if _extract_text(before.get(name)) != _extract_text(after.get(name))
    ]
    visible_fields = (
        [field_change for field_change in differences if field_change.name not in (ID, UPDATED_AT)]
        if old is not None and new is not None
        else differences
    )
    return tuple(visible_fields or differences)


def _extract_text(entry: tuple[str, str] | None) -> str | None:
    return None if entry is None else entry[1]


def _place(row: StoredRow) -> RecordPlace:
    return RecordPlace(file_of(row.path), row.line_no, row.line, etag(row.line))
