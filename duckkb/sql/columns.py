"""The columns of a runtime table: the schema's declarations, narrowed by the stored values.

A declared column takes its type only while every stored value fits; else it is JSON, so that no value is ever
lost. Fields that the schema does not declare live in `__extra` and stay reachable by their names. If a policy
says so, they are columns too, with the type that all their values have.

The kinds of value a runtime column or an expression has, and which JSON values fit each.

Scalar kinds: `text`, `integer` (int64), `number` (double), `boolean`, `date`, `timestamp` (UTC, without a zone). A scalar
kind followed by `[]` is a list of it. `json` holds what is nested or mixed, `json[]` lists whose members are. `null`,
`interval` and `any` (nobody knows) are kinds of expressions alone."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Any

from msgspec import Struct

from duckkb.ontology.model import RecordType
from duckkb.ontology.schema_kinds import kind_of, target
from duckkb.types.errors import FilterError
from duckkb.types.records import CREATED_AT, FROM, ID, TO, UPDATED_AT, Record

SQL_TYPES = {
    "text": "VARCHAR",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "json": "JSON",
}

INT64 = 1 << 63
EXACT = 1 << 53  # every integer up to here has an equal double
PAST_EXACT = "a whole number past 2^53"  # the error text of a calculation that would round a whole number
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(?::(\d\d)(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)?",
    re.ASCII,
)


def sql_type(kind: str) -> str:
    """Return the DuckDB type of a kind: `text[]` gives `VARCHAR[]`."""
    return f"{SQL_TYPES[element(kind)]}[]" if is_list(kind) else SQL_TYPES[kind]


def is_list(kind: str) -> bool:
    return kind.endswith("[]")


def element(kind: str) -> str:
    return kind.removesuffix("[]")


def make_fit_test(kind: str) -> Callable[[Any], bool]:
    """Return a test whether a column of this kind can hold a value exactly; None always fits."""
    if is_list(kind):
        inner = make_fit_test(element(kind))
        return lambda value: value is None or (type(value) is list and all(map(inner, value)))
    fits = _FITS[kind]
    return lambda value: value is None or fits(value)


def shape_of(value: Any) -> str:
    """Return the narrowest kind that holds a value, or the reason against a kind: `bigint` is past int64,
    `inexact` an integer without an equal double, `empty[]` an empty list.
    """
    kind = type(value)
    if kind is int:
        if not -INT64 <= value < INT64:
            return "bigint"
        return "integer" if abs(value) <= EXACT or int(float(value)) == value else "inexact"
    if kind is list:
        shapes = {shape_of(member) for member in value}
        inner = kind_of_shapes(shapes) if None not in value else "json"
        return "empty[]" if not shapes else "json[]" if is_list(inner) else f"{inner}[]"
    return SHAPES.get(kind, "json")


def kind_of_shapes(shapes: Iterable[str]) -> str:
    """Return the kind of a column whose values have these shapes; `json` if no narrower kind holds them all.

    >>> kind_of_shapes(["integer", "number"]), kind_of_shapes(["integer", "text"]), kind_of_shapes(["empty[]",
    ... "text[]"])
    ('number', 'json', 'text[]')
    """
    distinct_shapes = set(shapes)
    if any(is_list(shape) for shape in distinct_shapes):
        inner = {element(shape) for shape in distinct_shapes - {"empty[]"}}
        return f"{kind_of_shapes(inner)}[]" if all(is_list(shape) for shape in distinct_shapes) else "json"
    if distinct_shapes <= {"integer", "inexact"}:
        return "integer" if distinct_shapes else "json"
    if distinct_shapes <= {"integer", "number"}:
        return "number"
    return distinct_shapes.pop() if len(distinct_shapes) == 1 and distinct_shapes <= {"text", "boolean"} else "json"


@lru_cache(maxsize=4096)
def parse_date(text: str) -> date | None:
    """Parse an existing calendar day written `YYYY-MM-DD`; return None for anything else."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def parse_timestamp(text: str) -> datetime | None:
    """Parse an RFC 3339 time to UTC without a zone, to the microsecond. A time without an offset counts as UTC,
    and a leap second as the next second. Returns None for anything else.
    """
    match = _TIMESTAMP.fullmatch(text)
    if not match:
        return None
    day, minute, second, fraction, zone = match.groups()
    second, fraction = second or "00", (fraction or ".0")[:7]
    is_leap = second == "60"
    offset = "+00:00" if zone in (None, "Z", "z") else zone
    try:
        moment = datetime.fromisoformat(f"{day}T{minute}:{'59' if is_leap else second}{fraction:0<7}{offset}")
        return (moment + timedelta(seconds=is_leap)).astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def _is_integer_value(value: Any) -> bool:
    if type(value) is float:
        return value.is_integer() and abs(value) <= EXACT
    return type(value) is int and -INT64 <= value < INT64


