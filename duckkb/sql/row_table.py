"""The rows of a type as Arrow data: a base, and after changes a delta with rows that replace rows of the base.

Records are read when the data is built and not held; only what they say about the columns is kept. On disk the
data lies in Arrow files, which readers map into memory.

Converts the rows of an answer to plain JSON values, up to the caps.

Conditions that columns answer without the engine: comparisons of fields with constants, joined by AND.

    topic = 'rivers' AND year >= 2020 AND side IN ('left', 'right')

Every condition that is read here gives exactly the engine's result. Any other syntax, comparisons of different
kinds, and errors are left to the engine."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from duckkb.id_set import IdSet
from duckkb.ontology.model import RecordType
from duckkb.ontology.names import paths_to
from duckkb.ports import Rows, SqlLimits
from duckkb.sql.columns import EXACT, INT64, Column, Columns, Observation
from duckkb.sql.syntax import MAX_FILTER
from duckkb.store.mirrored_files import RowMirror, State
from duckkb.types.errors import FilterError
from duckkb.types.queries import SqlResult
from duckkb.types.records import ID, Record

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_PART_BYTES = 4 * 1024 * 1024


def take_rows(batches: "pa.RecordBatchReader", types: Sequence[str], limits: SqlLimits) -> SqlResult:
    """Return rows up to the caps; `truncated` if there was another. Bytes are those of the rows as JSON."""
    names = tuple(batches.schema.names)
    convert = [_PARSED.get(name, plain) for name in types]
    rows: list[tuple[Any, ...]] = []
    size = 0
    for part in chain.from_iterable(map(_split_batch, batches)):
        columns = [map(converter, column.to_pylist()) for converter, column in zip(convert, part.columns, strict=True)]
        for row in zip(*columns, strict=True):
            size += len(json.dumps(row, ensure_ascii=False).encode("utf-8", "surrogatepass"))
            if len(rows) >= limits.rows or size > limits.bytes:
                return SqlResult(names, tuple(rows), truncated=True)
            rows.append(row)
    return SqlResult(names, tuple(rows))


def _split_batch(batch: "pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    """Yield parts of a batch that fit into memory as Python values: few long rows, or many short ones."""
    rows = max(1, batch.num_rows * _PART_BYTES // max(_PART_BYTES, batch.nbytes))
    return (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))


def _parse_json(text: str | None) -> Any:
    """Parse a JSON column's value; the engine returns it as text."""
    try:
        return None if text is None else json.loads(text, parse_float=_parse_finite_float)
    except (ValueError, RecursionError):
        return text


def _parse_json_list(texts: list[str | None] | None) -> Any:
    return None if texts is None else [_parse_json(text) for text in texts]


_PARSED: Mapping[str, Callable[[Any], Any]] = {"JSON": _parse_json, "JSON[]": _parse_json_list}


def _parse_finite_float(text: str) -> float | str:
    """Parse a float; keep its text if it is infinite, because JSON can write 1e999 but not infinity."""
    number = float(text)
    return number if number - number == 0 else text


