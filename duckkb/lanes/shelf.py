"""What the embedded backend holds of one record type: where its rows come from, and the lanes over them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from duckkb.entries import IndexEntry
from duckkb.errors import UsageError
from duckkb.lanes.component import Component
from duckkb.lanes.held import HeldRows, rows_of
from duckkb.ontology.model import RecordType
from duckkb.ports import Row, Rows, Tokenizer, Version
from duckkb.queries import LexicalQuery, Notice
from duckkb.settings import Settings

if TYPE_CHECKING:
    import numpy as np

    from duckkb.lanes.derived import Derived
    from duckkb.lanes.lexical.lexical import Lexical
    from duckkb.lanes.vectors.vectors import Vectors


class Shelf:
    """Rows by record id. The lanes read them and are made, with their libraries, when they are first used."""

    def __init__(
        self,
        kind: RecordType,
        tokenizer: Tokenizer,
        settings: Settings,
        rows: Rows | Sequence[Row] = (),
        version: Version | None = None,
    ) -> None:
        self.kind = kind
        self.rows = rows_of(rows)
        self._tokenizer = tokenizer
        self._settings = settings
        self.version = version
        self._filled: dict[bytes, np.ndarray] = {}

    @cached_property
    def lexical(self) -> "Lexical":
        from duckkb.lanes.lexical.lexical import Lexical

        return Lexical(self.kind, self.rows, self._tokenizer, self._settings.language, self.version)

    @cached_property
    def vectors(self) -> "Vectors":
        from duckkb.lanes.vectors.vectors import Vectors

        settings = self.kind.settings(self._settings).vectors
        return Vectors(self.rows, self._filled, self.version, settings)

    def expect(self, query: LexicalQuery | None = None) -> None:
        """Have what is about to be asked for by these words (None: by any) and by a vector made in one pass over the rows,
        where it has to be made at all."""
        if self.version is None or not (self.kind.full_text and self.kind.vectors) or self.lexical.is_open:
            return
        from duckkb.lanes.lane import build_together

        self.lexical.expect(query)
        build_together([self.lexical, self.vectors], self.version)

    def prepare(self) -> None:
        """Have the lanes mirror the rows as they are now."""
        self.expect()
        if self.kind.full_text:
            self.lexical.expect(None)
            self.lexical.prepare()
        if self.kind.vectors:
            self.vectors.prepare()

    def change(self, new: Mapping[int, Row], dropped: Collection[int], version: Version | None) -> None:
        """Put `new` in the place of what they replace, and drop."""
        if isinstance(self.rows, HeldRows):
            self.rows.change(new, dropped)
        self.version = version
        for lane in self._lanes:
            lane.touch(chain(new, dropped), version)

    def discard(self) -> None:
        """Forget what was derived, on disk too."""
        self._filled.clear()
        for lane in self._lanes:
            lane.forget()
        if self.version is not None:
            for name in ("lexical", "vectors", "graph"):
                Component(self.version.folder / name, "", "").discard()

    def entries(self, record_id: int) -> tuple[IndexEntry, ...]:
        """The index entries of one record, empty for an unknown id."""
        found = self.rows.some([record_id])
        return self._filled_row(found[0]).entries if found else ()

    def all_entries(self) -> Iterator[tuple[int, IndexEntry]]:
        """The id of a record and one of its entries, for all of them."""
        for rows in self.rows.batches():
            for row in rows:
                for entry in self._filled_row(row).entries:
                    yield row.record.id, entry

    def pending(self) -> list[tuple[bytes, str]]:
        """(vector key, text) of the chunks that lack a vector, each key once."""
        return self.vectors.pending.pairs() if self.kind.vectors else []

    def notices(self) -> tuple[Notice, ...]:
        """What must be said of the answers that the lanes gave last."""
        if "vectors" not in self.__dict__ or not self.vectors.lacks_graph:
            return ()
        from duckkb.lanes.vectors.graph import is_installed

        remedy = "duckkb index refresh" if is_installed() else "pip install 'duckkb[ann]', then `duckkb index refresh`"
        why = "has not been made" if is_installed() else "needs faiss, which is not installed"
        return (Notice("W_EXACT", f"{self.kind.name}: all vectors were compared, as the graph {why}", remedy),)

    def fill(self, vectors: "Mapping[bytes, np.ndarray]") -> bool:
        """Give vectors to the chunks that wait for them; whether any did. Raises `UsageError` for a vector that is none."""
        if not self.kind.vectors:
            return False
        pending = self.vectors.pending
        wanted = {key: _floats(vector) for key, vector in vectors.items() if key in pending}
        self._expect_one_dimension(wanted.values())
        self._filled.update(wanted)
        self.vectors.refill(pending.waiting(wanted))
        return bool(wanted)

    def _filled_row(self, row: Row) -> Row:
        if not self._filled:
            return row
        from duckkb.lanes.vectors.vectors import with_filled

        return with_filled(row, self._filled)

    def _expect_one_dimension(self, vectors: "Collection[np.ndarray]") -> None:
        """Refuse vectors that the stored ones cannot be compared with."""
        stored = self.vectors.dimension
        found = {len(vector) for vector in vectors} | ({stored} if stored else set())
        if vectors and len(found) > 1:
            raise UsageError(
                f"Vectors of one type must agree in dimension; these have {sorted(found)}.",
                suggestion="`duckkb index build` makes all of them with one model.",
            )

    @property
    def _lanes(self) -> "list[Derived]":
        """Those that were made."""
        return [self.__dict__[name] for name in ("lexical", "vectors") if name in self.__dict__]


def _floats(vector: "np.ndarray") -> "np.ndarray":
    import numpy as np

    row = np.asarray(vector, np.float32)
    if row.ndim != 1 or not row.size or not np.isfinite(row).all():
        raise UsageError("A vector is not one row of finite numbers.", suggestion="Check the model that made it.")
    return row
