"""`duckkb resolve`: the open conflicts by records, and the choices that settle them.

It works from the three versions that git is merging, with or without the driver, and from what a person has
settled in the files: a block that is gone from a part is settled, and a part without markers is finished. Other
files than parts are left to git.

The HTML page of conflicts: each side's value of a field, a choice for each, and the command or answers to carry
out.

Nothing is sent anywhere; `duckkb resolve` takes what the page prints.

Invisible characters are shown as escapes. The output names each conflict by its `etag`, so that an answer is
valid for what the page showed alone. It contains nothing, in JSON or in a command, that a terminal would
interpret."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from duckkb.engine.boot import refuse_tracked_state
from duckkb.merge import git_merge
from duckkb.merge import merge_sides as versions
from duckkb.merge.git_merge import refuse_loss
from duckkb.merge.merge_conflicts import (
    ConflictAnswer,
    OpenConflict,
    Side,
    SideChoice,
    is_edited_as_text,
    open_in,
    refuse_strangers,
    settle,
)
from duckkb.merge.merge_sides import MergedTrees, Sides, Tree, merge_sides
from duckkb.review.record_changes import json_words
from duckkb.review.report_markup import KINDS, convert_finding, document, safe
from duckkb.storage import clone_state, commit_protocol, git_changes, git_facts, merge_rules, repository
from duckkb.storage.field_merge import MergeRules
from duckkb.storage.git_changes import Index
from duckkb.storage.merge_rules import Block, Key, RulesByTable
from duckkb.storage.source_text import id_of, split, text_of
from duckkb.storage.table_merge import arrange_lines, table_of
from duckkb.types.errors import Finding, Refused
from duckkb.types.invisible_characters import invisible_in, visible
from duckkb.types.records import CREATED_AT, ID, UPDATED_AT
from duckkb.types.settings import Shrink


class ResolveOptions(Struct, frozen=True):
    """The options of a resolve.

    `only_list` changes nothing; `stage` adds what is settled to the index; `timeout` is for the lock, in
    seconds; `shrink` limits how many records may be deleted (None: no limit).
    """

    choices: Sequence[SideChoice] = ()
    answers: Sequence[ConflictAnswer] = ()
    only_list: bool = False
    stage: bool = False
    timeout: float = 60.0
    shrink: Shrink | None = None

    @property
    def asks_newest(self) -> bool:
        return "newest" in {*(item.side for item in self.choices), *(item.side for item in self.answers)}


class Resolved(Struct, frozen=True):
    """The conflicts that are left, and what was written.

    Parts may be `unreadable` (not mergeable by records), settled but `unstaged` in git's index, or `staged`
    now. Other paths in conflict are relative to the top of the work tree.
    `files` were written; the former content of those in `rescued` is stored under `.duckkb/rescued/`.
    """

    operation: str
    conflicts: tuple[OpenConflict, ...] = ()
    unreadable: tuple[str, ...] = ()
    unstaged: tuple[str, ...] = ()
    staged: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    rescued: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        return not (self.conflicts or self.unreadable)


class _Part(Struct):
    """A part that is being settled: its target content, and its present content.

    The target is `items`, or `data` where these are None; no bytes at all: it is deleted. `was_merged`: git
    took it for merged.
    """

    path: str
    items: list[bytes | Block] | None
    before: bytes | None
    data: bytes | None = None
    was_merged: bool = False
    is_settled: bool = True
    is_final: bool = False

    def bytes(self) -> bytes | None:
        return self.data if self.items is None else merge_rules.join_blocks(self.items) or None


def resolve(root: Path, rules: RulesByTable, options: ResolveOptions) -> Resolved:
    """Find the conflicts, settle what is chosen, and write it.

    Raises `errors.NotFound` for a choice that names nothing, `errors.UsageError` for choices that contradict
    each other; then nothing is changed.
    """
    refuse_tracked_state(root)
    if not options.only_list:
        git_facts.refuse_sparse_paths(root)
    with commit_protocol.lock_for_writing(root, options.timeout):
        git_changes.refuse_begun_merge(root)
        index = git_changes.read_index(root)
        operation = repository.operation_in_progress(root) or ""
        sides = versions.read_sides_under_way(root, index, rules) if operation or index.unmerged else None
        merging = _Merging(root, rules, index, sides)
        parts = merging.parts()
        open_now = [open_conflict for part in parts for open_conflict in merging.open_in(part)]
        if open_now or not (parts and options.stage):  # what is settled already can still be staged
            refuse_strangers(options.choices, options.answers, open_now)
        for part in parts:
            merging.settle(part, options)
        if not options.only_list:
            merging.refuse_loss(parts, options.shrink)
            merging.write(parts, options.stage)
        return merging.build_result(operation, parts, options)


class _Merging:
    """The versions under merge, their merge by records, and the present files."""

    def __init__(self, root: Path, rules: RulesByTable, index: Index, sides: Sides | None) -> None:
        self._root, self._index = root, index
        self._knows_all = sides is not None
        self._sides = sides or versions.read_staged_sides(root, index)
        self._rules = self._sides.rules(rules)
        self._merged: MergedTrees = merge_sides(self._sides, rules)
        self._rescued: list[str] = []
        self._by_id: dict[tuple[int, Key | None], dict[str, bytes]] = {}

    def parts(self) -> list[_Part]:
        """Return the parts that are in conflict, or that git merged otherwise than by records."""
        paths = self._merged.parts if self._knows_all else self._merged.parts.keys() & self._index.unmerged.keys()
        found = [part for path in sorted(paths) if (part := self._load_part(path))]
        awaited_ids = self._find_awaited_ids(found)
        for part in found:
            # A record may not leave its part for one that is left alone and does not hold it.
            if not part.is_final and part.bytes() != part.before and awaited_ids & self._collect_ids(part.path):
                part.is_settled, part.data, part.items = False, part.before, None
        return found

    def open_in(self, part: _Part) -> Iterator[OpenConflict]:
        for item in part.items or ():
            if isinstance(item, Block):
                yield from open_in(item, self._find_rules(part.path), part.path)

    def settle(self, part: _Part, options: ResolveOptions) -> None:
        table = self._find_rules(part.path)
        settled_items: list[bytes | Block] = []
        for item in part.items or ():
            if isinstance(item, Block):
                newest = self._find_newest_side(part.path, item) if options.asks_newest else None
                item = settle(item, table, part.path, options.choices, options.answers, newest)
                if item.ours == item.theirs:
                    if item.ours is not None:
                        settled_items.append(item.ours)
                    continue
            settled_items.append(item)
        if settled_items != (part.items or []):
            part.items = arrange_lines(settled_items, table)

    def refuse_loss(self, parts: Sequence[_Part], limit: Shrink | None) -> None:
        """Raise where the merge, whoever carried it out, deletes more of our records than the limit allows."""
        data_by_path = {part.path: part.bytes() for part in parts}
        paths = self._merged.parts if self._knows_all else data_by_path
        after = {
            path: data_by_path[path] if path in data_by_path else git_merge.read_part_on_disk(self._root, path)
            for path in paths
        }
        refuse_loss(self._sides.ours, after, self._sides.contents, self._rules, limit)

    def write(self, parts: Sequence[_Part], stage: bool) -> None:
        data_by_path = {part.path: part.bytes() for part in parts}
        for part in parts:
            if not part.was_merged and self._is_foreign(part, data_by_path[part.path]):
                self._preserve_part(part)
        git_merge.write(self._root, data_by_path, {part.path: part.before for part in parts})
        whole = [part for part in parts if not self._is_open(part)]
        git_merge.stage(self._root, {part.path: data_by_path[part.path] for part in whole if stage or part.was_merged})
        git_merge.mark(
            self._root, [part.path for part in parts if part.was_merged and self._is_open(part)], self._sides
        )
        git_changes.refresh(self._root)

    def build_result(self, operation: str, parts: Sequence[_Part], options: ResolveOptions) -> Resolved:
        open_now = tuple(open_conflict for part in parts for open_conflict in self.open_in(part))
        settled_paths = tuple(part.path for part in parts if not self._is_open(part) and not part.was_merged)
        return Resolved(
            operation,
            open_now,
            tuple(part.path for part in parts if not part.is_settled),
            () if options.stage else settled_paths,
            settled_paths if options.stage else (),
            self._index.others + tuple(path for path in self._index.unmerged if path not in self._merged.parts),
            () if options.only_list else tuple(part.path for part in parts if part.bytes() != part.before),
            tuple(self._rescued),
        )

    def _load_part(self, path: str) -> _Part | None:
        before = git_merge.read_part_on_disk(self._root, path)
        if path not in self._index.unmerged:
            return self._load_merged_part(path, before)
        stages = [self._sides.contents.get(entry.blob) for entry in self._index.unmerged[path].values()]
        is_gits = before in (None, self._merged.parts[path], *stages)
        is_fresh = is_gits or versions.normalize_empty(before) in self._run_driver(path)
        if before is not None and not is_fresh:
            has_markers = merge_rules.has_markers(before)
            items = merge_rules.read_blocks(before) if has_markers else None
            if items is not None:
                return _Part(path, items, before)
            if not has_markers:  # someone, or the driver, has settled it
                return _Part(path, None, before, before, is_final=True)
        return self._fresh(path, before)

    def _find_awaited_ids(self, parts: Sequence[_Part]) -> set[str]:
        """Return the ids of records that the merge puts into parts which are left alone and lack them."""
        changing = {part.path for part in parts if not part.is_final}
        lines: set[bytes] = set()
        for path, data in self._merged.parts.items() if self._knows_all else ():
            if path not in changing and data is not None:
                lines |= {*data.split(b"\n")} - {*(git_merge.read_part_on_disk(self._root, path) or b"").split(b"\n")}
        return set(map(id_of, lines)) - {""}

    def _collect_ids(self, path: str) -> set[str]:
        return {id_of(line) for data in self._sides.read_versions(path) for line in (data or b"").split(b"\n")}

    def _run_driver(self, path: str) -> list[bytes | None]:
        """Return what git's driver makes of a path in conflict, with git's own merge of several bases."""
        return versions.merge_by_driver_rules(path, self._read_stages(path), self._find_rules(path))

    def _read_stages(self, path: str) -> list[bytes | None]:
        """Return the index's versions of a path in conflict: base, ours and theirs."""
        stages = self._index.unmerged.get(path, {})
        return [self._sides.contents.get(stages[number].blob) if number in stages else None for number in (1, 2, 3)]

    def _load_merged_part(self, path: str, before: bytes | None) -> _Part | None:
        """Return a part that git merged by lines, where the merge by records differs; None for an edited part."""
        entry = self._index.merged.get(path)
        stored_data = self._sides.contents.get(entry.blob) if entry else None
        if path in self._index.resolved or stored_data != before or stored_data == self._merged.parts[path]:
            return None
        if not self._sides.is_gits(path, stored_data, self._find_rules(path)):
            return None
        part = self._fresh(path, before)
        part.was_merged = True
        return part

    def _fresh(self, path: str, before: bytes | None) -> _Part:
        """Return a part as the merge by records makes it."""
        data = self._merged.parts[path]
        is_whole = self._merged.by_lines.get(path)
        if is_whole is False and before is not None and merge_rules.has_markers(before):
            data = before  # a person may have begun to settle it
        if is_whole is not None or data is None:
            return _Part(path, None, before, data, is_settled=is_whole is not False)
        items = (
            merge_rules.read_blocks(data)
            if any(record_conflict.path == path for _, record_conflict in self._merged.conflicts)
            else None
        )
        return _Part(path, items, before, data)

    def _is_open(self, part: _Part) -> bool:
        return not part.is_settled or any(isinstance(item, Block) for item in part.items or ())

    def _is_foreign(self, part: _Part, new_data: bytes | None) -> bool:
        """Return whether a part to be written has git's markers, among which a person may have edited."""
        before = part.before
        if (
            before is None
            or before == new_data
            or not merge_rules.has_markers(before)
            or merge_rules.read_blocks(before) is not None
        ):
            return False
        base, ours, theirs = (data or b"" for data in self._read_stages(part.path))
        merges = (git_changes.merge_lines(base, ours, theirs, self._root, style)[0] for style in git_changes.STYLES)
        return _strip_labels(before) not in map(_strip_labels, merges)

    def _preserve_part(self, part: _Part) -> None:
        assert part.before is not None, "it contains conflict markers"
        folder = clone_state.folder_of(self._root) / clone_state.RESCUED
        clone_state.ensure(self._root)
        folder.mkdir(exist_ok=True)
        name = part.path.replace("/", "_")
        clone_state.write_atomic(folder / name, part.before)
        self._rescued.append(part.path)

    def _find_newest_side(self, path: str, block: Block) -> Side | None:
        """Return the side whose version of a record was changed last; None where that is unknown."""
        number = id_of(block.ours or block.theirs or block.base or b"")
        lines = [self._index_lines(tree, path).get(number) for tree in (self._sides.ours, self._sides.theirs)]
        ours, theirs = ("" if line is None else text_of(split(line), "__updated_at") for line in lines)
        if not (ours and theirs) or ours == theirs:
            return None
        return "ours" if ours > theirs else "theirs"

    def _index_lines(self, tree: Tree, path: str) -> Mapping[str, bytes]:
        """Return a version's lines of the records of a part's table, by id, as far as the merge reads them."""
        key = table_of(path)
        lines_by_id = self._by_id.setdefault((id(tree), key), {})
        if not lines_by_id:
            paths = [part_path for part_path in self._merged.parts if table_of(part_path) == key]
            lines = (
                line
                for part_path in paths
                for line in (self._sides.contents.get(tree.get(part_path)) or b"").split(b"\n")
            )
            lines_by_id |= {number: line for line in lines if (number := id_of(line))}
        return lines_by_id

    def _find_rules(self, path: str) -> MergeRules:
        key = table_of(path)
        if key is None:
            raise Refused(f"{path} is not a part file")
        return self._rules.get_rules(key)


