"""Arithmetic that cannot fail: numbers in double precision, division by zero is NULL, days and intervals on dates."""

from duckkb.errors import FilterError
from duckkb.lanes.sql.terms import Term, as_double, named

OPERATORS = ("+", "-", "*", "/", "%")


def arithmetic(operator: str, left: Term, right: Term) -> Term:
    """`left operator right`; text takes part where it is a number."""
    if left.is_moment or right.is_moment or "interval" in (left.kind, right.kind):
        return _shifted(operator, left, right)
    divisor = as_double(right)
    if operator in "/%":
        divisor = f"nullif({divisor}, 0)"
    return Term(f"({as_double(left)} {operator} {divisor})", "number", left.name)


def negative(term: Term) -> Term:
    """`-term`."""
    return Term(f"(-{as_double(term)})", "number", term.name)


def _shifted(operator: str, left: Term, right: Term) -> Term:
    if operator == "+" and right.is_moment and not left.is_moment:
        left, right = right, left
    if operator not in "+-" or not left.is_moment:
        raise _no_arithmetic(left, right)
    if right.kind == "interval":
        return Term(f"TRY(CAST({left.sql} {operator} {right.sql} AS TIMESTAMP))", "timestamp", left.name)
    if left.kind == "date" and right.kind == "integer":
        days = f"TRY_CAST({right.sql} AS INTEGER)"
        return Term(f"TRY({left.sql} {operator} {days})", "date", left.name)
    if operator == "-" and left.kind == right.kind == "date":
        return Term(f"TRY(date_diff('day', {right.sql}, {left.sql}))", "integer", left.name)
    raise _no_arithmetic(left, right)


def _no_arithmetic(left: Term, right: Term) -> FilterError:
    return FilterError(
        f"{named(left.kind)} and {named(right.kind)} do not go together here.".capitalize(),
        suggestion="add or subtract INTERVAL '7 days', or use date_diff('day', start, end)",
        details={"construct": "arithmetic", "field": left.name},
    )
