"""What a line may hold, what its form is, and what is said of every other line."""

import json
import subprocess
import sys
from collections.abc import Iterable

import pytest

from duckkb.storage.line import Limits, LineError, LineShape, decode, encode, etag, parse_json, parse_objects

NODE = LineShape(("name",))
EDGE = LineShape(("from", "to", "since"))
LIMITS = Limits(max_record_bytes=20_000)
T = "2026-01-02T03:04:05.000006Z"


def line(body: str = '"text":"x"') -> bytes:
    return f'{{"__id":7,"name":"n",{body},"__created_at":"{T}","__updated_at":"{T}"}}'.encode()


def codes(raw: bytes, shape: LineShape = NODE) -> list[str]:
    with pytest.raises(LineError) as caught:
        decode(raw, shape, LIMITS)
    return [finding.code for finding in caught.value.findings]


REFUSED = {
    "invalid UTF-8": (b'{"name":"n","text":"\xff"}', "E_UTF8"),
    "an overlong form": (b'{"name":"\xc0\xaf"}', "E_UTF8"),
    "a surrogate as bytes": (b'{"name":"\xed\xa0\x80"}', "E_UTF8"),
    "UTF-16": ('{"name":"n"}'.encode("utf-16"), "E_UTF8 E_NUL"),
    "a byte order mark": (b'\xef\xbb\xbf{"name":"n"}', "E_BOM"),
    "CR LF": (line() + b"\r", "E_CR"),
    "CR as space": (b'{"name":\r"n"}', "E_CR"),
    "NUL": (b'{"name":"n"}\0', "E_NUL"),
    "our marker": (b"<<<<<<< HEAD", "E_MARKERS"),
    "base's marker": (b"||||||| 1234567", "E_MARKERS"),
    "the middle marker": (b"=======", "E_MARKERS"),
    "their marker": (b">>>>>>> main", "E_MARKERS"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1", "E_POINTER"),
    "nothing": (b"", "E_JSON"),
    "an array": (b'["n"]', "E_JSON"),
    "null": (b"null", "E_JSON"),
    "a number": (b"7", "E_JSON"),
    "two objects": (b'{"name":"n"}{"name":"m"}', "E_JSON"),
    "a trailing comma": (b'{"name":"n",}', "E_JSON"),
    "a torn line": (line()[:-9], "E_JSON"),
    "a raw tab": (b'{"name":"a\tb"}', "E_JSON"),
    "a key without quotes": (b'{name:"n"}', "E_JSON"),
    "a duplicate key": (b'{"name":"n","a":1,"a":1}', "E_DUP_KEY"),
    "a nested duplicate key": (b'{"name":"n","a":[{"b":1,"b":2}]}', "E_DUP_KEY"),
    "a duplicate __id": (b'{"__id":1,"__id":1,"name":"n"}', "E_DUP_KEY"),
    "NaN": (b'{"name":"n","a":NaN}', "E_NUMBER"),
    "Infinity": (b'{"name":"n","a":[-Infinity]}', "E_NUMBER"),
    "1e400": (b'{"name":"n","a":1e400}', "E_NUMBER"),
    "2^63": (b'{"name":"n","a":9223372036854775808}', "E_NUMBER"),
    "2^64": (b'{"name":"n","a":{"b":18446744073709551616}}', "E_NUMBER"),
    "under int64": (b'{"name":"n","a":-9223372036854775809}', "E_NUMBER"),
    "5,000 digits": (b'{"name":"n","a":' + b"7" * 5000 + b"}", "E_NUMBER"),
    "a lone surrogate": (b'{"name":"n","a":"\\ud800"}', "E_SURROGATE"),
    "a lone surrogate in a key": (b'{"name":"n","\\udc00":1}', "E_SURROGATE"),
    "__id 1.0": (b'{"__id":1.0,"name":"n"}', "E_ID"),
    "__id as text": (b'{"__id":"1","name":"n"}', "E_ID"),
    "__id zero": (b'{"__id":0,"name":"n"}', "E_ID"),
    "__id null": (b'{"__id":null,"name":"n"}', "E_ID"),
    "__id true": (b'{"__id":true,"name":"n"}', "E_ID"),
    "__id past 2^53": (b'{"__id":9007199254740992,"name":"n"}', "E_ID"),
    "a time without microseconds": (b'{"name":"n","__created_at":"2026-01-02T03:04:05Z"}', "E_TIME"),
    "a time with an offset": (b'{"name":"n","__created_at":"2026-01-02T03:04:05.000006+00"}', "E_TIME"),
    "a day that does not exist": (b'{"name":"n","__updated_at":"2026-02-30T00:00:00.000000Z"}', "E_TIME"),
    "a week date": (b'{"name":"n","__updated_at":"2026-W01-1T00:00:00.000000Z"}', "E_TIME"),
    "hour 24": (b'{"name":"n","__updated_at":"2026-01-01T24:00:00.000000Z"}', "E_TIME"),
    "a time in other digits": ('{"name":"n","__updated_at":"２026-01-01T00:00:00.000000Z"}'.encode(), "E_TIME"),
    "a time null": (b'{"name":"n","__created_at":null}', "E_TIME"),
    "a long line": (b'{"name":"n","a":"' + b"x" * 20_000 + b'"}', "E_TOO_LARGE"),
    "65 levels": (b'{"name":"n","a":' + b"[" * 64 + b"]" * 64 + b"}", "E_DEPTH"),
    "8,000 brackets": (b'{"name":"n","a":' + b"[" * 8_000, "E_DEPTH"),
    "no identity": (b'{"text":"x"}', "E_IDENTITY"),
    "an identity null": (b'{"name":null}', "E_IDENTITY"),
    "an empty identity": (b'{"name":""}', "E_IDENTITY"),
    "a boolean identity": (b'{"name":true}', "E_IDENTITY"),
    "a float identity": (b'{"name":1.0}', "E_IDENTITY"),
    "a list as identity": (b'{"name":["a"]}', "E_IDENTITY"),
    "an identity that is not NFC": ('{"name":"e\u0301"}'.encode(), "E_IDENTITY"),
    "a control in the identity": (b'{"name":"a\\u0000b"}', "E_IDENTITY"),
    "a C1 control in the identity": ('{"name":"a\u009fb"}'.encode(), "E_IDENTITY"),
    "a bidirectional control in the identity": ('{"name":"a\u202eb"}'.encode(), "E_IDENTITY"),
    "an identity of 1,025 bytes": (b'{"name":"' + "内".encode() * 341 + b'ab"}', "E_IDENTITY"),
    "a reserved name": (b'{"name":"n","_etag":"x"}', "E_NAME"),
    "an unknown system name": (b'{"name":"n","__deleted":true}', "E_NAME"),
    "names that differ in case": (b'{"name":"n","Name":"m"}', "E_NAME"),
    "names that differ in case, not ASCII": ('{"name":"n","straße":1,"STRASSE":2}'.encode(), "E_NAME"),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "code"), REFUSED.values(), ids=REFUSED)
