"""The two versions to compare: their names, the files that differ with their bytes, and the ontology of each side.

Each side is read by its own config.yaml and ontology/.

The differences of two configurations: types with their fields, search and identity, policies, and settings."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from duckkb.ontology.model import Ontology
from duckkb.ontology.yaml_source import Document, pointer
from duckkb.review.diff_model import Diff, Label, Numbers, OntologyChange, Versions
from duckkb.review.record_changes import Types, compare
from duckkb.storage import layout, revisions
from duckkb.storage.document_parts import DocumentLines, IgnoreFiles, folders, lines_of, parts_in, places_above, type_at
from duckkb.storage.line import Limits
from duckkb.storage.repository import renames
from duckkb.storage.revisions import WATCHED, Revision, TreeEntry
from duckkb.types.codes import CODES
from duckkb.types.errors import Finding, OntologyError, UsageError
from duckkb.types.settings import Shrink

_KINDS = {"nodes": "node", "edges": "edge", "collections": "collection", "policies": "policy"}
_APART = ("search", "schema", "fields", "intents", "embedding", "fusion")
"""Keys of a type or policy that are compared key by key."""

Said = tuple[str, str]
"""A part of the configuration as JSON, and its file."""


def ontology_changes(old: Sequence[Document], new: Sequence[Document]) -> tuple[OntologyChange, ...]:
    """Return the changes from one configuration to another, by subject: settings first, then types and policies.

    An added or removed type is one change, with its whole declaration. Questions are left out: they shape no record.
    """
    if old == new:
        return ()
    before, after = dict(_iter_parts(old)), dict(_iter_parts(new))
    before, after = _select_parts(before, after), _select_parts(after, before)
    names = sorted({**before, **after}, key=lambda name: (not name.startswith("setting "), name))
    pairs = [(name, _extract_text(before.get(name)), _extract_text(after.get(name))) for name in names]
    return tuple(
        OntologyChange(name, old_text, new_text, (after.get(name) or before[name])[1])
        for name, old_text, new_text in pairs
        if old_text != new_text
    )


def _extract_text(statement: Said | None) -> str | None:
    return statement[0] if statement is not None else None


def _select_parts(side: Mapping[str, Said], other_side: Mapping[str, Said]) -> dict[str, Said]:
    """Drop the pieces of types that the other side lacks, and the whole declaration of types that it has."""
    statements = {}
    for name, statement in side.items():
        kind, owner, *piece_names = name.split(" ", 2)
        is_common = kind == "setting" or f"{kind} {owner}" in other_side
        if kind == "setting" or is_common == bool(piece_names):
            statements[name] = statement
    return statements


def _iter_parts(documents: Sequence[Document]) -> Iterator[tuple[str, Said]]:
    for document in documents:
        for key, value in document.value.items():
            if key in _KINDS and isinstance(value, Mapping):
                for name, declaration in value.items():
                    yield f"{_KINDS[key]} {name}", (_to_json(declaration), document.path)
                    for piece_name, content in _iter_pieces(declaration):
                        yield f"{_KINDS[key]} {name} {piece_name}", (_to_json(content), document.path)
            elif key != "questions":
                for piece_name, content in _iter_settings(key, value):
                    yield f"setting {piece_name}", (_to_json(content), document.path)


def _iter_pieces(declaration: Any) -> Iterator[tuple[str, Any]]:
    """Yield the pieces of a type or policy: `field /title`, `search full_text`, `identity`."""
    for key, value in declaration.items() if isinstance(declaration, Mapping) else ():
        if key not in _APART or not isinstance(value, Mapping):
            yield key, value
            continue
        for name, content in value.items():
            if key == "schema" and name == "properties" and isinstance(content, Mapping):
                yield from ((f"field {pointer(field)}", rule) for field, rule in content.items())
            else:
                yield f"{key} {name}", content


def _iter_settings(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inside in value.items():
            yield from _iter_settings(f"{name}.{key}", inside)
    else:
        yield name, value


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


Against = Literal["commit", "index", "worktree"]
Bytes = TypeVar("Bytes")
_CONFIG, _FOLDER = "config.yaml", "ontology"
CONFIGURATION = (_CONFIG, _FOLDER)
"""Places of the files for which `is_configuration` is true."""
_NO_FILE = {"120000": ("E_SYMLINK", "a link"), "160000": ("E_NOT_REGULAR", "a submodule")}
"""Findings by git's mode of a path that is no regular file."""


