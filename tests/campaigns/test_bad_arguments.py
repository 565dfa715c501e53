"""Bad arguments and bad stdin: each refused by name, with nothing changed, or taken as the data that it is."""

import json
from pathlib import Path

import pytest

from tests.conftest import NOTES, commit, make_base
from tests.harness.bad_inputs.ground import Bad, invoke, unmended
from tests.harness.campaign import Campaign

FIRST = '{"id":"a","title":"Ids","text":"内存数据库 and git"}\n{"id":"b","text":"<b> \\u001b[31m \\u009b \\u202e"}\n'

USAGE = [
    Bad("no verb", [], 2, "E_USAGE"),
    Bad("unknown verb", ["lisst", "Note"], 2, "E_USAGE", said="list"),
    Bad("a verb in capitals", ["LIST", "Note"], 2, "E_USAGE"),
    Bad("a verb that is an option", ["-rf"], 2, "E_USAGE"),
    Bad("unknown flag", ["list", "Note", "--limt", "3"], 2, "E_USAGE", said="--limit"),
    Bad("missing argument", ["list"], 2, "E_USAGE"),
    Bad("one argument too many", ["list", "Note", "b"], 2, "E_USAGE"),
    Bad("a group alone", ["graph"], 2, "E_USAGE"),
    Bad("unknown subcommand", ["graph", "walk"], 2, "E_USAGE"),
    Bad("unknown format", ["check", "--format", "xml"], 2, "E_USAGE"),
    Bad("a wait that is no number", ["list", "Note", "--lock-timeout", "nan"], 2, "E_USAGE"),
    Bad("an endless wait", ["list", "Note", "--lock-timeout", "inf"], 2, "E_USAGE"),
    Bad("a wait below zero", ["list", "Note", "--lock-timeout", "-1"], 2, "E_USAGE"),
    Bad("a base that is not there", ["list", "Note", "--kb", "/nowhere/at/all"], 1, "E_NO_KB"),
    Bad("a base without a name", ["list", "Note", "--kb", ""], 1, "E_NO_KB"),
    Bad("a base that is a file", ["list", "Note", "--kb", "config.yaml"], 1, "E_NO_KB"),
    Bad("a base with a NUL", ["list", "Note", "--kb", "a\0b"], 1, "E_NO_KB"),
    Bad("a base of nobody", ["list", "Note", "--kb", "~nobody-at-all/kb"], 1, "E_NO_KB"),
    Bad("find nothing", ["find", "Note"], 2, "E_USAGE"),
    Bad("no deletion named", ["delete", "Note"], 2, "E_USAGE"),
    Bad("a direction that is none", ["graph", "neighbors", "Note", "a", "--direction", "up"], 2, "E_USAGE"),
    Bad("a label that is a node type", ["graph", "neighbors", "Note", "a", "--label", "Note"], 2, "E_USAGE"),
    Bad("a label that is none", ["graph", "neighbors", "Note", "a", "--label", "citez"], 1, "E_UNKNOWN_TYPE", said="cites"),
    Bad("neighbours of an edge", ["graph", "neighbors", "cites", '["a","b"]'], 2, "E_USAGE"),
    Bad("a walk of no depth", ["graph", "neighbors", "Note", "a", "--depth", "0"], 2, "E_USAGE"),
    Bad("a path from nowhere", ["graph", "path", "Note", "ghost", "Note", "a"], 1, "E_NOT_FOUND"),
    Bad("two texts to embed", ["embed", "x", "--input-file", "y"], 2, "E_USAGE"),
    Bad("a batch that is no array", ["embed", "--batch", "x"], 2, "E_JSON"),
    Bad("a batch of nothing", ["embed", "--batch", "[]"], 2, "E_USAGE"),
    Bad("a batch of numbers", ["embed", "--batch", "[1]"], 2, "E_USAGE"),
    Bad("nothing to embed", ["embed", " "], 2, "E_USAGE"),
    Bad("a text that is not UTF-8", ["embed"], 2, "E_UTF8", stdin=b"\xff\xfe"),
    Bad("a mapping that is none", ["import", "Note", "-", "--map", "x"], 2, "E_USAGE"),
    Bad("a mapping given twice", ["import", "Note", "-", "--map", "x=a", "--map", "x=b"], 2, "E_USAGE"),
    Bad("a file that is not there", ["import", "Note", "nowhere.jsonl"], 2, "E_PATH"),
    Bad("a file that is a folder", ["import", "Note", "data"], 2, "E_PATH"),
    Bad("a file that is a device", ["import", "Note", "/dev/null"], 2, "E_PATH"),
    Bad("a file with a NUL", ["import", "Note", "a\0b"], 2, "E_PATH"),
    Bad("an export over a file", ["export", "Note", "-o", "config.yaml"], 2, "E_PATH"),
    Bad("an export to a folder", ["export", "Note", "-o", "data"], 2, "E_PATH"),
    Bad("an export to nowhere", ["export", "Note", "-o", "nowhere/x.jsonl"], 2, "E_PATH"),
    Bad("an export with a NUL", ["export", "Note", "-o", "a\0b"], 2, "E_PATH"),
    Bad("an export into truth", ["export", "Note", "-o", "data/nodes/note/20260101/part_001.jsonl", "--force"], 2, "E_PATH"),
    Bad("an export over settings", ["export", "Note", "-o", "config.yaml", "--force"], 2, "E_PATH"),
    Bad("an export into git", ["export", "Note", "-o", ".git/config", "--force"], 2, "E_PATH"),
    Bad("a second init", ["init"], 1, "E_EXISTS"),
    Bad("an init over a file", ["init", "config.yaml"], 2, "E_PATH"),
    Bad("an init with a NUL", ["init", "a\0b"], 2, "E_PATH"),
    Bad("an etag for two", ["put", "Note", "--if-match", "0" * 16], 2, "E_USAGE", b'{"id":"x"}\n{"id":"y"}'),
    Bad("a statement that is not UTF-8", ["sql"], 2, "E_USAGE", stdin=b"\xff\xfe"),
    Bad("no statement", ["sql"], 2, "E_SQL"),
    Bad("half a character in a statement", ["sql", "SELECT '\udcff'"], 2, "E_SQL"),
    Bad("a question that is not UTF-8", ["find", "Note", "-s"], 2, "E_USAGE", stdin=b"\xff\xfe"),
]  # fmt: skip

