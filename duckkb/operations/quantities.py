"""Quantities in a text: digits, English and Chinese number words, scales (5 million, 10万), units and signs.

Numbers of different units differ: 250 ms equal .25 s, and not 250 s. A string with several dots (a version, an
address) and a calendar date are single texts, not numbers.
"""

import re
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property

from msgspec import Struct

_MILLISECONDS: Mapping[str, str] = {
    "ns nanosecond nanoseconds 纳秒": "0.000001",
    "us µs μs microsecond microseconds 微秒": "0.001",
    "ms msec millisecond milliseconds 毫秒": "1",
    "s sec secs second seconds 秒 秒钟": "1000",
    "min mins minute minutes 分钟": "60000",
    "h hr hrs hour hours 小时 个小时": "3600000",
    "day days 天": "86400000",
    "week weeks 周 星期 个星期": "604800000",
}
_ALONE = (
    "month months 个月", "year years", "b byte bytes 字节", "kb kib", "mb mib", "gb gib", "tb tib",
    "usd dollar dollars 美元", "eur euro euros 欧元", "cny rmb yuan 元 块钱", "gbp pound pounds 英镑",
)  # fmt: skip
_UNITS: Mapping[str, tuple[str, Decimal]] = {
    name: ("ms", Decimal(factor)) for names, factor in _MILLISECONDS.items() for name in names.split()
} | {name: (names.split()[0], Decimal(1)) for names in _ALONE for name in names.split()}
_SIGNS: Mapping[str, str] = {"$": "usd", "€": "eur", "¥": "cny", "£": "gbp"}
_SCALES: Mapping[str, int] = {
    "k": 1_000, "thousand": 1_000, "million": 10**6, "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
_COUNTED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS: Mapping[str, int] = {word: at for at, word in enumerate(_COUNTED.split())} | {
    word: 10 * at for at, word in enumerate(_TENS.split(), 2)
}
_BY_HEART: Mapping[str, int] = {"once": 1, "twice": 2, "dozen": 12}
_HAN_DIGITS: Mapping[str, int] = {
    sign: at for signs in ("零一二三四五六七八九", "〇壹贰叁肆伍陆柒捌玖") for at, sign in enumerate(signs)
} | {"两": 2}
_HAN_UNITS: Mapping[str, int] = {
    "十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1_000, "仟": 1_000, "万": 10_000, "亿": 100_000_000,
}  # fmt: skip
_MEASURED = "个条次项种台名倍步份行页层级章节位块列张本组轮遍人"
"""Measure words: behind a single number sign they show that something is counted; 三 and 十 alone are in many words."""

_HAN = f"{''.join(_HAN_DIGITS)}{''.join(_HAN_UNITS)}"
_ENGLISH = "|".join([*_WORDS, "hundred", *(one for one in _SCALES if len(one) > 1)])
_NAMED = "|".join(map(re.escape, sorted(_UNITS, key=len, reverse=True)))
_UNIT = rf"(?:[ -]?(?P<unit>{_NAMED})(?![a-z0-9_'’]))?"
_PERCENT = r"(?P<percent>\s?(?:%|percent\b|per cent\b))?"
_SIGN = r"(?P<minus>(?:(?<![\w.)\]}%*-])[-\u2212]|\b(?:minus|negative) |负|零下))?(?P<money>[$€£¥] ?)?"
_FRONT = r"(?P<share>百分之 ?)?"
_LITERAL = re.compile(r"(?<![\w.])\d+(?:\.\d+){2,}(?![\w])|(?<![\w-])\d{4}-\d{2}-\d{2}(?!\d)", re.ASCII)
_DIGITS = re.compile(
    rf"{_FRONT}{_SIGN}(?<![a-z0-9_.])(?P<whole>\d{{1,3}}(?:[,\u00a0\u202f' ]\d{{3}})+(?!\d)|\d+)(?P<part>\.\d+)?(?![\d])"
    rf"(?P<scale>k(?![a-z])| ?[十百千万亿]+(?![克米瓦卡赫])|[ -]?(?:thousand|million|billion|trillion)\b)?"
    rf"(?P<order>st|nd|rd|th|x)?{_PERCENT}{_UNIT}(?![a-z0-9_])",
    re.IGNORECASE,
)
_SPELLED = re.compile(
    rf"(?P<minus>\b(?:minus|negative) )?\b(?P<word>(?:a (?=hundred|thousand|million|billion))?(?:{_ENGLISH})\b(?:(?:[ -]| and )(?:{_ENGLISH})\b)*){_PERCENT}{_UNIT}"
    rf"|\b(?P<heart>{'|'.join(_BY_HEART)})\b",
    re.IGNORECASE,
)
_HAN_SPELLED = re.compile(
    rf"{_FRONT}(?P<minus>负|零下)?(?P<han>[{_HAN}]{{1,24}})(?:点(?P<part>[{''.join(_HAN_DIGITS)}]{{1,9}}))?{_UNIT}"
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_RANGE = re.compile(r"(?:\d ?|^\s*)$", re.MULTILINE)


class Amount(Struct, frozen=True):
    """A number as it is `shown`, from `start` to `end` of a text.

    It has the value as `written`, and in its `unit` (seconds in milliseconds), which is empty where none is
    known. `literal` is a version, an address or a day instead. `is_spelled`: written in words. `is_sure`: the
    words certainly count something, which is not clear of "one" or 万一.
    """

    shown: str
    start: int
    end: int
    written: Decimal = Decimal(0)
    value: Decimal = Decimal(0)
    unit: str = ""
    literal: str = ""
    is_spelled: bool = False
    is_sure: bool = True


def normalize_digits_text(text: str) -> str:
    """Normalize a text for the search for numbers."""
    return unicodedata.normalize("NFKC", text)


def amounts(text: str) -> list[Amount]:
    """Return the numbers of a normalized text, in their order.

    >>> numbers = amounts("1,000 records in 0.25 s, 12% of 10万; fifty-two")
    >>> [(number.shown, int(number.value), number.unit) for number in numbers]
    [('1,000', 1000, ''), ('0.25 s', 250, 'ms'), ('12%', 12, '%'), ('10万', 100000, ''), ('fifty-two', 52, '')]
    """
    numbers = [Amount(hit[0], hit.start(), hit.end(), literal=hit[0]) for hit in _LITERAL.finditer(text)]
    remainder = _erase_amounts(text, numbers)
    numbers += (_parse_digits(hit) for hit in _DIGITS.finditer(remainder))
    remainder = _erase_amounts(remainder, numbers)
    numbers += (_parse_words(hit) for hit in _SPELLED.finditer(remainder))
    numbers += (_parse_han(hit) for hit in _HAN_SPELLED.finditer(remainder))
    return sorted(numbers, key=lambda hit: hit.start)


def blank_amounts(text: str, found: list[Amount]) -> str:
    """Blank the numbers of a normalized text; its length stays."""
    return _erase_amounts(text, [number for number in found if number.is_sure])


class Amounts:
    """The numbers of a text, for look-ups."""

    def __init__(self, text: str) -> None:
        self._text = normalize_digits_text(text)
        self._all = amounts(self._text)

    def have(self, wanted: Amount) -> bool:
        """Return whether the text has a number, in any form.

        A number with a unit needs the same unit there, or none.
        """
        if wanted.literal:
            return wanted.literal in self._literals or self._has_day(wanted.literal)
        if wanted.unit == "%":
            return (wanted.value, "%") in self._measured
        if wanted.unit:
            return (wanted.value, wanted.unit) in self._measured or wanted.written in self._unitless
        return wanted.written in self._plain

    @cached_property
    def _literals(self) -> frozenset[str]:
        return frozenset(number.literal for number in self._all if number.literal)

    @cached_property
    def _measured(self) -> frozenset[tuple[Decimal, str]]:
        return frozenset((number.value, number.unit) for number in self._all if number.unit)

    @cached_property
    def _unitless(self) -> frozenset[Decimal]:
        """The numbers without a unit, also inside words (250ms_limit, E5), in versions and in days."""
        numbers = {item.written for item in self._all if not item.unit and not item.literal}
        numbers |= {-item.written for item in self._all if not item.unit and self._can_be_range(item)}
        remainder = _erase_amounts(self._text, self._all)
        for literal in self._literals:
            pieces = literal.replace("-", ".").split(".")
            numbers |= {Decimal(item) for item in (*pieces, ".".join(pieces[:2]))}
        return frozenset(numbers | {Decimal(item) for item in re.findall(r"\d+(?:\.\d+)?", remainder)})

    @cached_property
    def _plain(self) -> frozenset[Decimal]:
        """All numbers as they are written, whatever they count."""
        return self._unitless | {number.written for number in self._all if not number.literal}

    def _can_be_range(self, number: Amount) -> bool:
        """Return whether an apparent sign may be the dash of a range or a list."""
        return number.written < 0 and bool(_RANGE.search(self._text[: number.start][-20:]))

    def _has_day(self, literal: str) -> bool:
        """Return whether the text has a day written in another form; any of its numbers may be the month."""
        if not _DATE.fullmatch(literal) or any(map(_DATE.fullmatch, self._literals)):
            return False
        return all(Decimal(piece) in self._plain for piece in literal.split("-"))


def _parse_digits(match: re.Match[str]) -> Amount:
    value = Decimal(re.sub(r"\D", "", match["whole"]) + (match["part"] or ""))
    scale = (match["scale"] or "").strip(" -").casefold()
    value *= _SCALES[scale] if scale in _SCALES else _calculate_product(scale)
    return _build_amount(match, value)


def _parse_words(match: re.Match[str]) -> Amount:
    if match["heart"]:
        return _build_amount(match, Decimal(_BY_HEART[match["heart"].casefold()]), is_in_words=True, is_sure=False)
    words = re.split(r"[ -]+", match["word"].casefold())
    value = _sum_words(words)
    has_measure = bool(match["unit"] or match["percent"])
    return _build_amount(match, value, is_in_words=True, is_sure=len(words) > 1 or value > (1 if has_measure else 2))


def _parse_han(match: re.Match[str]) -> Amount:
    signs, value = match["han"], han_number(match["han"])
    if match["part"]:
        value += Decimal("0." + "".join(str(_HAN_DIGITS[sign]) for sign in match["part"]))
    has_measure = bool(match["unit"] or match["part"] or match["share"])
    return _build_amount(
        match, value, is_in_words=True, is_sure=_is_han_count(signs, match.string[match.end("han") :][:1], has_measure)
    )


def _is_han_count(signs: str, following: str, has_measure: bool) -> bool:
    """Return whether Chinese number signs certainly mean a number.

    They do in 三十, 二〇二四, and 三 before 个 or 秒. They may not in a lone 一 or 两, 十 in 十分, 千万 and 万一.
    """
    digits = sum(sign in _HAN_DIGITS for sign in signs)
    if len(signs) == 1:
        return (
            signs != "一"
            if has_measure
            else digits + (signs == "十") > 0 and signs not in "一两零" and following in _MEASURED
        )
    return has_measure or digits > 3 or (0 < digits < len(signs) and signs != "万一")


def _build_amount(match: re.Match[str], number: Decimal, *, is_in_words: bool = False, is_sure: bool = True) -> Amount:
    groups = match.groupdict()
    number = -number if groups["minus"] else number
    unit_name = (groups["unit"] or _SIGNS.get((groups.get("money") or "").strip(), "")).casefold()
    unit, factor = _UNITS.get(unit_name, ("", Decimal(1)))
    if groups.get("percent") or groups.get("share"):
        unit, factor = "%", Decimal(1)
    at = match.start(), match.end()
    return Amount(match[0].strip(), *at, number, number * factor, unit, is_spelled=is_in_words, is_sure=is_sure)


def _calculate_product(signs: str) -> int:
    product = 1
    for sign in signs:
        product *= _HAN_UNITS[sign]
    return product


def _sum_words(words: list[str]) -> Decimal:
    total, group = 0, 0
    for word in words:
        if word == "hundred":
            group = (group or 1) * 100
        elif word in _SCALES:
            total, group = total + (group or 1) * _SCALES[word], 0
        else:
            group += _WORDS.get(word, 0)
    return Decimal(total + group)


def han_number(text: str) -> Decimal:
    """Return the value of a Chinese number: 三十二 is 32, 二〇二四 is 2024.

    >>> [int(han_number(text)) for text in ("十", "三十二", "二〇二四", "一万两千", "三亿五千万", "伍拾")]
    [10, 32, 2024, 12000, 350000000, 50]
    """
    if not any(sign in _HAN_UNITS for sign in text):
        return Decimal("".join(str(_HAN_DIGITS[sign]) for sign in text))
    total, section, digit = 0, 0, 0
    for sign in text:
        unit = _HAN_UNITS.get(sign, 0)
        if not unit:
            digit = _HAN_DIGITS[sign]
        elif unit < 10_000:
            section, digit = section + (digit or 1) * unit, 0
        elif unit == 10_000:
            total, section, digit = total + (section + digit or 1) * unit, 0, 0
        else:
            total, section, digit = (total + section + digit or 1) * unit, 0, 0
    return Decimal(total + section + digit)


def _erase_amounts(text: str, numbers: list[Amount]) -> str:
    signs = list(text)
    for number in numbers:
        signs[number.start : number.end] = " " * (number.end - number.start)
    return "".join(signs)
