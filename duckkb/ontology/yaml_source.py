"""YAML as bytes -> plain values with the line of each.

Everything that YAML readers disagree about is refused.
YAML 1.1 and 1.2 read `no`, `010`, `12:30:45` or `1e3` differently, aliases let a small file become a huge
value, and tags make objects. A document therefore has unambiguous mappings, lists and scalars; anything else is
a finding.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import yaml
from msgspec import Struct
from msgspec.structs import replace
from yaml.reader import Reader
from yaml.resolver import Resolver

from duckkb.ontology.names import Rule, nearest, show_value, suggest_known_names
from duckkb.types.errors import Finding

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32
MAX_FINDINGS = 200
THIS_MACHINE = "collections of this machine"
"""The path of the document that only this machine has: collections of folders outside of the base."""
_REMOVED_KEYS = dict.fromkeys(("vector_storage", "vector_copy"), "vectors are float32, and searched exactly")

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = Resolver()
_STRING, _TIMESTAMP = "tag:yaml.org,2002:str", "tag:yaml.org,2002:timestamp"
_CONSTANTS = {word: value for name, value in (("null", None), ("true", True), ("false", False)) for word in
              (name, name.capitalize(), name.upper())} | {"": None, "~": None}  # fmt: skip
_ONE_LINE = float("inf")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"(?:[-+]?(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?")
_NUMBER_OF_1_2 = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|0o[0-7]+|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_BOOLEAN_OF_1_1 = re.compile(r"yes|no|on|off", re.IGNORECASE)
# Line breaks to YAML 1.1, ordinary characters to YAML 1.2 and to editors.
_OLD_BREAK = re.compile("[\x85\u2028\u2029]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def pointer(*keys: str | int) -> str:
    """Return a JSON pointer (RFC 6901) from keys and indices."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


class Document(Struct, frozen=True):
    """A YAML file: its value, and the line of each key and list item by JSON pointer.

    `findings` are its faults as YAML; a refused value is replaced by its text. `broken` says that the file
    could not be read to its end; `value` is then empty, so that nothing is concluded from a part.
    """

    path: str
    value: Mapping[str, Any] = {}
    lines: Mapping[str, int] = {}
    findings: tuple[Finding, ...] = ()
    broken: bool = False

    def line(self, place: str) -> int:
        """Return the line of a pointer, or of the nearest enclosing pointer in the file; 1 for the root."""
        while place and place not in self.lines:
            place = place.rpartition("/")[0]
        return self.lines.get(place, 1)

    def place(self, place: str) -> str:
        """Return `path:line` of a pointer."""
        return f"{self.path}:{self.line(place)}"

    def finding(self, code: str, place: str, message: str, remedy: str = "") -> Finding:
        return Finding(code, message, self.path, self.line(place), place, remedy)

    def only(self, keys: Collection[str]) -> "Document":
        """Return the document with these top-level keys alone; lines and findings stay."""
        return replace(self, value={key: value for key, value in self.value.items() if key in keys})


def read_yaml(data: bytes, path: str, *, with_dates: bool = False) -> Document:
    """Read one YAML document; never raises for its content. `path` names the file in findings.

    With `with_dates`, a date without quotes is a text like any other, and no finding.
    """
    text, finding = _decode(data, path)
    if finding:
        return Document(path, findings=(finding,), broken=True)
    tree = _Tree(path, with_dates)
    try:
        value = tree.build(text)
    except _Stop:
        return Document(path, lines=tree.lines, findings=tuple(tree.findings), broken=True)
    except yaml.MarkedYAMLError as error:
        tree.findings.append(_convert_syntax_error(error, text, path))
        return Document(path, lines=tree.lines, findings=tuple(tree.findings), broken=True)
    return Document(path, value, tree.lines, tuple(tree.findings))


def _decode(data: bytes, path: str) -> tuple[str, Finding | None]:
    if len(data) > MAX_BYTES:
        return "", Finding("E_YAML", f"is larger than {MAX_BYTES} bytes", path, remedy="split it into several files")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return "", Finding("E_YAML", "is not UTF-8", path, data.count(b"\n", 0, error.start) + 1)
    if match := Reader.NON_PRINTABLE.search(text) or _OLD_BREAK.search(text):
        line = text.count("\n", 0, match.start()) + 1
        remedy = "remove it, or write it as an escape in double quotes"
        return "", Finding("E_YAML", f"holds the character U+{ord(match[0]):04X}", path, line, remedy=remedy)
    return text, None


def _convert_syntax_error(error: yaml.MarkedYAMLError, text: str, path: str) -> Finding:
    mark = error.problem_mark or error.context_mark
    lines = text.split("\n")
    # libyaml counts one more line at the end of a text without a last LF.
    number = min(mark.line + 1, len(lines)) if mark else 0
    indent = re.match(r"\s*", lines[number - 1] if number else "")
    if indent and "\t" in indent[0]:
        return Finding("E_YAML", "a tab cannot indent YAML", path, number, remedy="indent with spaces")
    return Finding("E_YAML", f"does not parse as YAML: {error.problem or error.context}", path, number)


