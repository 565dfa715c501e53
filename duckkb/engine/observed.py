"""What the stored lines of one type say of its fields. Types that keep to no schema are known by what is stored.

Every part is counted by itself, and its counts are noted by its digest: a process that writes one record looks at the parts
that changed since the note was made, and at no other line of the type.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from duckkb.ontology.model import RecordType
from duckkb.records import CREATED_AT, ID, UPDATED_AT, Record, component_value
from duckkb.rules.integrity import read_key_text
from duckkb.store.base_store import BaseStore
from duckkb.truth.files import ids
from duckkb.truth.files.part import Part, PartRows
from duckkb.truth.files.tree import Tree

NAME = "fields"
FEW = 2
"""Parts that are counted again in less time than a note takes."""
_FORMAT = 2
_TYPES = {str: "text", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}
_SECTIONS = ("types", "lengths", "keys")
_Shape = tuple[tuple[str, ...], tuple[type, ...]]
"""The names of a record's fields, and their types; few records differ in it."""
_OWN = frozenset((ID, CREATED_AT, UPDATED_AT))

Counts = Mapping[str, Mapping[str, Mapping[str, int]]]
"""By section (`types`, `lengths`, `keys`) and name how often each value is there; as JSON has it."""


class Observed:
    """Counts of values by field and JSON type, of given vectors by length, and, where a type makes its keys of a text, the
    keys that were not made so, by a hash of the text; kept up at the cost of each change."""

    def __init__(self, kind: RecordType, records: Iterable[Record] = (), notes: BaseStore | None = None) -> None:
        """`notes` is where the note of the parts lies, None where none is kept."""
        self._kind, self._notes = kind, notes
        self._seen: Mapping[str, Part] | None = None
        self._parts: dict[str, tuple[str, Counts]] | None = None
        self._counts: dict[str, dict[str, Counter[str]]] = {section: {} for section in _SECTIONS}
        self._count(records)

    @property
    def counts(self) -> Counts:
        return self._counts

    def add(self, counts: Counts, sign: int) -> None:
        """Add counts (`sign` 1), or take them away again (-1)."""
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
        """The counts of some rows; of most types no record is made for them."""
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
        """How many values of which type each field has, by the field's name."""
        counts_by_field = {
            name: {word: count for word, count in sorted(types.items()) if count > 0}
            for name, types in self._counts["types"].items()
        }
        return {name: types for name, types in sorted(counts_by_field.items()) if types}

    def lengths(self) -> dict[str, int]:
        """How long the vectors of each given field are: what the policy fixes, else what most records have, of two that
        are as frequent the shorter; 0 where there is none."""
        length_counts = self._counts["lengths"]
        return {
            name: field.dimension or _pick_length(length_counts.get(name, {}))
            for name, field in self._kind.given_vectors.items()
        }

    def other_lengths(self) -> int:
        """How many given vectors are not as long as `lengths` says of their field, and so are not searched."""
        expected_lengths = self.lengths()
        length_counts = self._counts["lengths"].items()
        return sum(
            max(0, count)
            for name, lengths in length_counts
            for length, count in lengths.items()
            if name in expected_lengths and int(length) != expected_lengths[name]
        )

    def own_keys(self, text: str) -> list[str | int]:
        """The keys, not made of their text, under which this text may stand."""
        key_counts: Mapping[str, int] = self._counts["keys"].get(_hash(text), {})
        return [json.loads(key) for key, count in sorted(key_counts.items()) if count > 0]

    def strange(self, records: Iterable[Record]) -> dict[tuple[str, str], tuple[str, Record]]:
        """Fields of these records whose type none has had so far, by (field, type): what there was, and the first record
        that differs."""
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
        """Have the counts be those of a type's parts in a tree. Costs what those cost that changed since the last time, or
        since they were noted."""
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
    """The key that a type makes of a text; None where it makes none."""
    key_rule = kind.generated
    if key_rule is None or not key_rule.of:
        return None
    return ids.with_key({key_rule.of: text}, kind.identity_fields, key_rule).get(kind.identity_fields[0])


def _hash(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def _pick_length(lengths: Mapping[str, int]) -> int:
    present = {int(length): count for length, count in lengths.items() if count > 0}
    return min(present, key=lambda length: (-present[length], length), default=0)


def _compute_ground(kind: RecordType) -> str:
    """What shapes the counts of a type beside its lines."""
    return repr((kind.name, sorted(kind.given_vectors), kind.generated))


def _read(notes: BaseStore | None, kind: RecordType) -> dict[str, tuple[str, Counts]]:
    """By path the digest and the counts of a part as noted; nothing where the note is not ours and whole."""
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
