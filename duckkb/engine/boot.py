"""Boot: from files to a loaded base. Read under the shared lock, recover first, stop at what cannot be read."""

from duckkb.engine.base import Base, BootReport, EndIds, Wiring
from duckkb.errors import Finding, StateError, Unreadable
from duckkb.indexing.cache import SearchCache
from duckkb.ontology.model import EdgeType, RecordType
from duckkb.queries import Notice
from duckkb.records import Record
from duckkb.truth import history, layout, lock, read, shadow
from duckkb.truth.line import Limits
from duckkb.truth.tree import Tree


def boot(wiring: Wiring) -> Base:
    """Load a base; raises `errors.Unreadable` for broken truth (unless lenient), `errors.StateError` for a missing one."""
    tracked = history.tracks_state(wiring.root)
    recovered, read_only, tree = _read_settled(wiring)
    _refuse_missing_truth(wiring, tree)
    _refuse_unreadable(wiring, tree)
    cache = SearchCache.open(wiring.root, local=not tracked, state_home=wiring.env.state_home)
    report = BootReport(
        {kind.name: tree.count(kind) for kind in wiring.ontology}, _findings(tree, cache, tracked), read_only
    )
    base = Base(wiring, tree, wiring.backend(_end_ids(wiring, tree)), cache, report)
    base.notices = [*recovered, *_notices(base)]
    return base


def refresh(base: Base) -> bool:
    """Take in what changed on disk since it was read: only those parts. True where something had changed."""
    paths = read.changed(base.tree, base.root)
    if not paths and not shadow.pending(base.root):
        return False
    with lock.shared(base.root, base.wiring.lock_timeout) as held:
        if shadow.pending(base.root) and not held.read_only:
            pass
        else:
            sync(base)
            return True
    with lock.exclusive(base.root, base.wiring.lock_timeout):
        shadow.recover(base.root)
        sync(base)
    return True


def sync(base: Base) -> None:
    """Reload the parts that changed; the caller holds the lock. Raises `errors.Unreadable` as boot does."""
    paths = read.changed(base.tree, base.root)
    if not paths:
        return
    base.mirror(
        base.tree.replace({path: read.read_changed(base.root, path, base.ontology, base.limits) for path in paths})
    )
    _refuse_unreadable(base.wiring, base.tree)


def _read_settled(wiring: Wiring) -> tuple[list[Notice], bool, Tree]:
    """Read the tree while no write is half done; a sealed journal is finished first, under the exclusive lock."""
    with lock.shared(wiring.root, wiring.lock_timeout) as held:
        if not shadow.pending(wiring.root):
            return [], held.read_only, _read(wiring)
        if held.read_only:
            raise StateError(
                "an unfinished write lies in .duckkb/ and this checkout cannot be written",
                code="E_RECOVER",
                suggestion="run `duckkb recover` where you may write",
            )
    with lock.exclusive(wiring.root, wiring.lock_timeout):
        recovery = shadow.recover(wiring.root)
        tree = _read(wiring)
    said = f"an interrupted write was {recovery.action} ({len(recovery.files)} files)"
    return [Notice("W_RECOVERED", said)] if recovery.action == "finished" else [], False, tree


def _read(wiring: Wiring) -> Tree:
    layout.read_format(wiring.root)
    limits = Limits(wiring.settings.max_record_bytes, wiring.settings.max_depth)
    return read.load(wiring.root, wiring.ontology, limits)


def _refuse_missing_truth(wiring: Wiring, tree: Tree) -> None:
    if not tree.parts and history.head_has_records(wiring.root):
        raise StateError(
            "data/ is missing or empty, but HEAD has records",
            code="E_DATA_MISSING",
            suggestion="git checkout -- data",
        )


def _refuse_unreadable(wiring: Wiring, tree: Tree) -> None:
    if tree.unreadable and not wiring.lenient:
        raise unreadable(tree)


def unreadable(tree: Tree) -> Unreadable:
    """The error that names every line that cannot be read."""
    count = len(tree.unreadable)
    return Unreadable(
        f"{count} place{'s' if count > 1 else ''} in data/ cannot be read; nothing was changed",
        suggestion="mend the lines named; `--lenient` reads on without them",
        findings=tuple(tree.unreadable),
    )


def _findings(tree: Tree, cache: SearchCache, tracked: bool) -> tuple[Finding, ...]:
    state = Finding(
        "E_TRACKED_STATE",
        "git tracks files in .duckkb/; it is not read",
        ".duckkb",
        remedy="git rm -r --cached .duckkb",
    )
    return (*tree.findings, *cache.findings, *([state] if tracked else []))


def _notices(base: Base) -> list[Notice]:
    """What a reader must know of the base as it stands."""
    tree, said = base.tree, []
    if base.report.read_only:
        said.append(Notice("W_READ_ONLY", "this checkout cannot be written; it is read without lock and caches"))
    if tree.unreadable:
        said.append(
            Notice("W_LENIENT", f"{len(tree.unreadable)} lines cannot be read and were left out", "duckkb check")
        )
    incomplete = sum(not row.complete for part in tree.parts.values() if not part.complete for row in part.rows)
    if incomplete:
        said.append(Notice("W_INCOMPLETE", f"{incomplete} hand-written lines have no id or times yet", "duckkb fmt"))
    doubled = sum(len(tree.duplicates(kind)) for kind in base.ontology)
    if doubled:
        said.append(Notice("W_DUPLICATE", f"{doubled} records stand twice and were read merged", "duckkb dedupe"))
    for finding in base.report.findings:
        if finding.code in ("W_CACHE", "W_CACHE_UNTRUSTED", "E_TRACKED_STATE"):
            said.append(Notice(finding.code, f"{finding.place}: {finding.message}", finding.remedy))
    return said


def _end_ids(wiring: Wiring, tree: Tree) -> "EndIds":
    """For the runtime tables: the ids of an edge's two ends, None where one dangles."""

    def ids(kind: RecordType, record: Record) -> tuple[int | None, int | None]:
        if not isinstance(kind, EdgeType):
            return None, None
        first, second = (tree.end(ref) for ref in tree.ends(kind, record))
        return (first.record.id if first else None), (second.record.id if second else None)

    return ids