class _Stop(Exception):
    """Raised where reading on would be pointless or unsafe."""


class _Tree:
    """A builder of plain values from YAML's events; it notes lines and findings on the way."""

    def __init__(self, path: str, with_dates: bool) -> None:
        self.path = path
        self._with_dates = with_dates
        self._text = ""
        self.lines: dict[str, int] = {}
        self.findings: list[Finding] = []
        self._events: Iterator[Any] = iter(())

    def build(self, text: str) -> dict[str, Any]:
        if "\t" in text and _LOADER is not yaml.SafeLoader:
            for _ in yaml.parse(text, Loader=yaml.SafeLoader):  # the two readers of YAML differ over tabs
                pass
        self._text, self._events = text, yaml.parse(text, Loader=_LOADER)
        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return {}
        first = next(self._events)
        value = self._build_node(first, "", 1)
        next(self._events)
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            self._refuse(after, "", "a second document starts here; a file is one document")
            raise _Stop
        if value is not None and not isinstance(value, dict):
            self._refuse(first, "", "must be a mapping of keys to values")
            raise _Stop
        return value or {}

    def _refuse(self, event: Any, place: str, message: str, remedy: str = "") -> None:
        self.findings.append(Finding("E_YAML", message, self.path, event.start_mark.line + 1, place, remedy))
        if len(self.findings) >= MAX_FINDINGS:
            raise _Stop

    def _build_node(self, event: yaml.Event, place: str, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            self._refuse(event, place, "aliases are refused", "write the value out")
            raise _Stop
        assert isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent))
        if event.anchor is not None:
            self._refuse(event, place, "anchors are refused", "write the value out where it is needed")
        if event.tag is not None:
            self._refuse(event, place, "tags are refused", "write plain values; quote text")
        if isinstance(event, yaml.ScalarEvent):
            return self._build_scalar(event, place)
        if depth > MAX_DEPTH:
            self._refuse(event, place, f"is nested deeper than {MAX_DEPTH} levels")
            raise _Stop
        return (
            self._build_dict(event, place, depth)
            if isinstance(event, yaml.MappingStartEvent)
            else self._list(place, depth)
        )

    def _list(self, place: str, depth: int) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            item = f"{place}/{len(values)}"
            self.lines[item] = event.start_mark.line + 1
            values.append(self._build_node(event, item, depth + 1))
        return values

    def _build_dict(self, opening: yaml.MappingStartEvent, place: str, depth: int) -> dict[str, Any] | str:
        """Return the values by key; the source text where a key is a mapping or list, as in `{{ template }}`."""
        values: dict[str, Any] = {}
        has_names = True
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            has_names = has_names and isinstance(event, yaml.ScalarEvent)
            key = self._key(event, place, depth)
            inside = place + pointer(key)
            if key in values:
                self._refuse(event, inside, f"appears twice; first on line {self.lines[inside]}", "keep one of them")
            self.lines.setdefault(inside, event.start_mark.line + 1)
            value = self._build_node(next(self._events), inside, depth + 1)
            values.setdefault(key, value)
        if has_names or not place:
            return values
        begins, ends = opening.start_mark, event.end_mark
        return self._text[begins.index : ends.index] if begins and ends else values

    def _key(self, event: yaml.Event, place: str, depth: int) -> str:
        if not isinstance(event, yaml.ScalarEvent):
            self._build_node(event, place, depth + 1)
            self._refuse(event, place, "a key must be text", "write the value in quotes")
            return ""
        key = self._build_node(event, place + pointer(event.value), depth)
        if not isinstance(key, str):
            self._refuse(event, place, "a key must be text", "write it in quotes")
        return event.value

    def _build_scalar(self, event: yaml.ScalarEvent, place: str) -> Any:
        text = event.value
        if _SURROGATE.search(text):
            self._refuse(event, place, "holds a lone surrogate")
            return _SURROGATE.sub("\ufffd", text)
        if not event.implicit[0]:
            return text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _INTEGER.fullmatch(text) or _FLOAT.fullmatch(text):
            return self._build_number(event, place)
        tag = _RESOLVER.resolve(yaml.ScalarNode, text, (True, False))
        if tag == _TIMESTAMP and self._with_dates:
            return text
        if tag != _STRING or _NUMBER_OF_1_2.fullmatch(text):
            is_word = _BOOLEAN_OF_1_1.fullmatch(text)
            remedy = "write it in quotes" + (", or write true or false for yes or no" if is_word else "")
            # Only the words are repeated: digits could be a password, and no message may show one.
            quote = f"`{text}`" if is_word else "a value like this"
            self._refuse(event, place, f"{quote} without quotes is read differently by YAML 1.1 and 1.2", remedy)
        return text

    def _build_number(self, event: yaml.ScalarEvent, place: str) -> int | float | str:
        text = event.value
        if _FLOAT.fullmatch(text):
            number = float(text)
            if number in (float("inf"), float("-inf")):
                self._refuse(event, place, "is a number too large for a double", "write it in quotes")
                return text
            return number
        if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
            self._refuse(event, place, "is an integer past 64 bits", "write it in quotes")
            return text
        return int(text)


