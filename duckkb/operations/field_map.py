"""Mapping of a source's fields to those of records: renamed, taken from nested values, joined to an identity.

Reading of a JSON document with records: an array of them, or an object that contains such an array."""

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from duckkb.ontology.model import RecordType
from duckkb.operations.name_resolution import PRINTED
from duckkb.operations.source_files import ImportRequest, read_declared_types
from duckkb.storage.line import Limits, LineError, LineShape, encode, parse_json
from duckkb.types.errors import Finding, UsageError
from duckkb.types.records import identity_text

_KEY_NAME = re.compile(r"(?:^|[._ -])(?:id|key|code|slug|uuid|guid|sku|nr|no|number)$|[a-z]I[dD]$", re.IGNORECASE)
_EVIDENT_KEY = re.compile(r"(?:^|[_. -])(?:[iI][dD]|[kK][eE][yY])$|[a-z](?:Id|ID|Key)$")
_LONGEST_KEY = 200
_NAMED = 12
Fields = Mapping[str, Any]


class FieldMap:
    """A mapping for the records of one import, in their order, which reports afterwards what they lacked.

    `is_stored` tells whether an id is stored. For records with an identity of their own, `made_ids` then has
    the stored id that an import without it generated from the same contents.
    """

    def __init__(
        self, kind: RecordType, request: ImportRequest, is_stored: Callable[[str], bool] | None = None
    ) -> None:
        self._kind, self._request = kind, request
        makes_ids = kind.generated is not None and kind.generated.method == "uuid4"
        self._is_stored = is_stored if makes_ids and not request.merge else None
        self.made_ids: dict[str, str] = {}
        self._unseen = {*request.renames.values(), *request.id_fields}
        self._names: dict[str, None] = {}
        self._places: dict[Any, tuple[int, str]] = {}
        self._contents: Counter[uuid.UUID] = Counter()
        self._keys = KeyCandidates()
        self._has_ids = False
        self.makes_ids_of_others = bool(request.id_fields) and kind.identity_fields[0] not in request.id_fields
        types = read_declared_types(kind.properties)
        self._text_keys = {name for name in kind.identity_fields if types.get(name) == "text"}
        self.records = self.generated_ids = 0
        self.first: list[Fields] = []

    def shape(self, place: str, item: Fields | LineError) -> Fields | LineError:
        """Convert a record of the source to one of the type; return a line's error as it is."""
        if isinstance(item, LineError):
            return item
        self.records += 1
        if len(self._names) < _NAMED * 2:
            self._names |= dict.fromkeys(path for path, _ in _iter_leaves(item))
        wrong, parts = self._collect_id_parts(item) if self._request.id_fields else ([], [])
        fields = self._rename_fields(item, self._request.renames)
        if wrong:
            self._keys.note(item)
            return LineError(wrong)
        self._has_ids |= bool(parts)
        if parts:
            name = self._kind.identity_fields[0]
            identity = parts[0] if len(parts) == 1 else "-".join(map(str, parts))
            identity = self._to_key(name, identity)
            fields = {name: identity, **_drop_field(fields, name)}
            if problem := self._check_repeat(identity, place, fields):
                return LineError([problem])
        elif not self._request.merge:
            fields = self._with_generated_id(fields)
        if self._is_stored is not None:
            self._note_made_id(item, fields, self._is_stored)
        if len(self.first) < 3:
            self.first.append(fields)
        return fields

    def refuse_unknown_sources(self) -> None:
        """Raise `errors.UsageError` for a field that --map or --id takes and no record has."""
        if not self.records or not self._unseen:
            return
        name = sorted(self._unseen)[0]
        renames, id_fields = dict(self._request.renames), self._request.id_fields
        option = next((f"--map {to}={of}" for to, of in self._request.renames.items() if of == name), f"--id {name}")
        leaf = name.rpartition(".")[2]
        near = [path for path in self._names if path.endswith(f".{leaf}")] or get_close_matches(name, self._names, 1)
        if not near and name in id_fields and (key := self._keys.best()):
            near = [key]
        field_list = ", ".join([*self._names][:_NAMED]) + (", …" if len(self._names) > _NAMED else "")
        remedy = "name one of these fields"
        if near:
            renames = {to: near[0] if of == name else of for to, of in renames.items()}
            id_fields = tuple(near[0] if field == name else field for field in id_fields)
            remedy = self._request.command(renames=renames, id_fields=id_fields)
        raise UsageError(f"no record has the field {name!r} of `{option}`; fields: {field_list}", suggestion=remedy)

    def key_command(self) -> str:
        """Return the command with the fields that tell the records apart as --id.

        Returns an empty text where no fields seem to, and where the present --id works for some.
        """
        key = "" if self._has_ids else self._keys.best()
        return self.command([key]) if key else ""

    def evident_key(self) -> str:
        """Return the field of its own that every record has, each with another value, and that is named as an id or key.

        Empty without one, and where some records have an id.
        """
        key = self._keys.best(_EVIDENT_KEY) if self.generated_ids == self.records > 1 else ""
        return key if key and key in self.first[0] else ""

    def command(self, id_fields: Sequence[str] | None = None, **changes: Any) -> str:
        """Return the command of this import with changes, such as the identity made of other fields."""
        return self._request.command(**changes, **({} if id_fields is None else {"id_fields": tuple(id_fields)}))

    def command_after(self, removal: str, command: str) -> str:
        """Return a command of this import behind one that deletes records.

        It is in words where there is no such command, and for stdin, which cannot be read twice.
        """
        if removal and "-" not in self._request.files:
            return f"{removal} && {command}"
        return f"delete them first, then `{command}`"

    def command_without_id(self) -> str:
        """Return the command of this import without its identity options; empty where it has none."""
        name = self._kind.identity_fields[0]
        renames = {to: of for to, of in self._request.renames.items() if to != name}
        plain = self._request.command(id_fields=(), renames=renames)
        return "" if plain == self._request.command() else plain

    def _rename_fields(self, item: Fields, renames: Mapping[str, str]) -> dict[str, Any]:
        """Return fields under their target names; a source moves, and objects that become empty are removed."""
        fields = dict(item)
        values = {to: value for to, of in renames.items() if (value := _find_value(item, of)) is not _ABSENT}
        for source in renames.values():
            _remove(fields, source)
            if _find_value(item, source) is not _ABSENT:
                self._unseen.discard(source)
        return fields | {to: self._to_key(to, value) for to, value in values.items()}

    def _to_key(self, name: str, value: Any) -> Any:
        """Return a value for a field; an integer as text, for an identity that the schema declares as text."""
        return str(value) if name in self._text_keys and type(value) is int else value

    def _collect_id_parts(self, item: Fields) -> tuple[list[Finding], list[Any]]:
        wrong, parts = [], []
        for name in self._request.id_fields:
            value = _find_value(item, name)
            if value is not _ABSENT:
                self._unseen.discard(name)
            if isinstance(value, (str, int)) and not isinstance(value, bool) and value != "":
                parts.append(value)
            else:
                message = "has no text or whole number to make the identity of"
                wrong.append(Finding("E_IDENTITY", message, field=f"/{name.replace('.', '/')}"))
        return wrong, parts

    def _check_repeat(self, identity: Any, place: str, fields: Fields) -> Finding | None:
        """Return what is wrong where a record repeats an identity with other values; one would be lost."""
        if self._request.merge:
            return None
        content = hash(repr(sorted(fields.items(), key=lambda item: item[0])))
        earlier = self._places.setdefault(identity, (content, place))
        if earlier[0] == content:
            return None
        message = f"the record has the identity of {earlier[1]}, {identity!r}, and other values"
        return Finding("E_IDENTITY", message, remedy="--id FIELD,FIELD joins fields that tell records apart")

    def _with_generated_id(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Add an id generated from the fields, where the type generates ids and the record has none.

        The same file gives the same ids at every import.
        """
        lacking = [name for name in self._kind.identity_fields if fields.get(name) is None]
        if not lacking:
            return fields
        self._keys.note(fields)
        rule = self._kind.generated
        key = id_of_contents(fields)
        if rule is None or rule.method != "uuid4" or key is None:
            return fields
        self._contents[key] += 1
        if (times := self._contents[key]) > 1:
            key = uuid.uuid5(key, str(times))
        self.generated_ids += 1
        return {lacking[0]: str(key), **fields}

    def _note_made_id(self, item: Fields, fields: Fields, has_id: Callable[[str], bool]) -> None:
        """Note the id under which an import without ids of its own stored this record."""
        name = self._kind.identity_fields[0]
        renames = {to: of for to, of in self._request.renames.items() if to != name}
        contents = fields if renames == self._request.renames else self._rename_fields(item, renames)
        made_id = id_of_contents(_drop_field(contents, name))
        if made_id is not None and has_id(str(made_id)):
            self.made_ids[str(fields.get(name))] = str(made_id)


def id_of_contents(fields: Fields) -> uuid.UUID | None:
    """Return the id that follows from fields; None where they cannot be stored, as the check of records reports."""
    content = {name: value for name, value in fields.items() if name not in PRINTED}
    try:
        return uuid.uuid5(uuid.NAMESPACE_OID, encode(content, LineShape(())).decode())
    except ValueError:
        return None


class KeyCandidates:
    """The fields that every record has had so far, with a different value in each."""

    def __init__(self) -> None:
        self._values: dict[str, set[Any]] | None = None

    def note(self, fields: Fields) -> None:
        """Note the fields of a record."""
        leaves = {path: value for path, value in _iter_leaves(fields) if _is_key(value)}
        if self._values is None:
            self._values = {path: set() for path in leaves}
        for path, values in [*self._values.items()]:
            value = leaves.get(path)
            if value is None or value in values:
                del self._values[path]
            else:
                values.add(value)

    def best(self, pattern: re.Pattern[str] = _KEY_NAME) -> str:
        """Return the first field that is named like a key; empty without one. Nested ones go by their path."""
        return next((path for path in self._values or () if pattern.search(path)), "")


def identity_option_problem(kind: RecordType, request: ImportRequest) -> UsageError | None:
    """Return why --id makes no sense for this type; None where it does."""
    names = kind.identity_fields
    if not request.id_fields:
        return None
    if len(names) > 1:
        pairs = " ".join(f"--map {name}=FIELD" for name in names)
        return UsageError(f"{kind.name} is identified by {', '.join(names)}; --id fills one field", suggestion=pairs)
    if names[0] in request.renames:
        again = request.command(renames={to: of for to, of in request.renames.items() if to != names[0]})
        return UsageError(f"--map {names[0]} and --id both give the identity", suggestion=again)
    return None


_ABSENT = object()


def _find_value(fields: Any, path: str) -> Any:
    """Return the value of the field with this name, else that at the dotted path."""
    if isinstance(fields, Mapping):
        if path in fields:
            return fields[path]
        head, dot, tail = path.partition(".")
        while dot:
            if head in fields and (value := _find_value(fields[head], tail)) is not _ABSENT:
                return value
            more, dot, tail = tail.partition(".")
            head = f"{head}.{more}"
    return _ABSENT


def _remove(fields: dict[str, Any], path: str) -> None:
    """Remove a field, and objects that become empty; the caller's objects stay unchanged."""
    if fields.pop(path, _ABSENT) is not _ABSENT:
        return
    head, dot, tail = path.partition(".")
    while dot:
        if isinstance(fields.get(head), Mapping) and _find_value(fields[head], tail) is not _ABSENT:
            inner = dict(fields[head])
            _remove(inner, tail)
            fields[head] = inner
            if not inner:
                del fields[head]
            return
        more, dot, tail = tail.partition(".")
        head = f"{head}.{more}"


def _drop_field(fields: Fields, name: str) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name}