def test_dk_13_a_line_that_truth_cannot_hold_is_refused_with_its_code(raw: bytes, code: str) -> None:
    assert codes(raw) == code.split()


def test_all_problems_of_a_line_are_found_at_once_with_their_places() -> None:
    raw = b'{"__id":1.5,"_x":1,"a":{"b":NaN,"b":[1e999]},"c/d":"\\ud800","__created_at":"soon"}\r'
    with pytest.raises(LineError) as caught:
        decode(raw, NODE, LIMITS)
    assert {(found.code, found.field) for found in caught.value.findings} == {
        ("E_CR", ""),
        ("E_DUP_KEY", "/a/b"),
        ("E_NUMBER", "/a/b"),
        ("E_NUMBER", "/a/b/0"),
        ("E_SURROGATE", "/c~1d"),
        ("E_NAME", "/_x"),
        ("E_ID", "/__id"),
        ("E_TIME", "/__created_at"),
        ("E_IDENTITY", "/name"),
    }


CANONICAL = [
    line(),
    line('"a":null').replace(b',"a":null', b""),
    line('"中文":"内存数据库 “好”","字":""'),
    line('"a":180,"b":180.0,"c":-0.0,"d":1e16,"e":1.5e-7,"f":-1.2345678901234568e17,"g":0.00001,"h":5e-324'),
    line('"a":9223372036854775807,"b":-9223372036854775808,"c":true,"d":[],"e":{}'),
    line('"a":{"a":null,"b":[{"c":1e22,"d":2}]}'),
    line(r'"a":"\u007f\u0085\u2028\u2029\u202e\u2066\u061c\u200f\u0000\u001f\b\t\n\f\r\"\\/"'),
    line('"a":"\u200b\u200d\ufeff👩‍👩‍👧"'),
    line('"a":' + "[" * 63 + "]" * 63),
    b'{"name":"n"}',
    b'{"name":-7}',
    '{"name":"中文名"}'.encode(),
    b'{"__id":9007199254740991,"name":"n"}',
    b'{"name":"n","A":1,"b":2}'.replace(b'"b"', b'"a2"'),
]


