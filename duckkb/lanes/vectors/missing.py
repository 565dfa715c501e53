"""The chunks of one record type that lack a vector."""

from collections.abc import Iterable

from duckkb.ports import Row
from duckkb.values import dataclass, field


@dataclass(slots=True)
class _Waiting:
    """A vector that is missing: the text to embed, and the records whose chunks wait for it."""

    text: str
    records: set[int] = field(default_factory=set)


class MissingVectors:
    """Texts to embed by their keys, and the records that wait for them; kept up record by record. `unread` are records that
    are known to wait, for texts that were not read yet."""

    def __init__(self) -> None:
        self.unread: set[int] = set()
        self._missing: dict[bytes, _Waiting] = {}
        self._keys: dict[int, set[bytes]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._missing

    @property
    def records(self) -> frozenset[int]:
        """The ids of the records whose texts are known."""
        return frozenset(self._keys)

    def pairs(self) -> list[tuple[bytes, str]]:
        """(vector key, text), each key once, in an order that depends on the records alone."""
        return [(key, missing.text) for key, missing in sorted(self._missing.items())]

    def waiting(self, keys: Iterable[bytes]) -> set[int]:
        """The records that wait for one of these."""
        return {record_id for key in keys if key in self._missing for record_id in self._missing[key].records}

    def note(self, row: Row) -> None:
        """Take in a record as it is now, in the place of what was known of it."""
        self.drop(row.record.id)
        for entry in row.entries:
            if entry.vector_key is not None and entry.vector is None:
                self._missing.setdefault(entry.vector_key, _Waiting(entry.content)).records.add(row.record.id)
                self._keys.setdefault(row.record.id, set()).add(entry.vector_key)

    def drop(self, record_id: int) -> None:
        """Forget a record."""
        self.unread.discard(record_id)
        for key in self._keys.pop(record_id, ()):
            missing = self._missing[key]
            missing.records.discard(record_id)
            if not missing.records:
                del self._missing[key]
