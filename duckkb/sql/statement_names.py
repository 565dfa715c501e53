"""Resolves names: the columns that a part of a statement sees, and the steps into a value: dotted paths, brackets
and the JSON arrows.

The allow-list of filters and statements. Everything else is refused.

Left out on purpose: functions that make long texts or lists from short ones (repeat, lpad, format, range), that
take more than linear time on a short text (levenshtein and similar), and that run or read other things (query,
getenv, read_text)."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duckkb.sql.columns import Columns, element, is_list
from duckkb.sql.expressions import ANY, Term, list_error, name_kind
from duckkb.sql.syntax import Node, call_node, cast_node
from duckkb.types.errors import FilterError

_STEP = re.compile(r"""\.([^.\[\]"$*]+)|\."([^"]+)"|\[(\d+)\]""")


class Scope:
    """The names that the expressions of a query see: tables by alias (None if the columns are unknown, as of a
    subquery), words with another meaning, and the surrounding query.
    """

    def __init__(self, outer: "Scope | None" = None, words: Iterable[str] = ()) -> None:
        self.outer = outer
        self.tables: dict[str, Columns | None] = {}
        self.words = {word.casefold() for word in words}  # parameters of a lambda, which hide columns
        self.aliases: set[str] = set()  # aliases of a SELECT list, which hide no columns
        self.queries: frozenset[str] = outer.queries if outer else frozenset()  # names that WITH defines

    def add(self, alias: str, columns: Columns | None) -> None:
        """Add a table; a table without a name gets a name that nobody can write."""
        self.tables[alias.casefold() or f"\0{len(self.tables)}"] = columns

    def field(self, node: Node) -> Term | None:
        """Resolve a COLUMN_REF to a column and the path in it; None if only the engine can. Raises FilterError for
        an unknown name.
        """
        first: Columns | None = None
        level: Scope | None = self
        while level is not None:
            term, decided = level._resolve_field(node)
            if decided:
                return term
            first = first or next((columns for columns in level.tables.values() if columns), None)
            level = level.outer
        if first is not None:
            first.find(node["column_names"][0])
        return None

    def _resolve_field(self, node: Node) -> tuple[Term | None, bool]:
        """Resolve a name here; the second value is False if it belongs to the surrounding query."""
        parts = node["column_names"]
        head = parts[0].casefold()
        if head in self.words:
            return None, True
        if len(parts) > 1 and head in self.tables:
            columns = self.tables[head]
            return (_resolve_column(node, columns, parts[1:], parts[:1]) if columns else None), True
        holders = self._find_holders(parts[0])
        if len(holders) == 1:
            ((alias, columns),) = holders.items()
            return _resolve_column(node, columns, parts, [alias] if len(self.tables) > 1 else []), True
        return None, bool(holders) or head in self.aliases or None in self.tables.values()

    def _find_holders(self, name: str) -> dict[str, Columns]:
        """Return the tables with a field of this name; tables with a separate column for it take precedence."""
        path_tables: dict[str, Columns] = {}
        columns: dict[str, Columns] = {}
        for alias, table in self.tables.items():
            try:
                _, path = table.find(name) if table else (None, ("",))
            except FilterError:
                continue
            if table:
                (path_tables if path else columns)[alias] = table
        return columns or path_tables


def _resolve_column(node: Node, columns: Columns, parts: Sequence[str], table: Sequence[str]) -> Term:
    column, path = columns.find(parts[0])
    term = Term(node, column.kind, parts[0] if path else column.name)
    if path or len(parts) > 1 or column.sql_name.casefold() != parts[0].casefold():
        named_column = {**node, "column_names": [*table, column.sql_name]}
        term = Term(named_column, column.kind, term.name)
    for step in (*path, *parts[1:]):
        term = inside(term, step)
    return Term(term.node, term.kind, ".".join(parts), path=term.path)


def inside(term: Term, step: str | int) -> Term:
    """Return the value at a key or an index (from 0) of JSON, or of a text that holds JSON."""
    if term.kind == "json[]":
        term = Term(call_node("to_json", term.node), "json", term.name)
    if term.kind == "text":
        term = Term(cast_node(term.node, "JSON"), "json", term.name)
    if is_list(term.kind):
        raise list_error(term)
    if term.kind != "json":
        raise FilterError(
            f"{term.name} is {name_kind(term.kind)} and has nothing inside.",
            details={"construct": "path", "field": term.name},
        )
    return Term(term.node, "json", f"{term.name}.{step}", path=(*term.path, step))


def index_value(node: Node, term: Term, index: Term) -> Term:
    """Build `value[index]`: an element of a list, counted from 1 (from the end if negative), a character of a
    text, or a key of JSON. `node` is the original expression.
    """
    index_node = {**node, "children": [term.whole, index.whole]}
    if index.constant and index.kind == "text":
        return inside(term, index.value)
    if index.constant and index.value == 0 and (is_list(term.kind) or term.kind in ("json", "text")):
        raise _build_element_error(term, 0)
    if is_list(term.kind):
        return Term(index_node, element(term.kind), f"{term.name}[{index.value if index.constant else index.name}]")
    if term.kind in ("text", ANY):
        return Term(index_node, term.kind, term.name)
    if not (index.constant and index.kind == "integer"):
        raise FilterError("An index must be a whole number or a key in quotes.", details={"construct": "index"})
    if term.kind == "json" and index.value > 0:
        return inside(term, min(1_000_000_000, index.value) - 1)
    raise _build_element_error(term, index.value)


def _build_element_error(term: Term, position: int) -> FilterError:
    return FilterError(
        f"{term.name} has no element [{position}].",
        suggestion="indices count from 1; of a text, substring() takes a part",
        details={"construct": "index", "field": term.name},
    )


def arrow(name: str, term: Term, step: Term) -> Term:
    """Build `value -> step` and `->>`, or the function of that name: a key, an index from 0, or a path (`$.a.b[0]`
    or `/a/b/0`).
    """
    if term.kind == ANY:
        return Term(call_node(name, term.node, step.whole), ANY, term.name)
    if not step.constant or step.kind not in ("integer", "text"):
        raise FilterError("A JSON path must be a constant.", details={"construct": "JSON path"})
    steps = [step.value] if step.kind == "integer" else _parse_steps(step.value)
    for key in steps:
        if isinstance(key, int) and key < 0:
            raise FilterError("An index into JSON counts from 0.", details={"construct": "JSON path"})
        term = inside(term, key)
    return term


def _parse_steps(path: str) -> list[str | int]:
    if path.startswith("/"):
        return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    if not path.startswith("$"):
        return [path]
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise FilterError(
                "A JSON path does not parse.", suggestion="'$.key.inner[0]'", details={"construct": "JSON path"}
            )
        steps.append(int(match[3]) if match[3] else match[1] or match[2])
        position = match.end()
    return steps


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


STATEMENTS_ALONE = {
    "SUBQUERY": "a subquery",
    "STAR": "a star",
    "WINDOW": "a window function",
    "POSITIONAL_REFERENCE": "a positional reference",
    "GROUPING_FUNCTION": "grouping()",
}
"""Expressions and operators only for statements: they do not concern a single record, which is all that a filter
sees.
"""

_TYPES = {
    "BOOLEAN": "bool logical",
    "TINYINT": "int1",
    "SMALLINT": "int2 int16 short",
    "INTEGER": "int int4 int32 integral signed",
    "BIGINT": "int8 int64 long oid",
    "HUGEINT": "int128",
    "UTINYINT": "uint8",
    "USMALLINT": "uint16",
    "UINTEGER": "uint32",
    "UBIGINT": "uint64",
    "FLOAT": "float4 real",
    "DOUBLE": "float8",
    "DECIMAL": "dec numeric",
    "VARCHAR": "bpchar char nvarchar string text",
    "DATE": "",
    "TIME": "",
    "TIMESTAMP": "datetime timestamp_us",
    "TIMESTAMP_S": "",
    "TIMESTAMP_MS": "",
    "TIMESTAMP WITH TIME ZONE": "timestamptz",
    "INTERVAL": "",
    "UUID": "guid",
    "JSON": "",
    "LIST": "",
    "ARRAY": "",
    "STRUCT": "row",
}
TYPES = {name.lower(): canonical for canonical, names in _TYPES.items() for name in (canonical, *names.split())}
"""The types that a CAST may name, by each of their names. Composed types contain these."""


SHOWN = _set("DESCRIBE SUMMARY")
"""What may be shown of a query: its columns, or statistics of them."""


def type_name(node: Mapping[str, Any]) -> str:
    """Return the only name of a type; empty if the type is not allowed."""
    return TYPES.get(str(node["type_name"]).lower(), "")


ESCAPED = _set("like_escape not_like_escape ilike_escape not_ilike_escape")
"""LIKE and its variants with ESCAPE, which the parser calls operators."""

OPERATORS = ESCAPED | _set("+ - * / // % ^ ** & | ~ << >> || -> ->> @> <@ && <=> ~~ !~~ ~~* !~~* ~~~")

TAKE_NAMES = _set("struct_pack unnest")
"""Functions whose arguments may have names; elsewhere a name could reorder the arguments."""

TEXTS = _set(
    """regexp_matches regexp_full_match regexp_extract regexp_extract_all regexp_replace regexp_split_to_array string_split
    string_split_regex str_split split split_part like_escape not_like_escape ilike_escape not_ilike_escape
    lower lcase upper ucase strlen char_length character_length starts_with ends_with prefix suffix trim ltrim rtrim
    substring substr left right strpos instr position concat concat_ws replace reverse translate ascii chr unicode
    md5 sha256 bit_length strip_accents nfc_normalize string_to_array strptime try_strptime
    overlay"""
)
"""Functions that take texts: a JSON value is passed as its text."""

NUMBERS = _set(
    """abs round floor ceil ceiling trunc sign sqrt cbrt ln log log2 log10 exp pow power mod fmod isnan isinf isfinite pi
    sin cos tan width_bucket even gcd lcm radians degrees atan atan2 acos asin sum avg mean median
    round_even roundbankers"""
)
"""Functions that take numbers: a JSON value is passed as its number."""

_VALUES = """length len contains array_to_string hash greatest least coalesce ifnull nullif if typeof row struct_pack
    struct_extract map"""
_TIMES = """now current_timestamp get_current_timestamp current_date today date make_date make_timestamp
    year quarter month week day dayofmonth hour minute second dayofweek isodow dayofyear dayname monthname last_day epoch
    epoch_ms epoch_us date_part datepart date_trunc datetrunc date_diff datediff date_sub datesub age strftime time_bucket to_years
    to_months to_weeks to_days to_hours to_minutes to_seconds yearweek weekofyear"""
_LISTS = """list_value list_pack list_contains array_contains list_has array_has list_has_any list_has_all array_has_any
    array_has_all array_length list_length list_extract list_element array_extract list_slice array_slice list_concat
    list_sort array_sort list_reverse_sort list_distinct list_unique list_position list_indexof list_aggregate list_sum
    list_avg list_min list_max list_count list_transform list_apply list_filter flatten unnest list_cosine_similarity
    list_cosine_distance list_inner_product list_dot_product list_distance list_negative_inner_product
    list_negative_dot_product array_cosine_similarity array_cosine_distance array_inner_product array_dot_product
    array_distance array_negative_inner_product array_negative_dot_product array_cross_product array_value array_concat
    array_cat list_cat array_append array_prepend array_push_back array_push_front list_append list_prepend
    array_pop_back array_pop_front list_first list_last list_reverse array_reverse array_reverse_sort list_grade_up
    array_grade_up array_distinct array_unique array_position array_indexof list_intersect array_intersect list_where
    array_where list_select array_select list_zip array_zip list_aggr array_aggr array_aggregate array_transform
    array_apply array_filter list_any_value list_approx_count_distinct list_bit_and list_bit_or list_bit_xor
    list_bool_and list_bool_or list_entropy list_histogram list_kurtosis list_kurtosis_pop list_mad list_median
    list_mode list_product list_sem list_skewness list_stddev_pop list_stddev_samp list_string_agg list_var_pop
    list_var_samp array_to_string_comma_default"""
_JSON = """json_extract json_extract_string json_extract_path json_extract_path_text json_array_length json_keys json_type
    json_valid json_exists json_contains json_value json_object json_array to_json json_quote json_structure
    array_to_json row_to_json json_merge_patch json json_set json_insert json_replace json_remove json_deep_merge
    json_merge_patch_diff json_strip_nulls json_normalize"""

AGGREGATES = _set(
    """count count_star sum avg mean min max median mode quantile quantile_cont quantile_disc approx_count_distinct stddev
    stddev_samp stddev_pop variance var_samp var_pop string_agg group_concat list array_agg first last any_value arg_min
    arg_max min_by max_by bool_and bool_or count_if countif product corr covar_pop covar_samp entropy kurtosis skewness
    histogram bit_and bit_or bit_xor fsum sum_no_overflow json_group_array json_group_object
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value"""
)
"""Functions of many rows, which filters do not support."""

REFUSED = {
    "list_resize": "makes a list of any length out of nothing",
    "array_resize": "makes a list of any length out of nothing",
    "list_reduce": "runs an expression whose value may double at each element",
    "array_reduce": "runs an expression whose value may double at each element",
    "json_pretty": "indents each level of nesting: a text becomes its square",
    "from_json": "reads a structure out of a text, a list of types that nobody has judged",
    "json_transform": "reads a structure out of a text, a list of types that nobody has judged",
    "json_transform_strict": "reads a structure out of a text, a list of types that nobody has judged",
    "json_serialize_sql": "parses statements",
    "json_deserialize_sql": "writes statements",
    "json_serialize_plan": "plans statements",
    "json_execute_serialized_sql": "runs statements",
    "json_copy_strftime_if_date": "is a part of COPY",
    "json_copy_strftime_if_timestamp": "is a part of COPY",
    "__internal_json_copy_to_json": "is a part of COPY",
}
"""DuckDB's functions of lists, arrays and JSON that are left out, and why."""

FUNCTIONS = TEXTS | NUMBERS | AGGREGATES | _set(" ".join((_VALUES, _TIMES, _LISTS, _JSON)))