def _strip_labels(data: bytes) -> list[bytes]:
    """Return the lines of a file with git's markers, without their labels and without the base."""
    lines = []
    base = 0  # length of the base's marker; merges of several bases have longer ones
    for line in data.split(b"\n"):
        mark = line.split(b" ", 1)[0] if merge_rules.is_marker(line) else b""
        if mark and base in (0, len(mark)):
            base = len(mark) if mark[:1] == b"|" else 0
            if not base:
                lines.append(mark)
        elif not base:
            lines.append(line)
    return lines


MOST_CHARACTERS = 100_000_000
"""Characters of the conflicts' data that a browser can open. What exceeds them is counted by type."""
_SCRIPT = Path(__file__).parent / "conflict_page.js"
_OURS = {
    "rebase": "Ours is the branch rebased onto, theirs the commit that is put on it.",
    "revert": "Ours is HEAD, theirs what it was before the commit that is reverted.",
    "": "Ours is what is checked out, theirs what is put on it.",
}


def render(left: Resolved, violations: Sequence[Finding]) -> Iterator[str]:
    """Yield the page in pieces."""
    yield from document(f"Conflicts: {left.operation or 'records'}", _render_data(left, violations), _SCRIPT)


def _render_data(resolution: Resolved, violations: Sequence[Finding]) -> Iterator[str]:
    name_counts = Counter(_iter_names(resolution.conflicts))
    summary = {
        "operation": resolution.operation,
        "sides": _OURS.get(resolution.operation, "Ours is HEAD, theirs what is merged into it."),
        "types": Counter(item.type for item in resolution.conflicts),
        "violations": [convert_finding(item) for item in violations],
        "unreadable": list(map(visible, resolution.unreadable)),
        "others": list(map(visible, resolution.others)),
    }
    yield f'{{"summary":{safe(summary)},"conflicts":['
    room, comma = MOST_CHARACTERS, ""
    omitted_counts: Counter[str] = Counter()
    for item in resolution.conflicts:
        text = safe(_describe_conflict(item, is_alone=name_counts[item.selector] == 1))
        room -= len(text)
        if room < 0:
            omitted_counts[item.type] += 1
            continue
        yield comma + text
        comma = ","
    yield f'],"left":{safe(omitted_counts)}}}'


