"""Boot: from files to a loaded base.

It reads under the shared lock, recovers first, and stops at what cannot be read.

A base at a revision: its configuration and records are read from git objects, without a checkout.

Such a base is held in memory and answers like any other. It shares the caches of tokens and vectors with the
present, and only a proposal writes it."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from duckkb.engine import base as loading
from duckkb.engine.base import Base, Wiring, unreadable
from duckkb.index.embedding_cache import SearchCache
from duckkb.ontology.model import Ontology
from duckkb.ports import Ahead
from duckkb.storage import (
    base_lock,
    clone_state,
    commit_protocol,
    document_parts,
    git_changes,
    git_facts,
    journal,
    layout,
    merge_rules,
    read,
    repository,
    revisions,
)
from duckkb.storage.document_parts import IgnoreFiles, folders, places_above, type_at
from duckkb.storage.part import Part, Stamp, pause_collector
from duckkb.storage.revisions import REGULAR, Revision, TreeEntry
from duckkb.storage.tree import Tree
from duckkb.types.codes import CODES
from duckkb.types.errors import Finding, OntologyError, Refused, StateError, Unavailable
from duckkb.types.queries import Notice

Given = ParamSpec("Given")
Answer = TypeVar("Answer")

_ATTEMPTS = 3


def caches(wiring: Wiring) -> SearchCache:
    """Open the search cache of a base."""
    return SearchCache.open(wiring.root, wiring.place.shared, limit=wiring.env.cache_limit)


def boot(wiring: Wiring, cache: SearchCache | None = None) -> Base:
    """Load a base; open its caches, unless those of another base of this wiring are given.

    Raises `errors.Unreadable` for broken truth (unless lenient), `errors.StateError` for a missing base.
    """
    refuse_tracked_state(wiring.root)
    if wiring.at is not None:
        return Base(
            wiring,
            read_tree_at(wiring, wiring.at),
            cache or caches(wiring),
        )
    with commit_protocol.lock_for_reading(wiring.root, wiring.lock_timeout) as read_only:
        layout.read_format(wiring.root)
        load_result = _load_tree(wiring)
        if not wiring.lenient:
            refuse_unreadable(load_result.tree, wiring.root)
        if not read_only:
            merge_rules.remember(wiring.root, merge_rules.rules_of(wiring.ontology, wiring.settings.merge_granularity))
    return Base(wiring, load_result.tree, cache or caches(wiring), load_result.lines, read_only, load_result.reason)


def _load_tree(wiring: Wiring) -> loading.Opened:
    """Load the tree of the current files, and the store that holds it; the caller holds the lock."""
    load_result = loading.load_base(wiring)
    refuse_missing_truth(wiring.root, load_result.tree)
    return load_result


def observe(wiring: Wiring) -> Base:
    """Load a base from its files, however broken: makes no file, waits for nobody and recovers nothing.

    Raises `errors.Unavailable` (E_LOCKED) while a writer works, `errors.StateError` (E_TRACKED_STATE,
    E_RECOVER) where the files must not be taken for truth.
    """
    refuse_tracked_state(wiring.root)
    with base_lock.hold_lock_shared(wiring.root):
        if journal.list_sealed_stages(wiring.root):
            raise StateError("an interrupted write is unfinished", code="E_RECOVER", suggestion="duckkb recover")
        tree = read.load(wiring.root, wiring.ontology, wiring.limits)
    return Base(wiring, tree, SearchCache.open(wiring.root, wiring.place.shared, looks=True), read_only=True)


def refresh(base: Base) -> None:
    """Read the parts that changed on disk since the last read. Cheap where nothing changed."""
    if base.wiring.at is not None:
        return
    whole, root = base.whole, base.whole.root
    if _is_store_behind(whole) or _has_changes(whole):
        refuse_tracked_state(root)
        with commit_protocol.lock_for_reading(root, whole.wiring.lock_timeout):
            sync(base)
    elif not base.wiring.lenient:
        refuse_unreadable(base.tree, base.whole.root)


def is_behind(base: Base) -> bool:
    """Return whether files or store differ from what a generation has read, so that a new one must follow.

    Raises `errors.Unreadable` as `refresh` does, `errors.StateError` (E_DATA_MISSING).
    """
    if base.wiring.at is not None:
        return False
    if _is_store_behind(base) or _has_changes(base):
        return True
    refuse_missing_truth(base.root, base.tree)  # `data/` may have appeared since the load, and vanished again
    if not base.wiring.lenient:
        refuse_unreadable(base.tree, base.whole.root)
    return False


def _is_store_behind(base: Base) -> bool:
    return base.lines is not None and base.lines.is_behind


def _has_changes(base: Base) -> bool:
    has_edits = read.is_edited_again(base.tree, base.root)  # an edited file is likely to be edited again
    return has_edits or bool(read.list_changed_parts(base.tree, base.root)) or commit_protocol.is_pending(base.root)


def sync(base: Base) -> None:
    """Reload the parts that changed; the caller holds the lock.

    Where another process has moved the store on, its content replaces what is loaded. Raises
    `errors.Unreadable` and `StateError` as boot does, and `errors.Refused` for the base of a revision, which is
    synced only to be written.
    """
    refuse_past(base)
    whole = base.whole
    if not _is_store_behind(whole) and (paths := read.list_changed_parts(whole.tree, whole.root)):
        parts = read.reload(whole.tree, whole.root, paths)
        if not any(part.kind.source is None for part in {**whole.tree.parts, **parts}.values() if part is not None):
            refuse_missing_truth(whole.root, Tree(whole.ontology, whole.limits, {}, whole.tree.findings))
        whole.take_in(parts)
    if _is_store_behind(whole):  # also true where another process has just updated the store
        load_result = _load_tree(whole.wiring)
        whole.restart(load_result.tree, load_result.lines)
    base.renew()
    if not base.wiring.lenient:
        refuse_unreadable(base.tree, base.whole.root)


def retry_if_stale(
    ask: "Callable[Concatenate[Base, Given], Answer]",
) -> "Callable[Concatenate[Base, Given], Answer]":
    """Wrap a function that reads derived state, so that it is asked again where that state was lost.

    Loaded state may be gone from disk: then the files are checked and the question is asked again (for a
    generation the error is raised).
    The same happens where a cache file turned out to be forged, since everything derived from it is made anew.
    """

    @wraps(ask)
    def ask_with_retries(base: Base, /, *given: Given.args, **named: Given.kwargs) -> Answer:
        attempts = 0
        while True:
            drop_count = base.cache.dropped
            try:
                answer = ask(base, *given, **named)
            except Ahead:
                attempts += 1
                if base.is_generation or attempts > _ATTEMPTS:
                    raise  # the caller repeats the question on the next generation
                refresh(base)
                continue
            if drop_count == base.cache.dropped:
                return answer

    return ask_with_retries


def refuse_past(base: Base) -> None:
    """Raise `errors.Refused` for a base that cannot be written: of a revision, or published (E_PUBLISHED)."""
    if base.wiring.published:
        raise Refused(
            "this is a published base, which cannot be changed here",
            code="E_PUBLISHED",
            suggestion="write in a clone, without --backend and DUCKKB_BACKEND; commit, then `duckkb publish`",
        )
    if base.wiring.at is not None:
        raise Refused(
            f"this is the base at {base.wiring.at.name}, which cannot be changed",
            suggestion="leave out the revision",
        )


def refuse_unreadable(tree: Tree, root: Path | None = None) -> None:
    """Raise the error that names every unreadable line and file, if there is one.

    With `root`, a merge that was left unfinished is reported as the cause (E_MERGE_IN_PROGRESS).
    """
    if tree.unreadable:
        if root is not None:
            git_changes.refuse_begun_merge(root)
        is_merging = root is not None and repository.operation_in_progress(root)
        remedy = "correct the lines named; `--lenient` skips them"
        raise loading.unreadable(tree, "; nothing was changed", "duckkb resolve --list" if is_merging else remedy)


def notices(base: Base) -> list[Notice]:
    """Return the notices that a reader of the base must see in its present state."""
    tree, reader_notices = base.tree, []
    with suppress(Unavailable, OSError):  # a read goes on without git
        reader_notices += _report_absent_files(base)
    reader_notices += base.whole.list_notices(base.ontology)
    if base.read_only:
        reader_notices.append(Notice("W_READ_ONLY", "this checkout cannot be written; it is read without lock"))
    if base.reason:
        reader_notices.append(Notice("W_NO_STORE", f"nothing is kept of what was read: {base.reason}"))
    if tree.unreadable:
        reader_notices.append(
            Notice("W_LENIENT", f"{len(tree.unreadable)} unreadable lines were skipped", "duckkb check")
        )
    reader_notices += _report_document_faults(tree)
    incomplete = sum(not row.complete for part in tree.parts.values() if not part.canonical for row in part.rows)
    if incomplete:
        reader_notices.append(
            Notice("W_INCOMPLETE", f"{incomplete} hand-written lines have no id or times yet", "duckkb fmt")
        )
    duplicate_count = sum(len(tree.duplicates(kind)) for kind in base.ontology)
    if duplicate_count:
        reader_notices.append(
            Notice("W_DUPLICATE", f"{duplicate_count} records are in two files and were read merged", "duckkb dedupe")
        )
    reader_notices += [_to_notice(finding) for finding in base.cache.findings if not base.is_narrowed]
    return list(dict.fromkeys(base.filter_notices(reader_notices)))  # one cache file can give the same notice twice


def _report_absent_files(base: Base) -> list[Notice]:
    if base.wiring.at is not None or base.wiring.published:
        return []
    root, ontology = base.whole.root, base.whole.ontology
    lacking = filter(base.concerns, git_facts.list_absent_files(root, folders(ontology.nodes.values())))
    paths = [path for path in lacking if git_facts.is_of_base(path) or type_at(ontology, path) is not None]
    message = f"{git_facts.describe_absent(paths)}: its records are not found" if paths else ""
    return [Notice("W_PARTIAL", message, git_facts.remedy(root, paths))] if paths else []


def _report_document_faults(tree: Tree) -> list[Notice]:
    """Return one notice for each type and code of missing or unreadable documents."""
    by_kind: dict[tuple[str, str], list[Finding]] = {}
    for finding in tree.not_served:
        by_kind.setdefault((finding.code, finding.type), []).append(finding)
    document_notices = []
    for (code, name), findings in by_kind.items():
        more = f"; {len(findings) - 1} more cannot be read" if len(findings) > 1 else ""
        document_notices.append(
            Notice(code, f"{name}: {findings[0].path}: {findings[0].message}{more}", findings[0].remedy)
        )
    return document_notices


def _to_notice(finding: Finding) -> Notice:
    return Notice(
        finding.code, f"{finding.place}: {finding.message}" if finding.place else finding.message, finding.remedy
    )


def refuse_tracked_state(root: Path) -> None:
    """Refuse a repository that tracks .duckkb/: it could bring a journal or a cache, so nothing in it is read."""
    if repository.tracks_state(root):
        raise StateError(
            "git tracks files in .duckkb/, which must be local; nothing in it is read",
            code="E_TRACKED_STATE",
            suggestion="git rm -r --cached .duckkb && rm -r .duckkb",
        )


def refuse_missing_truth(root: Path, tree: Tree) -> None:
    """Raise the error for a `data/` that should hold records and does not; it must not count as an empty base.

    Parts of types that the ontology no longer has count as present. A file or folder that blocks the place of
    parts is reported as such.
    """
    if tree.stored_parts or tree.unreadable or any((root / layout.DATA).glob("*/*/*/part_*.jsonl")):
        return
    if repository.head_has_records(root) and not clone_state.is_emptied(root, repository.head_commit(root)):
        left_out = git_facts.list_absent_files(root)
        raise StateError(
            "data/ is missing or empty, but HEAD has records",
            code="E_DATA_MISSING",
            suggestion=git_facts.remedy(root, left_out) if left_out else "git checkout -- data",
        )


CONFIG, ONTOLOGY = "config.yaml", "ontology"
_NO_FILE = Stamp(-1, 0, 0, 0)


def configuration(root: Path, at: Revision, present: Iterable[str]) -> dict[str, bytes | None]:
    """Return the configuration files of a revision by path, as `config_files` does.

    Paths in `present` that the revision lacks map to None, so that they count as deleted. Raises as
    `config_files` does.
    """
    removals: dict[str, bytes | None] = dict.fromkeys(present)
    return removals | config_files(root, at)


def config_files(root: Path, at: Revision) -> dict[str, bytes]:
    """Return the configuration files of a revision by path.

    Raises `errors.StateError` (E_NO_KB) where the revision has no base, `errors.OntologyError` for a symbolic link.
    """
    entries = revisions.entries(root, at, (CONFIG, ONTOLOGY))
    config_entries = {path: entry for path, entry in entries.items() if _is_configuration(path)}
    if CONFIG not in config_entries:
        raise StateError(
            f"no knowledge base existed here at {at.name}: it has no {CONFIG}",
            code="E_NO_KB",
            suggestion=f"`git log --oneline -- {CONFIG}` lists the commits that have one",
        )
    links = [path for path, entry in config_entries.items() if entry.mode not in REGULAR]
    if links:
        findings = [Finding("E_YAML", f"is not a regular file at {at.name}", path) for path in links]
        raise OntologyError(f"{links[0]} is not a regular file at {at.name}", code="E_YAML", findings=findings)
    return revisions.contents(root, config_entries)


def read_tree_at(wiring: Wiring, at: Revision) -> Tree:
    """Read the records of the revision that `wiring.at` names.

    Raises `errors.Unavailable` (E_GIT) where git lacks an object, and `errors.Unreadable` for lines that cannot
    be read (unless lenient).
    """
    if has(wiring, layout.FORMAT_PATH):
        layout.check_format(bytes_of(wiring, layout.FORMAT_PATH))
    past_tree = _read_tree(wiring, at)
    if past_tree.unreadable and not wiring.lenient:
        raise unreadable(past_tree, f" at {at.name}", "`--lenient` reads on without them; or name another revision")
    return past_tree


def has(wiring: Wiring, path: str) -> bool:
    """Return whether the base's revision has a file at `path`."""
    assert wiring.at is not None, "asked of a past base"
    return path in revisions.entries(wiring.root, wiring.at, (path,))