class Range(Struct, frozen=True):
    """The two sides to compare: the name of the base, and a commit (`head`), the index, or the working tree.

    With `since_parting` the base is the merge base of both; for index and working tree, the merge base with HEAD.
    """

    base: str
    against: Against = "worktree"
    head: str = ""
    since_parting: bool = False


def parse_range(text: str | None, *, staged: bool = False, worktree: bool = False) -> Range:
    """Parse `BASE`, `BASE..HEAD` or `BASE...HEAD` as git reads them; the default is HEAD.

    Raises `errors.UsageError`.
    >>> parse_range("main...topic")
    Range(base='main', against='commit', head='topic', since_parting=True)
    """
    match = re.fullmatch(r"(.*?)(\.\.\.?)(.*)", text or "", re.DOTALL)
    if text == "" or (match and (".." in match[3] or match[3].startswith("."))):
        raise UsageError(
            f"{text!r} is not a range of one or two revisions",
            suggestion="give BASE, BASE..HEAD or BASE...HEAD; the default is HEAD",
        )
    if staged and worktree:
        raise UsageError("--staged and --worktree contradict each other; give one of them")
    if match and (staged or worktree):
        raise UsageError(
            f"{text} names two commits, which leaves nothing for --{'staged' if staged else 'worktree'}",
            suggestion="give one revision, or leave out the option",
        )
    if match:
        return Range(match[1] or "HEAD", "commit", match[3] or "HEAD", match[2] == "...")
    return Range(text or "HEAD", "index" if staged else "worktree")


def read(root: Path, wanted: Range, places: Sequence[str] = WATCHED) -> Versions:
    """Read the files that differ below `places`, with their bytes.

    Raises `errors.StateError` (E_REVISION, E_GIT) and `errors.Unavailable`.
    """
    base, head = _resolve_ends(root, wanted)
    if wanted.against == "worktree":
        return _with_worktree(root, base, wanted.base, places)
    is_index = wanted.against == "index"
    entries = (
        revisions.compare_index(root, base, places) if is_index else revisions.compare_trees(root, base, head, places)
    )
    everything = [file for file in entries if file.old != file.new or file.unmerged]
    touched_files = [file for file in everything if not file.unmerged]
    sides = {(side, file.path): entry for file in touched_files for side, entry in enumerate((file.old, file.new))}
    content = revisions.contents(root, sides)
    old, new = ({path: data for (at, path), data in content.items() if at == side} for side in (0, 1))
    findings = [
        _describe_irregular(file.path, file.new)
        for file in touched_files
        if file.new is not None and file.path not in new
    ]
    code = "E_MERGE_IN_PROGRESS"
    message, remedy = "is in conflict: the index has several versions of it, and was not compared", CODES[code].remedy
    findings += [Finding(code, message, file.path, remedy=remedy) for file in everything if file.unmerged]
    label = Label("the index") if is_index else _label(wanted.head, head)
    return Versions(
        _label(wanted.base, base, wanted), label, old, new, tuple(findings), tuple(file.path for file in touched_files)
    )


def _resolve_ends(root: Path, revision_range: Range) -> tuple[Revision, Revision]:
    """Resolve the base and the other side; HEAD for index and working tree."""
    head = revision_range.head or "HEAD"
    if revision_range.base == head == "HEAD":
        revision = revisions.head(root)
        return revision, revision
    if revision_range.against != "commit" and not revision_range.since_parting:
        revision = revisions.revision(root, revision_range.base)
        return revision, revision
    base, target = revisions.revisions(root, revision_range.base, head)
    return (revisions.merge_base(root, base, target) if revision_range.since_parting else base), target


def _label(name: str, revision: Revision, parting: Range | None = None) -> Label:
    parting_name = (parting.head or "HEAD") if parting is not None and parting.since_parting else ""
    return Label(name, revision.commit or revision.tree, parting_name)


def _with_worktree(root: Path, base: Revision, name: str, places: Sequence[str]) -> Versions:
    """Read the new side from files, whatever git knows of them."""
    staged_entries = {file.path: file.old for file in revisions.compare_index(root, base, places)}
    paths = sorted({*staged_entries, *revisions.list_unsaved(root, places)})
    unknown = [path for path in paths if path not in staged_entries]
    if unknown:
        staged_entries |= revisions.entries(root, base, unknown if len(unknown) < 200 else places)
    old = revisions.contents(root, {path: staged_entries.get(path) for path in paths})
    new: dict[str, bytes] = {}
    findings: list[Finding] = []
    for path in paths:
        try:
            new[path], _ = layout.read_regular(root / path)
        except FileNotFoundError:
            continue
        except OSError as error:
            code = "E_SYMLINK" if (root / path).is_symlink() else "E_NOT_REGULAR"
            findings.append(Finding(code, f"not a regular file: {error.strerror}", path, remedy=CODES[code].remedy))
    differing = [path for path in paths if old.get(path) != new.get(path)]
    return Versions(
        _label(name, base),
        Label("the working tree"),
        {path: old[path] for path in differing if path in old},
        {path: new[path] for path in differing if path in new},
        tuple(findings),
        tuple(differing),
    )


