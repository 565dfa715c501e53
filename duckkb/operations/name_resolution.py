"""Resolution of names that callers use: types, identities, records as given."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from unicodedata import normalize

from duckkb.engine.base import Base
from duckkb.engine.integrity import length_problem, length_remedy
from duckkb.engine.write import put_command
from duckkb.engine.write_draft import Given
from duckkb.ontology.model import RecordType
from duckkb.ontology.names import is_policy_name
from duckkb.ontology.validation import Validator
from duckkb.storage import path_guard, strict_lines
from duckkb.storage.line import LineError
from duckkb.types.errors import Finding, InvalidRecord, NotFound, UsageError
from duckkb.types.records import CREATED_AT, ID, UPDATED_AT, Identity, component_value, identity_text

# Fields that duckkb prints beside a record's own; put and import accept such lines.
PRINTED = frozenset(
    f"{ID} {CREATED_AT} {UPDATED_AT} _type _etag _score _engine _scores _chunk _line _degraded _filled _edge _explain _depth"
    " _provenance _partial _commit _since _notices _accessed".split()
)


GivenIdentity = str | int | Sequence[str | int | Sequence[str | int] | Mapping[str, Any]]
"""An identity as callers give it: a scalar, or its parts. An edge's first parts are its ends, each an identity, or
one with its type as `{"type": TYPE, "id": IDENTITY}`."""


def find_kind(base: Base, name: str, otherwise: Callable[[str], str] = lambda near: "duckkb schema") -> RecordType:
    """Return the type with this name, table or label.

    Raises `errors.NotFound` (E_UNKNOWN_TYPE) with the nearest name.

    `otherwise` makes the suggestion from that name, or from an empty text where none is near.
    """
    kind = base.ontology.find(name) if isinstance(name, str) else None
    if kind is not None:
        return kind
    full = sorted(
        base.ontology, key=lambda kind: not base.tree.count(kind)
    )  # of equally near types, the one with records
    known_names = [type_name for kind in full for type_name in (kind.name, kind.table)]
    from difflib import get_close_matches

    near = get_close_matches(str(name), known_names, 1) if "," not in str(name) else []
    message = f"no type {name!r}" + (f"; did you mean {near[0]}?" if near else "")
    error = NotFound(message, "E_UNKNOWN_TYPE", otherwise(near[0] if near else ""))
    error.correction = (str(name), near[0]) if near else None
    raise error


_WORDS_OF_EDGES = frozenset(
    ["edge", "edges", "link", "links", "relation", "relations", "relationship", "relationships"]
)


def kind_to_write(base: Base, name: str) -> RecordType:
    """Return a type to write to, as `find_kind`; the error suggests how to make a missing type."""
    if str(name).casefold() in _WORDS_OF_EDGES and base.ontology.find(name) is None:
        raise _make_edge_type_error(base, name)
    suggestion = f"duckkb col init {name} --policy knowledge-base" if is_policy_name(str(name)) else "duckkb schema"
    return find_kind(base, name, lambda near: suggestion)


def _make_edge_type_error(base: Base, name: str) -> NotFound:
    """Return the error for a missing edge type, with the command that makes it between the largest types."""
    full = sorted(base.ontology.nodes.values(), key=base.tree.count, reverse=True)
    (start, end) = [kind.name for kind in (*full, *full)][:2] if full else ("TYPE", "TYPE")
    return NotFound(
        f"no type {name!r}; an edge needs its own type, defined in ontology/ with the types of its ends",
        code="E_UNKNOWN_TYPE",
        suggestion=f"echo 'edges: {{{name}: {{from: {start}, to: {end}}}}}' > ontology/{name}.yaml",
    )


def convert_identity(base: Base, kind: RecordType, value: Any) -> Identity:
    """Convert an identity of the API or CLI by the schema's types. Raises `errors.UsageError`.

    A document's identity may have the file system's Unicode form, and its folder in front.
    """
    if kind.source is not None and isinstance(value, str):
        value = normalize("NFC", value)
        inside = value.removeprefix(f"{kind.source.path}/")  # as `ls` prints it
        value = value if base.tree.get(kind, (value,)) is not None else inside
    return base.validator(kind).coerce_identity(value)


def positive(limit: Any, name: str = "limit") -> int:
    """Return a positive number of results; raises `errors.UsageError`."""
    if type(limit) is not int or limit <= 0:
        raise UsageError(f"{name} must be a whole number of at least 1, not {limit!r}", suggestion="leave it out")
    return limit


def text_or_none(value: Any, name: str) -> str | None:
    """Return a question, filter or statement; raises `errors.UsageError` for other values than text or None."""
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{name} must be text, not {type(value).__name__}")
    return value


def new_identity(base: Base, kind: RecordType, value: Any) -> Identity:
    """Convert an identity for a new record as `convert_identity`; raises `errors.InvalidRecord` (E_IDENTITY)."""
    identity = convert_identity(base, kind, value)
    fields = dict(zip(kind.identity_fields, map(component_value, identity), strict=True))
    findings = strict_lines.identity_findings(kind.identity_fields, fields, edge=kind.kind == "edge")
    if findings:
        raise _make_invalid_error(
            kind, [place_finding(finding, "", kind, identity_text(identity)) for finding in findings], single=True
        )
    return identity


def grant_path(base: Base, path: str | Path) -> Path:
    """Return a path that a person typed, which counts as permission. Raises `errors.UsageError` (E_PATH).

    Under DUCKKB_SANDBOX, only paths inside the base are allowed.
    """
    return path_guard.grant_outside_path(path, base.root, base.wiring.env)


def confine_path(base: Base, path: str | Path) -> Path:
    """Return a path that a program named: relative to the base, and resolved.

    Raises `errors.UsageError` (E_PATH) where it leaves the base, or enters what git or duckkb reserve.
    """
    root = base.root.resolve()
    target = (root / path_guard.sound(path)).resolve()
    if not target.is_relative_to(root):
        raise path_guard.refusal(path, "is outside the knowledge base", "give a path inside the base")
    if {part.casefold() for part in target.relative_to(root).parts} & {".git", ".duckkb"}:
        raise path_guard.refusal(path, "is inside .git or .duckkb", "give another path")
    return target


def regular_file(base: Base, path: str | Path, wanted: str) -> Path:
    """Return a typed path of a regular file to read; raises `errors.UsageError` (E_PATH).

    `wanted` names the file in messages.
    """
    return path_guard.regular(path, base.root, base.wiring.env, wanted)


def check_records(
    base: Base,
    kind: RecordType,
    items: Iterable[tuple[str, Mapping[str, Any] | LineError]],
    *,
    single: bool,
    partial: bool = False,
) -> tuple[Given, ...]:
    """Check given records against the ontology; raises `errors.InvalidRecord` with every problem at once.

    `items` are (place, object or the reason why it is invalid). `single` decides the exit code: 2 for one
    object given as an argument, 1 for a stream or a file. `partial` leaves the schema to the merged record.
    """
    records, wrong = split_valid_records(base, kind, items, partial=partial)
    if wrong:
        raise _make_invalid_error(kind, [finding for findings in wrong for finding in findings], single)
    return records


def split_valid_records(
    base: Base, kind: RecordType, items: Iterable[tuple[str, Mapping[str, Any] | LineError]], *, partial: bool
) -> tuple[tuple[Given, ...], list[list[Finding]]]:
    """Return the records that can be written, and the problems of each other record."""
    records: list[Given] = []
    wrong: list[list[Finding]] = []
    lengths = dict(base.lengths(kind)) if kind.given_vectors else {}
    validator = base.validator(kind)
    for place, item in items:
        problems, record = _check_record(base, validator, place, item, partial)
        if record is not None and not problems:
            problems = _find_length_problems(kind, record, lengths)
        if problems:
            wrong.append(problems)
        elif record is not None:
            records.append(record)
    return tuple(records), wrong


def _find_length_problems(kind: RecordType, record: Given, lengths: dict[str, int]) -> list[Finding]:
    """Return findings on vectors whose length differs from stored or earlier ones; the very first sets the length."""
    problems = []
    for name in lengths:
        value = record.fields.get(name)
        if isinstance(value, list):
            lengths[name] = lengths[name] or len(value)
            if message := length_problem(value, lengths[name]):
                finding = Finding("E_SCHEMA", message, field=f"/{name}", remedy=length_remedy(lengths[name]))
                problems.append(place_finding(finding, record.place, kind, identity_text(record.identity)))
    return problems


def _check_record(
    base: Base, validator: Validator, place: str, item: Mapping[str, Any] | LineError, partial: bool
) -> tuple[list[Finding], Given | None]:
    kind = validator.kind
    if isinstance(item, LineError):
        return [place_finding(finding, place, kind) for finding in item.findings], None
    is_bare = PRINTED.isdisjoint(item)
    fields = dict(item) if is_bare else {name: value for name, value in item.items() if name not in PRINTED}
    problems = [*_name_problems(tuple(fields))]
    if not is_bare:
        problems += _time_problems(item)
        problems += _find_part_problems(kind, item, partial) if "_partial" in item else []
    try:
        fields = _complete_identity(base, kind, validator.coerce_ends(fields), partial)
        identity = strict_lines.identity_of(kind, fields)
    except strict_lines.IdentityError as error:
        return [place_finding(finding, place, kind) for finding in (*problems, *error.findings)], None
    problems += _find_dotted_names(base, kind, fields, identity)
    if not partial:
        has_null = None in fields.values()
        present_fields = {name: value for name, value in fields.items() if value is not None} if has_null else fields
        problems += validator.findings(present_fields)
    if problems:
        return [place_finding(finding, place, kind, identity_text(identity)) for finding in problems], None
    if is_bare:
        return [], Given(identity, fields, place)
    times = item.get(CREATED_AT), item.get(UPDATED_AT)
    return [], Given(identity, fields, place, item.get(ID), item.get("_etag"), *times)


def _complete_identity(base: Base, kind: RecordType, fields: dict[str, Any], partial: bool) -> dict[str, Any]:
    """Add an identity to fields without one, where the type generates identities.

    A partial record, which is merged into a stored one, must name it.
    """
    key_rule = kind.generated
    if key_rule is None or fields.get(kind.identity_fields[0]) is not None:
        return fields
    if key_rule.method == "uuid5":
        text = fields.get(key_rule.of)
        for row in base.holders(kind, text) if isinstance(text, str) else ():
            return {**fields, kind.identity_fields[0]: component_value(row.record.identity[0])}  # it has a key already
        return build_key(base, kind, strict_lines.with_key(fields, kind.identity_fields, key_rule))
    return fields if partial else {kind.identity_fields[0]: str(uuid.uuid4()), **fields}


def build_key(base: Base, kind: RecordType, fields: dict[str, Any]) -> dict[str, Any]:
    """Change a key made of a text where a record with another text holds it, after an edit by hand.

    That record must not be overwritten.
    """
    (name,), key_rule = kind.identity_fields, kind.generated
    while key_rule is not None and fields.get(name) is not None:
        row = base.tree.get(kind, (fields[name],))
        if row is None or row.record.fields.get(key_rule.of) == fields.get(key_rule.of):
            break
        fields = fields | {name: str(uuid.uuid5(uuid.UUID(fields[name]), str(fields[key_rule.of])))}
    return fields


@lru_cache(maxsize=4096)
def _name_problems(names: tuple[str, ...]) -> tuple[Finding, ...]:
    """Return what is wrong with the names of a record's fields; cached, since most records share them."""
    problems = [
        Finding("E_NAME", f"field {name!r} begins with _, which is reserved", field=name, remedy="rename the field")
        for name in names
        if name.startswith("_")
    ]
    names_by_case: dict[str, str] = {}
    for name in names:
        first_name = names_by_case.setdefault(name.casefold(), name)
        if first_name != name:
            message = f"fields {first_name!r} and {name!r} differ only in case"
            problems.append(Finding("E_NAME", message, field=name, remedy="rename one of them"))
    return tuple(problems)


