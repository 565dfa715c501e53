"""The rows of one type as Arrow data: a base, and after changes a delta with the list of base rows that it replaces.

Records are read when the data is built and not held; what is kept of them is what they say about the columns. On disk the
data lies in Arrow files, which are mapped into memory by whoever reads them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, reduce
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from duckkb.id_set import IdSet
from duckkb.lanes.files import State
from duckkb.lanes.mirror import RowMirror
from duckkb.lanes.sql.columns import Columns, Fact, Observation
from duckkb.lanes.sql.simple import Test, matching
from duckkb.ontology.model import RecordType
from duckkb.ports import Rows
from duckkb.records import ID, Record

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from duckkb.lanes.sql.grouped import Grouped

_BATCH = 8192  # records that are made into rows at a time
_DELTA = 100  # changed records up to which the base is kept, however small it is

Ends = Callable[[Record], tuple[int | None, int | None]]


class Piece:
    """Arrow data in memory or in a file. Its last column, with what each row says about the columns, is not for statements
    to see."""

    def __init__(self, table: "pa.Table | None" = None, path: Path | None = None) -> None:
        self._table = table
        self.path = path
        self._sound: set[str] = set()
        self._grouped: dict[str, Grouped | Literal[False] | None] = {}

    @cached_property
    def table(self) -> "pa.Table":
        """All of it; raises OSError or ValueError for a file that is none."""
        if self.path is None:
            return self._table
        import pyarrow as pa

        return pa.ipc.open_file(pa.memory_map(str(self.path))).read_all()

    @property
    def visible(self) -> "pa.Table":
        """What statements see."""
        return self.table.remove_column(self.table.num_columns - 1)

    @cached_property
    def ids(self) -> "np.ndarray":
        """The record ids of the rows."""
        found: np.ndarray = self.table.column(0).to_numpy()
        return found

    @cached_property
    def rising(self) -> "np.ndarray":
        """The places of the rows in the order of their ids."""
        import numpy as np

        return np.argsort(self.ids)

    def matching(self, asked: Sequence[Test]) -> IdSet:
        """The ids of the rows that satisfy all of the comparisons; raises as `table`."""
        grouped = [self._among(test) for test in asked]
        found = [ids for ids in grouped if ids is not None]
        left = [test for test, ids in zip(asked, grouped, strict=True) if ids is None]
        if left:
            self._check(test.column.sql_name for test in left)
            order = self.rising
            found.append(IdSet(self.ids[order[matching(self.table, left)[order]]]))
        return reduce(IdSet.within, sorted(found, key=len))

    def _among(self, test: Test) -> IdSet | None:
        """What a column of few values answers at once, from the second time on that it is asked for; None otherwise."""
        name = test.column.sql_name
        if test.operator not in ("equal", "in") or test.column.kind == "number":
            return None
        if name not in self._grouped:
            self._grouped[name] = None
            return None
        if self._grouped[name] is None:
            from duckkb.lanes.sql.grouped import Grouped

            self._check([name])
            self._grouped[name] = Grouped.of(self.ids, self.table.column(name)) or False
        grouped = self._grouped[name]
        return grouped.among(test.constants) if grouped else None

    def _check(self, names: Iterable[str]) -> None:
        """Raise ValueError for a column whose bytes are no values of its type."""
        for name in names:
            if name not in self._sound:
                self.table.column(name).validate(full=True)
                self._sound.add(name)


class RowTable(RowMirror):
    """What statements see of a type. `ends` resolves an edge's ends; `nodes` names the state of the nodes that they may
    lead to."""

    name = "rows"
    lane = None

    def __init__(
        self,
        kind: RecordType,
        rows: Rows,
        ends: Ends | None = None,
        nodes: Callable[[], str] = str,
    ) -> None:
        super().__init__(rows)
        self.kind = kind
        self._ends = ends
        self._nodes = nodes
        self._seen = Observation(kind)
        self._codes: dict[Fact, int] = {}
        self._columns = self._seen.columns()
        self._base, self._delta, self._gone = Piece(), Piece(), Piece()
        self._base_rows = 0
        self._replaced: frozenset[int] = frozenset()
        self._step = 0

    @property
    def columns(self) -> Columns:
        """The columns as the records are now."""
        self._refresh()
        return self._columns

    def pieces(self) -> dict[str, Piece]:
        """`base`, and after changes `delta` with the rows that count instead of those whose ids are in `gone`."""
        self._refresh()
        return {"base": self._base, **({"delta": self._delta, "gone": self._gone} if self._step else {})}

    def matching(self, asked: Sequence[Test]) -> IdSet:
        """The ids of the records that satisfy all of the comparisons; raises OSError or ValueError for damaged files."""
        self._refresh()
        found = self._base.matching(asked)
        if not self._step:
            return found
        changed = self._delta.matching(asked)
        return IdSet.of([*found.without(self._replaced), *changed]) if len(changed) else found.without(self._replaced)

    def files(self) -> list[Path]:
        """The files that lie ready, and need nothing but to be opened."""
        pieces = self.pieces().values() if self.glance() else ()
        return [piece.path for piece in pieces if piece.path is not None]

    @property
    def _material(self) -> str:
        return f"1 {self._nodes()}"

    def _build(self, folder: Path | None) -> State:
        self._seen, self._codes, self._replaced, self._step = Observation(self.kind), {}, frozenset(), 0
        path = folder / "base.arrow" if folder else None
        self._columns = self._seen.columns()
        settled, written = True, 0

        def optimistic() -> "Iterator[pa.Table]":
            """Rows in the columns that the first records suggest."""
            nonlocal settled, written
            for records in _some(self._rows.records(), _BATCH):
                facts = self._seen.add(records)
                before, self._columns = self._columns, self._seen.columns()
                settled = settled and (not written or before.business == self._columns.business)
                if settled:
                    written += len(records)
                    yield self._arrow(records, facts)

        base = self._written(path, optimistic())
        if not settled:
            base = self._written(path, (self._arrow(some) for some in _some(self._rows.records(), _BATCH)))
        self._base, self._base_rows = base, base.table.num_rows
        return self._state(folder)

    def _follow(self, folder: Path | None, changed: frozenset[int]) -> State | None:
        replaced = self._replaced | changed
        if len(replaced) > max(_DELTA, self._base_rows // 10):
            return None
        self._take_back(changed)
        records = [self._rows.record(record_id) for record_id in sorted(changed) if record_id in self._rows]
        facts = self._seen.add(records)
        columns = self._seen.columns()
        if columns.business != self._columns.business:
            return None
        self._columns = columns
        kept = _without(self._delta, changed) if self._step else []
        self._step += 1
        self._replaced = replaced
        self._delta = self._written(self._file(folder, "delta"), [*kept, self._arrow(records, facts)])
        self._gone = self._written(self._file(folder, "gone"), [_id_table(replaced)])
        return self._state(folder)

    def _open(self, folder: Path, state: State) -> None:
        self._codes = {(name, word, extra): code for code, (name, word, extra, _) in enumerate(state["facts"])}
        self._seen = Observation(self.kind)
        for name, word, extra, count in state["facts"]:
            self._seen.count([((name, word, extra),)], count)
        self._columns = self._seen.columns()
        if [[one.name, one.sql_name, one.kind] for one in self._columns.business] != state["columns"]:
            raise ValueError("the columns are others now")
        self._base_rows, self._step = state["rows"], state["step"]
        self._replaced = frozenset(state["replaced"])
        self._base = Piece(path=folder / "base.arrow")
        if self._step:
            self._delta, self._gone = (Piece(path=self._file(folder, name)) for name in ("delta", "gone"))

    def _state(self, folder: Path | None) -> State:
        if folder is None:
            return {}
        pieces = [self._base, self._delta, self._gone] if self._step else [self._base]
        paths = [piece.path for piece in pieces if piece.path is not None]
        for path in folder.iterdir():
            if path not in paths and not self._is_before(path):
                path.unlink()
        return {
            "files": [path.name for path in paths],
            "columns": [[one.name, one.sql_name, one.kind] for one in self._columns.business],
            "facts": [[*fact, self._seen.counted(fact)] for fact in self._codes],
            "replaced": sorted(self._replaced),
            "rows": self._base_rows,
            "step": self._step,
        }

    def _is_before(self, path: Path) -> bool:
        """Whether a file belongs to the step before, which counts until the meta names the new one."""
        return path.stem in (f"delta-{self._step - 1}", f"gone-{self._step - 1}")

    def _file(self, folder: Path | None, name: str) -> Path | None:
        return folder / f"{name}-{self._step}.arrow" if folder else None

    def _take_back(self, changed: frozenset[int]) -> None:
        """Forget what these records said before they changed."""
        said = {code: fact for fact, code in self._codes.items() if self._seen.counted(fact)}
        if not said:
            return
        codes = _codes_at(self._base, changed - self._replaced)
        codes += _codes_at(self._delta, changed) if self._step else []
        self._seen.count([(said[code],) for code in codes], -1)

    def _arrow(self, records: Sequence[Record], facts: "Sequence[tuple[Fact, ...]] | None" = None) -> "pa.Table":
        """Rows with the columns as they are known now, and behind them the codes of what each record says."""
        import pyarrow as pa

        from duckkb.lanes.sql.arrow import record_table

        facts = self._seen.facts(records) if facts is None else facts
        codes = [[self._codes.setdefault(fact, len(self._codes)) for fact in said] for said in facts]
        table = record_table(self._columns, records, self._ends)
        return table.append_column("", pa.array(codes, pa.list_(pa.int32())))

    def _written(self, path: Path | None, tables: "Iterable[pa.Table]") -> Piece:
        """The tables, of one schema, as one piece; there is always a schema, even without rows."""
        import pyarrow as pa

        tables = iter(tables)
        first = next(tables, None)
        if first is None:
            first = self._arrow([])
        if path is None:
            return Piece(pa.concat_tables([first, *tables]).combine_chunks())
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, first.schema) as writer:
            writer.write_table(first)
            for table in tables:
                writer.write_table(table)
        return Piece(path=path)


def _codes_at(piece: Piece, ids: Iterable[int]) -> list[int]:
    """The codes of what the rows with these ids say."""
    import numpy as np
    import pyarrow as pa

    places = np.flatnonzero(np.isin(piece.ids, np.fromiter(ids, np.int64)))
    said = piece.table.column(piece.table.num_columns - 1).take(pa.array(places))
    return [code for codes in said.to_pylist() for code in codes]


def _without(piece: Piece, ids: Iterable[int]) -> "list[pa.Table]":
    import numpy as np
    import pyarrow as pa

    places = np.flatnonzero(~np.isin(piece.ids, np.fromiter(ids, np.int64)))
    return [piece.table.take(pa.array(places))] if len(places) else []


def _id_table(ids: Iterable[int]) -> "pa.Table":
    import pyarrow as pa

    found = sorted(ids)
    return pa.table({ID: pa.array(found, pa.int64()), "": pa.nulls(len(found))})


def _some(records: Iterator[Record], size: int) -> Iterator[list[Record]]:
    """Consecutive records, so many at a time."""
    while found := list(islice(records, size)):
        yield found
