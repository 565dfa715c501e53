"""Bad truth: what reading and writing do where data/, .duckkb/ or .git are not what duckkb left there."""

import json
import os
import re
import shutil
import socket
import stat
from collections.abc import Callable
from contextlib import chdir
from functools import partial
from pathlib import Path

import pytest

from tests.conftest import NOTES, commit, make_base
from tests.harness.bad_inputs.ground import Bad, complaints, invoke, unmended
from tests.harness.campaign import Campaign

TIME = "2026-01-02T00:00:00.000000Z"
PART = "data/nodes/note/20260102/part_001.jsonl"
GOOD = f'{{"__id":1,"id":"a","title":"x","__created_at":"{TIME}","__updated_at":"{TIME}"}}'.encode()
LAST = GOOD.replace(b'"__id":1,"id":"a"', b'"__id":9,"id":"z"')


def line(fields: str, identity: str = '"id":"b"', record_id: str = '"__id":2,', times: str = "") -> bytes:
    """One stored line with some fields, canonical where they are in the right order."""
    times = times or f'"__created_at":"{TIME}","__updated_at":"{TIME}"'
    parts = [identity, fields, times]
    return ("{" + record_id + ",".join(part for part in parts if part) + "}").encode()


MARKERS = b"\n".join(
    [b"<<<<<<< HEAD", line('"title":"o"'), b"||||||| base", line(""), b"=======", line('"title":"t"'), b">>>>>>> x"]
)
UNREADABLE: dict[str, tuple[bytes, str]] = {
    "not UTF-8": (b"\xff\xfe", "E_UTF8"),
    "cut inside a character": (line('"text":"').replace(b'"text":"', b'"text":"\xe4\xb8"'), "E_UTF8"),
    "half a character as bytes": (line('"text":"x"').replace(b'"x"', b'"\xed\xa0\x80"'), "E_UTF8"),
    "a byte order mark": (b"\xef\xbb\xbf" + line(""), "E_BOM"),
    "CR LF": (line("") + b"\r", "E_CR"),
    "CR alone": (line("") + b"\r" + line('"size":1', '"id":"c"', '"__id":3,'), "E_CR"),
    "NUL": (b"\0" * 40, "E_NUL"),
    "NUL in a string": (line('"text":"x"').replace(b"x", b"\0"), "E_NUL"),
    "UTF-16": (line("").decode().encode("utf-16-le"), "E_NUL"),
    "markers": (MARKERS, "E_MARKERS"),
    "one marker": (b"<<<<<<< HEAD", "E_MARKERS"),
    "a lone divider": (b"=======", "E_MARKERS"),
    "a lone end": (b">>>>>>> theirs", "E_MARKERS"),
    "a pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12", "E_POINTER"),
    "two objects": (line("") + line("", '"id":"c"', '"__id":3,'), "E_JSON"),
    "a torn line": (line('"title":"x"')[:-20], "E_JSON"),
    "half a record": (b'{"__id":', "E_JSON"),
    "an array": (b"[" + line("") + b"]", "E_JSON"),
    "null": (b"null", "E_JSON"),
    "a number": (b"7", "E_JSON"),
    "words": (b"hello", "E_JSON"),
    "trailing comma": (line("")[:-1] + b",}", "E_JSON"),
    "a raw control": (line('"text":"\x01"'), "E_JSON"),
    "a raw tab": (line('"text":"\t"'), "E_JSON"),
    "a key twice": (line('"size":1,"size":2'), "E_DUP_KEY"),
    "a key twice inside": (line('"v":{"a":1,"a":1}'), "E_DUP_KEY"),
    "a key twice, one escaped": (line('"v":{"a":1,"\\u0061":1}'), "E_DUP_KEY"),
    "an identity twice": (line('"id":"c"'), "E_DUP_KEY"),
    "NaN": (line('"v":NaN'), "E_NUMBER"),
    "Infinity": (line('"v":[Infinity]'), "E_NUMBER"),
    "-Infinity": (line('"v":{"a":-Infinity}'), "E_NUMBER"),
    "1e400": (line('"v":1e400'), "E_NUMBER"),
    "2^63": (line('"v":9223372036854775808'), "E_NUMBER"),
    "-2^63 - 1": (line('"v":-9223372036854775809'), "E_NUMBER"),
    "2^64": (line('"v":18446744073709551616'), "E_NUMBER"),
    "5,000 digits": (line(f'"v":{"9" * 5000}'), "E_NUMBER"),
    "leading zero": (line('"v":007'), "E_JSON"),
    "half a character": (line('"text":"\\ud800"'), "E_SURROGATE"),
    "the other half": (line('"text":"\\udc00\\ud800"'), "E_SURROGATE"),
    "half a character as a key": (line('"\\udfff":1'), "E_SURROGATE"),
    "an id that is a float": (line("", record_id='"__id":2.0,'), "E_ID"),
    "an id with an exponent": (line("", record_id='"__id":2e0,'), "E_ID"),
    "an id that is text": (line("", record_id='"__id":"2",'), "E_ID"),
    "an id that is true": (line("", record_id='"__id":true,'), "E_ID"),
    "an id of zero": (line("", record_id='"__id":0,'), "E_ID"),
    "an id below zero": (line("", record_id='"__id":-2,'), "E_ID"),
    "an id of 2^53": (line("", record_id='"__id":9007199254740992,'), "E_ID"),
    "an id of null": (line("", record_id='"__id":null,'), "E_ID"),
    "65 levels": (line(f'"v":{"[" * 64}{"]" * 64}'), "E_DEPTH"),
    "200 levels": (line(f'"v":{"[" * 199}{"]" * 199}'), "E_DEPTH"),
    "100,000 levels": (line(f'"v":{"[" * 100_000}{"]" * 100_000}'), "E_DEPTH"),
    "100,000 open objects": (b'{"a":' * 100_000, "E_DEPTH"),
    "over the limit": (line(f'"text":"{"x" * 700_000}"'), "E_TOO_LARGE"),
    "a reserved name": (line('"_v":1'), "E_NAME"),
    "a name of ours": (line('"__deleted":true'), "E_NAME"),
    "names alike": (line('"Size":1,"size":2'), "E_NAME"),
    "a day that is none": (line("", times=f'"__created_at":"2024-02-30T00:00:00.000000Z","__updated_at":"{TIME}"'), "E_TIME"),
    "a time with an offset": (line("", times=f'"__created_at":"{TIME}","__updated_at":"2026-01-02T00:00:00.000000+08:00"'), "E_TIME"),
    "a time that is a number": (line("", times=f'"__created_at":"{TIME}","__updated_at":5'), "E_TIME"),
    "no identity": (line("", '"title":"x"'), "E_IDENTITY"),
    "an empty identity": (line("", '"id":""'), "E_IDENTITY"),
    "a null identity": (line("", '"id":null'), "E_IDENTITY"),
    "an identity that is true": (line("", '"id":true'), "E_IDENTITY"),
    "an identity that is a list": (line("", '"id":["b"]'), "E_IDENTITY"),
    "an identity of 1,025 bytes": (line("", f'"id":"{"x" * 1025}"'), "E_IDENTITY"),
    "an identity that is not NFC": (line("", '"id":"e\u0301"'), "E_IDENTITY"),
    "an identity with an escape": (line("", '"id":"a\\u001bb"'), "E_IDENTITY"),
    "an identity from right to left": (line("", '"id":"a\\u202eb"'), "E_IDENTITY"),
    "an identity with a newline": (line("", '"id":"a\\nb"'), "E_IDENTITY"),
}  # fmt: skip

