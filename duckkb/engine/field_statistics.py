"""Statistics of the fields of one type, from its stored lines.

Types without a schema are known by what is stored.
Every part is counted by itself, and its counts are noted under its digest. A process that writes one record
reads only the parts that changed since the note was made.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from duckkb.engine.integrity import read_key_text
from duckkb.ontology.model import RecordType
from duckkb.storage import strict_lines
from duckkb.storage.part import Part, PartRows
from duckkb.storage.tree import Tree
from duckkb.store.stored_rows import BaseStore
from duckkb.types.records import CREATED_AT, ID, UPDATED_AT, Record, component_value

NAME = "fields"
FEW = 2
"""Parts that are counted again faster than a note is written."""
_FORMAT = 2
_TYPES = {str: "text", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}
_SECTIONS = ("types", "lengths", "keys")
_Shape = tuple[tuple[str, ...], tuple[type, ...]]
"""The names of a record's fields, and their types; few records differ in it."""
_OWN = frozenset((ID, CREATED_AT, UPDATED_AT))

Counts = Mapping[str, Mapping[str, Mapping[str, int]]]
"""Frequencies of values by section (`types`, `lengths`, `keys`) and name, in the form of JSON."""


class Observed:
    """The counts of a type's values, kept up to date at the cost of each change.

    It counts values by field and JSON type, and given vectors by length. Where a type derives its keys from a
    text, it also has the keys that were not derived, by a hash of the text.
    """

    def __init__(self, kind: RecordType, records: Iterable[Record] = (), notes: BaseStore | None = None) -> None:
        """Count `records`; `notes` stores the counts of the parts, None where none are stored."""
        self._kind, self._notes = kind, notes
        self._seen: Mapping[str, Part] | None = None
        self._parts: dict[str, tuple[str, Counts]] | None = None
        self._counts: dict[str, dict[str, Counter[str]]] = {section: {} for section in _SECTIONS}
        self._count(records)

    @property
    def counts(self) -> Counts:
        return self._counts

    def add(self, counts: Counts, sign: int) -> None:
        """Add counts (`sign` 1), or subtract them (-1)."""
        for section, names in counts.items():
            for name, values in names.items():
                counter = self._counts[section].setdefault(name, Counter())
                for value, count in values.items():
                    counter[value] += sign * count

    def _count(self, records: Iterable[Record]) -> None:
        shapes: Counter[_Shape] = Counter()
        has_more = self._has_more
        for record in records:
            shapes[_compute_shape(record.fields)] += 1
            if has_more:
                self._count_more(record)
        self._count_types(shapes)

    @property
    def _has_more(self) -> bool:
        key_rule = self._kind.generated
        return bool(self._kind.given_vectors) or (key_rule is not None and bool(key_rule.of))

    def _count_types(self, shapes: Mapping[_Shape, int]) -> None:
        types = self._counts["types"]
        for shape, count in shapes.items():
            for name, kind in zip(*shape, strict=True):
                if name not in _OWN:
                    types.setdefault(name, Counter())[_TYPES[kind]] += count

    def _count_rows(self, rows: PartRows) -> "Observed":
        """Count some rows; for most types without making records of them."""
        if self._has_more:
            return Observed(self._kind, rows.records)
        result = Observed(self._kind)
        result._count_types(Counter(map(_compute_shape, rows.values)))
        return result

    def _count_more(self, record: Record) -> None:
        for name in self._kind.given_vectors:
            if isinstance(value := record.fields.get(name), list):
                self._counts["lengths"].setdefault(name, Counter())[str(len(value))] += 1
        if (text := read_key_text(self._kind, record)) is not None and key_of_text(self._kind, text) != record.identity[
            0
        ]:
            self._counts["keys"].setdefault(_hash(text), Counter())[
                json.dumps(component_value(record.identity[0]))
            ] += 1

    def types(self) -> dict[str, dict[str, int]]:
        """Return the number of values by field name and JSON type."""
        counts_by_field = {
            name: {word: count for word, count in sorted(types.items()) if count > 0}
            for name, types in self._counts["types"].items()
        }
        return {name: types for name, types in sorted(counts_by_field.items()) if types}

    def lengths(self) -> dict[str, int]:
        """Return the length of the vectors of each given field.

        It is what the policy fixes, else what most records have (of two equally frequent ones the shorter); 0
        where there is none.
        """
        length_counts = self._counts["lengths"]
        return {
            name: field.dimension or _pick_length(length_counts.get(name, {}))
            for name, field in self._kind.given_vectors.items()
        }

    def other_lengths(self) -> int:
        """Return the number of given vectors that differ from `lengths`, and so are not searched."""
        expected_lengths = self.lengths()
        length_counts = self._counts["lengths"].items()
        return sum(
            max(0, count)
            for name, lengths in length_counts
            for length, count in lengths.items()
            if name in expected_lengths and int(length) != expected_lengths[name]
        )

    def own_keys(self, text: str) -> list[str | int]:
        """Return the keys, not derived from their text, under which this text may stand."""
        key_counts: Mapping[str, int] = self._counts["keys"].get(_hash(text), {})
        return [json.loads(key) for key, count in sorted(key_counts.items()) if count > 0]

    def strange(self, records: Iterable[Record]) -> dict[tuple[str, str], tuple[str, Record]]:
        """Return the fields of these records with a type that no value has had, by (field, type).

        Each comes with the types before, and the first record that differs.
        """
        known_types = {name: set(types) for name, types in self.types().items()}
        differences: dict[tuple[str, str], tuple[str, Record]] = {}
        seen_shapes: set[_Shape] = set()
        for record in records:
            if (shape := _compute_shape(record.fields)) in seen_shapes:
                continue
            seen_shapes.add(shape)
            for name, kind in zip(*shape, strict=True):
                word = _TYPES[kind]
                before = known_types.setdefault(name, {word})
                if word not in before:
                    differences[name, word] = (" or ".join(sorted(before)), record)
                    before.add(word)
        return differences

    def follow(self, tree: Tree) -> "Observed":
        """Bring the counts to the parts of a type in a tree.

        Reads only parts that changed since they were counted or noted.
        """
        if self._seen is tree.parts:  # another mapping as soon as a part changes
            return self
        note_parts = _read(self._notes, self._kind) if self._parts is None else {}
        known_parts = self._parts = self._parts or {}
        self._seen, parts = tree.parts, tree.parts_of(self._kind)
        digests = {part.path: part.digest for part in parts}
        for path in [path for path, (digest, _) in known_parts.items() if digests.get(path) != digest]:
            self.add(known_parts.pop(path)[1], -1)
        part_count = 0
        for part in parts:
            if part.path not in known_parts:
                digest, counts = note_parts.get(part.path, ("", {}))
                if digest != part.digest:
                    counts, part_count = self._count_rows(part.rows).counts, part_count + 1
                known_parts[part.path] = part.digest, counts
                self.add(counts, 1)
        if part_count > FEW and self._notes is not None:
            _write(self._notes, self._kind, known_parts)
        return self


