"""The guarded YAML reader: what it accepts it reads as everyone does, all else is a finding with its line."""

import json

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from duckkb.ontology.yaml_source import MAX_BYTES, MAX_DEPTH, Document, read_yaml


def read(text: str) -> Document:
    return read_yaml(text.encode(), "ontology/types.yaml")


def told(document: Document) -> list[tuple[int, str]]:
    return [(finding.line, finding.message) for finding in document.findings]


class PlainDumper(yaml.SafeDumper):
    """Writes values without aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


AMBIGUOUS = st.sampled_from(
    [
        "no",
        "Yes",
        "010",
        "12:30:45",
        "2024-01-01",
        "1e3",
        "0E0",
        "~",
        "null",
        "",
        "<<",
        "=",
        "0o7",
        "中文：内容",
        "a: b",
        "1_0",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1)


def mappings(texts: st.SearchStrategy[str], scalars: st.SearchStrategy[object]) -> st.SearchStrategy[dict[str, object]]:
    def deeper(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        return st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)

    return st.dictionaries(texts, st.recursive(scalars | texts, deeper, max_leaves=12), max_size=4)


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | AMBIGUOUS
# U+2028 and the controls are line breaks or not printable to YAML, and nothing special to JSON.
VISIBLE_TEXT = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=12) | AMBIGUOUS
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=300, deadline=None)
@given(mappings(ANY_TEXT, SCALARS | FLOATS), st.booleans())
def test_what_a_yaml_writer_writes_is_read_back_or_needs_quotes(value: dict[str, object], flow: bool) -> None:
    text = yaml.dump(value, Dumper=PlainDumper, allow_unicode=True, default_flow_style=flow)
    document = read(text)
    assert all("quotes" in finding.remedy for finding in document.findings)
    if not document.findings:
        assert json.dumps(document.value, sort_keys=True) == json.dumps(value, sort_keys=True)


@settings(max_examples=300, deadline=None)
@given(mappings(VISIBLE_TEXT, SCALARS))
def test_json_is_read_as_json(value: dict[str, object]) -> None:
    document = read(json.dumps(value, ensure_ascii=False))
    assert document.findings == ()
    assert document.value == value


@settings(max_examples=300, deadline=None)
@given(st.text("abno-:10eE.+_x~\n #'\"[]{},&*!|>\t 中", max_size=30))
def test_text_is_read_as_yaml_1_1_reads_it_or_refused(text: str) -> None:
    document = read(text)
    if not document.findings:
        assert json.dumps(document.value) == json.dumps(yaml.load(text, Loader=yaml.CSafeLoader) or {})


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_no_bytes_make_the_reader_fail(data: bytes) -> None:
    document = read_yaml(data, "config.yaml")
    assert document.broken <= bool(document.findings)
    assert all(finding.code == "E_YAML" and finding.path == "config.yaml" for finding in document.findings)


def test_every_key_and_item_knows_its_line() -> None:
    document = read(
        "nodes:\n  概念:\n    identity: id\n    search:\n      full_text:\n      - name\n      - a/b~c: 1\n"
    )
    assert document.line("/nodes/概念/identity") == 3
    assert document.line("/nodes/概念/search/full_text/0") == 6
    assert document.line("/nodes/概念/search/full_text/1/a~1b~0c") == 7
    assert document.place("/nodes/概念/identity/not/there") == "ontology/types.yaml:3"
    assert document.place("") == "ontology/types.yaml:1"


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "null\n", "\ufeff"])
def test_an_empty_file_is_an_empty_mapping(text: str) -> None:
    document = read(text)
    assert (document.value, document.findings, document.broken) == ({}, (), False)


def test_a_byte_order_mark_before_the_text_is_read_over() -> None:
    assert read("\ufeffa: 1\n").value == {"a": 1}


@pytest.mark.parametrize(
    "scalar",
    [
        *(
            "no",
            "Yes",
            "ON",
            "off",
            "010",
            "0o10",
            "0x1F",
            "0b1",
            "1_000",
            "12:30:45",
            "1:1",
            "2024-02-30",
            "1e3",
            "-.5",
        ),
        *(".inf", "-.INF", ".nan", "=", "2001-12-14t21:59:43Z"),
    ],
)
def test_dk_03_a_scalar_that_versions_of_yaml_disagree_about_needs_quotes(scalar: str) -> None:
    document = read(f"first: 1\nvalue: {scalar}\n")
    assert [(f.code, f.place, f.field) for f in document.findings] == [("E_YAML", "ontology/types.yaml:2", "/value")]
    assert "quotes" in document.findings[0].remedy
    assert read(f"value: '{scalar}'\n").value == {"value": scalar}


def test_yes_and_no_as_keys_are_refused_and_the_rest_is_read_on() -> None:
    document = read("no: 1\nnorway: 2\nyes: on\n")
    assert [line for line, _ in told(document)] == [1, 3, 3]
    assert "true or false" in document.findings[0].remedy
    assert not document.broken


@pytest.mark.parametrize("key", ["1", "1.5", "true", "null", "~", "[a]", "{a: 1}", "? [a]\n"])
def test_a_key_that_is_no_text_is_refused(key: str) -> None:
    document = read(f"a: 1\n{key}: 2\n")
    assert [(line, message) for line, message in told(document)] == [(2, "a key must be text")]


def test_numbers_that_json_or_int64_cannot_hold_are_refused() -> None:
    document = read(f"a: {2**63}\nb: -{2**63}\nc: {'9' * 5000}\nd: 1.0e+999\ne: 1.0e+3\nf: +7\n")
    assert [line for line, _ in told(document)] == [1, 3, 4]
    assert document.value["b"] == -(2**63)
    assert (document.value["e"], document.value["f"]) == (1000.0, 7)


def test_dk_03_an_alias_bomb_is_refused_at_the_first_alias() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    document = read(bomb)
    assert document.broken and document.value == {}
    assert [line for line, _ in told(document)] == [1, 2, 2]
    assert "anchors" in document.findings[0].message and "aliases" in document.findings[2].message


@pytest.mark.parametrize(
    "value", ["!!python/object/apply:os.system ['true']", "!!binary aGk=", "!mine x", "!!str 1", "! x"]
)
def test_dk_03_tags_are_refused_and_make_no_objects(value: str) -> None:
    document = read(f"x: 1\ny: {value}\n")
    assert told(document) == [(2, "tags are refused")]


def test_a_duplicate_key_names_both_lines_and_keeps_the_first_value() -> None:
    document = read("a:\n  b: 1\n  c: 2\n  b: 3\n")
    assert told(document) == [(4, "appears twice; first on line 2")]
    assert document.value == {"a": {"b": 1, "c": 2}}


def test_two_documents_are_refused() -> None:
    document = read("a: 1\n---\nb: 2\n")
    assert document.broken
    assert told(document) == [(2, "a second document starts here; a file is one document")]


def test_a_tab_as_indentation_is_said_to_be_one() -> None:
    assert told(read("a:\n\tb: 1\n")) == [(2, "a tab cannot indent YAML")]


@pytest.mark.parametrize(
    ("text", "line"), [("a: 1\nb: [1\n", 3), ("a: 'x\n", 2), ("a: 1\n b: 2\n", 2), ("a\nb: 1\n", 2)]
)
def test_text_that_does_not_parse_names_its_line(text: str, line: int) -> None:
    document = read(text)
    assert document.broken
    assert [(place, message.startswith("does not parse")) for place, message in told(document)] == [(line, True)]


@pytest.mark.parametrize(
    ("data", "line", "word"),
    [
        (b"a: 1\nb: \xff\n", 2, "UTF-8"),
        ("a: 1\n".encode("utf-16"), 1, "UTF-8"),
        (b"a: 1\n\nb: \x00\n", 3, "U+0000"),
        (b"a: \x1b[31m\n", 1, "U+001B"),
        ("a: 1\nb: '中\u2028文'\n".encode(), 2, "U+2028"),
        ("a: '\x85'\n".encode(), 1, "U+0085"),
        (b"- 1\n", 1, "mapping"),
        (b"text\n", 1, "mapping"),
    ],
)
def test_bytes_that_are_no_yaml_mapping_are_refused(data: bytes, line: int, word: str) -> None:
    document = read_yaml(data, "config.yaml")
    assert document.broken and len(document.findings) == 1
    assert document.findings[0].line == line and word in document.findings[0].message


def test_a_lone_surrogate_is_refused() -> None:
    assert read('a: "\\ud800"\n').findings[0].line == 1


def test_depth_and_size_have_limits() -> None:
    nested = "a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1)
    assert read(nested).findings == ()
    assert "nested deeper" in read(nested.replace("[", "[[").replace("]", "]]")).findings[0].message
    assert "nest" in read("a: " + "[" * 100_000).findings[0].message, "some versions of libyaml refuse that first"
    assert read("# " + "x" * (MAX_BYTES - 3) + "\n").findings == ()
    assert "larger" in read("# " + "x" * MAX_BYTES + "\n").findings[0].message


def test_a_file_of_nothing_but_problems_stops_after_many() -> None:
    document = read("a:\n" + "- 010\n" * 5_000)
    assert document.broken and 100 <= len(document.findings) < 1_000


def test_several_problems_come_at_once() -> None:
    document = read("a: no\nb: &x 010\nc: !!str 1\na: 2\n3: x\n")
    assert [line for line, _ in told(document)] == [1, 2, 2, 3, 4, 5]


def test_windows_line_ends_and_characters_outside_the_basic_plane_are_read() -> None:
    document = read("a: 🦆 鸭\r\nb:\r\n  - |\r\n    x\r\n    y\r\n")
    assert document.value == {"a": "🦆 鸭", "b": ["x\ny\n"]}
    assert document.line("/b/0") == 3


@pytest.mark.parametrize("text", ["i\tng: 1\n", "a: b\tc\n", "a:\tb\n", "a: 1\t# c\n", "a: 1 \t\n", "a: [1,\t2]\n"])
def test_a_tab_over_which_readers_differ_is_refused(text: str) -> None:
    document = read_yaml(text.encode(), "config.yaml")
    assert document.broken and [finding.code for finding in document.findings] == ["E_YAML"]
    with pytest.raises(yaml.YAMLError):
        yaml.load(text, Loader=yaml.SafeLoader)


@pytest.mark.parametrize("text", ['a: "b\tc"\n', "a: |\n  b\tc\n", "a: 1  # \t\n"])
def test_a_tab_over_which_readers_agree_is_read(text: str) -> None:
    assert read_yaml(text.encode(), "config.yaml").value == yaml.load(text, Loader=yaml.SafeLoader)