def _is_number_value(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < INT64 and int(float(value)) == value)


_FITS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: type(value) is str,
    "integer": _is_integer_value,
    "number": _is_number_value,
    "boolean": lambda value: type(value) is bool,
    "date": lambda value: type(value) is str and parse_date(value) is not None,
    "timestamp": lambda value: type(value) is str and parse_timestamp(value) is not None,
    "json": lambda value: True,
}
SHAPES: dict[type, str] = {str: "text", bool: "boolean", float: "number"}
"""The shapes of values whose type alone decides."""


EXTRA = "__extra"
FROM_ID, TO_ID = "from_id", "to_id"
_MOST_PATHS = 3  # that are named

_SCALARS = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
_FORMATS = {"date": "date", "date-time": "timestamp"}


class Column(Struct, frozen=True):
    """A column. `name` is the record's key, `sql_name` the column that holds it; they differ if SQL would confuse
    two names.
    """

    name: str
    sql_name: str
    kind: str


class Declared(Struct, frozen=True):
    """A column before data was seen: the first of `candidates` that fits every value becomes its kind, else
    `json`.
    """

    name: str
    sql_name: str
    candidates: tuple[str, ...]


def list_declared_columns(kind: RecordType) -> tuple[Declared, ...]:
    """List the business columns of a type in the order of its schema; the ends of an edge come first."""
    taken_names = {name.casefold() for name in _list_system_names(kind)}
    ends = (FROM, TO) if kind.kind == "edge" else ()
    columns = [Declared(name, name, ("text", "integer")) for name in ends]
    taken_names.update(ends)
    for name, rule in kind.properties.items():
        if name not in ends:
            columns.append(
                Declared(name, _choose_free_name(name, taken_names), _list_candidate_kinds(rule, kind.schema))
            )
    return tuple(columns)


def _list_system_names(kind: RecordType) -> tuple[str, ...]:
    ends = (FROM_ID, TO_ID) if kind.kind == "edge" else ()
    return (ID, CREATED_AT, UPDATED_AT, EXTRA, *ends)


def _choose_free_name(name: str, taken_names: set[str]) -> str:
    """Return a free name: SQL ignores case, JSON does not, so the later of two names that differ only in case gets
    a number.
    """
    free, number = name, 1
    while free.casefold() in taken_names:
        number += 1
        free = f"{name}_{number}"
    taken_names.add(free.casefold())
    return free


def _list_candidate_kinds(rule: Any, root: Mapping[str, Any]) -> tuple[str, ...]:
    rule = _resolve_rule(rule, root)
    name = _find_type_name(rule)
    if name == "string":
        return (_FORMATS.get(rule.get("format", ""), "text"),)
    if name == "array":
        inner = _find_type_name(_resolve_rule(rule.get("items"), root))
        return (f"{_SCALARS[inner]}[]", "json[]") if inner in _SCALARS else ("json[]",)
    return (_SCALARS[name],) if name in _SCALARS else ()


