"""Laws of the codec, against a writer made of the standard library alone."""

import json
import math
import re
from datetime import date
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.sql import arrow_tables
from duckkb.storage import strict_lines
from duckkb.storage.line import (
    Limits,
    LineError,
    LineShape,
    are_compact,
    canonical_values,
    decode,
    encode,
    parse_objects,
    record_line,
    record_lines,
)
from duckkb.types.records import Record

SHAPE = LineShape(("name", "lang"))
LIMITS = Limits()
MOMENT = "2026-01-31T23:59:59.000001Z"
TIMES = st.datetimes().map(lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0"))

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", "内存数据库", "a\u2028b", "\u202e", "\x7f", "\x85", "\x00", "e\u0301", "“x”", "😀"]
)
number = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
scalar = st.none() | st.booleans() | number | text
value = st.recursive(
    scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=6
)
component = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(["n", "Ann", "中文", "é", "a b"])
field = st.sampled_from(["a", "b", "ab", "Z", "été", "中", "a-b", "ﬀ", "𐀀", "", "from"])


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    record: dict[str, Any] = {"name": draw(component), "lang": draw(component)}
    record |= draw(st.dictionaries(field, value, max_size=4))
    if draw(st.booleans()):
        record |= {"__id": draw(st.integers(1, 2**53 - 1)), "__created_at": draw(TIMES), "__updated_at": draw(TIMES)}
    keys = draw(st.permutations(list(record)))
    return {key: record[key] for key in keys}


def by_the_book(record: dict[str, Any]) -> bytes:
    """The canonical line, written by the standard library."""
    first, last = ["__id", "name", "lang"], ["__created_at", "__updated_at"]
    rest = sorted(key for key in record if key not in first + last)
    kept = {key: record[key] for key in first + rest + last if record.get(key) is not None}
    return spelled(kept).encode()


def spelled(held: Any) -> str:
    if isinstance(held, dict):
        keys = held if "name" in held and "lang" in held else sorted(held)
        return "{" + ",".join(f"{spelled(key)}:{spelled(held[key])}" for key in keys) + "}"
    if isinstance(held, list):
        return "[" + ",".join(map(spelled, held)) + "]"
    if isinstance(held, float):
        return re.sub(r"e([+-])0*(\d+)", lambda found: f"e{found[1].strip('+')}{found[2]}", positional(held))
    unseen = "[\x7f\x85\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
    return re.sub(unseen, lambda found: f"\\u{ord(found[0]):04x}", json.dumps(held, ensure_ascii=False))


def positional(held: float) -> str:
    """`repr`, but without exponent from 1e-5 on, where Python starts at 1e-4."""
    if held and 1e-5 <= abs(held) < 1e-4:
        digits, exponent = repr(abs(held)).split("e")
        sign = "-" if math.copysign(1, held) < 0 else ""
        return f"{sign}0.0000{digits.replace('.', '')}" if exponent == "-05" else repr(held)
    return repr(held)


@given(records())
@settings(max_examples=300, deadline=None)
def test_a_record_is_written_as_the_book_says_and_survives_the_round_trip(record: dict[str, Any]) -> None:
    line = encode(record, SHAPE)
    assert line == by_the_book(record)
    decoded = decode(line, SHAPE, LIMITS)
    assert decoded.canonical
    assert decoded.values == {key: held for key, held in record.items() if held is not None}
    assert encode(decoded.values, SHAPE) == line


@given(records(), st.sampled_from([None, 1]), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_spelling_of_a_record_is_read_as_the_same_values(
    record: dict[str, Any], indent: int | None, ascii: bool
) -> None:
    spelling = json.dumps(record, ensure_ascii=ascii, indent=indent).replace("\n", " ").encode()
    decoded = decode(spelling, SHAPE, LIMITS)
    assert encode(decoded.values, SHAPE) == by_the_book(record)
    assert decoded.canonical == (spelling == by_the_book(record))


PIECES = [b'"', b",", b":", b"{", b"}", b"[", b"]", b"\\", b"\\u2028", b"\\ud800", b"\xe2\x80\xa8", b"\xc2\x85", b"\x7f",
          b"\x00", b"\r", b" ", b"null", b"NaN", b"-0", b"-0.0", b"1e400", b"1e16", b"1e+16", b"1e-7", b"9223372036854775808",
          b"18446744073709551616", b"1.0", b"e\xcc\x81", b"\xff", b"_", b'"name":1,', b'"a":1,', b'"A":1,', b"\xef\xbb\xbf",
          b'"__id":1.0,', b"<<<<<<< "]  # fmt: skip


@st.composite
def mutated_lines(draw: st.DrawFn) -> bytes:
    line = by_the_book(draw(records()))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(line)))
        end = draw(st.integers(at, min(len(line), at + draw(st.sampled_from([0, 1, 5, 30])))))
        line = line[:at] + draw(st.sampled_from([b"", *PIECES]) | st.binary(max_size=2)) + line[end:]
    return line