def _iter_leaves(fields: Fields, prefix: str = "", depth: int = 3) -> Iterator[tuple[str, Any]]:
    """Yield the dotted paths of fields with their values, without those inside arrays."""
    for name, value in fields.items():
        if isinstance(value, Mapping) and value and depth:
            yield from _iter_leaves(value, f"{prefix}{name}.", depth - 1)
        else:
            yield f"{prefix}{name}", value


def _is_key(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or (
        isinstance(value, str) and 0 < len(value) <= _LONGEST_KEY
    )


def describe_generated_ids(kind: RecordType, count: int) -> str:
    """Return a sentence on the ids that an import generated."""
    noun = "record" if count == 1 else "records"
    name = identity_text((kind.identity_fields[0],))
    return (
        f"{kind.name}: {count:,} {noun} without {name} got one made of their contents; a record that is changed in the file "
        "and imported again is added beside the old one"
    )


_BLANKS = re.compile(r"[ \t\r\n]*")
_ENDS = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
"""A decoder that finds the end of a value; numbers are parsed later."""
_DEEPEST = 3  # levels searched for arrays of records

Element = tuple[int, Mapping[str, Any] | LineError]
"""The line at which a value begins, and the value."""


def read_document(
    name: str, text: str, request: ImportRequest, limits: Limits, identity: Sequence[str] = ()
) -> Iterator[Element]:
    """Yield the records of a document: the elements of the array at `request.records`, or of the document itself.

    The object itself is the record where it contains no array of objects, has the fields of an `identity`, or
    the path is `.`. Raises `errors.UsageError` where the path leads nowhere or is missing.
    """
    try:
        at = _find_position(text, 0)
        steps = [] if request.records in (None, "", ".") else str(request.records).split(".")
        for step in steps:
            at = dict(_iter_members(text, at)).get(step, -1) if text[at : at + 1] == "{" else -1
            if at < 0:
                raise _report_missing_array(text, request, identity, f"{name} has no {request.records!r}")
        if text[at : at + 1] == "[":
            yield from _iter_elements(text, at, limits)
        elif request.records is None and not _is_record(text, at, identity) and _find_arrays(text):
            raise _report_missing_array(
                text, request, identity, f"{name} is one JSON object; give the path of its records"
            )
        else:
            yield _read_element(text, at, 1 + text.count("\n", 0, at), limits)[0]
            _refuse_more(text, at, steps)
    except json.JSONDecodeError as error:
        yield (
            error.lineno,
            LineError([Finding("E_JSON", f"column {error.colno}: {error.msg[:1].lower()}{error.msg[1:]}")]),
        )
    except RecursionError:
        yield 1, LineError([Finding("E_DEPTH", "values are nested too deep")])


def _iter_elements(text: str, at: int, limits: Limits) -> Iterator[Element]:
    line = 1 + text.count("\n", 0, at)
    before, at = at, _find_position(text, at + 1)
    while text[at : at + 1] != "]":
        line += text.count("\n", before, at)
        element, end = _read_element(text, at, line, limits)
        yield element
        before, at = at, _find_position(text, end)
        if text[at : at + 1] == ",":
            at = _find_position(text, at + 1)
            if text[at : at + 1] == "]":
                raise json.JSONDecodeError("A comma before the end of the array", text, at)
        elif text[at : at + 1] != "]":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)