def _resolve_rule(rule: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rule behind local references and behind `anyOf: [rule, null]`; anything deeper stays undeclared."""
    for _ in range(8):
        if not isinstance(rule, Mapping):
            return {}
        if "$ref" in rule:
            rule = target(root, rule["$ref"])
            continue
        choices = [item for key in ("anyOf", "oneOf") for item in rule.get(key, ()) if item != {"type": "null"}]
        if len(choices) != 1:
            return rule
        rule = choices[0]
    return {}


def _find_type_name(rule: Mapping[str, Any]) -> str:
    """Return the single JSON type that a rule allows besides null, or the empty string."""
    declared_type = rule.get("type")
    if isinstance(declared_type, str):
        return declared_type
    if isinstance(declared_type, Sequence):
        type_names = [name for name in declared_type if name != "null"]
        return type_names[0] if len(type_names) == 1 else ""
    values = [value for value in rule.get("enum", [rule["const"]] if "const" in rule else []) if value is not None]
    (name, *extra_kinds) = {kind_of(value) for value in values} or {""}
    return name if not extra_kinds and name in _SCALARS else ""


class Observation:
    """A count of what the stored records of a type say about its columns: `counts` tells how many records say each
    thing.

    Adding and removing the same records changes nothing, so a changed table has the columns that a fresh load
    of the same records would give it. A record says the empty text if all is as the schema declares it.
    Otherwise it says a JSON list of [field, kind that its value does not fit, false] and, for an undeclared
    field, [field, shape, true].
    """

    def __init__(
        self,
        kind: RecordType,
        counts: Mapping[str, int] | None = None,
        paths_to: Callable[[str], Sequence[str]] = lambda name: (),
    ) -> None:
        self._kind, self._paths_to = kind, paths_to
        self._declared = list_declared_columns(kind)
        self.counts = Counter(counts or {})

    def add(self, records: Sequence[Record]) -> list[str]:
        """Count records; return what each of them said, to subtract it later."""
        remarks = self.list_remarks(records)
        self.counts.update(remarks)
        return remarks

    def list_remarks(self, records: Sequence[Record]) -> list[str]:
        """Return what each of the records says, without counting it."""
        misfits: dict[int, list[tuple[str, str, bool]]] = {}
        for column in self._declared:
            for kind in column.candidates:
                fits = make_fit_test(kind)
                for at, record in enumerate(records):
                    if not fits(record.fields.get(column.name)):
                        misfits.setdefault(at, []).append((column.name, kind, False))
        declared_names = {column.name for column in self._declared}
        loose_of = lru_cache(maxsize=None)(lambda names: sorted(set(names) - declared_names))  # few sets of names occur
        cached_encode = lru_cache(maxsize=None)(_encode_facts)  # few distinct facts occur
        remarks = []
        for at, record in enumerate(records):
            loose = loose_of(tuple(record.fields))
            shapes = tuple([SHAPES.get(type(value := record.fields[name])) or shape_of(value) for name in loose])
            remarks.append(
                cached_encode(tuple(misfits.get(at, ())), tuple(loose), shapes) if loose or at in misfits else ""
            )
        return remarks

    def columns(self) -> "Columns":
        """Return the columns that fit the records seen so far."""
        facts = [fact for remark, count in self.counts.items() if remark and count > 0 for fact in json.loads(remark)]
        unfit = {(name, kind) for name, kind, is_extra in facts if not is_extra}
        shapes: dict[str, set[str]] = {}
        for name, shape, is_extra in facts:
            if is_extra:
                shapes.setdefault(name, set()).add(shape)
        kinds = [
            next((kind for kind in declaration.candidates if (declaration.name, kind) not in unfit), "json")
            for declaration in self._declared
        ]
        business = [
            Column(declaration.name, declaration.sql_name, kind)
            for declaration, kind in zip(self._declared, kinds, strict=True)
        ]
        taken_names = {
            name.casefold() for name in (*_list_system_names(self._kind), *(column.sql_name for column in business))
        }
        columns = [name for name in sorted(shapes) if self._is_column(name, shapes[name])]
        business += [
            Column(name, _choose_free_name(name, taken_names), kind_of_shapes(shapes[name])) for name in columns
        ]
        extra = frozenset(shapes).difference(columns)
        shown_by = f"duckkb {'col show' if self._kind.is_collection else 'schema'} {self._kind.name}"
        return Columns(self._kind.name, tuple(business), self._kind.kind == "edge", extra, shown_by, self._find_paths)

    def _find_paths(self, name: str) -> Sequence[str]:
        """Return the fields that a name may mean: of `id` the key of the type, else those inside of others."""
        keys = self._kind.identity_fields
        return keys if name.casefold() == "id" and len(keys) == 1 else self._paths_to(name)

    def _is_column(self, name: str, shapes: set[str]) -> bool:
        """Return whether an undeclared field is a column: by policy all are, all without nested values, or the
        named fields.
        """
        match self._kind.relational:
            case "all":
                return True
            case "auto":
                return shapes != {"json"}
            case column_names:
                return name in column_names


def _encode_facts(unfit: tuple[tuple[str, str, bool], ...], loose: tuple[str, ...], shapes: tuple[str, ...]) -> str:
    return json.dumps([*unfit, *((name, shape, True) for name, shape in zip(loose, shapes, strict=True))])


class Columns(Struct, frozen=True, dict=True):
    """The columns of a table, the undeclared names that occur in it, the command that prints them, and a function
    that finds the paths inside nested values that end with a name.
    """

    type: str
    business: tuple[Column, ...]
    has_ends: bool = False
    extra: frozenset[str] = frozenset()
    shown_by: str = ""
    paths_to: Callable[[str], Sequence[str]] = lambda name: ()

    def __iter__(self) -> Iterator[Column]:
        return iter(self.all)

    @cached_property
    def all(self) -> tuple[Column, ...]:
        """Return every column in the order of the table: ids, business columns, times, `__extra`."""
        ids = (ID, FROM_ID, TO_ID) if self.has_ends else (ID,)
        head = tuple(Column(name, name, "integer") for name in ids)
        times = tuple(Column(name, name, "timestamp") for name in (CREATED_AT, UPDATED_AT))
        return (*head, *self.business, *times, Column(EXTRA, EXTRA, "json"))

    def find(self, name: str) -> tuple[Column, tuple[str, ...]]:
        """Return the column of a field name and the path inside it; raises FilterError naming the nearest known
        field.
        """
        column = self._by_name.get(name)
        if column:
            return column, ()
        if name in self.extra:
            return self._by_name[EXTRA], (name,)
        known_names = self._folded.get(name.casefold(), [])
        if len(known_names) == 1:
            return self.find(known_names[0])
        if known_names:
            raise FilterError(
                f"The field name {name!r} fits several fields of {self.type}: {', '.join(sorted(known_names))}.",
                suggestion="write the stored name in double quotes",
            )
        for column in self.all:  # `A_2` if the table already has an `a`
            if column.sql_name.casefold() == name.casefold():
                return column, ()
        raise unknown_field(name, self)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return every name that a filter may use, declared names first."""
        declared_names = [column.name for column in (*self.business, *self.all)]
        return (*dict.fromkeys(declared_names), *sorted(self.extra.difference(declared_names)))

    @cached_property
    def _by_name(self) -> Mapping[str, Column]:
        # A business field may have the name of an edge's system column; in filters the schema's declaration wins.
        return {column.name: column for column in (*self.all, *self.business)}

    @cached_property
    def _folded(self) -> Mapping[str, list[str]]:
        names_by_fold: dict[str, list[str]] = {}
        for name in self.names:
            names_by_fold.setdefault(name.casefold(), []).append(name)
        return names_by_fold


def unknown_field(name: str, columns: Columns) -> FilterError:
    """Return the error for a field that no record and no schema has."""
    if any("\uff01" <= sign <= "\uff5e" or sign in "‘’“”„«»、。" for sign in name):
        return FilterError(
            "The filter has full-width or typographic characters where SQL needs plain ones.",
            suggestion="type digits, operators and quotes as plain ASCII characters",
            details={"construct": "character"},
        )
    names_by_fold = {known_name.casefold(): known_name for known_name in columns.names}
    near = [*columns.paths_to(name)[:_MOST_PATHS]]
    near = near or [
        names_by_fold[match] for match in get_close_matches(name.casefold(), names_by_fold, n=1, cutoff=0.6)
    ]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    return FilterError(
        f"{columns.type} has no field {name!r}{hint}",
        suggestion=columns.shown_by,
        details={"field": name, "nearest": near[0] if near else None},
    )


def ddl(kind: RecordType, records: Sequence[Record] = ()) -> str:
    """Return the CREATE TABLE text of a type: as its schema declares it, and as these records complete it."""
    observation = Observation(kind)
    observation.add(records)
    columns = observation.columns()
    lines = [f"  {quote_identifier(column.sql_name)} {sql_type(column.kind)}" for column in columns]
    return f"CREATE TABLE {quote_identifier(kind.table)} (\n" + ",\n".join(lines) + "\n);"


def quote_identifier(name: str) -> str:
    """Quote a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'
