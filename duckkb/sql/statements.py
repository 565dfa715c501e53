"""Turns a filter or a statement into the SQL that runs: parses and reads it, lets the engine write the accepted
tree, and checks the result again before it runs.

Suggests the correction of a refused filter or statement: repairs idioms of other dialects one by one until it
is accepted.

Only a corrected text that was parsed and has run is suggested, so that the printed command works: the engine
has the last word about unknown types and about values that do not convert."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any

from msgspec import Struct

from duckkb.sql.columns import Columns, quote_identifier
from duckkb.sql.sql_process import Engine, Rejected
from duckkb.sql.statement_names import Scope
from duckkb.sql.statement_reader import Tables, TreeReader
from duckkb.sql.syntax import (
    MAX_FILTER,
    Node,
    Source,
    check_forms,
    is_reserved,
    parse_condition,
    parse_statement,
    too_deep,
)
from duckkb.types.errors import FilterError, Unavailable, shell_word
from duckkb.types.records import ID

_MOST_IN_FILTER, _MOST_IN_STATEMENT = 20_000, 400_000  # expressions, once all is written out


class SqlQuery(Struct, frozen=True):
    """SQL that may run, and the runtime tables that it reads, in lower case."""

    sql: str
    tables: frozenset[str]


def read_condition(
    engine: Engine, table: str, columns: Columns, text: str, now: datetime, run: Callable[[SqlQuery], object]
) -> SqlQuery:
    """Return the query for the ids of the records that satisfy a filter; raises FilterError (`E_FILTER`) for
    anything that is not allowed or does not fit. `now` is the value of now() and current_date. `run` gets only
    possible corrections, never the text itself: only corrections that have run are suggested.
    """

    def question(filter_text: str) -> SqlQuery:
        source = Source(filter_text, is_filter=True)
        tree, condition = parse_condition(engine, source)
        check_forms(source, tree)
        scope = Scope()
        scope.add("", columns)
        query = tree["statements"][0]["node"]
        query["where_clause"] = TreeReader(source, {}, now=now).condition(condition, scope).node
        query["select_list"] = [{"class": "COLUMN_REF", "type": "COLUMN_REF", "column_names": [ID]}]
        query["from_table"] |= {"table_name": table, "qualified_name": {"path": [table]}}
        return _build_query(engine, source, tree, (table.casefold(),))

    with _add_advice(
        engine, Source(text, is_filter=True), lambda suggested_text: run(question(suggested_text)), lambda: columns
    ):
        return question(text)


def read_tree(engine: Engine, columns: Columns, text: str, now: datetime) -> Node:
    """Return the tree of a filter that would run; raises as `read_condition`, without suggestions."""
    source = Source(text, is_filter=True)
    scope = Scope()
    scope.add("", columns)
    try:
        tree, condition = parse_condition(engine, source)
        check_forms(source, tree)
        return TreeReader(source, {}, now=now).condition(condition, scope).node
    except RecursionError:
        raise too_deep(source) from None


def read_statement(
    engine: Engine, tables: Tables, text: str, now: datetime, run: Callable[[SqlQuery], object]
) -> SqlQuery | None:
    """Return the query of a SELECT over runtime tables, None for SHOW TABLES; raises FilterError (`E_SQL`) if it
    is refused. `run` gets possible corrections.
    """

    def question(statement: str) -> SqlQuery | None:
        source = Source(statement)
        tree = parse_statement(engine, source)
        check_forms(source, tree)
        query = tree["statements"][0]["node"]
        match query.get("from_table"):
            case {"type": "SHOW_REF", "show_type": "SHOW_SPECIAL", "table_name": '"tables"'}:
                return None
            case {"type": "SHOW_REF", "show_type": "SHOW", "schema_name": "", "table_name": name}:
                return question(f"DESCRIBE {quote_identifier(name)}")
        try:
            TreeReader(source, tables, lambda node: _print_node(engine, node), now).query(query)
        except RecursionError:
            raise too_deep(source) from None
        except Rejected as error:
            raise _build_write_error(source, error) from error
        return _build_query(engine, source, tree, tables)

    def columns() -> Columns | None:
        """Return the columns of the first table that the text names."""
        table_names = (name for name in re.findall(r"\w+", text.casefold()) if name in tables)
        return next((table_columns for name in table_names if (table_columns := tables[name]()) is not None), None)

    def ask(suggested_text: str) -> None:
        if (suggested_query := question(suggested_text)) is not None:
            run(suggested_query)

    with _add_advice(engine, Source(text), ask, columns):
        return question(text)


def _build_query(engine: Engine, source: Source, tree: Any, tables: Iterable[str]) -> SqlQuery:
    """Let the engine write an accepted tree; verify that the written text is allowed as well."""
    again_source = Source(source.text)
    again = TreeReader(again_source, dict.fromkeys(tables, lambda: None), again=True)
    try:
        if _count_expressions(tree, {}) > (_MOST_IN_FILTER if source.is_filter else _MOST_IN_STATEMENT):
            raise source.build_refusal("so many repeated parts", "Make the condition simpler.")
        sql = engine.unparse(tree)
        written_tree = engine.parse(sql)
        check_forms(again_source, written_tree)
        again.query(written_tree["statements"][0]["node"])
    except RecursionError:
        raise too_deep(source) from None
    except Rejected as error:
        raise _build_write_error(source, error) from error
    return SqlQuery(sql, frozenset(again.tables))


def _build_write_error(source: Source, error: Rejected) -> FilterError:
    """Return the error for a tree that the engine does not write as a statement."""
    if error.reason == "deep":
        return too_deep(source)
    return source.build_refusal("a construct that cannot be written back", "write it in another way")


def _print_node(engine: Engine, node: Node) -> str:
    """Return an expression as the engine names its column."""
    tree = engine.parse("SELECT 1")
    tree["statements"][0]["node"]["select_list"] = [node]
    return engine.unparse(tree).removeprefix("SELECT ")


def _count_expressions(value: Any, counts: dict[int, int]) -> int:
    """Count the expressions, each as often as it would be written."""
    if id(value) not in counts:
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        counts[id(value)] = (isinstance(value, dict) and "class" in value) + sum(
            _count_expressions(member, counts) for member in inner
        )
    return counts[id(value)]


@contextmanager
def _add_advice(
    engine: Engine, source: Source, ask: Callable[[str], object], columns: Callable[[], Columns | None]
) -> Iterator[None]:
    """Add a working suggestion to a refusal, if there is any."""
    try:
        yield
    except FilterError as error:
        table_columns = columns() if len(source.text) <= MAX_FILTER else None
        if table_columns is not None:

            def list_reserved_words(text: str) -> list[str]:
                """Return the field names in a text that are reserved words, such as `order` or `from`."""
                names = {name.casefold() for name in table_columns.names}
                words = dict.fromkeys(re.findall(r'(?<!["\w.])[^\W\d]\w*', text[:MAX_FILTER]))
                return [word for word in words if word.casefold() in names and is_reserved(engine, word)]

            with suppress(Unavailable):  # a correction that takes too long to try is not suggested; the refusal stands
                command = advise(Slip(source, table_columns, ask, list_reserved_words), error)
                if (
                    not command
                    and error.details.get("construct") == "syntax"
                    and (words := list_reserved_words(source.text))
                ):
                    names = ", ".join(map(quote_identifier, words[:5]))
                    error.message += f" Put field names that are words of SQL in double quotes: {names}."
                error.suggestion = command or error.suggestion or table_columns.shown_by
        error.suggestion = error.suggestion or ("" if source.is_filter else 'duckkb sql "SHOW TABLES"')
        raise


_MOST_STEPS = 8
_TEXT = r"'(?:[^']|'')*'"
_NAME = r"[A-Za-z_][\w.]*"
_ITEMS = r"(?:ARRAY\s*)?(\[[^\[\]]*\])"
_NO_TEST = r"(?!(?:NOT|NULL|TRUE|FALSE|UNKNOWN|DISTINCT)\b)"
_KEYWORDS = re.findall(
    r"\w+",
    "SELECT DISTINCT FROM WHERE GROUP ORDER BY HAVING LIMIT OFFSET AND OR NOT BETWEEN LIKE ILIKE IN IS NULL AS ASC DESC "
    "JOIN LEFT INNER ON UNION CASE WHEN THEN ELSE END DESCRIBE SHOW TABLES WITH",
)
_FILTERS_ALONE: tuple[tuple[str, str], ...] = (
    (r"(?is)^\s*SELECT\b.*?\bWHERE\b", ""),
    (r"(?i)^\s*WHERE\b", ""),
    (r"(?is)\s+(?:ORDER\s+BY|LIMIT|OFFSET|GROUP\s+BY)\b[^']*$", ""),
    (r"(?i)^\s*(?:AND|OR)\b", ""),
    (r"\s*;\s*$", ""),
    (rf"(?i)\b(?:EXISTS|has|defined)\s*\(\s*({_NAME})\s*\)|^\s*({_NAME})(?:\s+EXISTS)?\s*$", r"\1\2 IS NOT NULL"),
    (rf"(?i)^\s*({_NAME})(?:\s*:(?!:)\s*|\s+(?:IS|EQ|EQUALS)\s+{_NO_TEST})([\"']?)([^\"']+)\2\s*$", r"\1 = '\3'"),
)
_SPELLED: tuple[tuple[str, str], ...] = (
    (r"[“”„]", '"'),
    (r"[‘’]", "'"),
    (r"(?i)(?:\s+(?:AND|OR|NOT|WHERE|HAVING|(?:ORDER|GROUP)\s+BY|LIMIT)|\s*(?:&&|\|\||,))\s*;?\s*$", ""),
    (r"(?i)\bSELECT\s+COUNT\s+FROM\b", "SELECT count(*) FROM"),
    (r"(?is)^(\s*SELECT\s+)TOP\s*\(?(\d+)\)?\s+(.*?);?\s*$", r"\1\3 LIMIT \2"),
    (
        r"(?is)(\bFROM\b.*\b(?:GROUP|ORDER))\s+(?!(?:BY|IN|IS|LIKE|ILIKE|BETWEEN|AND|OR|NOT)\b)(?=[\w\"])",
        r"\1 BY ",
    ),
    (r"([=<>]\s*\d+),(\d{3})\b", r"\1\2"),
    (rf"(?i)\b({_NAME}\s+(?:NOT\s+)?IN)\s+([\w-]+(?:\s*,\s*[\w-]+)+)\s*$", r"\1 (\2)"),
    (
        rf"(?i)\b({_NAME}\s+(?:CONTAINS|INCLUDES|HAS|STARTS_?\s*WITH|ENDS_?\s*WITH))\s+([^\W\d][\w-]*)",
        r"\1 '\2'",
    ),
    (r"===?", "="),
    (r"!==", "<>"),
    (rf"(?i)({_TEXT})\s*=\s*(?:ANY|SOME)\s*\(\s*({_NAME})\s*\)", r"list_contains(\2, \1)"),
    (rf"(?i)(?:ANY|SOME)\s*\(\s*({_NAME})\s*\)\s*=\s*({_TEXT})", r"list_contains(\1, \2)"),
    (rf"(?i)({_TEXT})\s+IN\s+({_NAME})(?!\s*\()", r"list_contains(\2, \1)"),
    (rf"(?i)({_NAME})\s*@>\s*{_ITEMS}", r"list_has_all(\1, \2)"),
    (rf"(?i)({_NAME})\s*@>\s*({_TEXT})", r"list_contains(\1, \2)"),
    (rf"(?i)({_NAME})\s*&&\s*{_ITEMS}", r"list_has_any(\1, \2)"),
    (r"&&", " AND "),
    (
        rf"(?i)\b(?:json_extract(?:_string)?|json_value|json_query|jsonb_path_query|get_json_object)\(\s*{_NAME}\s*,\s*'\$\.([\w.]+)'\s*\)",
        r"\1",
    ),
    (rf"(?i)({_NAME})\s+(?:CONTAINS|INCLUDES|HAS)\s+({_TEXT})", r"contains(\1, \2)"),
    (rf"(?i)({_NAME})\s+STARTS_?\s*WITH\s+({_TEXT})", r"starts_with(\1, \2)"),
    (rf"(?i)({_NAME})\s+ENDS_?\s*WITH\s+({_TEXT})", r"ends_with(\1, \2)"),
    (rf"(?i)\b({_NAME})\s+(NOT\s+)?IN\s*\[([^\[\]]*)\]", r"\1 \2IN (\3)"),
    (r"(?i)\b(?:cardinality|array_length|array_size|size|json_length)\(\s*([\w.]+)\s*(?:,\s*1\s*)?\)", r"len(\1)"),
    (r"(?i)(?:<>|!=)\s*(?:None|nil|undefined)\b", "IS NOT NULL"),
    (r"(?i)=\s*(?:None|nil|undefined)\b", "IS NULL"),
    (r"(?i)\bBETWEEN\s+(\S+?)(?:\s*(?:,|\.\.)\s*|\s+(?:TO|UNTIL|-)\s+)(\S+)", r"BETWEEN \1 AND \2"),
    (r"(?i)\b(I?LIKE)\s+(?=[^\s'\"]*%)(%[^'\"%]*%|[^\s'\"()]+)", r"\1 '\2'"),
    (r"(?i)(?:<>|!=)\s*NULL\b", "IS NOT NULL"),
    (r"(?i)(?<![<>!])=\s*NULL\b", "IS NULL"),
    (r"(?<=\w)'(?=\w)", "''"),
    (r"(?i)\b(?:regexp_like|regexp_full_match|regexp)\(", "regexp_matches("),
    (rf"(?i)({_NAME})\s*\b(?:REGEXP|RLIKE|MATCHES|SIMILAR\s+TO)\b\s*({_TEXT})", r"regexp_matches(\1, \2)"),
)


class Slip(Struct, frozen=True):
    """A refused text, the columns of its table, a function that runs another text (it raises FilterError or
    Rejected for a refused text), and a function that finds the field names in it that are reserved words.
    """

    source: Source
    columns: Columns
    ask: Callable[[str], object]
    reserved: Callable[[str], Sequence[str]]


def advise(slip: Slip, error: FilterError) -> str:
    """Return the corrected command; empty if no correction works. The corrected text alone becomes the error's
    `correction`.
    """
    text, name = slip.source.text, slip.columns.type
    if len(text) > MAX_FILTER // 4:
        return ""
    score_match = re.search(r"(?i)_score\s*(>=|<=|>|<|=)\s*([\d.]+)", text)
    if score_match and slip.source.is_filter:
        head = f'duckkb find {shell_word(name)} "what you look for"'
        return f"{head} | jq -c 'select(._score {score_match[1].replace('=', '==', score_match[1] == '=')} {score_match[2]})'"
    better = _mend_text(slip, error)
    if not better:
        return ""
    error.correction = text, better
    return f"duckkb {f'find {shell_word(name)} -w' if slip.source.is_filter else 'sql'} {shell_word(better)}"


def _mend_text(slip: Slip, error: FilterError) -> str:
    text = slip.source.text
    now: FilterError | None = error
    for _ in range(_MOST_STEPS):
        assert now is not None
        step = next((candidate for candidate in _iter_steps(slip, text, now) if candidate != text), None)
        if step is None:
            return ""
        text = step
        now = _find_refusal(slip, text)
        if now is None:
            return text.strip()
    return ""


def _find_refusal(slip: Slip, text: str) -> FilterError | None:
    try:
        slip.ask(text)
    except FilterError as error:
        return error
    except Rejected as error:
        return FilterError("The engine does not take it.", details={"construct": error.reason})
    return None


def _iter_steps(slip: Slip, text: str, error: FilterError) -> Iterator[str]:
    """Yield corrections of the text, or the same text if a correction changes nothing."""
    yield _replace_backticks(slip.columns, text)
    replacements = (*_FILTERS_ALONE, *_SPELLED) if slip.source.is_filter else _SPELLED
    yield from (re.sub(way, better, text) for way, better in replacements)
    yield _quote_dates(text)
    yield _replace_days(slip.columns, text)
    yield _correct_keyword(slip.columns, text, error)
    yield _correct_field_name(slip.columns, text, error)
    yield _adapt_to_kind(text, error)
    yield _quote_reserved_words(text, slip.reserved(text))


def _quote_dates(fragment: str) -> str:
    """Quote dates and times without quotes."""
    return re.sub(
        rf"{_TEXT}|\"[^\"]*\"|(?<![\w./-])(\d{{4}})\s*[-/]\s*(\d\d?)\s*[-/]\s*(\d\d?)([T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?(?![\w./-])",
        lambda match: f"'{match[1]}-{match[2]:0>2}-{match[3]:0>2}{match[4] or ''}'" if match[1] else match[0],
        fragment,
    )


def _replace_days(columns: Columns, fragment: str) -> str:
    """Replace a day that a word names behind an operator by its date."""
    days = ("yesterday", "today", "tomorrow")
    return re.sub(
        rf"(?i){_TEXT}|([=<>]\s*)({'|'.join(days)})\b(?!\s*[.(])",
        lambda match: (
            match[0]
            if (day := (match[2] or "").lower()) in ("", *columns.names)
            else f"{match[1]}'{datetime.now(UTC).date() + timedelta(days.index(day) - 1)}'"
        ),
        fragment,
    )


def _correct_keyword(columns: Columns, fragment: str, error: FilterError) -> str:
    """Correct the last misspelt keyword before the place where a text does not parse: `form` to FROM."""
    if error.details.get("construct") != "syntax":
        return fragment
    names = {*(name.casefold() for name in columns.names), columns.type.casefold()}
    for match in reversed([*re.finditer(rf"{_TEXT}|\"[^\"]*\"|[^\W\d]\w*", fragment)]):
        word = match[0].upper()
        is_before = match.start() < (error.details.get("position") or len(fragment))
        if not is_before or word in _KEYWORDS or word[0] in "'\"" or word.casefold() in names:
            continue
        near = [keyword for keyword in _KEYWORDS if sorted(keyword) == sorted(word)]
        if near := near or get_close_matches(word, _KEYWORDS, 1, 0.75):
            return f"{fragment[: match.start()]}{near[0]}{fragment[match.end() :]}"
    return fragment


def _quote_reserved_words(fragment: str, names: Sequence[str]) -> str:
    """Put field names that are reserved words in double quotes; skip those in texts, or quoted already."""
    if not names:
        return fragment
    words = "|".join(map(re.escape, names))
    return re.sub(
        rf"{_TEXT}|\"[^\"]*\"|(?<![\w.])({words})(?!\w)",
        lambda match: quote_identifier(match[1]) if match[1] else match[0],
        fragment,
    )


def _replace_backticks(columns: Columns, fragment: str) -> str:
    """Replace backticks: a known field stays a name, anything else becomes a text."""
    return re.sub(
        r"`([^`]*)`",
        lambda match: _format_field(match[1]) if match[1] in columns.names else _quote_text(match[1]),
        fragment,
    )


def _format_field(name: str) -> str:
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else quote_identifier(name)


def _correct_field_name(columns: Columns, fragment: str, error: FilterError) -> str:
    """Correct an unknown field: to a text that lacks its quotes, or to a similar field name."""
    name = error.details.get("field")
    if error.details.get("construct") or not name or "nearest" not in error.details:
        return fragment
    near = error.details["nearest"] or _find_similar_name(str(name), columns)
    name_pattern = re.escape(str(name))
    whole = rf'"{name_pattern}"|(?<![\w."\'])({name_pattern})(?![\w"\'])'
    behind = re.search(rf"(?:=|<>|!=|<|>|\bLIKE|\bILIKE|\bIN\s*\(|,)\s*(?:{whole})", fragment, re.IGNORECASE)
    if behind and not re.match(r"\s*[.(\[]", fragment[behind.end() :]):
        return (
            fragment[: behind.start()]
            + re.sub(whole, _quote_text(str(name)).replace("\\", r"\\"), behind[0])
            + fragment[behind.end() :]
        )
    return re.sub(whole, near, fragment) if near else fragment


def _find_similar_name(name: str, columns: Columns) -> str:
    """Return the known name that is most similar, ignoring case and underscores: `created_at` for `createdAt`."""
    bare = {known_name.replace("_", "").casefold(): known_name for known_name in columns.names}
    near = get_close_matches(name.replace("_", "").casefold(), bare, 1, 0.8)
    return bare[near[0]] if near else ""


def _adapt_to_kind(fragment: str, error: FilterError) -> str:
    """Adapt `flag = 1` to a boolean, and a comparison of a list with a single value."""
    name = error.details.get("field")
    if not isinstance(name, str) or error.details.get("construct") not in ("list", "type", "comparison"):
        return fragment
    field = rf"(\"?{re.escape(name)}\"?)\s*"
    if error.details["construct"] == "list":
        return re.sub(rf"(?i){field}(?:=|LIKE|ILIKE)\s*'%?([^'%]*)%?'", r"list_contains(\1, '\2')", fragment)
    for literal_pattern, truth_word in (("1|'1'|'true'|'yes'", "TRUE"), ("0|'0'|'false'|'no'", "FALSE")):
        fragment = re.sub(rf"(?i){field}(=|<>|!=)\s*(?:{literal_pattern})(?![\w.])", rf"\1 \2 {truth_word}", fragment)
    return re.sub(rf"(?i){field}(=|<>|!=|<=|>=|<|>)\s*(-?\d+(?:\.\d+)?)(?![\w.])", r"\1 \2 '\3'", fragment)


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