def _read_element(text: str, at: int, line: int, limits: Limits) -> tuple[Element, int]:
    """Parse a value strictly, and return it with its end."""
    _, end = _ENDS.raw_decode(text, at)
    raw = text[at:end].encode("utf-8", "surrogatepass")
    try:
        value = parse_json(raw, limits)
    except LineError as error:
        return (line, error), end
    if isinstance(value, dict):
        return (line, value), end
    return (line, LineError([Finding("E_JSON", "the element of the array is not an object")])), end


def _iter_members(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Yield the keys of an object with the places of their values."""
    at = _find_position(text, at + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        key, end = _ENDS.raw_decode(text, at)
        at = _find_position(text, end)
        if text[at : at + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, at)
        at = _find_position(text, at + 1)
        yield key, at
        _, end = _ENDS.raw_decode(text, at)
        at = _find_position(text, end)
        if text[at : at + 1] == ",":
            at = _find_position(text, at + 1)
        elif text[at : at + 1] != "}":
            raise json.JSONDecodeError("Expecting ',' delimiter", text, at)


def _is_record(text: str, at: int, identity: Sequence[str]) -> bool:
    """Return whether an object has the identity's fields, so that it is a record and not a document of records."""
    heads = {name.partition(".")[0] for name in identity}
    return bool(heads) and text[at : at + 1] == "{" and heads <= dict(_iter_members(text, at)).keys()


def _find_position(text: str, at: int) -> int:
    """Return the place of the next value or sign."""
    blanks = _BLANKS.match(text, at)
    return blanks.end() if blanks else at


def _refuse_more(text: str, at: int, steps: list[str]) -> None:
    if not steps:
        _, end = _ENDS.raw_decode(text, at)
        if (more := _find_position(text, end)) < len(text):
            raise json.JSONDecodeError("Something follows the JSON value", text, more)


def _find_arrays(text: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return the arrays of objects in a document by their paths; numbers are texts."""
    arrays: dict[str, list[Mapping[str, Any]]] = {}

    def look(value: Any, path: tuple[str, ...]) -> None:
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            arrays[".".join(path)] = value
        elif isinstance(value, dict) and len(path) < _DEEPEST:
            for key, inner in value.items():
                look(inner, (*path, key))

    look(_ENDS.raw_decode(text, _find_position(text, 0))[0], ())
    return arrays


def _report_missing_array(text: str, request: ImportRequest, identity: Sequence[str], message: str) -> UsageError:
    """Return the error with the command that names the longest array.

    It also names the field that identifies its records, where these lack the `identity`.
    """
    arrays = sorted(_find_arrays(text).items(), key=lambda item: -len(item[1]))
    array_list = ", ".join(f"{path or '.'} ({len(records):,} records)" for path, records in arrays[:5])
    changes: dict[str, Any] = {"records": arrays[0][0] or "." if arrays else "."}
    if arrays and not request.id_fields and len(identity) == 1 and (key := _find_key(arrays[0][1], identity[0])):
        changes["id_fields"] = (key,)
    return UsageError(f"{message}{f': {array_list}' if array_list else ''}", suggestion=request.command(**changes))


def _find_key(records: Sequence[Mapping[str, Any]], identity: str) -> str:
    """Return the field that tells records apart; empty where there is none, or some records have the identity."""
    keys = KeyCandidates()
    for record in records:
        if identity.partition(".")[0] in record:
            return ""
        keys.note(record)
    return keys.best()
