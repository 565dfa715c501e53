"""What a filter means, said once more in plain Python over the records: three-valued logic, values that do not convert are
missing. Nothing here imports duckkb.
"""

import json
import math
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

_NUMBER = re.compile(r"[ \t\n\f\r]*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?[ \t\n\f\r]*")


def all_of(values: list[bool | None]) -> bool | None:
    return False if False in values else None if None in values else True


def any_of(values: list[bool | None]) -> bool | None:
    return True if True in values else None if None in values else False


def not_(value: bool | None) -> bool | None:
    return None if value is None else not value


def compared(operator: str, left: Any, right: Any) -> bool | None:
    """Two values of one kind."""
    if operator == "IS DISTINCT FROM":
        return not _same(left, right)
    if operator == "IS NOT DISTINCT FROM":
        return _same(left, right)
    if left is None or right is None:
        return None
    left, right = _alike(left, right)
    match operator:
        case "=":
            return bool(left == right)
        case "<>" | "!=":
            return bool(left != right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case _:
            return bool(left >= right)


def _same(left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    left, right = _alike(left, right)
    return bool(left == right)


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Integers meet fractions as doubles, where 2^53 + 1 is 2^53. Python would compare them exactly."""
    if float in (type(left), type(right)) and {type(left), type(right)} <= {int, float}:
        return float(left), float(right)
    return left, right


def text_of_json(value: Any) -> str | None:
    """A JSON value's text: a string is itself, everything else as it is written."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def number_of_text(text: str | None) -> float | None:
    return float(text) if text is not None and _NUMBER.fullmatch(text) else None


def boolean_of_text(text: str | None) -> bool | None:
    return {"true": True, "false": False}.get(text or "")


def day(text: str | None) -> date | None:
    """A date as records hold it."""
    return None if text is None else date.fromisoformat(text)


def moment(text: str | None) -> datetime | None:
    """A time as records hold it, in UTC."""
    if text is None:
        return None
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC).replace(tzinfo=None)


def midnight(value: date | None) -> datetime | None:
    return None if value is None else datetime(value.year, value.month, value.day)


def text_of_number(value: float | int | None) -> str | None:
    return None if value is None else repr(value)


def text_of_time(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat(timespec="microseconds") + "Z"


def arithmetic(operator: str, left: float | None, right: float | None) -> float | None:
    """Integers are exact and have 64 bits, all else is a double; a division by zero gives nothing. `//` goes towards zero."""
    if left is None or right is None or (operator in ("/", "//", "%") and right == 0):
        return None
    if type(left) is type(right) is int and operator != "/":
        rest = abs(left) % abs(right or 1) * (1 if left >= 0 else -1)
        whole = (left - rest) // (right or 1)
        found = {"+": left + right, "-": left - right, "*": left * right, "//": whole, "%": rest}[operator]
        return found if -(2**63) <= found < 2**63 else None
    left, right = float(left), float(right)
    match operator:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case "//":
            return float(math.trunc(left / right))
        case _:
            return math.fmod(left, right)


def rounded(value: float | None) -> float | None:
    """Halves go away from zero."""
    return None if value is None else math.copysign(math.floor(abs(value) + 0.5), value)


def like(text: str | None, pattern: str, *, fold: bool = False, escape: str = "") -> bool | None:
    """By hand, without a regular expression: which positions of the text can follow after each part of the pattern."""
    if text is None:
        return None
    if fold:
        text, pattern = text.lower(), pattern.lower()
    reached, signs = {0}, iter(pattern)
    for sign in signs:
        if escape and sign == escape:
            sign = next(signs)
        elif sign == "%":
            reached = set(range(min(reached, default=len(text) + 1), len(text) + 1))
            continue
        elif sign == "_":
            reached = {place + 1 for place in reached if place < len(text)}
            continue
        reached = {place + 1 for place in reached if text[place : place + 1] == sign}
    return len(text) in reached


def element(items: list[Any] | None, index: int) -> Any:
    """Counted from 1, from the end where negative."""
    if items is None or index == 0 or abs(index) > len(items):
        return None
    return items[index - 1 if index > 0 else index]


def left_part(text: str | None, count: int) -> str | None:
    return None if text is None else text[:count]


def right_part(text: str | None, count: int) -> str | None:
    if text is None:
        return None
    return text[len(text) - min(count, len(text)) :] if count >= 0 else text[-count:]


def truncated(part: str, value: datetime | None) -> datetime | None:
    if value is None:
        return None
    match part:
        case "year":
            return datetime(value.year, 1, 1)
        case "month":
            return datetime(value.year, value.month, 1)
        case "week":
            return datetime(value.year, value.month, value.day) - timedelta(days=value.weekday())
        case _:
            return datetime(value.year, value.month, value.day)


def days_between(start: datetime | None, end: datetime | None) -> int | None:
    return None if start is None or end is None else (end.date() - start.date()).days


def at(value: Any, *steps: str | int) -> Any:
    """Inside JSON: keys, and positions from 0."""
    for step in steps:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, dict) else None
        else:
            value = value[step] if isinstance(value, list) and step < len(value) else None
    return value


def texts_of_array(value: Any) -> list[str | None] | None:
    """A JSON array as texts."""
    return [text_of_json(item) for item in value] if isinstance(value, list) else None