def plain(value: Any) -> Any:
    """Convert a value to JSON: days and times to ISO text (times in UTC), decimals to numbers if that is exact."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    for kind, convert in _CONVERSIONS.items():
        if isinstance(value, kind):
            return convert(value)
    return _convert_sequence(value) if isinstance(value, (list, tuple)) else str(value)


def _convert_sequence(value: Sequence[Any]) -> Any:
    """Convert a list, a map (Arrow gives it as pairs), or an interval as months, days and nanoseconds."""
    if isinstance(value, tuple):
        names = ("months", "days", "nanoseconds")
        return (
            dict(zip(names, value, strict=True)) if hasattr(value, "nanoseconds") else [plain(part) for part in value]
        )
    if value and all(isinstance(part, tuple) and len(part) == 2 for part in value):
        return {str(key): plain(inner) for key, inner in value}
    return [plain(part) for part in value]


def _convert_decimal(value: Decimal) -> int | float | str:
    if value == value.to_integral_value():
        return int(value)
    return float(value) if Decimal(repr(float(value))) == value else str(value)


def _format_moment(value: datetime) -> str:
    moment = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    return moment.isoformat(timespec="microseconds") + "Z"


_CONVERSIONS: dict[type, Callable[[Any], Any]] = {
    datetime: _format_moment,
    date: date.isoformat,
    time: time.isoformat,
    timedelta: str,
    Decimal: _convert_decimal,
    bytes: bytes.hex,
}


Constant = str | int | float | bool

_MOST_TESTS, _MOST_ITEMS = 32, 500

# Words that the parser may not take for a field unless they are quoted.
_KEYWORDS = """
all analyse analyze and anti any array as asc asof asymmetric at authorization between bigint binary bit boolean both by
case cast char character check coalesce collate collation column columns concurrently constraint create cross dec decimal
default deferrable desc describe distinct do else end except exists extract false fetch float for foreign freeze from full
generated glob group grouping grouping_id having ilike in initially inner inout int integer intersect interval into is
isnull join lambda lateral leading left like limit map national natural nchar none not notnull null nullif numeric offset
on only or order out outer overlaps overlay pivot pivot_longer pivot_wider placing position positional precision primary
qualify real references returning right row select semi setof show similar smallint some struct substring summarize
symmetric table tablesample then time timestamp to trailing treat trim true try_cast union unique unpack unpivot using
values varchar variadic verbose when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest
xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable
"""
_LITERAL = r"(?:'(?:[^']|'')*'|(?<=\s)-?\d{1,19}(?:\.\d{1,15})?|\d{1,19}(?:\.\d{1,15})?|(?i:true|false)\b)"
_TEST = re.compile(
    rf"""[ \t\r\n]*(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<plain>[A-Za-z_][A-Za-z0-9_]*))[ \t\r\n]*
    (?:(?P<operator>=|<>|!=|<=|>=|<|>)[ \t\r\n]*(?P<one>{_LITERAL})
    |(?i:IN)[ \t\r\n]*\([ \t\r\n]*(?P<many>{_LITERAL}(?:[ \t\r\n]*,[ \t\r\n]*{_LITERAL}){{0,{_MOST_ITEMS - 1}}})[ \t\r\n]*\))
    (?P<joint>[ \t\r\n]+(?i:AND)(?=[ \t\r\n]))?""",
    re.VERBOSE | re.ASCII,
)
_EACH = re.compile(r"'(?:[^']|'')*'|-?[0-9.]+|[a-z]+", re.IGNORECASE)  # each literal in a list of literals and commas
_ODD = re.compile("[\0\ud800-\udfff]")
_EQUALITIES = {"=": "equal", "<>": "not_equal", "!=": "not_equal"}
_OPERATORS = _EQUALITIES | {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_NEGATED = re.compile(r"NOT \(([^()]*)\n\)")
_INVERSE = {"equal": "not_equal", "less": "greater_equal", "greater": "less_equal"}
_INVERSE |= {other: one for one, other in _INVERSE.items()}


Written = tuple[str, str, tuple[Constant, ...]]  # a field's name, an operator of `_OPERATORS` or `in`, constants


class Test(NamedTuple):
    """A comparison of a column with constants of its kind."""

    column: Column
    operator: str
    constants: tuple[Constant, ...]


def parse_comparisons(fragment: str) -> tuple[Written, ...]:
    """Parse the comparisons of a condition, all of which must hold; empty if it is not as simple as that."""
    if len(fragment) > MAX_FILTER // 4 or _ODD.search(fragment):
        return ()
    if negation := _NEGATED.fullmatch(fragment):  # NOT of a single comparison; a missing value satisfies neither
        inner_comparisons = parse_comparisons(negation[1])
        inverse = [
            (name, _INVERSE[operator], constants)
            for name, operator, constants in inner_comparisons
            if operator in _INVERSE
        ]
        return tuple(inverse) if len(inner_comparisons) == 1 else ()
    comparisons: list[Written] = []
    at = 0
    for _ in range(_MOST_TESTS):
        test = _TEST.match(fragment, at)
        if test is None or (test["plain"] or "").lower() in _KEYWORDS.split():
            return ()
        constants = tuple(map(_parse_constant, _EACH.findall(test["one"] or test["many"])))
        name = test["plain"] or test["quoted"].replace('""', '"')
        comparisons.append((name, _OPERATORS.get(test["operator"], "in"), constants))
        at = test.end()
        if not test["joint"]:
            return () if fragment[at:].strip(" \t\r\n") else tuple(comparisons)
    return ()


def simple_tests(fragment: str, columns: Columns) -> tuple[Test, ...]:
    """Return the comparisons of a condition over these columns; empty if the engine must read it."""
    comparisons: list[Test] = []
    for name, operator, constants in parse_comparisons(fragment):
        try:
            column, path = columns.find(name)
        except FilterError:
            return ()
        suits = _SUITS.get(column.kind)
        if path or suits is None or not all(map(suits, constants)):
            return ()
        if column.kind == "boolean" and operator not in _EQUALITIES.values():
            return ()
        comparisons.append(Test(column, operator, constants))
    return tuple(comparisons)


def texts(asked: Sequence[Test]) -> list[tuple[str, str]]:
    """Return the fields with the texts that they must equal; empty if the comparisons require anything else."""
    equal = ((test.column.name, text) for test in asked if test.operator == "equal" for text in test.constants)
    text_pairs = [(name, text) for name, text in equal if isinstance(text, str)]
    return text_pairs if len(text_pairs) == len(asked) else []


def match_rows(table: "pa.Table", asked: Sequence[Test]) -> "np.ndarray":
    """Return a mask of the rows that satisfy all of the comparisons, of which there is at least one. The table's
    columns must be verified. A missing value satisfies no comparison.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    mask = np.ones(table.num_rows, np.bool_)
    for test in asked:
        column = table.column(test.column.sql_name)
        if test.operator == "in":
            zeros = (
                (0.0, -0.0) if test.column.kind == "number" and 0 in test.constants else ()
            )  # equal, but not in bits
            answers = pc.is_in(column, pa.array([*test.constants, *zeros], column.type))
        else:
            answers = getattr(pc, test.operator)(column, pa.scalar(test.constants[0], column.type))
        mask &= answers.fill_null(False).to_numpy()
    return mask


def _parse_constant(text: str) -> Constant:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    if text[0] in "tTfF":
        return text.lower() == "true"
    return float(text) if "." in text else int(text)


_SUITS: Mapping[str, Callable[[Constant], bool]] = {
    "text": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: type(value) is int and -INT64 < value < INT64,
    "number": lambda value: isinstance(value, (int, float)) and type(value) is not bool and abs(value) < EXACT,
}
"""By the kind of a column, the constants that compare with it unchanged."""


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

        from duckkb.sql.arrow_tables import record_table

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