def _iter_names(conflicts: Iterable[OpenConflict]) -> Iterator[str]:
    """Yield every name that a selector on the command line may have."""
    for conflict in conflicts:
        yield conflict.selector
        if conflict.field:
            yield f"{conflict.type}:{conflict.identity}"


def _describe_conflict(conflict: OpenConflict, *, is_alone: bool) -> dict[str, Any]:
    is_plain = next(invisible_in(conflict.selector), None) is None and conflict.selector.isprintable()
    values = [_format_value(conflict, source) for source in (conflict.base, conflict.ours, conflict.theirs)]
    key_fields = {"type": conflict.type, "identity": conflict.identity, "field": conflict.field, "etag": conflict.etag}
    return {
        "type": conflict.type,
        "id": visible(conflict.identity),
        "field": visible(conflict.field),
        "path": visible(conflict.path),
        "selector": conflict.selector if is_alone and is_plain else None,
        "head": json.dumps(key_fields, separators=(",", ":"))[1:-1],
        "sides": [None if text is None else _mark_runs(values[0], text) for text in values],
        "edit": _edit(conflict),
    }


def _mark_runs(base: str | None, value: str) -> list[tuple[int, str]]:
    """Mark what a value has beyond the base; unmarked where there is no base."""
    runs = json_words(base if base is not None else value, value)
    return [(KINDS[kind], visible(text)) for kind, text in runs if kind != "gone"]


