"""Conflicts that wait for a choice, by name, and the choices that settle them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

from msgspec import Struct

from duckkb.storage.field_merge import MergeRules
from duckkb.storage.line import Limits, LineError, LineShape, decode, encode, parse_objects
from duckkb.storage.merge_rules import Block
from duckkb.storage.source_text import split
from duckkb.storage.strict_lines import HARD_DEPTH
from duckkb.storage.table_merge import identity_of, identity_value_of
from duckkb.types.errors import Conflict as Contradiction
from duckkb.types.errors import InvalidRecord, NotFound, UsageError
from duckkb.types.invisible_characters import invisible_in
from duckkb.types.records import CREATED_AT, ID, UPDATED_AT

Side = Literal["ours", "theirs", "base", "newest"]
SIDES: tuple[Side, ...] = ("ours", "theirs", "base", "newest")


class OpenConflict(Struct, frozen=True):
    """A field that both sides changed, or with an empty `field` a record that one side deleted or that is merged
    whole.

    `base`, `ours` and `theirs` are JSON source text, None where a version lacks it; `identity_value` is the
    identity as JSON, for an edge a list.
    """

    type: str
    identity: str
    field: str
    path: str
    base: str | None
    ours: str | None
    theirs: str | None
    identity_value: Any = None

    @property
    def name(self) -> str:
        return f"{self.type}:{self.identity} {self.field}".rstrip()

    @property
    def selector(self) -> str:
        """The name of the conflict on a command line."""
        return _list_selectors(self.type, self.identity, self.field)[-1]

    @property
    def etag(self) -> str:
        """A digest of the conflict's content, in hex: an answer with it is valid for this content alone."""
        content = [self.type, self.identity, self.field, self.path, self.base, self.ours, self.theirs]
        return sha256(json.dumps(content).encode()).hexdigest()[:16]


def is_edited_as_text(sources: Iterable[str | None]) -> bool:
    """Return whether all present sides, as JSON source, are texts that a browser's field keeps unchanged."""
    return all(
        source.startswith('"') and next(invisible_in(json.loads(source, strict=False)), None) is None
        for source in sources
        if source is not None
    )


class SideChoice(Struct, frozen=True):
    """A side for the conflicts that a selector names.

    The selector is `TYPE`, `TYPE:ID`, `TYPE:ID:FIELD` (or `TYPE:ID FIELD`, as they are printed), or empty for all.
    """

    side: Side
    selector: str = ""


class ConflictAnswer(Struct, frozen=True):
    """An answer to a conflict, from one line of a file of answers.

    It is a `side`, the JSON source of a `value` of one field (None leaves it out), the whole `record`, or with
    all of these None a deletion. With an `etag` it is valid for the conflict with that etag alone.
    """

    type: str
    identity: str
    field: str = ""
    side: Side | None = None
    value: str | None = None
    record: Mapping[str, Any] | None = None
    etag: str = ""


def open_in(block: Block, table: MergeRules, path: str) -> list[OpenConflict]:
    """Return the open conflicts of a block."""
    identity, value = identity_of(block, table), identity_value_of(block, table)
    return [
        OpenConflict(
            table.name,
            identity,
            name,
            path,
            block.value("base", name),
            block.value("ours", name),
            block.value("theirs", name),
            value,
        )
        for name in block.open_fields(table)
    ]