# Read and kept; `check` finds them not canonical and `fmt` puts them right.
ODD: dict[str, bytes] = {
    "spaces": line("").replace(b'":', b'" : '),
    "keys in another order": line('"title":"x","size":1'),
    "nested keys in another order": line('"v":{"b":1,"a":2}'),
    "an escape that is not needed": line('"title":"\\u4e2d\\/"'),
    "a null": line('"title":null'),
    "a raw line separator": line('"title":"a\u2028b"'),
    "a raw override": line('"title":"a\u202eb"'),
    "a raw DEL": line('"title":"a\x7fb"'),
    "a raw next line": line('"title":"a\x85b"'),
    "a float written otherwise": line('"v":1E+16'),
    "1.50": line('"v":1.50'),
    "minus zero": line('"v":-0'),
    "an id behind": ('{"id":"b","__id":2,' + f'"__created_at":"{TIME}","__updated_at":"{TIME}"' + "}").encode(),
    "a blank line": b"\n" + line(""),
    "blank lines at the end": line("") + b"\n\n\n",
    "spaces alone": line("") + b"\n   ",
    "lines in another order": line("", '"id":"zz"', '"__id":7,'),
}

# Canonical, however odd: not one byte of it may change.
KEPT: dict[str, bytes] = {
    "unknown keys": line('"unknown":{"a":[1,2.50,null,"x"]},"änd":true').replace(b"2.50", b"2.5"),
    "a day that is none, as text": line('"when":"2024-02-30","zip":"007"'),
    "a UUID in capitals": line('"uuid":"550E8400-E29B-41D4-A716-446655440000"'),
    "180 and 180.0": line('"a":180,"b":180.0'),
    "1e16": line('"v":1e16'),
    "nested nulls": line('"v":[null,{"a":null}]'),
    "the largest integers": line('"a":9223372036854775807,"b":-9223372036854775808'),
    "64 levels": line(f'"v":{"[" * 63}{"]" * 63}'),
    "an empty key": line('"":1'),
    "keys of other scripts": line('"שם":1,"名":"值"'),
    "an emoji": line('"v":"👩‍👩‍👧"'),
    "escapes": line('"v":"\\u001b[31m \\u202e \\u2028 \\u007f"'),
    "text like a marker": line('"v":"<<<<<<< HEAD"'),
    "a field that breaks the schema": line('"size":"many","status":"odd"'),
    "combining characters": line('"v":"e\u0301"'),
    "a time in the future": line("", times='"__created_at":"2026-01-02T00:00:00.000000Z","__updated_at":"9999-12-31T23:59:59.999999Z"'),
}  # fmt: skip


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A committed base with one note of 2026-01-02 and a limit of 640 KiB a record; copied, never used itself."""
    root = make_base(tmp_path_factory.mktemp("truth") / "kb", "limits: {max_record_bytes: 655360}\n" + NOTES)
    put(root, GOOD + b"\n")
    (root / "data/FORMAT.json").write_bytes(b'{"format":1}\n')
    commit(root)
    return root


@pytest.fixture
def copy(first: Path, tmp_path: Path) -> Callable[[], Path]:
    """Makes a copy of the base in a folder of its own, as often as asked."""
    made: list[Path] = []

    def another() -> Path:
        made.append(tmp_path / str(len(made)) / "kb")
        shutil.copytree(first, made[-1], symlinks=True)
        return made[-1]

    return another


def put(root: Path, data: bytes, path: str = PART) -> Path:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
    return target


READS = (["list", "Note"], ["get", "Note", "a"], ["find", "Note", "x", "-m"], ["export", "Note"], ["status"])
WRITES = (["put", "Note", '{"id":"new"}'], ["put", "Note", '{"id":"a","title":"y"}'], ["delete", "Note", "a"], ["fmt"],
          ["rename", "Note", "a", "c"], ["dedupe"], ["index", "build"])  # fmt: skip


PLACES = ("alone", "between", "at the end")


@pytest.mark.parametrize("turn", range(3))
def test_dk_13_a_line_that_cannot_be_read_stops_reads_and_writes_and_changes_nothing(
    campaign: Campaign, copy: Callable[[], Path], turn: int
) -> None:
    root, wrong = copy(), []
    chance = campaign.random(f"{turn}")
    for index, (name, (bad, code)) in enumerate(UNREADABLE.items()):
        if not campaign.full and index % 3 != turn:
            continue
        place = PLACES[(index + turn) % 3]
        pieces, number = {"alone": ([bad], 1), "between": ([GOOD, bad, LAST], 2), "at the end": ([GOOD, bad], 2)}[place]
        data = b"\n".join(pieces) + (b"" if place == "at the end" else b"\n")
        put(root, data)
        verbs = [*READS, *WRITES] if campaign.full else [chance.choice([*READS, *WRITES])]
        for verb in verbs:
            wrong += unmended(root, Bad(f"{name}: {verb[0]}", verb, 1, "E_UNREADABLE", finding=code))
        wrong += [f"{name}: {one}" for one in _checked(root, code, number)]
        if place == "between" and name not in ("a pointer", "one marker"):
            wrong += [f"{name}: {one}" for one in _lenient(root)]
        campaign.count("bad inputs tried: stored truth", len(verbs))
        assert (root / PART).read_bytes() == data
    assert not wrong, "\n".join(wrong)


def records(shown: str) -> list[object]:
    """What list printed, without the order of keys and the versions of lines."""
    return [{key: value for key, value in json.loads(one).items() if key != "_etag"} for one in shown.split("\n")[:-1]]


def _checked(root: Path, code: str, number: int) -> list[str]:
    """`check` ends with 1 and names file, line and rule; as text each finding has a line, or is one of those a line counts."""
    ran = invoke(root, ["check", "--json"])
    found = complaints(ran, as_json=True, reports=True)
    findings = json.loads(ran.out)["findings"]
    places = {(one["code"], one["path"], one["line"]) for one in findings if "line" in one}
    if (code, PART, number) not in places and (code, PART, 1) not in places:
        found.append(f"check does not name {code} at line {number}: {places}")
    if not all(one.get("remedy") for one in findings):
        found.append("a finding has no remedy")
    text = invoke(root, ["check"])
    if (ran.code, text.code) != (1, 1) or _counted(text.out) != len(findings):
        found.append("check as text differs")
    return found


def _counted(text: str) -> int:
    """How many findings a text is about."""
    more = re.findall(r"; ([0-9,]+) more like it: ", text)
    return len(text.splitlines()) + sum(int(one.replace(",", "")) for one in more)


def _lenient(root: Path) -> list[str]:
    """Reading goes on without the line where that is asked; the notice says so."""
    ran = invoke(root, ["list", "Note", "--lenient"])
    names = [json.loads(one)["id"] for one in ran.out.splitlines()]
    found = [] if ran.code == 0 and {"a", "z"} <= set(names) else [f"--lenient gives {ran.code} {names}"]
    return found + ([] if "W_LENIENT" in ran.err else ["--lenient does not say what it left out"])


def test_lines_that_are_odd_are_read_reported_and_put_right(campaign: Campaign, copy: Callable[[], Path]) -> None:
    wrong = []
    for name, odd in ODD.items():
        root = copy()
        put(root, b"\n".join([GOOD, odd, LAST]) + b"\n")
        shown = invoke(root, ["list", "Note"]).out
        checked = json.loads(invoke(root, ["check", "--json"]).out)
        if {"E_NOT_CANONICAL"} != {one["code"] for one in checked["findings"]} - {"W_INVISIBLE"}:
            wrong.append(f"{name}: check says {checked['findings']}")
        invoke(root, ["fmt"])
        after = json.loads(invoke(root, ["check", "--json"]).out)
        again = invoke(root, ["list", "Note"]).out
        if {one["code"] for one in after["findings"]} - {"W_INVISIBLE"} or records(again) != records(shown):
            wrong.append(f"{name}: fmt leaves {after['findings']}")
        campaign.count("bad inputs tried: stored truth")
    assert not wrong, "\n".join(wrong)


def test_dk_14_what_is_canonical_keeps_every_byte_through_writes_beside_it(
    campaign: Campaign, copy: Callable[[], Path]
) -> None:
    wrong = []
    for name, kept in KEPT.items():
        root = copy()
        part = put(root, b"\n".join([GOOD, kept, LAST]) + b"\n")
        shown = invoke(root, ["get", "Note", "b"])
        for verb in (
            ["put", "Note", '{"id":"a","title":"y"}'],
            ["rename", "Note", "z", "y"],
            ["fmt"],
            ["delete", "Note", "y"],
        ):
            ran = invoke(root, verb)
            if ran.code or kept not in part.read_bytes().split(b"\n"):
                wrong.append(f"{name}: {verb[0]} {ran.code} {ran.err} {part.read_bytes()!r}")
        if shown.code:
            wrong.append(f"{name}: {shown.err}")
        campaign.count("bad inputs tried: stored truth")
    assert not wrong, "\n".join(wrong)


def _linked(root: Path, path: str) -> None:
    """Puts a file or folder outside of the base and a link to it in its place."""
    (root.parent / "outside").mkdir()
    shutil.move(root / path, root.parent / "outside" / "it")
    (root / path).symlink_to(root.parent / "outside" / "it")


def _instead(root: Path, path: str, make: Callable[[Path], object]) -> None:
    target = root / path
    shutil.rmtree(target) if target.is_dir() and not target.is_symlink() else target.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    make(target)


def _socket(path: Path) -> None:
    with chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def _device(path: Path) -> None:
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))


DAY, TABLE = "data/nodes/note/20260102", "data/nodes/note"
KINDS: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo, "a socket": _socket, "a device": _device, "a folder": Path.mkdir, "a file": Path.touch,
    "a link to nowhere": lambda path: path.symlink_to("nowhere"), "a link to itself": lambda path: path.symlink_to(path.name),
}  # fmt: skip


def _obstacles() -> dict[str, tuple[Callable[[Path], object], str]]:
    """What stands where a part, or a folder on the way to parts, belongs, with the finding that names it."""
    found: dict[str, tuple[Callable[[Path], object], str]] = {}
    for path in ("data", "data/nodes", TABLE, DAY, PART):
        found[f"{path} behind a link"] = partial(_linked, path=path), "E_SYMLINK"
        for name, make in KINDS.items():
            if name != ("a file" if path == PART else "a folder"):
                code = "E_SYMLINK" if "link" in name else "E_NOT_REGULAR"
                found[f"{path}: {name}"] = partial(_instead, path=path, make=make), code
    return found


@pytest.mark.parametrize("committed", [True, False])
def test_what_stands_where_parts_belong_stops_reading_and_writing_and_is_not_followed(
    campaign: Campaign, copy: Callable[[], Path], committed: bool
) -> None:
    wrong = []
    chosen = campaign.random(f"{committed}").sample(sorted(_obstacles()), campaign.pick(6, len(_obstacles())))
    for name, (spoil, code) in _obstacles().items():
        if name not in chosen:
            continue
        if name.endswith("a device") and os.geteuid():
            continue  # only root makes devices
        root = copy()
        put(root, GOOD + b"\n" + LAST + b"\n")
        put(root, line("") + b"\n", PART.replace("001", "002"))
        if not committed:
            shutil.rmtree(root / ".git")
        spoil(root)
        for verb in (["list", "Note"], ["put", "Note", '{"id":"new"}'], ["fmt"], ["sql", "SELECT id FROM note"]):
            wrong += unmended(root, Bad(f"{name}: {verb[0]}", verb, 1, "E_UNREADABLE", finding=code))
        findings = json.loads(invoke(root, ["check", "--json"]).out or '{"findings":[]}')["findings"]
        if code not in {one["code"] for one in findings}:
            wrong.append(f"{name}: check says {findings}")
        campaign.count("bad inputs tried: stored truth", 5)
    assert not wrong, "\n".join(wrong)