ODD_IDS = [0, -1, 1.0, True, None, "1", 2**53]
ODD_COMPONENTS = ["e\u0301", "", "a\x01", "\u200f", None, 1.0, True, ["a"], 2**63, "x" * 1025]
ODD_VALUES = [
    *(
        None,
        2**63,
        2**64 - 1,
        -(2**63),
        1e16,
        1e-7,
        1e-5,
        -0.0,
        "a\u2029",
        "\u202a",
        "\u2066",
        "\u061c",
        "\x7f",
        "\x85",
    ),
    *({"b": 1, "a": 2}, [{"a": {"c": None, "b": 1}}, {"b": 1, "a": 1}], [2**63], {"a": [1e22]}, [None], ["\u2028"]),
]
ODD_TIMES = [None, "", "2026-02-30T00:00:00.000000Z", 5]


@st.composite
def near_lines(draw: st.DrawFn) -> bytes:
    """What orjson writes back byte for byte as it reads it, though in one respect it is not canonical, or not allowed."""
    fault = draw(st.sampled_from(["id", "identity", "name", "value", "depth", "time", "order"]))
    record: dict[str, Any] = {"__id": draw(st.sampled_from(ODD_IDS)) if fault == "id" else 1, "name": "n"}
    record["lang"] = draw(st.sampled_from(ODD_COMPONENTS) if fault == "identity" else component)
    if fault == "name":
        record |= draw(st.sampled_from([{"_x": 1}, {"A": 1, "a": 2}, {"__x": 1}, {"STRASSE": 1, "straße": 2}]))
    elif fault == "value":
        record |= {"a": draw(st.sampled_from(ODD_VALUES)), "b": draw(scalar)}
    elif fault == "depth":
        levels = draw(st.sampled_from([62, 63, 64, 70]))
        record["a"] = json.loads(
            draw(st.sampled_from(["[" * levels + "]" * levels, '{"":' * levels + "1" + "}" * levels]))
        )
    record["__created_at"] = draw(st.sampled_from(ODD_TIMES) if fault == "time" else TIMES)
    keys = draw(st.permutations(list(record))) if fault == "order" else list(record)
    return orjson.dumps({key: record[key] for key in keys})


@pytest.mark.long
@given(mutated_lines() | near_lines())
@settings(max_examples=1200, deadline=None)
def test_the_fast_verdict_is_the_slow_parsers_verdict_on_mutated_lines(line: bytes) -> None:
    try:
        values = strict_lines.parse(line, SHAPE, LIMITS)
    except LineError as error:
        slow: object = [finding.code for finding in error.findings]
    else:
        slow = (values, by_the_book(values) == line)
    try:
        decoded = decode(line, SHAPE, LIMITS)
    except LineError as error:
        fast: object = [finding.code for finding in error.findings]
    else:
        fast = (decoded.values, decoded.canonical)
        assert repr(decoded.values) == repr(values)
    assert fast == slow
    if canonical_values([line], SHAPE, LIMITS) is not None:
        assert isinstance(slow, tuple) and slow[1]


@given(st.lists(records(), min_size=1, max_size=4), st.data())
@settings(max_examples=200, deadline=None)
def test_many_lines_are_judged_together_as_each_alone(found: list[dict[str, Any]], data: st.DataObject) -> None:
    """What was just written is canonical, unless a number or character has to be looked at closely; one line that is not takes
    the verdict from all."""
    lines = [encode(record, SHAPE) for record in found]
    is_plain = all(orjson.dumps(orjson.loads(line)) == line and b"\\u" not in line for line in lines)
    assert canonical_values(lines, SHAPE, LIMITS) is not None or not is_plain
    at = data.draw(st.integers(0, len(lines)))
    worse = data.draw(
        st.sampled_from([b'{"name":1}', b'{"lang":1,"name":1}', b'{"name":1,"lang":1,"a":null}', b"[]", b"1", b"{"])
    )
    assert canonical_values([*lines[:at], worse, *lines[at:]], SHAPE, LIMITS) is None


@given(
    st.lists(value.map(json.dumps) | text.map(lambda each: each.replace("\n", "")), max_size=5),
    st.sampled_from(["\n", "\r\n"]),
)
@settings(max_examples=200, deadline=None)
def test_given_lines_are_what_the_strict_parser_makes_of_each(lines: list[str], end: str) -> None:
    raw = end.join(lines).encode()
    expected: list[tuple[int, object]] = []
    for number, line in enumerate(raw.split(b"\n"), 1):
        if line.strip(b" \t\r"):
            try:
                expected.append((number, strict_lines.parse_object(line.strip(b" \t\r"), LIMITS)))
            except LineError as error:
                expected.append((number, [str(finding) for finding in error.findings]))
    found = [
        (number, [str(finding) for finding in each.findings] if isinstance(each, LineError) else each)
        for number, each in parse_objects(raw, LIMITS)
    ]
    assert found == expected


