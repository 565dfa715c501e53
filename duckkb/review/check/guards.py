"""What a change takes from the rules by which changes are judged: in types, limits and judged questions; and in the files outside
of records and ontology that a gate rests on, the workflows and hooks that run duckkb, and what .gitattributes has git do to
the base's files (paths are relative to the base, as those of all findings). A change is judged by the rules as they were, too,
so that none can switch its own gate off.
"""

import json
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from duckkb.codes import CODES
from duckkb.errors import Finding
from duckkb.ontology.load import questions_in
from duckkb.ontology.model import EdgeType, NodeType, RecordType
from duckkb.ontology.source import Document, pointer
from duckkb.ontology.validate import Validator
from duckkb.records import CREATED_AT, ID, UPDATED_AT
from duckkb.review.check.looser_schema import looser_parts
from duckkb.review.diff.model import RecordChange
from duckkb.review.diff.versions import Comparison, Configurations, Described
from duckkb.rules.integrity import limited_sides
from duckkb.truth.git import revisions, run
from duckkb.truth.git.revisions import Revision, Touched

CODE, ALLOWED = "E_GUARD", "W_GUARD"
_OWN = (ID, CREATED_AT, UPDATED_AT)


Weaker = tuple[str, str]
"""What of a declaration is weaker, as a JSON pointer into it, and how."""


def finding(said: str, path: str, line: int, field: str) -> Finding:
    """That a guard is gone or weaker than it was."""
    return Finding(CODE, said, path, line, field, CODES[CODE].remedy)


def allowed(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The same where rules may become weaker: told, but no error."""
    remedy = CODES[ALLOWED].remedy
    return tuple(replace(one, code=ALLOWED, remedy=remedy) if one.code == CODE else one for one in findings)


def of_configuration(both: Configurations, changes: Sequence[RecordChange]) -> Iterator[Finding]:
    """The guards of types, limits and questions that only the older side has, and records that pass by new rules alone."""
    old, new = both.old, both.new
    if old.documents == new.documents:
        return
    yield from _limits(old, new)
    for kind in old.ontology:
        other = new.ontology.by_table(kind.kind, kind.table)
        if other is None and (kind.review or kind.reviewed_fields):
            said = f"{kind.name}: a type with a required review is gone, or has another table"
            path, at = kind.place.rpartition(":")[0], _declared_at(kind, "")
            yield finding(said, path, _line(new.documents, path, at), at)
        if other is not None and other != kind:
            path = other.place.rpartition(":")[0]
            for field, said in _weaker(kind, other):
                at = _declared_at(other, field)
                yield finding(f"{kind.name}: {said}", path, _line(new.documents, path, at), at)
            yield from _by_new_rules(kind, Validator(kind, old.ontology), Validator(other, new.ontology), changes)
    yield from of_questions(old.documents, new.documents)


def _declared_at(kind: RecordType, field: str) -> str:
    """The pointer into its file of something that a type declares. The schema of a collection is its policy's."""
    if isinstance(kind, NodeType) and kind.is_collection:
        return f"{pointer('collections', kind.name)}{'/policy' if field.startswith('/schema') else ''}{field}"
    return f"{pointer(f'{kind.kind}s', kind.name)}{field}"


def _line(documents: Iterable[Document], path: str, at: str) -> int:
    """The line where something stands in a file, or what was around it; 0 where the file is gone."""
    return next((document.line(at) for document in documents if document.path == path), 0)


def _limits(old: Described, new: Described) -> Iterator[Finding]:
    for name, before, after in (
        ("max_record_bytes", old.limits.max_record_bytes, new.limits.max_record_bytes),
        ("max_depth", old.limits.max_depth, new.limits.max_depth),
        ("shrink_records", old.shrink.records, new.shrink.records),
        ("shrink_share", old.shrink.share, new.shrink.share),
    ):
        if after > before:
            line = new.documents[0].line(pointer("limits", name)) if new.documents else 0
            yield finding(f"was {before:,}, is {after:,}", "config.yaml", line, pointer("limits", name))


def _weaker(old: RecordType, new: RecordType) -> Iterator[Weaker]:
    if old.review and not new.review:
        yield "/review", "`review: required` is gone"
    for name in sorted(old.reviewed_fields - new.reviewed_fields):
        yield pointer("schema", "properties", name, "x-review"), f"`x-review: required` of {name} is gone"
    if isinstance(old, EdgeType) and isinstance(new, EdgeType) and set(limited_sides(old)) - set(limited_sides(new)):
        yield "/cardinality", f"cardinality was {old.cardinality}, is {new.cardinality}"
    yield from ((f"/schema{one.at}", str(one)) for one in looser_parts(old.schema, new.schema))


def _by_new_rules(
    kind: RecordType, old: Validator, new: Validator, changes: Sequence[RecordChange]
) -> Iterator[Finding]:
    if kind.schema == new.kind.schema:
        return
    found: list[tuple[RecordChange, str]] = []
    for change in changes:
        if (change.kind, change.table) == (kind.kind, kind.table) and change.after is not None:
            fields = {name: value for name, value in json.loads(change.after.line).items() if name not in _OWN}
            if new.is_valid(fields) and not old.is_valid(fields):
                wrong = old.findings(fields)
                found.append((change, f"{wrong[0].field}: {wrong[0].message}" if wrong else ""))
    if found:
        change, why = found[0]
        many = f"{len(found):,} records" if len(found) > 1 else "1 record"
        said = f"{many} of this change would not pass by the rules as they were; the first, {change.identity}: {why}"
        place = change.place
        yield Finding("W_NEW_RULES", said, place.path, place.line_no, "", CODES["W_NEW_RULES"].remedy, kind.name)


def of_questions(old: Sequence[Document], new: Sequence[Document]) -> Iterator[Finding]:
    """The judged questions that only the older documents have, or that the newer ones judge lower."""
    listed = [
        [(document, number, one) for document in documents for number, one in enumerate(questions_in(document))]
        for documents in (old, new)
    ]
    if [one for _, _, one in listed[0]] == [one for _, _, one in listed[1]]:
        return
    from duckkb.review.impact.impact import milder, read

    before, after = (read([one for _, _, one in side]) for side in listed)
    gone: dict[str, list[str]] = {}
    for (was, _, _), question in zip(listed[0], before, strict=True):
        same = [place for place, one in zip(listed[1], after, strict=True) if one.key == question.key]
        if not same:
            gone.setdefault(was.path, []).append(_short(question.text))
        elif said := milder(question, after):
            (document, number, _), told = same[0], f"the judged question {_short(question.text)} {said}"
            field = pointer("questions", number)
            yield finding(told, document.path, document.line(field), field)
    for path, texts in gone.items():
        many = f" and {len(texts) - 3:,} more" if len(texts) > 3 else ""
        said = f"no longer asked: {', '.join(texts[:3])}{many}"
        yield finding(said, path, _line(new, path, "/questions"), "/questions")


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:80]}…"


