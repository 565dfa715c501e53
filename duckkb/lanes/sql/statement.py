"""`sql`: one SELECT over the runtime tables, accepted by its syntax tree and read within caps.

The text that runs is written anew from the accepted tree, after that text has passed the same walk.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from duckkb.errors import FilterError, UsageError
from duckkb.lanes.sql.engine import Engine, Rejected
from duckkb.lanes.sql.walk import Walk, refused
from duckkb.ports import SqlLimits
from duckkb.queries import SqlResult
from duckkb.values import dataclass

MAX_BYTES = 65_536
MAX_SECONDS = 3_600
SHOW_TABLES = "tables"


@dataclass(frozen=True, slots=True)
class Statement:
    """What a caller wants to run, and its caps."""

    text: str
    limits: SqlLimits


def read_statement(
    engine: Engine, statement: Statement, tables: Sequence[str], prepare: Callable[[Iterable[str]], None]
) -> SqlResult:
    """Check a statement, let `prepare` build the tables it names, read it.

    Raises FilterError (`E_SQL`) where it is refused, UsageError for caps below 1, Unavailable over time or memory.
    """
    limits = statement.limits
    if limits.rows < 1 or limits.bytes < 1 or not 0 < limits.seconds <= MAX_SECONDS:
        raise UsageError("The caps of a query must be above zero, and its time at most an hour.")
    _check_text(statement.text)
    with engine.within(limits.seconds):
        tree = _parsed(engine, statement.text)
        if _is_show_tables(tree):
            return _listed(tables, limits)
        try:
            named = _accepted(tree, tables)
            text = _rewritten(engine, tree, tables)
        except RecursionError:
            raise _too_deep() from None
        prepare(named)
        return _read(engine, text, limits)


def _accepted(tree: Mapping[str, Any], tables: Sequence[str]) -> set[str]:
    """The runtime tables that an allowed statement reads."""
    walk = Walk(tables)
    walk.query(tree["statements"][0]["node"], frozenset())
    return walk.named


def _check_text(text: str) -> None:
    if "\0" in text:
        raise refused("a NUL character")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise refused("a lone surrogate") from None
    if size > MAX_BYTES:
        raise refused("more than 65,536 bytes")


def _parsed(engine: Engine, text: str) -> Any:
    answer = engine.parse(text)
    if answer.get("error"):
        raise _not_select(answer)
    count = len(answer["statements"])
    if count != 1:
        raise refused("several parts" if count else "nothing in it", "give exactly one SELECT")
    if answer["statements"][0].get("named_param_map"):
        raise refused("parameters", "write the values as constants")
    return answer


def _not_select(answer: Mapping[str, Any]) -> FilterError:
    if answer.get("error_type") == "nesting":
        return _too_deep()
    if answer.get("error_type") == "size":
        return refused("so many terms or grouping sets", "make the statement shorter")
    if answer.get("error_type") == "not implemented":
        return refused("anything but SELECT", "give one SELECT, or SHOW TABLES, or DESCRIBE TABLE")
    position = answer.get("position")
    where = f" at byte {int(position) + 1}" if position is not None else ""
    return FilterError(
        f"The statement does not parse{where}.",
        code="E_SQL",
        suggestion="strings take single quotes, odd names double ones",
        details={"construct": "syntax", "position": position},
    )


def _too_deep() -> FilterError:
    return refused("so many levels of nesting", "make the statement flatter")


def _is_show_tables(tree: Mapping[str, Any]) -> bool:
    table = tree["statements"][0]["node"].get("from_table") or {}
    return table.get("type") == "SHOW_REF" and table.get("table_name", "").strip('"') == SHOW_TABLES


def _listed(tables: Sequence[str], limits: SqlLimits) -> SqlResult:
    rows = tuple((name,) for name in tables)
    return SqlResult(("name",), rows[: limits.rows], truncated=len(rows) > limits.rows)


def _rewritten(engine: Engine, tree: Any, tables: Sequence[str]) -> str:
    """The statement's text from its tree; the text has to pass the walk as well."""
    try:
        text = engine.unparse(tree)
    except Rejected as error:
        raise refused("a construct that cannot be written back") from error
    _accepted(_parsed(engine, text), tables)
    return text


def _read(engine: Engine, text: str, limits: SqlLimits) -> SqlResult:
    try:
        return engine.rows(text, limits)
    except Rejected as error:
        raise _failed(error) from error


def _failed(error: Rejected) -> FilterError:
    match error.reason:
        case "column":
            message = f"The statement names a column that does not exist: {error.name}."
        case "value":
            return _refusal("A value does not convert or is out of range.", "use TRY_CAST")
        case "fit":
            message = "The statement does not fit the tables: check column names, types and arguments."
        case _:
            message = "The statement cannot be evaluated over these records."
    return _refusal(message, 'duckkb sql "DESCRIBE TABLE"')


def _refusal(message: str, suggestion: str) -> FilterError:
    return FilterError(message, code="E_SQL", suggestion=suggestion)