def _find_dotted_names(base: Base, kind: RecordType, fields: Mapping[str, Any], identity: Identity) -> list[Finding]:
    """Return a finding for a name such as `ticket.status` where `ticket` is an object: reads would not see that field."""
    dotted_names = [name for name, value in fields.items() if "." in name and value is not None]
    if not dotted_names:
        return []
    stored_types, row, nested = base.observe_fields(kind).types(), base.tree.get(kind, identity), dict(fields)
    heads: dict[str, str] = {}
    for name in dotted_names:
        head, *path = name.split(".")
        rule, value = kind.properties.get(head), nested.get(head, row.record.fields.get(head) if row else None)
        is_object = isinstance(value, Mapping) or "an object" in stored_types.get(head, ())
        is_object |= isinstance(rule, Mapping) and rule.get("type") == "object"
        if is_object and name not in kind.properties and name not in stored_types:
            heads[name], nested[head] = head, _with_member(value, path, nested.pop(name))
    remedy = put_command(base, kind.name, nested) or "give the object with all members that it is to keep"
    message = "{0!r} would be a second field, which no read sees: {1} is an object"
    return [Finding("E_NAME", message.format(*pair), field=pair[0], remedy=remedy) for pair in heads.items()]


def _with_member(value: Any, path: Sequence[str], member: Any) -> dict[str, Any]:
    """Return an object with a member at a path in it, beside those that it has."""
    members = value if isinstance(value, Mapping) else {}
    name, *tail = path
    return {**members, name: _with_member(members.get(name), tail, member) if tail else member}