_ATTRIBUTES = ".gitattributes"
_HOOKS = (".pre-commit-config.yaml", ".gitlab-ci.yml")
_WORKFLOWS = re.compile(r"\.(?:github|gitea|forgejo)/workflows/[^/]+\.ya?ml")
_CACHE = "data/indices/"
# A pin may move; the rest of a line is what it does.
_PIN = re.compile(r"@[0-9a-f]{7,64}\b|==[0-9][\w.]*|(?:^|\s)#.*$")
_COUNTED = frozenset(
    ("text", "eol", "diff", "merge", "filter", "working-tree-encoding", "ident", "linguist-generated", "binary")
)
_WANTED = frozenset((("text", "set"), ("eol", "lf"), ("merge", "duckkb"), ("diff", "duckkb")))


def of_files(compared: Comparison) -> Iterator[Finding]:
    """What the change takes away. Raises `errors.Unavailable` (E_GIT)."""
    root, base = compared.root, compared.versions.base.commit
    against = {"worktree": None, "index": "index"}.get(compared.range.against, compared.versions.head.commit)
    touched = list(revisions.touched_anywhere(root, base, against))
    yield from _jobs(root, [one for one in touched if _WORKFLOWS.fullmatch(one.path) or one.path in _HOOKS])
    names = [one.path for one in touched if posixpath.basename(one.path) == _ATTRIBUTES]
    if names:
        place = posixpath.relpath(names[0], revisions.prefix(root) or ".")
        yield from (finding(said, place, 0, name) for name, said in _attributes(root, base, against))


def _jobs(root: Path, touched: Iterable[Touched]) -> Iterator[Finding]:
    top = run.repository_of(root)
    for one in touched:
        old, new = (_text(root, top.work_tree, one, side) for side in (one.old, one.new))
        if old is None or "duckkb" not in old or old == new:
            continue
        path = posixpath.relpath(one.path, top.prefix or ".")
        if new is None:
            yield finding("a job that runs duckkb is gone", path, 0, "")
            continue
        before, after = ([line for _, line in _steps(text)] for text in (old, new))
        if before != after:
            gone = next((line for line in before if line not in after), "")
            number, came = next(((number, line) for number, line in _steps(new) if line not in before), (0, ""))
            said = f"no longer says `{gone}`" if gone else f"says `{came}`" if came else "says it in another order"
            yield finding(f"a job that runs duckkb {said}", path, number, "")


def _text(root: Path, top: Path, one: Touched, side: revisions.TreeEntry | None) -> str | None:
    """None where there is no such file on this side; an id of zeros stands for the file as it is."""
    if side is None or side.mode not in revisions.REGULAR:
        return None
    if int(side.blob, 16):
        return revisions.blobs(root, [side.blob])[side.blob].decode("utf-8", "replace")
    try:
        return (top / one.path).read_text("utf-8", "replace") if not (top / one.path).is_symlink() else None
    except OSError:
        return None


def _steps(text: str) -> list[tuple[int, str]]:
    """The lines that do something, with their numbers, without pins and comments."""
    lines = ((number, _PIN.sub("", line).strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(number, line) for number, line in lines if line]


def _attributes(root: Path, base: str, against: str | None) -> Iterator[tuple[str, str]]:
    """What git would do otherwise to files that both sides have, by attribute, with how many and the first of them."""
    paths = sorted(revisions.entries(root, Revision("", base, base)))
    paths = [path for path in paths if not path.startswith(_CACHE)]
    before, after = (revisions.attributes(root, paths, at) for at in (base, against))
    found: dict[tuple[str, str, str], list[str]] = {}
    for path in paths:
        for name in sorted({*before[path], *after[path]} & _COUNTED):
            old, new = before[path].get(name, "unspecified"), after[path].get(name, "unspecified")
            if old != new and (name, new) not in _WANTED:
                found.setdefault((name, old, new), []).append(path)
    for (name, old, new), touched in found.items():
        many = f" and {len(touched) - 1:,} more" if len(touched) > 1 else ""
        yield name, f"git's attribute {name} of {touched[0]}{many} was {old}, is {new}"
