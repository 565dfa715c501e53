"""The rows of a type as Arrow data: a base, and after changes a delta with rows that replace rows of the base.

Records are read when the data is built and not held; only what they say about the columns is kept. On disk the
data lies in Arrow files, which readers map into memory.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from duckkb.id_set import IdSet
from duckkb.lanes.files import State
from duckkb.lanes.mirror import RowMirror
from duckkb.lanes.sql.columns import Columns, Observation
from duckkb.lanes.sql.simple import Test, match_rows
from duckkb.ontology.model import RecordType
from duckkb.ontology.names import paths_to
from duckkb.ports import Rows
from duckkb.records import ID, Record

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_BATCH = 8192  # records that are made into rows at a time
_DELTA = 100  # changed records up to which the base is kept, however small it is
_LEAST_GROUPED = 2_000  # rows from which grouping them by a value pays
_SAMPLE = 1_000  # the first rows, in which values must repeat for that
_SOME_RECORDS = 1_000  # records in which a name inside nested values is searched
_MOST_ANSWERS = 16  # cached answers, of eight bytes for each id

Ends = Callable[[Record], tuple[int | None, int | None]]
Given = TypeVar("Given")


class ArrowSegment:
    """Arrow data in memory or in a file. Statements do not see its last column, which holds what each row says
    about the columns.
    """

    def __init__(self, source: "pa.Table | Path") -> None:
        self._source = source
        self._sound: set[str] = set()
        self._asked: set[str] = set()
        self._grouped: dict[str, ValueIndex | None] = {}

    @cached_property
    def table(self) -> "pa.Table":
        """Return all of the data; raises OSError or ValueError for an invalid file."""
        if not isinstance(self._source, Path):
            return self._source
        import pyarrow as pa

        return pa.ipc.open_file(pa.memory_map(str(self._source))).read_all()

    @property
    def path(self) -> Path | None:
        return self._source if isinstance(self._source, Path) else None

    @property
    def data(self) -> "pa.Table | Path":
        """Return the data that statements see, or the file with it."""
        return self.path or self.table.remove_column(self.table.num_columns - 1)

    @cached_property
    def ids(self) -> "np.ndarray":
        """Return the record ids of the rows."""
        record_ids: np.ndarray = self.table.column(0).to_numpy()
        return record_ids

    def holds(self, ids: Iterable[int]) -> "np.ndarray":
        """Return a mask of the rows with these ids."""
        import numpy as np

        return np.isin(self.ids, np.fromiter(ids, np.int64))

    def list_remarks(self, ids: Iterable[int]) -> list[str]:
        """Return what the rows with these ids say about the columns."""
        remarks: list[str] = self.table.column(self.table.num_columns - 1).filter(self.holds(ids)).to_pylist()
        return remarks

    def select_ids(self, asked: Sequence[Test]) -> IdSet:
        """Return the ids of the rows that satisfy all of the comparisons; also raises ValueError for a column
        whose bytes are not values of its type.
        """
        import numpy as np

        for name in {test.column.sql_name for test in asked} - self._sound:
            self.table.column(name).validate(full=True)
            self._sound.add(name)
        if len(asked) == 1 and (groups := self._group_by_value(asked[0])) is not None:
            return groups.find_ids(asked[0].constants)
        return IdSet(np.sort(self.ids[match_rows(self.table, asked)]))

    def _group_by_value(self, test: Test) -> "ValueIndex | None":
        """Return the groups that answer an equality at once: for a column of few texts, from its second use on."""
        name = test.column.sql_name
        if test.operator not in ("equal", "in") or test.column.kind != "text":
            return None
        if name not in self._asked:
            self._asked.add(name)
            return None
        if name not in self._grouped:
            self._grouped[name] = ValueIndex.from_column(self.ids, self.table.column(name))
        return self._grouped[name]


class ValueIndex:
    """The ids of records grouped by the text of a column, ascending within each group."""

    def __init__(self, ids: "np.ndarray", codes: "np.ndarray", values: Sequence[str]) -> None:
        import numpy as np

        order = np.lexsort((ids, codes))
        self._ids, self._codes = ids[order], {value: code for code, value in enumerate(values)}
        self._starts = np.searchsorted(codes[order], np.arange(len(values) + 1))

    @classmethod
    def from_column(cls, ids: "np.ndarray", column: "pa.ChunkedArray") -> "ValueIndex | None":
        """Group the ids; return None if the texts hardly repeat."""
        if len(ids) < _LEAST_GROUPED or len(column.slice(0, _SAMPLE).unique()) * 2 > _SAMPLE:
            return None
        coded_column = column.combine_chunks().dictionary_encode()
        return cls(ids, coded_column.indices.fill_null(-1).to_numpy(), coded_column.dictionary.to_pylist())

    def find_ids(self, values: Iterable[object]) -> IdSet:
        """Return the ids of the records with any of these texts."""
        import numpy as np

        codes = [self._codes[value] for value in dict.fromkeys(values) if value in self._codes]
        pieces = [self._ids[self._starts[code] : self._starts[code + 1]] for code in codes]
        return (
            IdSet(np.sort(np.concatenate(pieces)) if len(pieces) > 1 else pieces[0]) if pieces else IdSet.from_ids(())
        )


class RowTable(RowMirror):
    """The table of a type as statements see it. `ends` resolves an edge's ends; `nodes` names the state of the
    nodes that they may lead to.
    """

    name = "rows"
    lane = None

    def __init__(self, kind: RecordType, rows: Rows, ends: Ends | None = None, nodes: Callable[[], str] = str) -> None:
        super().__init__(rows)
        self.kind = kind
        self._ends = ends
        self._nodes = nodes
        self._open(None, {})

    @property
    def columns(self) -> Columns:
        """Return the columns for the present records."""
        with self.turn:
            self._refresh()
            return self._columns

    def pieces(self) -> dict[str, ArrowSegment]:
        """Return `base`, and after changes `delta` with the rows that replace those whose ids are in `gone`."""
        with self.turn:
            self._refresh()
            return self._pieces

    def answer(self, condition: str) -> IdSet | None:
        """Return the cached answer to a condition, if there is one."""
        with self.turn:
            self._refresh()
            return self._answers.get(condition)

    def keep(self, condition: str, found: IdSet) -> IdSet:
        """Cache an answer among the last ones until the rows change; return it."""
        with self.turn:
            if len(self._answers) >= _MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._answers[condition] = found
        return found

    def select_ids(self, asked: Sequence[Test]) -> IdSet:
        """Return the ids of the records that satisfy all of the comparisons."""
        with self.turn:
            pieces, replaced_ids = self.pieces(), self._replaced
        base_ids = pieces["base"].select_ids(asked)
        if "delta" not in pieces:
            return base_ids
        import numpy as np

        return IdSet(np.union1d(base_ids.difference(replaced_ids).array, pieces["delta"].select_ids(asked).array))

    def retry_if_damaged(self, work: Callable[[], Given]) -> Given:
        """Run `work` over the pieces and return its result. Reopens the files and retries if they fail, because
        another process may have replaced them; the next retry drops them as damaged.
        """
        for give_up in (self.forget, self.drop):
            try:
                return work()
            except (OSError, ValueError):
                give_up()
        return work()

    def files(self) -> list[Path]:
        """Return the files that are current and only need to be opened."""
        with self.turn:
            return [piece.path for piece in self._pieces.values() if piece.path] if self.glance() else []

    @property
    def _material(self) -> str:
        return f"2 {self._nodes()}"

    def _suits(self) -> bool:
        """Return whether edges are current: they hold the ids of their ends, so changed nodes require a new
        reading.
        """
        return self._ended_by == self._nodes()

    def _open(self, folder: Path | None, state: State) -> None:
        """Open what lies in a folder as a state says; nothing without a folder."""
        self._seen = Observation(self.kind, state.get("said"), self._find_paths)
        self._columns = self._seen.columns()
        self._replaced, self._step = frozenset[int](state.get("replaced", ())), int(state.get("step", 0))
        self._pieces: dict[str, ArrowSegment] = {}
        self._answers: dict[str, IdSet] = {}
        self._ended_by = self._nodes()
        if folder:
            self._pieces["base"] = ArrowSegment(folder / "base.arrow")
            if self._step:
                self._pieces |= {
                    "delta": ArrowSegment(folder / f"delta-{self._step}.arrow"),
                    "gone": _build_gone_piece(self._replaced),
                }

    def _find_paths(self, name: str) -> list[str]:
        """Return the paths inside nested values of the first records that end with a name."""
        return paths_to((record.fields for record in islice(self._rows.records(), _SOME_RECORDS)), name)

    def _build(self, folder: Path | None) -> State:
        self._open(None, {})
        path = folder / "base.arrow" if folder else None
        first: Columns | None = None
        written = 0

        def optimistic() -> "Iterator[pa.Table]":
            """Yield rows in the columns that the first records suggest, while those fit."""
            nonlocal first, written
            for records in _batch_records(self._rows.records()):
                remarks = self._seen.add(records)
                self._columns = self._seen.columns()
                first = first or self._columns
                if first.business == self._columns.business:
                    written += len(records)
                    yield self._build_arrow(records, remarks)

        base = self._write_tables(path, optimistic())
        if written < self._seen.counts.total():
            base = self._write_tables(path, (self._build_arrow(some) for some in _batch_records(self._rows.records())))
        self._pieces = {"base": base}
        return self._state(folder)

    def _follow(self, folder: Path | None, changed_ids: frozenset[int]) -> State | None:
        replaced_ids, base, delta = self._replaced | changed_ids, self._pieces["base"], self._pieces.get("delta")
        if len(replaced_ids) > max(_DELTA, base.table.num_rows // 10):
            return None
        for piece, ids in ((base, changed_ids - self._replaced), (delta, changed_ids)):
            if piece is not None:
                self._seen.counts.subtract(piece.list_remarks(ids))
        records = [self._rows.record(record_id) for record_id in sorted(changed_ids) if record_id in self._rows]
        remarks = self._seen.add(records)
        columns = self._seen.columns()
        if columns.business != self._columns.business:
            return None
        self._columns, self._replaced, self._step, self._answers = columns, replaced_ids, self._step + 1, {}
        delta_tables = [] if delta is None else [delta.table.filter(~delta.holds(changed_ids))]
        path = folder / f"delta-{self._step}.arrow" if folder else None
        delta = self._write_tables(path, [*delta_tables, self._build_arrow(records, remarks)])
        self._pieces = {"base": base, "delta": delta, "gone": _build_gone_piece(replaced_ids)}
        return self._state(folder)

    def _state(self, folder: Path | None) -> State:
        if folder is None:
            return {}
        # the previous delta is valid until the meta names the new delta
        keep = {"base.arrow", f"delta-{self._step}.arrow", f"delta-{self._step - 1}.arrow"}
        for path in folder.iterdir():
            if path.name not in keep:
                path.unlink()
        return {
            "files": [piece.path.name for piece in self._pieces.values() if piece.path],
            "said": {remark: count for remark, count in self._seen.counts.items() if count},
            "replaced": sorted(self._replaced),
            "step": self._step,
        }

    def _build_arrow(self, records: Sequence[Record], remarks: Sequence[str] | None = None) -> "pa.Table":
        """Build rows with the present columns, followed by what each record says."""
        import pyarrow as pa

        from duckkb.lanes.sql.arrow import record_table

        remarks = self._seen.list_remarks(records) if remarks is None else remarks
        return record_table(self._columns, records, self._ends).append_column("", pa.array(remarks, pa.string()))

    def _write_tables(self, path: Path | None, tables: "Iterable[pa.Table]") -> ArrowSegment:
        """Write tables of the same schema as a piece; there is always a schema, even without rows."""
        import pyarrow as pa

        tables = iter(tables)
        first = next(tables, None)
        if first is None:
            first = self._build_arrow([])
        if path is None:
            return ArrowSegment(pa.concat_tables([first, *tables]).combine_chunks())
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, first.schema) as writer:
            writer.write_table(first)
            for table in tables:
                writer.write_table(table)
        return ArrowSegment(path)


def _build_gone_piece(ids: Iterable[int]) -> ArrowSegment:
    import pyarrow as pa

    sorted_ids = sorted(ids)
    return ArrowSegment(pa.table({ID: pa.array(sorted_ids, pa.int64()), "": pa.nulls(len(sorted_ids))}))


def _batch_records(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Yield batches of some thousand consecutive records."""
    while batch := list(islice(records, _BATCH)):
        yield batch
