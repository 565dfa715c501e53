"""What the embedded backend holds of one record type: its rows, the lanes over them, and which vectors are missing."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Literal

from duckkb.errors import UsageError
from duckkb.ontology.model import RecordType
from duckkb.ports import Row, Tokenizer
from duckkb.records import Record

if TYPE_CHECKING:
    import numpy as np

    from duckkb.backends.duckdb.lexical import Lexical
    from duckkb.backends.duckdb.vectors import Vectors


@dataclass(slots=True)
class _Missing:
    """A vector that is missing: the text to embed, and the records whose chunks wait for it."""

    text: str
    records: set[int] = field(default_factory=set)


class Shelf:
    """Rows by record id. The lanes read them in place and are made, with their libraries, when they are first used."""

    def __init__(self, kind: RecordType, tokenizer: Tokenizer, language: str, rows: Iterable[Row] = ()) -> None:
        self.kind = kind
        self.rows = {row.record.id: row for row in rows}
        self._tokenizer = tokenizer
        self._language = language
        self._dimension = 0  # of the vectors, once one was seen

    @cached_property
    def lexical(self) -> "Lexical":
        from duckkb.backends.duckdb.lexical import Lexical

        return Lexical(self.kind, self.rows, self._tokenizer, self._language)

    @cached_property
    def vectors(self) -> "Vectors":
        from duckkb.backends.duckdb.vectors import Vectors

        return Vectors(self.rows)

    @property
    def records(self) -> list[Record]:
        return [row.record for row in self.rows.values()]

    def change(self, new: Mapping[int, Row], dropped: Iterable[int]) -> None:
        """Put `new` in the place of what they replace, and drop."""
        dropped = [record_id for record_id in dropped if record_id in self.rows]
        missing = self.__dict__.get("_missing")
        if missing is not None:
            _forget(missing, (self.rows[record_id] for record_id in (*new, *dropped) if record_id in self.rows))
            _note(missing, new.values())
        for record_id in dropped:
            del self.rows[record_id]
        self.rows.update(new)
        self._touch("lexical", new, dropped)
        self._touch("vectors", new, dropped)

    def pending(self) -> list[tuple[bytes, str]]:
        """(vector key, text) of the chunks that lack a vector, each key once."""
        return [(key, missing.text) for key, missing in self._missing.items()]

    def fill(self, vectors: "Mapping[bytes, np.ndarray]") -> bool:
        """Give vectors to the chunks that wait for them; whether any did. Raises `UsageError` for a vector that is none."""
        wanted = {key: _floats(vector) for key, vector in vectors.items() if key in self._missing}
        self._expect_one_dimension(wanted.values())
        filled: set[int] = set().union(*(self._missing.pop(key).records for key in wanted))
        for record_id in filled:
            row = self.rows[record_id]
            entries = (
                replace(entry, vector=wanted[entry.vector_key])
                if entry.vector is None and entry.vector_key in wanted
                else entry
                for entry in row.entries
            )
            self.rows[record_id] = replace(row, entries=tuple(entries))
        self._touch("vectors", filled)
        return bool(filled)

    @cached_property
    def _missing(self) -> dict[bytes, _Missing]:
        found: dict[bytes, _Missing] = {}
        _note(found, self.rows.values())
        return found

    def _expect_one_dimension(self, vectors: "Collection[np.ndarray]") -> None:
        """Refuse vectors that the stored ones cannot be compared with."""
        if not vectors:
            return
        stored = self._dimension or next(_dimensions(self.rows.values()), 0)
        found = {len(vector) for vector in vectors} | ({stored} if stored else set())
        if len(found) > 1:
            raise UsageError(
                f"Vectors of one type must agree in dimension; these have {sorted(found)}.",
                suggestion="`duckkb index build` makes all of them with one model.",
            )
        (self._dimension,) = found

    def _touch(self, lane: Literal["lexical", "vectors"], *changed: Iterable[int]) -> None:
        """Tell a lane what changed, if it is made already."""
        if lane in self.__dict__:
            getattr(self, lane).touch(chain(*changed))


def _note(missing: dict[bytes, _Missing], rows: Iterable[Row]) -> None:
    for row in rows:
        for key, text in _lacking(row):
            missing.setdefault(key, _Missing(text)).records.add(row.record.id)


def _forget(missing: dict[bytes, _Missing], rows: Iterable[Row]) -> None:
    for row in rows:
        for key, _ in _lacking(row):
            if key in missing:
                missing[key].records.discard(row.record.id)
                if not missing[key].records:
                    del missing[key]


def _lacking(row: Row) -> Iterator[tuple[bytes, str]]:
    for entry in row.entries:
        if entry.vector_key is not None and entry.vector is None:
            yield entry.vector_key, entry.content


def _dimensions(rows: Iterable[Row]) -> Iterator[int]:
    return (len(entry.vector) for row in rows for entry in row.entries if entry.vector is not None)


def _floats(vector: "np.ndarray") -> "np.ndarray":
    import numpy as np

    row = np.asarray(vector, np.float32)
    if row.ndim != 1 or not row.size or not np.isfinite(row).all():
        raise UsageError("A vector is not one row of finite numbers.", suggestion="Check the model that made it.")
    return row
