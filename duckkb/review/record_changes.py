"""Turns two versions of files into changes of records.

Records are matched by `__id` over all touched files, so a record that moved to another part is unchanged. Lines
that are equal in both versions are not decoded: the cost follows the change, not the size of the files.

Compares the values of a field on both sides: objects by key, lists by element, texts by word.

Compares two texts as runs of words: equal, removed and new.

The longest common sequence of words is computed with one bit a word in large integers, which costs little for
texts of some thousand words. Texts of more than some ten thousand are compared from their first to their last
difference. Nothing is lost: the runs without `new` are the old text, those without `gone` the new."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from duckkb.engine.integrity import check_spelling, make_finding
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ontology.yaml_source import pointer
from duckkb.review.diff_model import Diff, FieldChange, OntologyChange, RecordChange, RecordPlace, Versions
from duckkb.storage.document_parts import file_of, place_rows_in_file, type_at
from duckkb.storage.layout import DATA, parse_part
from duckkb.storage.line import Limits, etag
from duckkb.storage.part import Lines, StoredRow
from duckkb.storage.source_text import elements, split
from duckkb.types.codes import CODES
from duckkb.types.errors import Finding
from duckkb.types.records import ID, UPDATED_AT, Identity, identity_key, identity_text

Key = tuple[str, str]
"""A table: node or edge, and the table or label."""


class Types(Struct, frozen=True):
    """The ontologies of both sides."""

    old: Ontology
    new: Ontology

    def find_types(self, key: Key) -> tuple[RecordType, RecordType] | None:
        """Return a type as each side has it, or twice as the only side has it; None for a table that neither
        knows.
        """
        old, new = self.old.find_by_table(*key), self.new.find_by_table(*key)
        record_type = new or old
        return (old or record_type, new or record_type) if record_type is not None else None


def compare(versions: Versions, types: Types, limits: Limits, ontology: Iterable[OntologyChange] = ()) -> Diff:
    """Return the changes of records between two versions, by type and identity, and the findings of the changed
    lines.
    """
    findings = list(versions.findings)
    changes: list[RecordChange] = []
    moves: list[RecordChange] = []
    respelled_count = parts = 0
    for key, paths in group_parts_by_table(versions, types):
        record_types = types.find_types(key) if key else None
        parts += len(paths) if key else 0
        if record_types is None:
            findings += _report_unexpected_files(
                [path for path in paths if path in versions.new], has_table=key is not None
            )
            continue
        table = _TableChanges(record_types[1], limits)
        table.read(versions, paths, record_types[0])
        changes += table.changes(versions.renamed)
        moves += table.moves
        respelled_count += table.respelled
        findings += table.findings
    return Diff(
        versions.base,
        versions.head,
        tuple(changes),
        tuple(ontology),
        tuple(findings),
        parts,
        respelled_count,
        tuple(moves),
    )


def _report_unexpected_files(paths: Iterable[str], *, has_table: bool) -> Iterator[Finding]:
    message = "no type of the ontology has this table or label" if has_table else "no part of records"
    remedy = "" if has_table else CODES["E_UNEXPECTED_FILE"].remedy
    return (Finding("E_UNEXPECTED_FILE", message, path, remedy=remedy) for path in paths)


def group_parts_by_table(versions: Versions, types: Types) -> list[tuple[Key | None, list[str]]]:
    """Group the parts by table, in the order of the types; first, under None, other files in `data/`."""
    tables: dict[Key, list[str]] = defaultdict(list)
    strange = []
    for path in versions.paths:
        if (key := _find_table(path, types)) is not None:
            tables[key].append(path)
        elif path.startswith(f"{DATA}/") and not path.startswith((f"{DATA}/indices/", f"{DATA}/FORMAT.json")):
            strange.append(path)
    order = [(kind.kind, kind.table) for kind in (*types.new, *types.old)]
    keys = sorted(tables, key=lambda key: (order.index(key) if key in order else len(order), key))
    return [(None, strange), *((key, tables[key]) for key in keys)]


def _find_table(path: str, types: Types) -> Key | None:
    """Return the table of a part, even where no type declares it any more."""
    if address := parse_part(path):
        return address.kind, address.table
    kind = type_at(types.new, path) or type_at(types.old, path)
    return (kind.kind, kind.table) if kind is not None else None


class _TableChanges:
    """The changes of one type."""

    def __init__(self, kind: RecordType, limits: Limits) -> None:
        self._kind = kind
        self._limits = limits
        self._old: dict[int, StoredRow] = {}
        self._new: dict[int, StoredRow] = {}
        self.findings: list[Finding] = []
        self.moves: list[RecordChange] = []
        self.respelled = 0

    def read(self, versions: Versions, paths: Collection[str], old_kind: RecordType) -> None:
        """Decode the lines that are not equal in both versions."""
        same_lines = alike(versions.old, versions.new, paths)
        for path in paths:
            if (raw := versions.old.get(path)) is not None:
                rows = self._read_lines(path, raw, old_kind, same_lines).rows
                for row in place_rows_in_file(rows, versions.numbers[0].get(path)):
                    self._old.setdefault(row.record.id, row)
            if (raw := versions.new.get(path)) is not None:
                lines = self._read_lines(path, raw, self._kind, same_lines)
                self.findings += lines.findings
                self._take(place_rows_in_file(lines.rows, versions.numbers[1].get(path)))

    def _take(self, rows: Iterable[StoredRow]) -> None:
        for row in rows:
            first = self._new.setdefault(row.record.id, row)
            if first is not row:
                same = first.record.identity == row.record.identity
                code = "E_DUP_IDENTITY" if same else "E_DUP_ID"
                message = f"__id {row.record.id} is also at {first.path}:{first.line_no}"
                self.findings.append(make_finding(row, code, message))
            self.findings += check_spelling(row)

    def _read_lines(self, path: str, raw: bytes, kind: RecordType, same_lines: Collection[bytes]) -> Lines:
        lines = Lines(path, kind, self._limits, same_lines)
        lines.read(raw)
        return lines

    def changes(self, renamed: Mapping[str, str]) -> list[RecordChange]:
        """Return the changes by identity, the new one where there is one; `renamed` has former paths of documents."""
        pairs = [(self._old.get(number), self._new.get(number)) for number in {**self._old, **self._new}]
        pairs = _join_renames(pairs, renamed) if renamed else pairs
        changed_pairs = [(old, new) for old, new in self._join_changed_ids(pairs) if not self._is_same(old, new)]
        changed_pairs.sort(key=lambda pair: identity_key((pair[1] or pair[0]).record.identity))
        return [change_of(self._kind, old, new) for old, new in changed_pairs]

    def _is_same(self, old: StoredRow | None, new: StoredRow | None) -> bool:
        """Return whether a record only moved to another part, or is only spelled otherwise; note it."""
        if old is None or new is None or old.line != new.line:
            return False
        if old.path == new.path:
            self.respelled += 1
        else:
            self.moves.append(replace(change_of(self._kind, old, new), op="move"))
        return True

    def _join_changed_ids(self, pairs: list[tuple[StoredRow | None, StoredRow | None]]) -> list[tuple[Any, Any]]:
        """Join a record that vanished under one `__id` and appeared under another: its id was changed."""
        vanished_rows = {old.record.identity: old for old, new in pairs if old is not None and new is None}
        matches: list[tuple[StoredRow | None, StoredRow | None]] = []
        joined_identities: set[Identity] = set()
        for old, new in pairs:
            if old is None and new is not None and (before := vanished_rows.get(new.record.identity)) is not None:
                message = f"__id was {before.record.id} and is {new.record.id}: citations and edges by id are lost"
                self.findings.append(make_finding(new, "E_ID_CHANGED", message))
                joined_identities.add(new.record.identity)
                matches.append((before, new))
            else:
                matches.append((old, new))
        return [
            (old, new)
            for old, new in matches
            if new is not None or old is None or old.record.identity not in joined_identities
        ]


def _join_renames(
    pairs: list[tuple[StoredRow | None, StoredRow | None]], former: Mapping[str, str]
) -> list[tuple[StoredRow | None, StoredRow | None]]:
    """Join a document that vanished under one file name and appeared under another."""
    removed_rows = {old.path: old for old, new in pairs if old is not None and new is None}
    come = {new.path: former.get(new.path, "") for old, new in pairs if new is not None and old is None}
    joined_rows = {path: removed_rows[was] for path, was in come.items() if was in removed_rows}
    joined_paths = {old.path for old in joined_rows.values()}
    return [
        (joined_rows.get(new.path, old) if new is not None else old, new)
        for old, new in pairs
        if new is not None or old is None or old.path not in joined_paths
    ]


def change_of(kind: RecordType, old: StoredRow | None, new: StoredRow | None) -> RecordChange:
    """Return the change of a record between two lines, of which one may be missing."""
    row = new or old
    assert row is not None, "a change has a side"
    was = identity_text(old.record.identity) if old and new and old.record.identity != new.record.identity else None
    return RecordChange(
        kind.kind,
        kind.name,
        kind.table,
        row.record.id,
        "insert" if old is None else "delete" if new is None else "update" if was is None else "rename",
        identity_text(row.record.identity),
        was,
        _compare_fields(old, new),
        _place(old) if old else None,
        _place(new) if new else None,
        kind.display,
    )


def alike(old: Mapping[str, bytes], new: Mapping[str, bytes], paths: Iterable[str]) -> frozenset[bytes]:
    """Return the lines that both versions have in the same parts alone, and as often."""
    both: set[bytes] = set()
    differing_lines: set[bytes] = set()
    for path in paths:
        before, after = (side.get(path, b"").split(b"\n") for side in (old, new))
        old_lines, holds = set(before), set(after)
        both |= old_lines & holds
        differing_lines |= old_lines ^ holds
        if len(old_lines) < len(before) or len(holds) < len(after):  # some lines occur more than once
            counts = Counter(before), Counter(after)
            differing_lines.update(line for line in old_lines & holds if counts[0][line] != counts[1][line])
    return frozenset(both - differing_lines - {b""})


def _compare_fields(old: StoredRow | None, new: StoredRow | None) -> tuple[FieldChange, ...]:
    before, after = (split(row.line) if row is not None else {} for row in (old, new))
    differences = [
        FieldChange(name, _extract_text(before.get(name)), _extract_text(after.get(name)))
        for name in {**after, **before}
        if _extract_text(before.get(name)) != _extract_text(after.get(name))
    ]
    visible_fields = (
        [field_change for field_change in differences if field_change.name not in (ID, UPDATED_AT)]
        if old is not None and new is not None
        else differences
    )
    return tuple(visible_fields or differences)


def _extract_text(entry: tuple[str, str] | None) -> str | None:
    return None if entry is None else entry[1]


def _place(row: StoredRow) -> RecordPlace:
    return RecordPlace(file_of(row.path), row.line_no, row.line, etag(row.line))


Kind = Literal["same", "gone", "new", "cut"]

_WORD = re.compile(
    r"\d+(?:[.:-]\d+)*"  # a number, a date, a time
    "|[^\\W\\d_\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]+(?:['\u2019][^\\W\\d_]+)?"  # a word
    r"|[^\S\n]+|.",  # blanks, and any other character by itself, Chinese ones among them
    re.DOTALL,
)
# Bits that the table of a comparison may have: 100 MB.
_MOST = 800_000_000


class Run(NamedTuple):
    """A piece of text: in both, only in the old (`gone`), only in the new; or of both and left out (`cut`)."""

    kind: Kind
    text: str


def words(old: str, new: str) -> list[Run]:
    """Return the difference of two texts in reading order; a `gone` run stands before the `new` run that replaces
    it.

    >>> words("the red fox", "the blue fox")
    [Run(kind='same', text='the '), Run(kind='gone', text='red'), Run(kind='new', text='blue'), Run(kind='same', text=' fox')]
    >>> words("知识库", "知识图")
    [Run(kind='same', text='知识'), Run(kind='gone', text='库'), Run(kind='new', text='图')]
    """
    if old == new:
        return [Run("same", old)] if old else []
    return _merge_runs(_iter_runs(_WORD.findall(old), _WORD.findall(new)))


def json_words(before: str | None, after: str | None) -> list[Run]:
    """Return the difference of two values as JSON text (None: absent); of their texts where both are strings.

    >>> json_words('"a"', None)
    [Run(kind='gone', text='a')]
    """
    if _classify_text(before) is _classify_text(after):
        return words(_decode_text(before), _decode_text(after))
    return words(before or "", after or "")


def keep_near_changes(runs: Sequence[Run], reach: int = 60) -> list[Run]:
    """Keep equal text only up to `reach` characters from a change; the rest becomes `cut`.

    Cuts fall between words, approximately; a text not much longer than twice the reach is kept whole.
    """
    shortened_runs: list[Run] = []
    for number, run in enumerate(runs):
        head = 0 if number == 0 else reach
        tail = 0 if number == len(runs) - 1 else reach
        if run.kind != "same" or len(run.text) <= head + tail + 20:
            shortened_runs.append(run)
            continue
        start, end = _find_word_boundary(run.text, head), _find_word_boundary(run.text, len(run.text) - tail)
        pieces = (Run("same", run.text[:start]), Run("cut", run.text[start:end]), Run("same", run.text[end:]))
        shortened_runs += [piece for piece in pieces if piece.text]
    return shortened_runs


def _classify_text(text: str | None) -> type:
    return str if text is None or text.startswith('"') else object


def _decode_text(text: str | None) -> str:
    return str(json.loads(text)) if text and text.startswith('"') else text or ""


def _find_word_boundary(text: str, at: int) -> int:
    """Return a position near `at` that cuts no word."""
    if at in (0, len(text)):
        return at
    match = re.compile(r"\s|[\u2e80-\u9fff]").search(text, at, at + 20)
    return match.end() if match else at


def _iter_runs(old_words: list[str], new_words: list[str]) -> Iterator[tuple[Kind, str]]:
    """Yield kinds and texts, none of them empty."""
    at, to = 0, 0
    for start, goal, length in _iter_matches(old_words, new_words):
        if at < start:
            yield "gone", "".join(old_words[at:start])
        if to < goal:
            yield "new", "".join(new_words[to:goal])
        at, to = start + length, goal + length
        yield "same", "".join(old_words[start:at])
    if at < len(old_words):
        yield "gone", "".join(old_words[at:])
    if to < len(new_words):
        yield "new", "".join(new_words[to:])


def _iter_matches(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the common pieces, in order: (place in old, place in new, length)."""
    head = _count_common(old, new)
    tail = _count_common(old[head:][::-1], new[head:][::-1])
    end, goal = len(old) - tail, len(new) - tail
    if head:
        yield 0, 0, head
    if (end - head) * (goal - head) <= _MOST:
        yield from _find_subsequence(old[head:end], new[head:goal], head, head)
    if tail:
        yield end, goal, tail