@pytest.mark.parametrize("raw", CANONICAL)
def test_dk_05_a_canonical_line_survives_parsing_and_formatting(raw: bytes) -> None:
    decoded = decode(raw, NODE, LIMITS)
    assert decoded.canonical
    assert encode(decoded.values, NODE) == raw


@pytest.mark.parametrize(
    "end", [b'"a"', b"7", b'["CHE","FRA"]', b'{"id":"G1","type":"Group"}', b'{"id":["a",1],"type":"G"}']
)
def test_an_end_of_an_edge_may_be_composite_or_name_its_type(end: bytes) -> None:
    raw = b'{"from":' + end + b',"to":' + end + b',"since":1}'
    assert decode(raw, EDGE, LIMITS).canonical


@pytest.mark.parametrize(
    "end", [b"[]", b'[["a"]]', b"[1.5]", b'{"id":"a"}', b'{"id":{"id":"a","type":"B"},"type":"A"}', b"null"]
)
def test_other_shapes_of_an_end_are_refused(end: bytes) -> None:
    assert codes(b'{"from":' + end + b',"to":"b","since":1}', EDGE) == ["E_IDENTITY"]


READABLE = {
    "spaces": (b'{"name": "n"}', b'{"name":"n"}'),
    "order": (b'{"b":1,"a":2,"name":"n","__id":3}', b'{"__id":3,"name":"n","a":2,"b":1}'),
    "nested order": (b'{"name":"n","a":{"c":1,"b":2}}', b'{"name":"n","a":{"b":2,"c":1}}'),
    "a null": (b'{"name":"n","a":null}', b'{"name":"n"}'),
    "escapes": (rb'{"name":"n","a":"\u4e2d\/\u0041\ud83d\ude00"}', '{"name":"n","a":"中/A😀"}'.encode()),
    "upper-case hex": (rb'{"name":"n","a":"\u001F"}', rb'{"name":"n","a":"\u001f"}'),
    "a raw line separator": ('{"name":"n","a":"x\u2028y"}'.encode(), rb'{"name":"n","a":"x\u2028y"}'),
    "a raw bidirectional control": ('{"name":"n","a":"\u202e"}'.encode(), rb'{"name":"n","a":"\u202e"}'),
    "a raw delete": (b'{"name":"n","a":"\x7f"}', rb'{"name":"n","a":"\u007f"}'),
    "a raw next line in a key": ('{"name":"n","a\x85":1}'.encode(), rb'{"name":"n","a\u0085":1}'),
    "floats": (b'{"name":"n","a":1E3,"b":1.50,"c":1e+16,"d":1E-7}', b'{"name":"n","a":1000.0,"b":1.5,"c":1e16,"d":1e-7}'),
    "minus zero": (b'{"name":"n","a":-0}', b'{"name":"n","a":0}'),
    "space around": (b' {"name":"n"}\t', b'{"name":"n"}'),
}  # fmt: skip


@pytest.mark.parametrize(("raw", "wanted"), READABLE.values(), ids=READABLE)
def test_another_spelling_is_readable_but_not_canonical(raw: bytes, wanted: bytes) -> None:
    decoded = decode(raw, NODE, LIMITS)
    assert not decoded.canonical
    assert encode(decoded.values, NODE) == wanted


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**63, -(2**63) - 1, "\ud800", {1: 2}, object(), {"a": {1, 2}}, b"x"],
    ids=["nan", "infinity", "past-int64", "below-int64", "surrogate", "integer-key", "object", "set", "bytes"],
)
def test_encode_refuses_what_a_line_cannot_hold(value: object) -> None:
    with pytest.raises(ValueError):
        encode({"name": "n", "a": value}, NODE)


