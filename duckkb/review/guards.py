"""Finds where a change weakens the rules by which changes are judged.

It looks at types, limits and judged questions, and at files outside of records and ontology that a gate depends
on: the workflows and hooks that run duckkb, and the .gitattributes for the base's files (paths are relative to
the base, as in all findings).
A change is also judged by the rules of the older version, so that it cannot switch off its own gate.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from duckkb.engine.integrity import list_limited_ends
from duckkb.ontology.model import EdgeType, NodeType, RecordType
from duckkb.ontology.ontology_files import questions_in
from duckkb.ontology.validation import Validator
from duckkb.ontology.yaml_source import Document, pointer
from duckkb.review.compared_versions import Comparison, Configurations, Described
from duckkb.review.diff_model import RecordChange
from duckkb.review.schema_comparison import looser_parts
from duckkb.storage import git_process, revisions
from duckkb.storage.revisions import Revision, Touched
from duckkb.types.codes import CODES
from duckkb.types.errors import Finding
from duckkb.types.records import CREATED_AT, ID, UPDATED_AT

CODE, ALLOWED = "E_GUARD", "W_GUARD"
_OWN = (ID, CREATED_AT, UPDATED_AT)


Weaker = tuple[str, str]
"""A weakened part of a declaration: a JSON pointer into it, and how it is weaker."""


def make_guard_finding(said: str, path: str, line: int, field: str) -> Finding:
    """Return the finding that a guard is gone or weaker than before."""
    return Finding(CODE, said, path, line, field, CODES[CODE].remedy)


def allow_weakening(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings as warnings, for a change that may weaken rules."""
    remedy = CODES[ALLOWED].remedy
    return tuple(replace(entry, code=ALLOWED, remedy=remedy) if entry.code == CODE else entry for entry in findings)


def guard_configuration(both: Configurations, changes: Sequence[RecordChange]) -> Iterator[Finding]:
    """Yield the guards of types, limits and questions that only the older side has, and records that only new
    rules accept.
    """
    old, new = both.old, both.new
    if old.documents == new.documents:
        return
    yield from _compare_limits(old, new)
    for kind in old.ontology:
        new_kind = new.ontology.find_by_table(kind.kind, kind.table)
        if new_kind is None and (kind.review or kind.reviewed_fields):
            message = f"{kind.name}: a type with a required review is gone, or has another table"
            path, at = kind.place.rpartition(":")[0], _build_pointer(kind, "")
            yield make_guard_finding(message, path, _find_line(new.documents, path, at), at)
        if new_kind is not None and new_kind != kind:
            path = new_kind.place.rpartition(":")[0]
            for field, message in _find_weaker_rules(kind, new_kind):
                at = _build_pointer(new_kind, field)
                yield make_guard_finding(f"{kind.name}: {message}", path, _find_line(new.documents, path, at), at)
            yield from _find_newly_valid(
                kind, Validator(kind, old.ontology), Validator(new_kind, new.ontology), changes
            )
    yield from guard_questions(old.documents, new.documents)


def _build_pointer(kind: RecordType, field: str) -> str:
    """Return the pointer into its file of a declaration of a type. The schema of a collection is its policy's."""
    if isinstance(kind, NodeType) and kind.is_collection:
        return f"{pointer('collections', kind.name)}{'/policy' if field.startswith('/schema') else ''}{field}"
    return f"{pointer(f'{kind.kind}s', kind.name)}{field}"


def _find_line(documents: Iterable[Document], path: str, at: str) -> int:
    """Return the line of a pointer in a file, or of its nearest parent; 0 where the file is gone."""
    return next((document.line(at) for document in documents if document.path == path), 0)


