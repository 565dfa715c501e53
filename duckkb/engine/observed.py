"""What the stored lines of one type say of its fields. Types that keep to no schema are known by what is stored."""

from collections import Counter
from collections.abc import Iterable, Mapping

from duckkb.ontology.model import RecordType
from duckkb.records import Record

_TYPES = {str: "text", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}


class Observed:
    """Counts of values by field and JSON type, and of given vectors by length; kept up at the cost of each change."""

    def __init__(self, kind: RecordType, records: Iterable[Record] = ()) -> None:
        self._kind = kind
        self._types: dict[str, Counter[str]] = {}
        self._lengths: dict[str, Counter[int]] = {name: Counter() for name in kind.given_vectors}
        self.count(records, 1)

    def count(self, records: Iterable[Record], sign: int) -> None:
        """Add records (`sign` 1), or take them away again (-1)."""
        for record in records:
            for name, value in record.fields.items():
                self._types.setdefault(name, Counter())[_TYPES[type(value)]] += sign
            for name, lengths in self._lengths.items():
                if isinstance(value := record.fields.get(name), list):
                    lengths[len(value)] += sign

    def types(self) -> dict[str, dict[str, int]]:
        """How many values of which type each field has, by the field's name."""
        found = {
            name: {word: count for word, count in sorted(types.items()) if count > 0}
            for name, types in self._types.items()
        }
        return {name: types for name, types in sorted(found.items()) if types}

    def lengths(self) -> dict[str, int]:
        """How long the vectors of each given field are: what the policy fixes, else what most records have, of two that
        are as frequent the shorter; 0 where there is none."""
        return {name: field.dimension or _most(self._lengths[name]) for name, field in self._kind.given_vectors.items()}

    def strange(self, records: Iterable[Record]) -> dict[tuple[str, str], tuple[str, Record]]:
        """Fields of these records whose type none has had so far, by (field, type): what there was, and the first record
        that differs."""
        known = {name: set(types) for name, types in self.types().items()}
        found: dict[tuple[str, str], tuple[str, Record]] = {}
        for record in records:
            for name, value in record.fields.items():
                word = _TYPES[type(value)]
                before = known.setdefault(name, {word})
                if word not in before:
                    found[name, word] = (" or ".join(sorted(before)), record)
                    before.add(word)
        return found


def _most(lengths: Mapping[int, int]) -> int:
    present = {length: count for length, count in lengths.items() if count > 0}
    return min(present, key=lambda length: (-present[length], length), default=0)