class Section(Struct, frozen=True):
    """A mapping at a JSON pointer. Problems go to `found`, which all sections of one reading share."""

    document: Document
    at: str
    value: Mapping[str, Any]
    code: str
    found: list[Finding]

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def inside(self, *keys: str | int) -> str:
        return self.at + pointer(*keys)

    def place(self, *keys: str | int) -> str:
        return self.document.place(self.inside(*keys))

    def problem(self, message: str, *keys: str | int, remedy: str = "") -> None:
        """Note a problem of the value at `keys`, or of the section itself."""
        self.found.append(self.document.finding(self.code, self.inside(*keys), message, remedy))

    def refuse_unknown(self, known: Collection[str], elsewhere: Mapping[str, str] | None = None) -> None:
        """Note every unknown key, with the nearest known one; `elsewhere` maps a key to where it belongs."""
        for key in self.value:
            if key in known:
                continue
            if len(self.found) >= MAX_FINDINGS:
                return  # enough problems for one reading; searching the nearest key is slow
            if key in _REMOVED_KEYS:
                remedy = f"remove it: {_REMOVED_KEYS[key]}"
            elif nearest(key, known) is None and elsewhere and key in elsewhere:
                remedy = f"did you mean `{elsewhere[key]}`?"
            else:
                remedy = suggest_known_names(key, known)
            self.problem(f"unknown key {show_value(key)}", key, remedy=remedy)

    def sub(self, key: str) -> "Section":
        """Return the mapping under a key; an empty one where it is absent, null or (with a finding) no mapping."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, dict):
            self.problem(f"must be a mapping, is {show_value(value)}", key)
        return self._make_section(self.inside(key), value if isinstance(value, dict) else {})

    def each(self, key: str) -> Iterator[tuple[str, "Section"]]:
        """Yield the mappings under a key by name, where each value must be a mapping."""
        group = self.sub(key)
        for name in group.value:
            yield name, group.sub(name)

    def get(self, key: str, rule: Rule, default: Any) -> Any:
        """Return the value under a key where it is given and valid, else the default (with a finding if it is
        invalid).
        """
        if key not in self.value:
            return default
        problem = rule.problem(self.value[key])
        if problem:
            self.problem(problem, key)
            return default
        return self.value[key]

    def read(self, rules: Mapping[str, Rule | None], more: Collection[str] = ()) -> dict[str, Any]:
        """Return the value under each key that has a rule, None where it is absent or invalid.

        Every key that is neither among the rules nor among `more` is noted.
        """
        self.refuse_unknown((*more, *rules))
        return {key: self.get(key, rule, None) for key, rule in rules.items() if rule is not None}

    def names(self, key: str) -> list[tuple[str, str]]:
        """Return the names under a key, which holds one text or a list, each with its pointer; no name twice."""
        value = self.value.get(key)
        many = value if isinstance(value, list) else [value]
        places: dict[str, str] = {}
        for index, name in enumerate(many):
            keys = (key, index) if isinstance(value, list) else (key,)
            if not isinstance(name, str) or not name:
                self.problem(f"must be a name, is {show_value(name)}", *keys)
            elif name in places:
                self.problem(f"names {show_value(name)} twice", *keys)
            else:
                places[name] = self.inside(*keys)
        if not many:
            self.problem("must not be empty", key)
        return list(places.items())

    def items(self, key: str) -> list[tuple[int, Any]]:
        """Return the numbered items of a list under a key; empty where it is absent or (with a finding) no list."""
        value = self.value.get(key)
        if value is not None and not isinstance(value, list):
            self.problem(f"must be a list, is {show_value(value)}", key)
        return list(enumerate(value)) if isinstance(value, list) else []

    def entry(self, key: str, index: int, value: Mapping[str, Any]) -> "Section":
        """Return the mapping that is one item of the list under a key."""
        return self._make_section(self.inside(key, index), value)

    def _make_section(self, at: str, value: Mapping[str, Any]) -> "Section":
        return Section(self.document, at, value, self.code, self.found)


def root_section(document: Document, code: str, found: list[Finding]) -> Section:
    """Return the whole document as a section."""
    return Section(document, "", document.value, code, found)


def write_yaml(value: Mapping[str, Any]) -> bytes:
    """Return YAML that `read_yaml` reads as this value: texts quoted, floats with their dot, invisible characters
    escaped.
    """
    return yaml.dump(value, Dumper=_Quoting, allow_unicode=True, sort_keys=False, width=_ONE_LINE).encode()


class _Quoting(yaml.SafeDumper):
    """A YAML dumper that quotes each text, so that it is read as a text, and writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar(_STRING, text, style='"'))