def _compare_limits(old: Described, new: Described) -> Iterator[Finding]:
    for name, before, after in (
        ("max_record_bytes", old.limits.max_record_bytes, new.limits.max_record_bytes),
        ("max_depth", old.limits.max_depth, new.limits.max_depth),
        ("shrink_records", old.shrink.records, new.shrink.records),
        ("shrink_share", old.shrink.share, new.shrink.share),
    ):
        if after > before:
            line = new.documents[0].line(pointer("limits", name)) if new.documents else 0
            yield make_guard_finding(f"was {before:,}, is {after:,}", "config.yaml", line, pointer("limits", name))


def _find_weaker_rules(old: RecordType, new: RecordType) -> Iterator[Weaker]:
    if old.review and not new.review:
        yield "/review", "`review: required` is gone"
    for name in sorted(old.reviewed_fields - new.reviewed_fields):
        yield pointer("schema", "properties", name, "x-review"), f"`x-review: required` of {name} is gone"
    if (
        isinstance(old, EdgeType)
        and isinstance(new, EdgeType)
        and set(list_limited_ends(old)) - set(list_limited_ends(new))
    ):
        yield "/cardinality", f"cardinality was {old.cardinality}, is {new.cardinality}"
    yield from ((f"/schema{part.at}", str(part)) for part in looser_parts(old.schema, new.schema))


def _find_newly_valid(
    kind: RecordType, old: Validator, new: Validator, changes: Sequence[RecordChange]
) -> Iterator[Finding]:
    if kind.schema == new.kind.schema:
        return
    offenders: list[tuple[RecordChange, str]] = []
    for change in changes:
        if (change.kind, change.table) == (kind.kind, kind.table) and change.after is not None:
            fields = {name: value for name, value in json.loads(change.after.line).items() if name not in _OWN}
            if new.is_valid(fields) and not old.is_valid(fields):
                wrong = old.findings(fields)
                offenders.append((change, f"{wrong[0].field}: {wrong[0].message}" if wrong else ""))
    if offenders:
        change, why = offenders[0]
        many = f"{len(offenders):,} records" if len(offenders) > 1 else "1 record"
        message = f"{many} of this change would break the old rules; the first, {change.identity}: {why}"
        place = change.place
        yield Finding("W_NEW_RULES", message, place.path, place.line_no, "", CODES["W_NEW_RULES"].remedy, kind.name)


def guard_questions(old: Sequence[Document], new: Sequence[Document]) -> Iterator[Finding]:
    """Yield the judged questions that only the older documents have, or that the newer ones judge more mildly."""
    entries = [
        [(document, number, item) for document in documents for number, item in enumerate(questions_in(document))]
        for documents in (old, new)
    ]
    if [item for _, _, item in entries[0]] == [item for _, _, item in entries[1]]:
        return
    from duckkb.review.impact_report import milder, read

    before, after = (read([item for _, _, item in side]) for side in entries)
    removed_texts: dict[str, list[str]] = {}
    for (was, _, _), question in zip(entries[0], before, strict=True):
        same = [place for place, item in zip(entries[1], after, strict=True) if item.key == question.key]
        if not same:
            removed_texts.setdefault(was.path, []).append(_truncate_json(question.text))
        elif reason := milder(question, after):
            (document, number, _), message = same[0], f"the judged question {_truncate_json(question.text)} {reason}"
            field = pointer("questions", number)
            yield make_guard_finding(message, document.path, document.line(field), field)
    for path, texts in removed_texts.items():
        many = f" and {len(texts) - 3:,} more" if len(texts) > 3 else ""
        reason = f"no longer asked: {', '.join(texts[:3])}{many}"
        yield make_guard_finding(reason, path, _find_line(new, path, "/questions"), "/questions")


def _truncate_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:80]}…"


_ATTRIBUTES = ".gitattributes"
_HOOKS = (".pre-commit-config.yaml", ".gitlab-ci.yml")
_WORKFLOWS = re.compile(r"\.(?:github|gitea|forgejo)/workflows/[^/]+\.ya?ml")
_CACHE = "data/indices/"
# A pin may move; the rest of a line counts.
_PIN = re.compile(r"@[0-9a-f]{7,64}\b|==[0-9][\w.]*|(?:^|\s)#.*$")
_COUNTED = frozenset(
    ("text", "eol", "diff", "merge", "filter", "working-tree-encoding", "ident", "linguist-generated", "binary")
)
_WANTED = frozenset((("text", "set"), ("eol", "lf"), ("merge", "duckkb"), ("diff", "duckkb")))


