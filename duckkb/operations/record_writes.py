"""The actions put, delete, rename and apply: from a caller's input to a checked request."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from duckkb.engine.base import Base
from duckkb.engine.write import WriteOptions, write
from duckkb.engine.write_draft import Apply, Delete, Given, Rename, Upsert, plain_identity
from duckkb.ontology.model import RecordType
from duckkb.operations.name_resolution import (
    GivenIdentity,
    check_records,
    convert_identity,
    find_kind,
    kind_to_write,
    new_identity,
    place_finding,
    regular_file,
    split_valid_records,
)
from duckkb.storage.line import LineError, LineShape, encode, parse_json, parse_objects
from duckkb.storage.part import pause_collector
from duckkb.types.errors import Conflict, Finding, InvalidRecord, Refused, UsageError, shell_word
from duckkb.types.queries import Notice, Receipt
from duckkb.types.records import Changeset, identity_text

Item = tuple[str, Mapping[str, Any] | LineError]
_CONSTANT = "(?:true|false|null|True|False|None)"
_LONGEST_SLIP = 4_000  # characters
_OF_OTHERS = frozenset(("E_CARDINALITY",))
"""Codes of refusals that another record of the same write can cause."""


def put(
    base: Base,
    type: str,
    records: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    *,
    merge: bool = False,
    if_match: str | None = None,
    dry_run: bool = False,
    embed: bool = True,
    allow_shrink: bool = False,
) -> Receipt:
    """Insert or replace records by identity, all or nothing; `merge` changes only the fields given.

    Raises `errors.InvalidRecord`, `errors.Conflict`, `errors.Refused`, `errors.Unreadable`, `errors.Unavailable`.
    """
    single = isinstance(records, Mapping)
    many = [records] if isinstance(records, Mapping) else records
    if not isinstance(many, Iterable):
        raise _make_record_error(many)
    items = [(f"record {number}" if not single else "", plain(base, record)) for number, record in enumerate(many, 1)]
    options = WriteOptions(merge, if_match, dry_run, embed, allow_shrink)
    return upsert(base, Upsert(kind_to_write(base, type), (), merge), items, options, single=single)


def put_json(
    base: Base,
    type: str,
    data: bytes,
    *,
    single: bool,
    merge: bool = False,
    if_match: str | None = None,
    dry_run: bool = False,
    embed: bool = True,
) -> Receipt:
    """Put records of JSON text, as `put`: one object where `single`, else JSONL."""
    kind, options = kind_to_write(base, type), WriteOptions(merge, if_match, dry_run, embed)
    items = [_parse_argument(base, type, data)] if single else _stream(base, type, data)
    return upsert(base, Upsert(kind, (), merge), items, options, single=single)


@pause_collector()
def put_batch(
    base: Base, type: str, data: bytes, *, merge: bool = False, dry_run: bool = False, embed: bool = True
) -> Receipt:
    """Upsert the valid lines of JSONL in one write.

    The receipt's `errors` has the problems of each other line; its counts and their number add up to the lines read.
    """
    kind, options = kind_to_write(base, type), WriteOptions(merge, dry_run=dry_run, embed=embed)
    items = _stream(base, type, data)
    valid_records, wrong = split_valid_records(base, kind, items, partial=merge)
    while True:
        try:
            receipt = write(base, Upsert(kind, valid_records, merge), options)
            break
        except (InvalidRecord, Conflict, Refused) as problem:
            valid_records, refusals = _remove_refused_records(
                _Versions(base, kind, valid_records, merge), valid_records, problem.findings
            )
            if not refusals:
                raise
            wrong += refusals
    wrong.sort(key=lambda findings: _read_number(findings[0]))
    return _note_made_ids(kind, items, replace(receipt, errors=tuple(tuple(findings) for findings in wrong)))


def _note_made_ids(kind: RecordType, items: Iterable[Item], receipt: Receipt) -> Receipt:
    """Return the receipt of a put; with a notice where records without an id got a random one."""
    is_random, name = kind.generated is not None and kind.generated.method == "uuid4", kind.identity_fields[0]
    count = sum(isinstance(item, Mapping) and item.get(name) is None for _, item in items) if is_random else 0
    if not count or not receipt.inserted:
        return receipt
    ids = f": {identity_text(receipt.identities[0])}" if len(receipt.identities) == 1 else ""
    message = f"{kind.name}: {count:,} record{'s' if count > 1 else ''} without {name} got a random one{ids}"
    notice = Notice("W_GENERATED_ID", message, f"give `{name}`, else each put of it makes another record")
    return replace(receipt, notices=(*receipt.notices, notice))


class _Versions:
    """Every given version of a record, by its identity in the base."""

    def __init__(self, base: Base, kind: RecordType, given: Iterable[Given], merge: bool) -> None:
        self._kind, self._merge = kind, merge
        self._given: dict[str, list[Given]] = {}
        for record in given:
            self._given.setdefault(identity_text(plain_identity(base.tree, kind, record.identity)), []).append(record)

    def find_version(self, finding: Finding) -> Given | None:
        """Return the version that a finding concerns; None where it concerns none of them.

        With merged versions, it is the last that has the field, or that names the version concerned. Otherwise
        it is the last of all, the only one that would have been written.
        """
        versions = self._given.get(finding.identity, []) if finding.type == self._kind.name else []
        if not self._merge:
            return versions[-1] if versions else None
        named_versions = [
            version for version in versions if version.place and finding.message.startswith(f"{version.place}: ")
        ]
        name = finding.field.partition("/")[2].partition("/")[0].replace("~1", "/").replace("~0", "~")
        return next(
            reversed(named_versions or [version for version in versions if name in version.fields] or versions), None
        )

    def locate_finding(self, finding: Finding) -> Finding:
        """Return a finding at the line that it concerns."""
        version = self.find_version(finding)
        if version is None or not version.place:
            return finding
        bare = replace(finding, message=finding.message.removeprefix(f"{version.place}: "))
        return place_finding(bare, version.place, self._kind, finding.identity)


def _remove_refused_records(
    versions: _Versions, records: Sequence[Given], findings: Sequence[Finding]
) -> tuple[tuple[Given, ...], list[list[Finding]]]:
    """Return the records without those refused by a look at stored data, and the problems of each of these.

    Records that may be valid once others are gone are checked again.
    """
    certain = [finding for finding in findings if finding.code not in _OF_OTHERS] or findings
    wrong: dict[int, list[Finding]] = {}
    for finding in certain:
        if (record := versions.find_version(finding)) is not None:
            wrong.setdefault(id(record), []).append(versions.locate_finding(finding))
    return tuple(record for record in records if id(record) not in wrong), list(wrong.values())


def _read_number(finding: Finding) -> int:
    """Return the number of the record that a finding concerns, from its place: `stdin:3`, `stdin, record 3`."""
    last = finding.path.rpartition(" ")[2]
    return finding.line or (int(last) if last.isdigit() else 0)


def _stream(base: Base, type: str, data: bytes) -> list[Item]:
    """Parse JSON Lines; or an object over several lines, or an array of objects, as other tools print them."""
    items: list[Item] = [(f"stdin:{number}", item) for number, item in parse_objects(data, base.limits)]
    if not items:
        example = f"""duckkb put {type} '{{"id": "..."}}' --dry-run"""
        raise InvalidRecord("stdin is empty", code="E_EMPTY", suggestion=example, exit_code=2)
    if not isinstance(items[0][1], LineError):
        return items
    try:
        value = parse_json(data, base.limits)
    except LineError:
        return items
    if isinstance(value, dict):
        return [("stdin", value)]
    if isinstance(value, list) and value and all(isinstance(record, dict) for record in value):
        return [(f"stdin, record {number}", record) for number, record in enumerate(value, 1)]
    return items


def delete(
    base: Base,
    type: str,
    *identities: GivenIdentity,
    cascade: bool = False,
    allow_shrink: bool = False,
    if_match: str | None = None,
    dry_run: bool = False,
) -> Receipt:
    """Delete records; `cascade` deletes the edges that touch them. Raises `errors.NotFound`, `errors.Refused`."""
    kind = find_kind(base, type)
    record_identities = tuple(convert_identity(base, kind, identity) for identity in identities)
    if not record_identities:
        raise UsageError("give an identity to delete", suggestion=f"duckkb delete {type} IDENTITY")
    if if_match is not None and len(record_identities) != 1:
        raise _make_count_error(len(record_identities))
    options = WriteOptions(if_match=if_match, dry_run=dry_run, allow_shrink=allow_shrink)
    try:
        return write(base, Delete(kind, record_identities, cascade, if_match), options)
    except Refused as problem:
        if problem.code == "E_SHRINK":
            words = [
                kind.name,
                *map(identity_text, record_identities),
                *(["--cascade"] if cascade else []),
                "--allow-shrink",
            ]
            command = f"duckkb delete {' '.join(map(shell_word, words))}"
            problem.suggestion = command if len(command) <= _LONGEST_SLIP else problem.suggestion
        raise


def rename(base: Base, type: str, old: GivenIdentity, new: GivenIdentity, *, dry_run: bool = False) -> Receipt:
    """Change the identity of a record; its `__id` stays and its edges follow."""
    kind = find_kind(base, type)
    request = Rename(kind, convert_identity(base, kind, old), new_identity(base, kind, new))
    return write(base, request, WriteOptions(dry_run=dry_run))


def apply(base: Base, changeset: Changeset, *, allow_shrink: bool = False, dry_run: bool = False) -> Receipt:
    """Apply a changeset; raises `errors.Conflict` where an old side differs from what is stored."""
    return write(base, Apply(changeset), WriteOptions(dry_run=dry_run, allow_shrink=allow_shrink))


def apply_patch(
    base: Base,
    patch: bytes | str | Path,
    *,
    reverse: bool = False,
    allow_shrink: bool = False,
    dry_run: bool = False,
) -> Receipt:
    """Apply a patch of `duckkb diff --format patch`, given as bytes or as the path of a file, all or nothing.

    Every line on its old side must be as stored. Raises `errors.InvalidRecord` (E_PATCH), `errors.Conflict`
    (E_STALE, E_EXISTS), `errors.Refused`.
    """
    from duckkb.review.diff_model import parse

    data = patch if isinstance(patch, bytes) else regular_file(base, patch, "a patch").read_bytes()
    request = parse(data, base.ontology, base.limits, reverse=reverse)
    return write(base, request, WriteOptions(dry_run=dry_run, allow_shrink=allow_shrink))


def upsert(base: Base, request: Upsert, items: Sequence[Item], options: WriteOptions, *, single: bool) -> Receipt:
    """Check and write given records, with their places, all or nothing; `request` has no records yet.

    Raises as `put`, each finding at its place.
    """
    records = check_records(base, request.kind, items, single=single, partial=request.merge)
    return _note_made_ids(request.kind, items, store(base, replace(request, given=records), options))


def store(base: Base, request: Upsert, options: WriteOptions) -> Receipt:
    """Write checked records, all or nothing. Raises as `put`, each finding at its place."""
    if options.if_match is not None:
        request = replace(request, given=(_set_etag(request.given, options.if_match),))
    try:
        return write(base, request, options)
    except (InvalidRecord, Conflict, Refused) as problem:
        versions = _Versions(base, request.kind, request.given, request.merge)
        problem.findings = tuple(map(versions.locate_finding, problem.findings))
        raise


def _set_etag(records: Sequence[Given], etag: str) -> Given:
    if len(records) != 1:
        raise _make_count_error(len(records))
    return replace(records[0], etag=etag)


def _make_count_error(count: int) -> UsageError:
    return UsageError(
        f"--if-match names one version, but {count} records were given", suggestion="add _etag to each line"
    )


def plain(base: Base, record: Any) -> Mapping[str, Any] | LineError:
    """Return a record of the API as if read from a line: an own copy of JSON values."""
    if not isinstance(record, Mapping):
        raise _make_record_error(record)
    if not all(isinstance(name, str) for name in record):
        return LineError([Finding("E_INVALID", "a field name is not a text")])
    nothing = {name: None for name, value in record.items() if value is None}
    try:
        line = encode(record, LineShape(()), base.limits.depth)
    except ValueError as error:
        return LineError([Finding("E_INVALID", str(error))])
    (_, values), *_ = parse_objects(line, base.limits)
    return values if isinstance(values, LineError) else {**values, **nothing}


def _make_record_error(value: Any) -> UsageError:
    return UsageError(
        f"a record is a dict, not {type(value).__name__}", code="E_INVALID", suggestion="kb.put(TYPE, {...})"
    )


def _parse_argument(base: Base, type_name: str, data: bytes) -> Item:
    """Parse the single object of an argument; return a LineError for a wrong one."""
    try:
        value = parse_json(data, base.limits)
    except LineError as error:
        if error.findings[0].code != "E_JSON":
            return "", error
        json_text = repair_json(data)
        remedy = (
            f"duckkb put {shell_word(type_name)} {shell_word(json_text)}"
            if json_text
            else _suggest_put(type_name, data)
        )
        return "", LineError([replace(finding, remedy=remedy) for finding in error.findings])
    if not isinstance(value, dict):
        raise InvalidRecord(
            "a record is one JSON object",
            code="E_JSON",
            suggestion=_suggest_put(type_name, data, isinstance(value, list)),
        )
    return "", value


def _suggest_put(type_name: str, data: bytes, is_list: bool = False) -> str:
    """Return the command that puts the records of a given file or list; else a harmless example."""
    put, text = f"duckkb put {shell_word(type_name)}", data.decode("utf-8", "replace")
    if is_list and len(text) <= _LONGEST_SLIP:
        return f"echo {shell_word(text)} | {put}"
    if re.fullmatch(r"@?[^\s{}\[\]\"']+\.(?:jsonl?|ndjson)", text):
        return f"{put} --batch < {shell_word(text.removeprefix('@'))}"
    word = re.fullmatch(r"\{\s*([\w.-]+)\s*\}?", text)  # all of a torn object, which most likely is its name
    return f'{put} \'{{"id": "{word[1] if word else "..."}"}}\' --dry-run'


def repair_json(data: bytes) -> str:
    """Repair an object of Python or JavaScript syntax to JSON; return an empty text for other input.

    >>> repair_json(b"{id: 'a', ok: true,}")
    '{"id": "a", "ok": true}'
    >>> repair_json(b"{id: a, text: hello world}")
    '{"id": "a", "text": "hello world"}'
    >>> repair_json(b'{"id": "a", "tags": ["b"')
    '{"id": "a", "tags": ["b"]}'
    >>> repair_json(b'{"id": "a" "year": 1 "tags": []}')
    '{"id": "a", "year": 1, "tags": []}'
    """
    import ast
    import json

    text = data.decode("utf-8", "replace")
    if len(text) > _LONGEST_SLIP or "\\" in text:
        return ""
    pieces = re.split(r"""("[^"]*"|'[^']*')""", text + _find_closers(text))
    for at, piece in enumerate(pieces[::2]):
        quoted_piece = re.sub(r"([{,]\s*)([^\W\d]\w*)(\s*:)", r'\1"\2"\3', piece)
        quoted_piece = re.sub(
            rf"(:\s*)(?!{_CONSTANT}\s*[,}}\]])([^\W\d][^,:{{}}\[\]\"']*?)(\s*[,}}])", r'\1"\2"\3', quoted_piece
        )
        if 0 < at < len(pieces) // 2:  # between two texts, of which one may end a value
            quoted_piece = re.sub(r"^(\s+)$|((?:\d|true|false|null|[}\]])\s+)$", r"\1\2,", quoted_piece)
        pieces[2 * at] = re.sub(r"\b(true|false|null)\b", lambda word: str(json.loads(word[0])), quoted_piece)
    try:
        value = ast.literal_eval("".join(pieces).strip())
        return json.dumps(value, ensure_ascii=False, allow_nan=False) if isinstance(value, dict) else ""
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return ""


def _find_closers(text: str) -> str:
    """The brackets that are open at the end of a text, closed; and the string that is, where it ends inside of one."""
    closers, quote = "", ""
    for character in text:
        if quote or character in "\"'":
            quote = "" if character == quote else quote or character
        elif character in "{[":
            closers = ("}" if character == "{" else "]") + closers
        elif closers and character == closers[0]:
            closers = closers[1:]
    return quote + closers