def _count_common(old: Sequence[str], new: Sequence[str]) -> int:
    """Count the equal words at the beginning."""
    return next(
        (at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
    )


def _iter_rows(old: Sequence[str], new: Iterable[str]) -> Iterator[int]:
    """Yield one integer for each word of `new`: one bit a word of `old`, 0 where the common sequence grows (Hyyrö
    2004).
    """
    places = dict.fromkeys(old, 0)
    for number, word in enumerate(old):
        places[word] |= 1 << number
    row = full = (1 << len(old)) - 1
    yield row
    for word in new:
        same = row & places.get(word, 0)
        row = ((row + same) | (row - same)) & full
        yield row


def _find_subsequence(old: Sequence[str], new: Sequence[str], at: int, to: int) -> Iterator[tuple[int, int, int]]:
    """Yield a longest common sequence; all rows are stored for the walk back.

    A word that one side alone has would change no row and no bit.
    """
    both = {*old}.intersection(new)
    old_numbers = [number for number, word in enumerate(old) if word in both]
    new_numbers = [number for number, word in enumerate(new) if word in both]
    rows = list(_iter_rows([old[number] for number in old_numbers], (new[number] for number in new_numbers)))
    matches: list[list[int]] = []
    old_index, new_index = len(old_numbers) - 1, len(new_numbers)
    while old_index >= 0 and new_index > 0:
        if rows[new_index] >> old_index & 1:
            old_index -= 1
            continue
        new_index -= 1
        if rows[new_index] >> old_index & 1:
            start, goal = at + old_numbers[old_index], to + new_numbers[new_index]
            if matches and matches[-1][0] == start + 1 and matches[-1][1] == goal + 1:
                matches[-1] = [start, goal, matches[-1][2] + 1]
            else:
                matches.append([start, goal, 1])
            old_index -= 1
    yield from ((start, goal, length) for start, goal, length in reversed(matches))


def _merge_runs(runs: Iterable[tuple[Kind, str]]) -> list[Run]:
    """Join neighbours of one kind, and drop a lone blank or word between two longer changes."""
    groups: list[list[str]] = [["", "", ""]]  # gone, new, same after it
    for kind, text in runs:
        if kind == "same":
            groups[-1][2] += text
        else:
            if groups[-1][2]:
                groups.append(["", "", ""])
            groups[-1][kind == "new"] += text
    pieces: list[list[str]] = []
    for removed_text, new, same in groups:
        if pieces and _is_lost_between(pieces[-1], (removed_text, new)):
            between = pieces[-1][2]
            pieces[-1] = [pieces[-1][0] + between + removed_text, pieces[-1][1] + between + new, same]
        else:
            pieces.append([removed_text, new, same])
    kinds: tuple[Kind, ...] = ("gone", "new", "same")
    return [Run(kind, text) for piece in pieces for kind, text in zip(kinds, piece, strict=True) if text]


def _is_lost_between(before: Sequence[str], after: Sequence[str]) -> bool:
    between = before[2]
    least = min(max(len(before[0]), len(before[1])), max(len(after[0]), len(after[1])))
    if not least or "\n" in between:
        return False
    has_word = any(character.isalnum() for character in between)
    return len(between) * (3 if has_word else 1) <= least and len(between) <= 20


_MOST_STEPS = 1_000_000
"""Pairs of elements that are compared to find those of a list that kept their order."""

Keys = tuple[str | int, ...]


class Leaf(NamedTuple):
    """A value that differs, and that is not an object, or a list, on both sides.

    It has the keys that lead to it (the last one is the index of a new or removed element), and its JSON text
    on both sides, None where a side lacks it.
    """

    keys: Keys
    before: str | None
    after: str | None

    @property
    def is_element(self) -> bool:
        """Return whether the value is a new or removed element of a list."""
        return (self.before is None or self.after is None) and bool(self.keys) and isinstance(self.keys[-1], int)

    @property
    def kind(self) -> Literal["gone", "new", "changed"]:
        """Return `gone`, `new`, or `changed` for a value that changed inside."""
        return "gone" if self.after is None else "new" if self.before is None else "changed"

    def runs(self) -> list[Run]:
        """The runs of words that are equal or differ."""
        return json_words(self.before, self.after)

    @property
    def pointer(self) -> str:
        """The JSON pointer of the value in the record."""
        return pointer(*self.keys)

    @property
    def name(self) -> str:
        """The pointer without its first slash; for an element that of its list."""
        return pointer(*(self.keys[:-1] if self.is_element else self.keys))[1:]


def leaves(name: str, before: str | None, after: str | None) -> Iterator[Leaf]:
    """Yield what differs between two values given as JSON text (None: absent), with its path.

    >>> [(leaf.pointer, leaf.before, leaf.after) for leaf in leaves("place", '{"a":1,"b":[1,2]}', '{"a":2,"b":[2,3]}')]
    [('/place/a', '1', '2'), ('/place/b/0', '1', None), ('/place/b/1', None, '3')]
    """
    return _compare_values((name,) if name else (), before, after)


def _compare_values(keys: Keys, before: str | None, after: str | None) -> Iterator[Leaf]:
    starts = (before or " ")[:1] + (after or " ")[:1]
    if before is None or after is None or starts not in ("{{", "[["):
        yield Leaf(keys, before, after)
    elif starts == "{{":
        old, new = ({key: text for key, (_, text) in split(side.encode()).items()} for side in (before, after))
        for key in {**new, **old}:
            if old.get(key) != new.get(key):
                yield from _compare_values((*keys, key), old.get(key), new.get(key))
    else:
        for index, old_text, new_text in _compare_elements(elements(before) or [], elements(after) or []):
            yield from _compare_values((*keys, index), old_text, new_text)


def _compare_elements(old: list[str], new: list[str]) -> Iterator[tuple[int, str | None, str | None]]:
    """Yield the removed and the new elements, in reading order; a moved element is both.

    An object or a list that replaces another at the same place counts as changed inside.
    """
    if len(old) * len(new) > _MOST_STEPS:
        yield from ((index, text, None) for index, text in _find_surplus(old, Counter(new)))
        yield from ((index, None, text) for index, text in _find_surplus(new, Counter(old)))
        return
    from difflib import SequenceMatcher

    for tag, start, end, to, goal in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        removed_texts, come = old[start:end], new[to:goal]
        if tag == "equal":
            continue
        if len(removed_texts) == len(come) and all(
            old_text[0] == new_text[0] in "{[" for old_text, new_text in zip(removed_texts, come, strict=True)
        ):
            yield from zip(range(to, goal), removed_texts, come, strict=True)
        else:
            yield from ((start + number, text, None) for number, text in enumerate(removed_texts))
            yield from ((to + number, None, text) for number, text in enumerate(come))


def _find_surplus(some: list[str], counts: Counter[str]) -> Iterator[tuple[int, str]]:
    """Yield the elements of which there are more than in the other list."""
    for index, text in enumerate(some):
        counts[text] -= 1
        if counts[text] < 0:
            yield index, text