def guard_files(compared: Comparison) -> Iterator[Finding]:
    """Yield what the change removes from the files of a gate. Raises `errors.Unavailable` (E_GIT)."""
    root, base = compared.root, compared.versions.base.commit
    against = {"worktree": None, "index": "index"}.get(compared.range.against, compared.versions.head.commit)
    touched_files = list(revisions.iter_touched_files(root, base, against))
    yield from _compare_jobs(
        root, [file for file in touched_files if _WORKFLOWS.fullmatch(file.path) or file.path in _HOOKS]
    )
    names = [file.path for file in touched_files if posixpath.basename(file.path) == _ATTRIBUTES]
    if names:
        place = posixpath.relpath(names[0], revisions.prefix(root) or ".")
        yield from (
            make_guard_finding(message, place, 0, name) for name, message in _compare_attributes(root, base, against)
        )


def _compare_jobs(root: Path, touched_files: Iterable[Touched]) -> Iterator[Finding]:
    top = git_process.repository_of(root)
    for file in touched_files:
        old, new = (_read_side(root, top.work_tree, file, side) for side in (file.old, file.new))
        if old is None or "duckkb" not in old or old == new:
            continue
        path = posixpath.relpath(file.path, top.prefix or ".")
        if new is None:
            yield make_guard_finding("a job that runs duckkb is gone", path, 0, "")
            continue
        before, after = ([line for _, line in _parse_steps(text)] for text in (old, new))
        if before != after:
            removed_line = next((line for line in before if line not in after), "")
            number, came = next(((number, line) for number, line in _parse_steps(new) if line not in before), (0, ""))
            message = (
                f"no longer has `{removed_line}`"
                if removed_line
                else f"says `{came}`"
                if came
                else "has it in another order"
            )
            yield make_guard_finding(f"a job that runs duckkb {message}", path, number, "")


def _read_side(root: Path, top: Path, file: Touched, side: revisions.TreeEntry | None) -> str | None:
    """Return the file on this side; None where there is none. An id of zeros stands for the file on disk."""
    if side is None or side.mode not in revisions.REGULAR:
        return None
    if int(side.blob, 16):
        return revisions.blobs(root, [side.blob])[side.blob].decode("utf-8", "replace")
    try:
        return (top / file.path).read_text("utf-8", "replace") if not (top / file.path).is_symlink() else None
    except OSError:
        return None


def _parse_steps(text: str) -> list[tuple[int, str]]:
    """Return the effective lines with their numbers, without pins and comments."""
    lines = ((number, _PIN.sub("", line).strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in lines if line]


def _compare_attributes(root: Path, base: str, against: str | None) -> Iterator[tuple[str, str]]:
    """Yield the git attributes that change for files of both sides, each with a count and the first file."""
    paths = sorted(revisions.entries(root, Revision("", base, base)))
    paths = [path for path in paths if not path.startswith(_CACHE)]
    before, after = (revisions.attributes(root, paths, at) for at in (base, against))
    differences: dict[tuple[str, str, str], list[str]] = {}
    for path in paths:
        for name in sorted({*before[path], *after[path]} & _COUNTED):
            old, new = before[path].get(name, "unspecified"), after[path].get(name, "unspecified")
            if old != new and (name, new) not in _WANTED:
                differences.setdefault((name, old, new), []).append(path)
    for (name, old, new), changed_paths in differences.items():
        many = f" and {len(changed_paths) - 1:,} more" if len(changed_paths) > 1 else ""
        yield name, f"git's attribute {name} of {changed_paths[0]}{many} was {old}, is {new}"