LIMITS = [
    Bad(f"{verb[0]} with a limit of {limit}", [*verb, "--limit", limit], 2, "E_USAGE")
    for verb in (["list", "Note"], ["find", "Note", "git", "-m"], ["find", "Note", "-w", "id = 'a'"], ["sql", "SELECT 1"],
                 ["graph", "neighbors", "Note", "a"])
    for limit in ("0", "-1", "1e9", "abc", "", "0x10", "9" * 5000)
]  # fmt: skip

_DEEP = "[" * 100_000
TYPES = ["Nte", "__proto__", "main", "information_schema", "../../etc/passwd", "con", ".git", "", "*", "note; DROP", "x" * 100_000,
         "constructor", "\udcff", "a\0b", "\x1b[31m", "a\nb", "ノート"]  # fmt: skip
UNKNOWN_TYPES = [
    Bad(f"{verb} {name[:30]!r}", [verb, name, *rest], 1, "E_UNKNOWN_TYPE")
    for name in TYPES
    for verb, rest in (("list", []), ("put", ["{}"]), ("find", ["git", "-m"]), ("export", []), ("schema", []), ("delete", ["a"]))
    if (verb, name) != ("schema", "")
]  # fmt: skip

NAMES = [
    Bad("part of an identity", ["get", "Person", "CH"], 2, "E_INVALID"),
    Bad("too few", ["get", "Person", '["CH"]'], 2, "E_INVALID"),
    Bad("too many", ["get", "Person", '["CH",1,2]'], 2, "E_INVALID"),
    Bad("a fraction", ["get", "Person", '["CH",7.5]'], 2, "E_INVALID"),
    Bad("a truth value", ["get", "Person", '["CH",true]'], 2, "E_INVALID"),
    Bad("not a number", ["get", "Person", '["CH",NaN]'], 2, "E_INVALID"),
    Bad("wide digits", ["get", "Person", '["CH","７"]'], 2, "E_INVALID"),
    Bad("past int64", ["get", "Person", '["CH",9223372036854775808]'], 2, "E_INVALID"),
    Bad("5,000 digits", ["get", "Person", f'["CH",{"9" * 5000}]'], 2, "E_INVALID"),
    Bad("5,000 digits as text", ["get", "Person", f'["CH","{"9" * 5000}"]'], 2, "E_INVALID"),
    Bad("100,000 arrays", ["get", "Person", _DEEP], 2, "E_INVALID"),
    Bad("an object", ["get", "Person", '{"country":"CH"}'], 2, "E_INVALID"),
    Bad("half an edge", ["get", "cites", '["a"]'], 2, "E_INVALID"),
    Bad("an end of a foreign type", ["get", "cites", '[{"type":"Person","id":"a"},"b"]'], 2, "E_INVALID"),
    Bad("an end of no type", ["get", "about", '["a",{"type":"__proto__","id":"b"}]'], 2, "E_INVALID"),
    Bad("no such record", ["get", "Note", "ghost"], 1, "E_NOT_FOUND"),
    Bad("a very long name", ["get", "Note", "x" * 100_000], 1, "E_NOT_FOUND"),
    Bad("a name that is an option", ["get", "Note", "-rf"], 2, "E_USAGE"),
    Bad("a name with escapes", ["get", "Note", "\x1b]0;x\x07\r\n"], 1, "E_NOT_FOUND"),
    Bad("half a character", ["get", "Note", "\udcff"], 1, "E_NOT_FOUND"),
    Bad("no such deletion", ["delete", "Note", "a", "ghost"], 1, "E_NOT_FOUND"),
    Bad("a rename of nothing", ["rename", "Note", "ghost", "c"], 1, "E_NOT_FOUND"),
    Bad("a rename over another", ["rename", "Note", "a", "b"], 1, "E_EXISTS"),
]

