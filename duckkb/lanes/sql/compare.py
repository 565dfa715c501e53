"""How two values of different kinds meet: comparisons, lists of alternatives, patterns.

| left and right | compared as |
|---|---|
| the same kind, or integer and number | they are |
| text or JSON, and a number | numbers; text that is none does not match |
| text or JSON, and true/false, a date or a time | that; text that is none does not match |
| JSON and text, or JSON and JSON | the text of the JSON value |
| date and time | times; a date is its first moment |
| a list and a list of the same kind | element by element |
| anything else | refused, naming the field |

A constant takes the kind of what it stands beside; one that cannot is refused before anything runs.
"""

import re
from collections.abc import Sequence

from duckkb.errors import FilterError
from duckkb.lanes.sql.kinds import element, is_list, parse_date
from duckkb.lanes.sql.terms import (
    CONVERSIONS,
    NULL,
    Term,
    as_list,
    as_text,
    as_timestamp,
    list_error,
    named,
    plain,
    quoted_text,
    text_constant,
)

OPERATORS = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "<>",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_DISTINCT_FROM": "IS DISTINCT FROM",
    "COMPARE_NOT_DISTINCT_FROM": "IS NOT DISTINCT FROM",
}


def compare(operator: str, left: Term, right: Term) -> Term:
    """One comparison; the operator is one of OPERATORS' values."""
    left, right = meet(left, right)
    return Term(f"({left.sql} {operator} {right.sql})", "boolean")


def meet(left: Term, right: Term) -> tuple[Term, Term]:
    """Both sides in one kind, so that the engine converts nothing by itself."""
    if "null" in (left.kind, right.kind):
        return plain(left), plain(right)
    if is_list(left.kind) or is_list(right.kind):
        return _meet_lists(left, right)
    kind = _common_kind(left, right)
    return _converted(left, kind, right), _converted(right, kind, left)


def _common_kind(left: Term, right: Term) -> str:
    kinds = {left.kind, right.kind}
    rest = kinds - {"text", "json"}
    if kinds == {"date", "text"}:
        return "date" if _is_day(left) and _is_day(right) else "timestamp"
    if not rest:
        return "text"
    if len(rest) == 1 and "interval" not in rest:
        return rest.pop()
    if rest == {"integer", "number"}:
        return "number"
    if rest == {"date", "timestamp"}:
        return "timestamp"
    raise _mismatch(left, right)


def _is_day(term: Term) -> bool:
    """Only a constant that also has a time of day turns a comparison with a date into one of times."""
    return not (term.constant and term.kind == "text") or parse_date(term.value.strip()) is not None


def _converted(term: Term, kind: str, beside: Term) -> Term:
    if term.kind == kind:
        return term
    try:
        return CONVERSIONS[kind](term)
    except FilterError:
        raise _mismatch(beside, term) from None


def _mismatch(left: Term, right: Term) -> FilterError:
    named_field, other = (right, left) if left.constant else (left, right)
    what = f"a constant that is {named(other.kind)}" if other.constant else f"{other.name}, {named(other.kind)}"
    if other.constant and other.kind == "text":
        what = "this constant"
    return FilterError(
        f"{named_field.name} is {named(named_field.kind)} and cannot be compared with {what}.",
        suggestion="compare values of one kind, or CAST one side",
        details={"construct": "comparison", "field": named_field.name},
    )


def _meet_lists(left: Term, right: Term) -> tuple[Term, Term]:
    if left.kind == "json" or right.kind == "json":
        return as_text_list(left), as_text_list(right)
    if not (is_list(left.kind) and is_list(right.kind)):
        raise list_error(left if is_list(left.kind) else right)
    kinds = {element(left.kind), element(right.kind)}
    if "null" in kinds or len(kinds) == 1 or kinds == {"integer", "number"}:
        return left, right
    raise _mismatch(left, right)


def as_text_list(term: Term) -> Term:
    """A list of texts, from a list of any kind or from a JSON array."""
    if term.kind == "json":
        return as_list(term, "text")
    if not is_list(term.kind):
        raise list_error(Term("", "text[]", term.name))
    return term if term.kind == "text[]" else Term(f"CAST({term.sql} AS VARCHAR[])", "text[]", term.name)


