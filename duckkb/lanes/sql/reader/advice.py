"""Suggests the correction of a refused filter or statement: repairs idioms of other dialects one by one until it
is accepted.

Only a corrected text that was parsed and has run is suggested, so that the printed command works: the engine
has the last word about unknown types and about values that do not convert.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches

from msgspec import Struct

from duckkb.errors import FilterError, shell_word
from duckkb.lanes.sql.columns import Columns, quote_identifier
from duckkb.lanes.sql.process.engine import Rejected
from duckkb.lanes.sql.reader.syntax import MAX_FILTER, Source

_MOST_STEPS = 8
_TEXT = r"'(?:[^']|'')*'"
_NAME = r"[A-Za-z_][\w.]*"
_ITEMS = r"(?:ARRAY\s*)?(\[[^\[\]]*\])"
_FILTERS_ALONE: tuple[tuple[str, str], ...] = (
    (r"(?is)^\s*SELECT\b.*?\bWHERE\b", ""),
    (r"(?i)^\s*WHERE\b", ""),
    (r"(?is)\s+(?:ORDER\s+BY|LIMIT|OFFSET|GROUP\s+BY)\b[^']*$", ""),
    (r"\s*;\s*$", ""),
    (rf"(?i)\b(?:EXISTS|has|defined)\s*\(\s*({_NAME})\s*\)|^\s*({_NAME})(?:\s+EXISTS)?\s*$", r"\1\2 IS NOT NULL"),
    (rf"(?i)^\s*({_NAME})\s*:(?!:)\s*([\"']?)([^\"']+)\2\s*$", r"\1 = '\3'"),
)
_SPELLED: tuple[tuple[str, str], ...] = (
    (r"[“”„]", '"'),
    (r"[‘’]", "'"),
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
    (r"(?i)\bBETWEEN\s+(\S+)\s*,\s*(\S+)", r"BETWEEN \1 AND \2"),
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