UNFIT = {"empty": "", "1,025 bytes": "x" * 1025, "1,026 bytes of Chinese": "中" * 342, "control": "a\x1bb", "C1 control": "a\x9bb",
         "newline": "a\nb", "NUL": "a\0b", "DEL": "a\x7f", "right to left": "a\u202eb", "isolate": "a\u2066b",
         "line separator": "a\u2028b", "not NFC": "e\u0301", "half a character": "\ud800"}  # fmt: skip
IDENTITIES = [
    case
    for name, value in UNFIT.items()
    for text in [json.dumps({"id": value})]
    for case in (
        Bad(f"put {name}", ["put", "Note", text], 2, "E_SURROGATE" if name[:4] == "half" else "E_IDENTITY"),
        Bad(f"put {name} as a line", ["put", "Note"], 1, "E_INVALID", text.encode(), "E_SURROGATE" if name[:4] == "half" else "E_IDENTITY"),
        Bad(f"rename to {name}", ["rename", "Note", "a", value], 2, "E_IDENTITY"),
    )
]  # fmt: skip

TEXTS: dict[str, tuple[bytes, str]] = {
    "cut": (b'{"id":"x"', "E_JSON"),
    "cut in a string": (b'{"id":"x', "E_JSON"),
    "cut in a character": (b'{"id":"\xe4\xb8', "E_UTF8"),
    "an array": (b'[{"id":"x"}]', "E_JSON"),
    "a string": (b'"x"', "E_JSON"),
    "a number": (b"5", "E_JSON"),
    "null": (b"null", "E_JSON"),
    "words": (b"not json", "E_JSON"),
    "two objects": (b'{"id":"x"}{"id":"y"}', "E_JSON"),
    "trailing comma": (b'{"id":"x",}', "E_JSON"),
    "single quotes": (b"{'id':'x'}", "E_JSON"),
    "a comment": (b'{"id":"x"} // y', "E_JSON"),
    "smart quotes": ("{“id”:“x”}".encode(), "E_JSON"),
    "a raw control": (b'{"id":"x\x01"}', "E_JSON"),
    "NaN": (b'{"id":"x","v":NaN}', "E_NUMBER"),
    "infinity": (b'{"id":"x","v":-Infinity}', "E_NUMBER"),
    "1e999": (b'{"id":"x","v":1e999}', "E_NUMBER"),
    "5,000 digits": (b'{"id":"x","v":' + b"9" * 5000 + b"}", "E_NUMBER"),
    "past int64": (b'{"id":"x","v":9223372036854775808}', "E_NUMBER"),
    "past int64 below": (b'{"id":"x","v":-9223372036854775809}', "E_NUMBER"),
    "a key twice": (b'{"id":"x","id":"y"}', "E_DUP_KEY"),
    "a key twice inside": (b'{"id":"x","v":{"a":1,"\\u0061":2}}', "E_DUP_KEY"),
    "100,000 arrays": (b'{"id":"x","v":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "E_DEPTH"),
    "100,000 arrays, open": (b"[" * 100_000, "E_DEPTH"),
    "100,000 objects": (b'{"v":' * 100_000 + b"1" + b"}" * 100_000, "E_DEPTH"),
    "65 levels": (b'{"id":"x","v":' + b"[" * 64 + b"]" * 64 + b"}", "E_DEPTH"),
    "half a character": (b'{"id":"x","text":"\\ud800"}', "E_SURROGATE"),
    "half a character as bytes": (b'{"id":"x","text":"\xed\xa0\x80"}', "E_UTF8"),
    "half a character as a key": (b'{"id":"x","\\udfff":1}', "E_SURROGATE"),
    "a long form of /": (b'{"id":"\xc0\xaf"}', "E_UTF8"),
    "latin-1": (b'{"id":"x","text":"\xe9"}', "E_UTF8"),
    "a byte order mark": (b'\xef\xbb\xbf{"id":"x"}', "E_BOM"),
    "UTF-16": ('{"id":"x"}'.encode("utf-16"), "E_UTF8"),
    "UTF-16 without a mark": ('{"id":"x"}'.encode("utf-16-le"), "E_NUL"),
    "NUL": (b'{"id":"x","text":"\0"}', "E_NUL"),
    "only NUL": (b"\0" * 1000, "E_NUL"),
    "a ZIP": (b"PK\x03\x04\x14\x00\xff\xfe\x89", "E_UTF8"),
    "a reserved name": (b'{"id":"x","_v":1}', "E_NAME"),
    "a name of ours": (b'{"id":"x","__deleted":true}', "E_NAME"),
    "names alike": (b'{"id":"x","V":1,"v":1}', "E_NAME"),
    "an id that is text": (b'{"id":"x","__id":"1"}', "E_ID"),
    "an id that is a float": (b'{"id":"x","__id":1.0}', "E_ID"),
    "an id of zero": (b'{"id":"x","__id":0}', "E_ID"),
    "an id past 2^53": (b'{"id":"x","__id":9007199254740992}', "E_ID"),
    "a time that is none": (b'{"id":"x","__created_at":"2024-02-30T00:00:00.000000Z"}', "E_TIME"),
    "a time without a zone": (b'{"id":"x","__updated_at":"2024-02-03"}', "E_TIME"),
    "no identity": (b'{"title":"x"}', "E_IDENTITY"),
    "a null identity": (b'{"id":null}', "E_IDENTITY"),
    "an identity that is a list": (b'{"id":["x"]}', "E_IDENTITY"),
    "of another type": (b'{"id":"x","size":"5"}', "E_SCHEMA"),
    "a float for an integer": (b'{"id":"x","size":1.5}', "E_SCHEMA"),
    "not in the enumeration": (b'{"id":"x","status":"done"}', "E_SCHEMA"),
    "in a list": (b'{"id":"x","tags":["a",2]}', "E_SCHEMA"),
}  # fmt: skip

_IMPORTED = {"an array", "a byte order mark"}
"""What is no JSON Line, and what `import` takes."""
_NOT_UTF8 = {"cut in a character", "latin-1", "half a character as bytes", "a long form of /"}
"""Of one line, so that `import` reads a JSON document, which has one encoding: no line of it is refused by itself."""
_EMPTY = {"nothing": b"", "a newline": b"\n", "blank lines": b"\r\n \t\n\n"}


def _text_cases() -> list[Bad]:
    cases = [Bad(f"stdin: {name}", ["put", "Note"], 2, "E_EMPTY", data) for name, data in _EMPTY.items()]
    for name, (data, code) in TEXTS.items():
        cases.append(Bad(f"a line: {name}", ["put", "Note"], 1, "E_INVALID", b'{"id":"good"}\n' + data, code))
        if name not in _IMPORTED:
            refused = ("E_UTF8", "") if name in _NOT_UTF8 else ("E_INVALID", code)
            cases.append(Bad(f"an import: {name}", ["import", "Note", "-"], 1, refused[0], data + b"\n", refused[1]))
        if b"\0" not in data:
            text = data.decode("utf-8", "surrogateescape")
            as_bytes = data.isascii() or code not in ("E_UTF8",)
            cases.append(Bad(f"an argument: {name}", ["put", "Note", text], 2, code if as_bytes else "E_UTF8"))
    return cases


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base with two notes, a person and an edge, committed."""
    root = make_base(tmp_path_factory.mktemp("arguments") / "kb", NOTES)
    for args, data in ((["put", "Note"], FIRST), (["put", "Person"], '{"country":"CH","number":7,"name":"Li"}'),
                       (["put", "cites"], '{"from":"a","to":"b"}')):  # fmt: skip
        assert invoke(root, args, data.encode()).code == 0
    commit(root)
    return root


CASES = {"usage": USAGE, "limits": LIMITS, "unknown types": UNKNOWN_TYPES, "names": NAMES, "identities": IDENTITIES,
         "texts": _text_cases()}  # fmt: skip


@pytest.mark.parametrize("group", CASES)
def test_what_is_refused_is_refused_by_name_and_changes_nothing(campaign: Campaign, base: Path, group: str) -> None:
    cases = CASES[group]
    chosen = campaign.random(group).sample(
        cases, campaign.pick(max(30, len(cases) // 2), len(cases)) if len(cases) > 60 else len(cases)
    )
    found = [wrong for case in chosen for wrong in unmended(base, case)]
    campaign.count("bad inputs tried: arguments and stdin", len(chosen))
    assert not found, "\n".join(found)