def unify(terms: Sequence[Term]) -> list[Term]:
    """The branches of a CASE or the arguments of COALESCE in one kind: their own, a wider one, or text."""
    kinds = {term.kind for term in terms} - {"null"}
    if any(is_list(kind) for kind in kinds) and len(kinds) > 1:
        raise list_error(next(term for term in terms if is_list(term.kind)))
    if kinds == {"date", "timestamp"}:
        return [as_timestamp(term) for term in terms]
    if kinds <= {"integer", "number"} or (len(kinds) == 1 and kinds != {"json"}):
        return list(terms)
    return [as_text(term) for term in terms]


def common_kind(terms: Sequence[Term]) -> str:
    """The kind of what `unify` gave."""
    kinds = {term.kind for term in terms} - {"null"}
    return "number" if kinds == {"integer", "number"} else next(iter(kinds), "null")


def is_among(term: Term, items: Sequence[Term]) -> Term:
    """`term IN (items)`; items of several kinds are compared each in its own way."""
    groups: dict[str, list[str]] = {}
    for item in items:
        left, right = meet(term, item)
        found = groups.setdefault(left.sql, [])
        found.append(right.sql)
        if left.kind == "number" and right.constant and not right.value:
            found.append(
                "CAST('-0.0' AS DOUBLE)"
            )  # a list of several is looked up by bits, which differ from those of 0.0
    tests = [f"{left} IN ({', '.join(rights)})" for left, rights in groups.items()]
    return Term(f"({' OR '.join(tests)})", "boolean")


def like(term: Term, pattern: Term, *, fold: bool, escape: Term | None = None) -> Term:
    """`LIKE`, or `ILIKE` with `fold`. The pattern is a constant, so that matching takes linear time."""
    if pattern.kind == "null" or (escape and escape.kind == "null"):
        return Term("CAST(NULL AS BOOLEAN)", "boolean")
    if not (pattern.constant and pattern.kind == "text"):
        raise FilterError("The pattern of LIKE must be a string.", details={"construct": "LIKE", "field": term.name})
    parts = _pattern_parts(pattern.value, _escape_sign(escape))
    text = as_text(NULL if term.kind == "null" else term)
    source = f"CAST({text.sql} AS VARCHAR)" if text.kind == "null" else text.sql
    literals = "".join(sign for is_literal, sign in parts if is_literal)
    if "_" in literals or "%" in literals or (False, "_") in parts:
        return Term(f"regexp_full_match({source}, {quoted_text(_regex(parts, fold))})", "boolean")
    wanted = text_constant("".join(sign for _, sign in parts)).sql
    sql = f"(lower({source}) LIKE lower({wanted}))" if fold else f"({source} LIKE {wanted})"
    return Term(sql, "boolean")


def _escape_sign(escape: Term | None) -> str:
    if escape is None:
        return ""
    if not (escape.constant and escape.kind == "text" and len(escape.value) <= 1):
        raise FilterError("ESCAPE takes one character.", details={"construct": "ESCAPE"})
    return str(escape.value)


def _pattern_parts(pattern: str, escape: str) -> list[tuple[bool, str]]:
    """The characters of a pattern, each with whether it stands for itself."""
    parts, signs = [], iter(pattern)
    for sign in signs:
        if sign == escape:
            following = next(signs, None)
            if following is None:
                raise FilterError("A pattern cannot end in its ESCAPE character.", details={"construct": "ESCAPE"})
            parts.append((True, following))
        else:
            parts.append((sign not in "%_", sign))
    return parts


def _regex(parts: Sequence[tuple[bool, str]], fold: bool) -> str:
    """RE2 matches in linear time, where the engine's own LIKE backtracks on patterns with `_`."""
    wild = {"%": ".*", "_": "."}
    body = "".join(_literal(sign) if is_literal else wild[sign] for is_literal, sign in parts)
    return ("(?is)" if fold else "(?s)") + body


def _literal(sign: str) -> str:
    return re.sub(r"([^\w\s])", r"\\\1", sign) if sign.isascii() else sign