def refuse_strangers(
    choices: Sequence[SideChoice], answers: Sequence[ConflictAnswer], open_now: Iterable[OpenConflict]
) -> None:
    """Raise for invalid choices and answers.

    Choices that contradict each other are E_USAGE, names of no open conflict E_NOT_FOUND, and answers to a
    conflict that has changed E_STALE.
    """
    sides: dict[str, Side] = {}
    for choice in choices:
        if sides.setdefault(choice.selector, choice.side) != choice.side:
            raise UsageError(
                f"--{sides[choice.selector]} and --{choice.side} are both given for {choice.selector or 'everything'}",
                suggestion="duckkb resolve --list",
            )
    conflicts = list(open_now)
    known_selectors = {
        "",
        *(name for item in conflicts for name in _list_selectors(item.type, item.identity, item.field)),
    }
    selectors = [choice.selector for choice in choices]
    selectors += [_list_selectors(item.type, item.identity, item.field)[-1] for item in answers]
    for selector in selectors:
        if selector not in known_selectors:
            message = f"no open conflict is named {selector}" + ("" if conflicts else "; all are settled")
            raise NotFound(message, suggestion="duckkb resolve --list" if conflicts else "duckkb resolve --stage")
    for choice in choices:
        name_parts = {parts for item in conflicts for parts in _list_names(item.type, item.identity, item.field)}
        if sum(choice.selector in _list_spellings(parts) for parts in name_parts) > 1:
            raise UsageError(
                f"{choice.selector} may mean a record or a field of another one; nothing was settled",
                suggestion="`duckkb resolve --list --format jsonl`, and answer with `--with-file`",
            )
    etags = {item.etag for item in conflicts}
    for answer in answers:
        if answer.etag and answer.etag not in etags:
            name = _list_selectors(answer.type, answer.identity, answer.field)[-1]
            raise Contradiction(
                f"the conflict {name} is another one than the answer is for; nothing was settled",
                suggestion="`duckkb resolve --list --format jsonl`, and answer that",
            )


def settle(
    block: Block,
    table: MergeRules,
    path: str,
    choices: Sequence[SideChoice],
    answers: Sequence[ConflictAnswer],
    newest: Side | None,
) -> Block:
    """Settle what the choices name in a block of a part; both sides are equal where nothing is left open."""
    identity = identity_of(block, table)
    mine = [item for item in answers if item.type == table.name and item.identity == identity]
    etags = {"", *(item.etag for item in open_in(block, table, path))} if mine else set()
    for answer in mine:
        if answer.etag in etags:
            block = _apply_answer(block, answer, table, newest)
    for name in block.open_fields(table):
        side = _choose_side(_list_selectors(table.name, identity, name), choices)
        block = _take_side(block, name, newest if side == "newest" else side, table)
    return block


def read_answers(data: bytes, depth: int) -> list[ConflictAnswer]:
    """Read a file of answers: JSON lines as `resolve --list` prints them.

    Each has `choose` (ours, theirs, base, newest), `value` (null leaves the field out), `record` (of at most
    `depth` levels), or `"delete": true`. Raises `errors.InvalidRecord` (E_INVALID).
    """
    answers_by_key: dict[tuple[str, ...], tuple[int, ConflictAnswer]] = {}
    limits = Limits(len(data), HARD_DEPTH)
    for number, entry in parse_objects(data.removeprefix(b"\xef\xbb\xbf"), limits):
        try:
            if isinstance(entry, LineError):
                raise ValueError("; ".join(finding.message for finding in entry.findings))
            answer = _answer(entry, depth)
            key = (answer.type, answer.identity, answer.field, answer.etag)
            before, first_answer = answers_by_key.setdefault(key, (number, answer))
            if first_answer != answer:
                raise ValueError(f"line {before} answers the same conflict otherwise")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidRecord(
                f"line {number} of the answers: {error}",
                suggestion="duckkb resolve --list --format jsonl prints lines to which an answer is added",
                exit_code=1,
            ) from error
    return [answer for _, answer in answers_by_key.values()]


def _answer(entry: Mapping[str, Any], depth: int) -> ConflictAnswer:
    if not isinstance(entry.get("type"), str) or "identity" not in entry:
        raise ValueError("an answer is an object with `type` and `identity`")
    forms = [name for name in ("choose", "value", "record", "delete") if name in entry]
    if len(forms) != 1:
        raise ValueError("an answer has one of `choose`, `value`, `record` and `delete`")
    identity, name = entry["identity"], str(entry.get("field") or "")
    record_key = (entry["type"], identity if isinstance(identity, str) else _format_identity(identity))
    etag = str(entry.get("etag") or "")
    match forms[0]:
        case "choose" if entry["choose"] in SIDES:
            return ConflictAnswer(*record_key, name, side=entry["choose"], etag=etag)
        case "value" if name:
            return ConflictAnswer(*record_key, name, value=_encode_source(entry["value"], depth), etag=etag)
        case "record" if isinstance(entry["record"], dict):
            encode(entry["record"], LineShape(()), depth)  # raises for what a line cannot hold
            return ConflictAnswer(*record_key, record=entry["record"], etag=etag)
        case "delete" if entry["delete"] is True:
            return ConflictAnswer(*record_key, etag=etag)
    raise ValueError(f"`{forms[0]}` is not allowed here")