def _serve_files(root: Path, files: Versions, places: Sequence[str], both: "Configurations") -> Versions:
    """Return the files that differ, without those that each side's .gitignore files leave out.

    Files that are equal, but left out on one side alone, count as different too.
    """
    there = revisions.entries(root, Revision(files.base.name, files.base.commit, files.base.commit), places)
    ignore_files = IgnoreFiles.read(root, there)
    ignored_now = ignore_files.replace_files(root, files.paths, files.new)
    old, new = dict(files.old), dict(files.new)
    if ignored_now is not ignore_files:
        same = {path: entry for path, entry in there.items() if path not in files.paths}
        before, now = ignore_files.serve(both.old.ontology, same), ignored_now.serve(both.new.ontology, same)
        content = revisions.contents(root, {path: same[path] for path in before.keys() ^ now.keys()})
        old |= {path: raw for path, raw in content.items() if path in before}
        new |= {path: raw for path, raw in content.items() if path in now}
    old, new = ignore_files.serve(both.old.ontology, old), ignored_now.serve(both.new.ontology, new)
    return replace(files, old=old, new=new, ignored=ignore_files)


def _with_documents(root: Path, versions: Versions, files: Versions, both: "Configurations") -> Versions:
    """Return the parts that differ, with those of differing documents: as lines, as each side reads them."""
    sides, numbers = [], []
    for content, ontology in ((files.old, both.old.ontology), (files.new, both.new.ontology)):
        read = dict[str, DocumentLines]()
        for file, raw in content.items():
            read |= lines_of({path: kind for path, kind in parts_in(ontology, file) if kind.source is not None}, raw)
        sides.append({path: lines.data for path, lines in read.items()})
        numbers.append({path: lines.numbers for path, lines in read.items()})
    old, new = sides
    differing = sorted(path for path in {*old, *new} if old.get(path) != new.get(path))
    return replace(
        versions,
        old={**versions.old, **{path: old[path] for path in differing if path in old}},
        new={**versions.new, **{path: new[path] for path in differing if path in new}},
        paths=(*versions.paths, *differing),
        renamed=_find_renames(root, files, both),
        numbers=(numbers[0], numbers[1]),
        ignored=files.ignored,
    )


def _find_renames(root: Path, files: Versions, both: "Configurations") -> dict[str, str]:
    """Return the former names of documents that stayed in their collection."""
    went, came = defaultdict[str, dict[str, bytes]](dict), defaultdict[str, dict[str, bytes]](dict)
    for documents, side, other_side, ontology in (
        (went, files.old, files.new, both.old.ontology),
        (came, files.new, files.old, both.new.ontology),
    ):
        for path in side.keys() - other_side.keys():
            if (kind := type_at(ontology, path)) is not None and kind.source is not None:
                documents[kind.name][path] = side[path]
    return {path: was for name, some in came.items() for path, was in renames(root, went[name], some).items()}


def _describe_irregular(path: str, entry: TreeEntry) -> Finding:
    code, description = _NO_FILE.get(entry.mode, ("E_NOT_REGULAR", f"an entry of mode {entry.mode}"))
    return Finding(code, f"{description}, where only files belong", path, remedy=CODES[code].remedy)


class Described(Struct, frozen=True):
    """The configuration of one side; `documents` are its files."""

    ontology: Ontology
    limits: Limits
    documents: tuple[Document, ...] = ()
    shrink: Shrink = Shrink()


class Configurations(Struct, frozen=True):
    """The configurations of both sides.

    The other side's replaces one that does not load, and `findings` report it.
    """

    old: Described
    new: Described
    findings: tuple[Finding, ...] = ()


class Files(Struct, frozen=True):
    """The files of a configuration: `paths` are those present now, relative to the base.

    `load` reads them with the bytes of some replaced (None: gone). It raises `errors.OntologyError`.
    """

    paths: Callable[[], Sequence[str]]
    load: Callable[[Mapping[str, bytes | None]], Described]


def is_configuration(path: str) -> bool:
    """Return whether a file shapes what records may be."""
    inside = path.startswith(f"{_FOLDER}/") and path.endswith(".yaml")
    return path == _CONFIG or (inside and not any(name.startswith(".") for name in path.split("/")))