def _format_value(conflict: OpenConflict, source: str | None) -> str | None:
    """Return JSON of a field as it stands; of a whole record one field a line, without duckkb's own fields."""
    if source is None or conflict.field:
        return source
    fields = split(source.encode())
    lines = [f"  {key}: {value}" for name, (key, value) in fields.items() if name not in (ID, CREATED_AT, UPDATED_AT)]
    return "{\n" + ",\n".join(lines) + "\n}"


def _edit(conflict: OpenConflict) -> dict[str, str]:
    """Return the initial text of an edit.

    It is the text itself where all sides are texts that a browser's field keeps unchanged, else JSON with
    invisible characters escaped.
    """
    begin = _format_value(conflict, conflict.ours if conflict.ours is not None else conflict.theirs) or ""
    if conflict.field and is_edited_as_text((conflict.base, conflict.ours, conflict.theirs)):
        return {"as": "text", "begin": json.loads(begin, strict=False)}
    return {"as": "json" if conflict.field else "record", "begin": _escape_source(begin)}


def _escape_source(source: str) -> str:
    pieces, behind = [], 0
    for at, character in invisible_in(source):
        pieces += [source[behind:at], json.dumps(character)[1:-1]]
        behind = at + 1
    return "".join([*pieces, source[behind:]])