def bytes_of(wiring: Wiring, path: str) -> bytes:
    """Return the bytes of a file at the base's revision; raises KeyError where the revision lacks it."""
    assert wiring.at is not None, "asked of a past base"
    entry = revisions.entries(wiring.root, wiring.at, (path,))[path]
    return revisions.blobs(wiring.root, (entry.blob,))[entry.blob]


def _is_configuration(path: str) -> bool:
    """Check whether a path is a configuration file; hidden files and folders belong to editors and do not count."""
    names = path.split("/")
    return path == CONFIG or (path.endswith(".yaml") and not any(name.startswith(".") for name in names))


def places(root: Path, ontology: Ontology) -> tuple[str, ...]:
    """Return the git paths that hold the records of an ontology's types, and the .gitignore files that apply to
    documents.
    """
    kinds = ontology.nodes.values()
    return (layout.DATA, *document_parts.folders(kinds), *places_above(root, kinds))


def _read_tree(wiring: Wiring, at: Revision) -> Tree:
    entries = revisions.entries(wiring.root, at, places(wiring.root, wiring.ontology))
    return tree_of(wiring, entries, IgnoreFiles.read(wiring.root, entries))


def tree_of(wiring: Wiring, entries: Mapping[str, TreeEntry], ignored: IgnoreFiles) -> Tree:
    """Build the tree of the given git entries, leaving out the documents that `ignored` names.

    Raises `errors.Unavailable` (E_GIT).
    """
    entries = ignored.serve(wiring.ontology, entries)
    parts_by_file = {
        file: file_parts for file in entries if (file_parts := dict(document_parts.parts_in(wiring.ontology, file)))
    }
    content = revisions.contents(wiring.root, {file: entries[file] for file in parts_by_file})
    parts, findings = dict[str, Part](), list[Finding]()
    with pause_collector():
        for file, file_parts in parts_by_file.items():
            if file in content:
                parts |= document_parts.parts_at(file_parts, content[file], wiring.limits, _NO_FILE)
            elif any(kind.source is None for kind in file_parts.values()):
                message = "a link, where only files belong"
                findings.append(Finding("E_SYMLINK", message, file, remedy=CODES["E_SYMLINK"].remedy))
    return Tree(wiring.ontology, wiring.limits, parts, findings)