class Comparison(Struct, frozen=True):
    """Two versions of the base at `root`, each with its own ontology."""

    root: Path
    range: Range
    versions: Versions
    both: Configurations
    ontology: tuple[OntologyChange, ...]

    @classmethod
    def load(cls, root: Path, range: Range, files: Files) -> "Comparison":
        """Read both versions.

        Raises `errors.StateError` (E_REVISION, E_GIT), `errors.Unavailable`, and `errors.OntologyError` where
        no side's configuration loads.
        """
        versions = read(root, range)
        both = _load_configurations(root, range, versions, files)
        kinds = [*both.old.ontology.nodes.values(), *both.new.ontology.nodes.values()]
        if places := folders(kinds):
            places += places_above(root, kinds)
            versions = _with_documents(
                root, versions, _serve_files(root, read(root, range, places), places, both), both
            )
        return cls(root, range, versions, both, ontology_changes(both.old.documents, both.new.documents))

    def narrow(self, names: Container[str]) -> "Comparison":
        """Return the comparison for a caller who may see the types with these names; it has no configuration."""
        sides = (self.both.old, self.both.new)
        old, new = (replace(item, ontology=item.ontology.narrow(names), documents=()) for item in sides)

        def is_known(path: str) -> bool:
            return any(type_at(side.ontology, path) is not None for side in (new, old))

        def filter_files(files: Mapping[str, Bytes]) -> dict[str, Bytes]:
            return {path: data for path, data in files.items() if is_known(path)}

        versions = replace(
            self.versions,
            old=filter_files(self.versions.old),
            new=filter_files(self.versions.new),
            paths=tuple(filter(is_known, self.versions.paths)),
            findings=tuple(item for item in self.versions.findings if is_known(item.path)),
            renamed=filter_files(self.versions.renamed),
        )
        return Comparison(self.root, self.range, versions, Configurations(old, new), ())

    @property
    def types(self) -> Types:
        return Types(self.both.old.ontology, self.both.new.ontology)

    def diff(self) -> Diff:
        """Return the changes of records, with the findings of the files read alone."""
        return compare(self.versions, self.types, self.both.new.limits, self.ontology)

    def numbers(self) -> Numbers:
        """Return the numbers of the changes, in a fraction of the time."""
        from duckkb.review.diff_report import numbers

        totals = numbers(self.versions, self.types, self.both.new.limits)
        return totals + Numbers(ontology=len(self.ontology), findings=len(self.both.findings))


def _load_configurations(root: Path, revision_range: Range, versions: Versions, files: Files) -> Configurations:
    """Load the configurations of both sides; raises `errors.OntologyError` where neither has a usable one."""
    changed_files = {path: versions.old.get(path) for path in versions.paths if is_configuration(path)}
    at_head = (
        {}
        if revision_range.against == "worktree"
        else _read_head_files(root, revision_range, versions.head, files.paths())
    )
    at_base = {**at_head, **changed_files}
    new, wrong = _load_side(files, at_head)
    old, wrong_before = (new, None) if at_base == at_head else _load_side(files, at_base)
    if new is None and old is None:
        # The files on disk are the last chance to know the types.
        new = files.load({})
    standing = new or old
    assert standing is not None, "one of them has loaded"
    findings = [*(wrong.findings if wrong else ())]
    if wrong_before is not None:
        message = f"the configuration of {versions.base.shown} does not load: {wrong_before.message}"
        findings.append(Finding("W_BASE_CONFIG", message, remedy=CODES["W_BASE_CONFIG"].remedy))
    return Configurations(old or standing, new or standing, tuple(findings))


def _load_side(files: Files, instead: Mapping[str, bytes | None]) -> tuple[Described | None, OntologyError | None]:
    if _CONFIG in instead and instead[_CONFIG] is None:
        return Described(Ontology(), Limits()), None  # there was no base yet
    try:
        return files.load(instead), None
    except OntologyError as problem:
        return None, problem


def _read_head_files(
    root: Path, revision_range: Range, head: Label, standing: Sequence[str]
) -> dict[str, bytes | None]:
    """Return the head's files in place of those in the working tree."""
    if revision_range.against == "index":
        entries = revisions.index_entries(root, CONFIGURATION)
    else:
        at = Revision(head.name, head.commit, head.commit)  # git accepts a commit in place of its tree
        entries = revisions.entries(root, at, CONFIGURATION)
    absent_files: dict[str, bytes | None] = dict.fromkeys(standing)
    return absent_files | revisions.contents(root, {path: entries[path] for path in entries if is_configuration(path)})