def _format_identity(identity: Any) -> str:
    return json.dumps(identity, ensure_ascii=False, separators=(",", ":"))


def _encode_source(value: Any, depth: int) -> str | None:
    """Return a value as canonical source text."""
    return None if value is None else split(encode({"v": value}, LineShape(()), depth))["v"][1]


def _apply_answer(block: Block, answer: ConflictAnswer, table: MergeRules, newest: Side | None) -> Block:
    if answer.side is not None:
        side = newest if answer.side == "newest" else answer.side
        for name in block.open_fields(table):
            if answer.field in ("", name):
                block = _take_side(block, name, side, table)
        return block
    if answer.field:
        if block.ours is None or block.theirs is None:
            raise Contradiction(
                f"{answer.type} {answer.identity} was deleted on one side: a field of it cannot be chosen",
                code="E_INVALID",
                suggestion="give `choose`, `record` or `delete`",
            )
        block = block.with_field(answer.field, answer.value, table)
        return Block(block.base, *(_verify_line(line, table) for line in (block.ours, block.theirs)))
    line = None if answer.record is None else _build_line(block, answer.record, table)
    return Block(block.base, line, line)


def _build_line(block: Block, record: Mapping[str, Any], table: MergeRules) -> bytes:
    """Return the line of a given record, with the id and the times of the sides."""
    stored_record = json.loads(block.ours or block.theirs or b"{}")
    fields = {name: value for name, value in record.items() if not name.startswith("_")}
    system_fields = {name: stored_record[name] for name in (ID, CREATED_AT, UPDATED_AT) if name in stored_record}
    try:
        return _verify_line(encode({**fields, **system_fields}, LineShape(table.identity)), table)
    except ValueError as error:
        raise InvalidRecord(f"{table.name}: {error}", exit_code=1) from error


def _verify_line(line: bytes | None, table: MergeRules) -> bytes:
    assert line is not None, "both sides have the record"
    try:
        decode(line, LineShape(table.identity), Limits(max_depth=HARD_DEPTH))
    except LineError as error:
        raise InvalidRecord(
            f"{table.name}: the record could not be read again", findings=error.findings, exit_code=1
        ) from error
    return line


def _take_side(block: Block, name: str, side: Side | None, rules: MergeRules) -> Block:
    if side is None:
        return block
    if not name:
        line = {"ours": block.ours, "theirs": block.theirs}.get(side, block.base)
        return Block(block.base, line, line)
    return block.with_field(name, block.value(side, name), rules)


def _choose_side(selectors: Sequence[str], choices: Sequence[SideChoice]) -> Side | None:
    """Return the side of the choice that names a conflict most closely."""
    by_selector = {choice.selector: choice.side for choice in choices}
    return next((by_selector[name] for name in (*reversed(selectors), "") if name in by_selector), None)


def _list_names(type_name: str, identity: str, name: str) -> list[tuple[str, ...]]:
    """Return the names of a conflict, from the loosest to the closest: its type, its record, its field."""
    names = [(type_name,), (type_name, identity)]
    return [*names, (type_name, identity, name)] if name else names


def _list_selectors(type_name: str, identity: str, name: str) -> list[str]:
    return [spelling for parts in _list_names(type_name, identity, name) for spelling in _list_spellings(parts)]


def _list_spellings(parts: tuple[str, ...]) -> list[str]:
    """Return the spellings of a name, that of a field also as conflicts are printed; the last is for command
    lines.
    """
    return [*([" ".join((":".join(parts[:2]), parts[2]))] if len(parts) > 2 else []), ":".join(parts)]