def test_encode_counts_the_record_as_the_first_level() -> None:
    deep: list[object] = []
    for _ in range(62):
        deep = [deep]
    encode({"name": "n", "a": deep}, NODE, 64)
    with pytest.raises(ValueError):
        encode({"name": "n", "a": [deep]}, NODE, 64)


def test_etag_is_sixteen_hex_digits_of_the_line() -> None:
    assert etag(b"") == "e3b0c44298fc1c14"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "E_JSON"),
        (b"{} {}", "E_JSON"),
        (b'{"a":1,"a":1}', "E_DUP_KEY"),
        (b"NaN", "E_NUMBER"),
        (b"1e400", "E_NUMBER"),
        (b"1" * 5000, "E_NUMBER"),
        (b'"\\udfff"', "E_SURROGATE"),
        (b"[" * 10_000 + b"]" * 10_000, "E_DEPTH"),
        (b'\xef\xbb\xbf{"a":1}', "E_BOM"),
        (b'"' + b"x" * 20_000 + b'"', "E_TOO_LARGE"),
    ],
)
def test_json_of_a_caller_is_read_strictly(raw: bytes, code: str) -> None:
    with pytest.raises(LineError) as caught:
        parse_json(raw, LIMITS)
    assert [finding.code for finding in caught.value.findings] == [code]


def test_json_of_a_caller_may_be_spread_over_lines() -> None:
    assert parse_json(b' {\r\n "a": [1, 2.5, null],\n "_etag": "x"}\n', LIMITS) == {"a": [1, 2.5, None], "_etag": "x"}


def outcomes(raw: bytes | Iterable[bytes]) -> list[object]:
    found = parse_objects(raw, LIMITS)
    return [
        (number, [f.code for f in each.findings] if isinstance(each, LineError) else each) for number, each in found
    ]


def test_lines_of_a_caller_keep_their_numbers_and_bad_ones_stop_nothing() -> None:
    raw = b'{"a": 1}\r\n\n  \n{"a":\n[1]\n{"a":"\xe4\xb8\xad\xe2\x80\xa8"}\n{"a":18446744073709551616}\n{"z":{"b":1,"a":2}}'
    assert outcomes(raw) == [
        (1, {"a": 1}),
        (4, ["E_JSON"]),
        (5, ["E_JSON"]),
        (6, {"a": "中\u2028"}),
        (7, ["E_NUMBER"]),
        (8, {"z": {"b": 1, "a": 2}}),
    ]


def test_a_byte_order_mark_before_the_first_line_is_refused() -> None:
    assert outcomes(b'\xef\xbb\xbf{"a":1}\n{"a":2}\n') == [(1, ["E_BOM"]), (2, {"a": 2})]


def test_lines_may_come_in_pieces_of_any_size() -> None:
    raw = '{"a":"中文"}\n\n{"b":2}\r\n{"c":'.encode()
    for size in (1, 2, 3, 7, 100):
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
        assert outcomes(pieces) == outcomes(raw) == [(1, {"a": "中文"}), (3, {"b": 2}), (4, ["E_JSON"])]


def test_a_line_over_the_limit_is_refused_without_losing_the_next() -> None:
    raw = b'{"a":"' + b"x" * 90_000 + b'"}\n{"a":1}\n'
    expected = [(1, ["E_TOO_LARGE"]), (2, {"a": 1})]
    assert outcomes(raw) == expected
    assert outcomes(raw[at : at + 1000] for at in range(0, len(raw), 1000)) == expected


def test_a_huge_document_of_brackets_in_a_string_is_not_deep() -> None:
    raw = json.dumps({"name": "n", "a": "[{" * 5_000 + '\\"' * 10}, separators=(",", ":")).encode()
    assert decode(raw, NODE, LIMITS).canonical


def test_lines_take_no_more_memory_than_they_are_long() -> None:
    """Measured in a process of its own: what a library leaves unused behind each line cannot be seen from inside."""
    code = """
import resource, sys
from duckkb.storage.line import LineShape, encode
shape, text = LineShape(("id",)), "word " * 200
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
lines = [encode({"id": str(number), "text": text}, shape) for number in range(20_000)]
taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(taken // (1024 if sys.platform == "darwin" else 1), sum(map(len, lines)) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    taken, long = map(int, done.stdout.split())
    assert taken < 2 * long