def _compute_shape(fields: Mapping[str, Any]) -> _Shape:
    return tuple(fields), tuple(map(type, fields.values()))


def key_of_text(kind: RecordType, text: str) -> str | None:
    """Return the key that a type derives from a text; None where it derives none."""
    key_rule = kind.generated
    if key_rule is None or not key_rule.of:
        return None
    return strict_lines.with_key({key_rule.of: text}, kind.identity_fields, key_rule).get(kind.identity_fields[0])


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _pick_length(lengths: Mapping[str, int]) -> int:
    present = {int(length): count for length, count in lengths.items() if count > 0}
    return min(present, key=lambda length: (-present[length], length), default=0)


def _compute_ground(kind: RecordType) -> str:
    """Return a digest of what shapes the counts of a type, apart from its lines."""
    return repr((kind.name, sorted(kind.given_vectors), kind.generated))


def _read(notes: BaseStore | None, kind: RecordType) -> dict[str, tuple[str, Counts]]:
    """Return the noted digest and counts of each part by path; empty where the note is foreign or damaged."""
    note: Any = notes.note(f"{NAME}/{kind.table}") if notes is not None else None
    try:
        if note["format"] != _FORMAT or note["ground"] != _compute_ground(kind):
            return {}
        entries = {path: (str(digest), counts) for path, (digest, counts) in note["parts"].items()}
        trial = Observed(kind)
        for _, counts in entries.values():
            trial.add(counts, 1)
        trial.lengths()
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
    return entries


def _write(notes: BaseStore, kind: RecordType, parts: Mapping[str, tuple[str, Counts]]) -> None:
    notes.keep(f"{NAME}/{kind.table}", {"format": _FORMAT, "ground": _compute_ground(kind), "parts": parts})