def _find_part_problems(kind: RecordType, item: Mapping[str, Any], partial: bool) -> list[Finding]:
    """Return findings for a line that was printed without some fields, since it must not replace its record."""
    if not partial:
        message = "the line lacks some fields of its record; replacing the record would delete them"
        return [
            Finding(
                "E_PARTIAL",
                message,
                remedy=f"`duckkb put {kind.name} --merge`, or print whole records with `duckkb get`",
            )
        ]
    field_names = item["_partial"] if isinstance(item["_partial"], list) else []
    message = "is cut short here; replacing it would delete the rest"
    remedy = "print the whole field: --fields {0}"
    here = [name for name in field_names if isinstance(name, str) and name in item]
    return [Finding("E_PARTIAL", message, field=f"/{name}", remedy=remedy.format(name)) for name in here]


def _time_problems(item: Mapping[str, Any]) -> list[Finding]:
    problems = []
    for name in (CREATED_AT, UPDATED_AT):
        if item.get(name) is not None and not strict_lines.is_time(item[name]):
            message = f"{name} must have the form YYYY-MM-DDTHH:MM:SS.ffffffZ"
            problems.append(Finding("E_TIME", message, field=name, remedy="leave it out"))
    if item.get(ID) is not None and not (type(item[ID]) is int and 0 < item[ID] <= strict_lines.MAX_ID):
        problems.append(Finding("E_ID", "__id is not an integer from 1 to 2^53 - 1", field=ID, remedy="leave it out"))
    return problems


def place_finding(finding: Finding, place: str, kind: RecordType, identity: str = "") -> Finding:
    """Return a finding at the place of a given record: `stdin:3` is line 3."""
    path, _, line = place.rpartition(":")
    if line.isdigit():
        path, number = path, int(line)
    else:
        path, number = place, 0
    return Finding(
        finding.code,
        finding.message,
        path,
        number,
        finding.field,
        finding.remedy,
        kind.name,
        identity or finding.identity,
    )


def _format_pointer(finding: Finding) -> str:
    """Return the place inside a record for findings with a pointer; others name the field in their message."""
    return f" {finding.field}" if finding.field.startswith("/") else ""


def _make_invalid_error(kind: RecordType, findings: Sequence[Finding], single: bool) -> InvalidRecord:
    count = len(findings)
    first = findings[0]
    return InvalidRecord(
        f"{kind.name}{_format_pointer(first)}: {first.message}"
        if count == 1 and single
        else f"{count} problem{'s' if count > 1 else ''} in the input; nothing was written",
        code=first.code if count == 1 and single else "E_INVALID",
        suggestion=first.remedy or f"duckkb schema {kind.name}",
        findings=tuple(findings),
        exit_code=2 if single else 1,
    )