@given(records(), st.booleans(), st.sampled_from(["none", "duplicate", "number", "escape"]))
@settings(max_examples=200)
def test_a_line_as_other_programs_write_it_is_read_as_the_strict_reader_reads_it(
    record: dict[str, Any], ascii_only: bool, odd: str
) -> None:
    """What `json.dumps` writes, with its blanks, is accepted without the strict reader; what only looks like it is not."""
    line = json.dumps(record, ensure_ascii=ascii_only)
    more = {
        "none": "",
        "duplicate": ', "zz" : 1, "zz": 1',
        "number": ', "zz": 1E3',
        "escape": ', "zz": "\\u0061 b"',
    }[odd]
    raw = f"{line[:-1]}{more}}}".encode("utf-8", "surrogatepass")
    ((_, found),) = parse_objects(raw, LIMITS)
    try:
        wanted = strict_lines.parse_object(raw, LIMITS)
    except LineError as error:
        assert isinstance(found, LineError) and found.findings == error.findings
        return
    assert isinstance(found, dict)
    assert json.dumps(found) == json.dumps(wanted)


def test_a_key_given_twice_is_refused_however_the_line_is_spaced() -> None:
    for raw in (b'{"a": 1, "a": 1}', b'{"a":1,"a":1}', b'{"b": {"a": 1,\t"a" : 2}}', b'{"a b": 1, "ab": 2, "a b": 1}'):
        ((_, found),) = parse_objects(raw, LIMITS)
        assert isinstance(found, LineError) and found.findings[0].code == "E_DUP_KEY", raw


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":1},{"b":2}\n{"c":[{}\n{}]}',
        b'{"c":[{}\n{}]}\n{"a":1},{"b":2}',
        b'{"a":1},"x",{"b":2}\n{"c":[{}\n{}]}',
        b'{"a":1}\n{"b":"\n"}',
    ],
)
def test_lines_that_are_objects_only_together_are_refused(raw: bytes) -> None:
    """As many objects as lines, written in one form: looked at together they must not pass for one another."""
    lines = raw.split(b"\n")
    found = [each.findings if isinstance(each, LineError) else each for _, each in parse_objects(raw, LIMITS)]
    assert found == [_alone(line) for line in lines] and not all(isinstance(each, dict) for each in found)
    assert canonical_values(lines, SHAPE, LIMITS) is None and not are_compact(lines, LIMITS)


def _alone(line: bytes) -> object:
    try:
        return strict_lines.parse_object(line, LIMITS)
    except LineError as error:
        return error.findings


@given(st.lists(records(), max_size=5))
@settings(max_examples=200, deadline=None)
def test_records_written_together_have_the_lines_of_each(found: list[dict[str, Any]]) -> None:
    """Where they can be: what orjson writes in another form, or a line cannot hold, is left to be looked at one by one."""
    given_records = [
        Record("Note", at, ("x",), fields, MOMENT, MOMENT) for at, fields in enumerate(map(_business, found), 1)
    ]
    lines = record_lines(given_records, SHAPE, LIMITS)
    if lines is not None:
        assert lines == [record_line(one, SHAPE) for one in given_records]
        assert all(decode(line, SHAPE, LIMITS).canonical for line in lines)


def _business(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if not name.startswith("__")}


@pytest.mark.parametrize(
    "value", [date(2026, 1, 1), UUID(int=1), (1, 2), {1: 2}, "\ud800", 2**63, {"b": 1, "a": 2}, 1e16, None]
)
def test_values_that_orjson_would_write_in_its_own_way_are_not_written_together(value: object) -> None:
    record = Record("Note", 1, ("x",), {"name": "x", "lang": "en", "value": value}, MOMENT, MOMENT)
    assert record_lines([record], SHAPE, LIMITS) is None
    plain = Record("Note", 1, ("x",), {"name": "x", "lang": "en", "value": [{"a": 1.5}]}, MOMENT, MOMENT)
    assert record_lines([plain], SHAPE, LIMITS) == [record_line(plain, SHAPE)]
    assert record_lines([plain, record], SHAPE, LIMITS) is None


@given(value)
@settings(max_examples=300, deadline=None)
def test_values_in_columns_are_written_as_python_does(some: Any) -> None:
    assert arrow_tables._encode(some) == json.dumps(some, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize("number", [1e16, 1.5e-5, 9.99e-5, 1e-7, 1e22, -1e-300, 5e-324, 2**70, -0.0, 1e15])
def test_numbers_in_columns_are_written_as_python_does(number: float) -> None:
    assert arrow_tables._encode({"n": [number]}) == json.dumps({"n": [number]}, separators=(",", ":"))
