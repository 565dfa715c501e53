"""The action publish: bring a target to a commit, report the changes, or verify what it holds."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from duckkb.engine import boot
from duckkb.engine.publishing import Commit, TypeChange, faults
from duckkb.ontology.model import EdgeType
from duckkb.ontology.names import did_you_mean
from duckkb.operations.lifecycle import OpenOptions, Unopened
from duckkb.ports import Embedder, Target, Watermark
from duckkb.storage import revisions
from duckkb.storage.git_changes import contains
from duckkb.storage.revisions import Revision
from duckkb.types.errors import Conflict, NotFound, Refused, StateError, UsageError
from duckkb.types.queries import Notice


class PublishRequest(Struct, frozen=True):
    """The options of a publication.

    `ref` is the commit to publish. `full` rebuilds everything; `rewind` allows a commit older than the
    published one; `pending` tells whether chunks without a vector are published; `dry_run` changes nothing;
    `embedder` overrides the configured model.
    """

    ref: str = "HEAD"
    full: bool = False
    rewind: bool = False
    pending: Literal["refuse", "ok"] = "refuse"
    dry_run: bool = False
    embedder: Embedder | None = None


class Published(Struct, frozen=True):
    """The result of publishing, or of a dry run.

    `before` and `commit` are in hex; `how` names the method; by type, it has the records put and removed;
    `pending` chunks have no vector.
    """

    target: str
    before: str
    commit: str
    how: Literal["nothing", "delta", "vectors", "whole"]
    put: dict[str, int]
    gone: dict[str, int]
    pending: int
    dry_run: bool
    notices: tuple[Notice, ...] = ()

    @property
    def line(self) -> dict[str, Any]:
        """The result as it is printed."""
        fields = {"target": self.target, "commit": self.commit, "before": self.before or None, "how": self.how}
        return {**fields, "put": self.put, "gone": self.gone, "pending": self.pending, "dry_run": self.dry_run}


def publish(apart: Unopened, target: Target, asked: PublishRequest) -> Published:
    """Publish a commit to a target, as a single delta in one transaction.

    Raises `errors.StateError` (E_REVISION; E_BEHIND: the published commit is unknown here), `errors.Conflict`
    (E_BEHIND), `errors.Refused` (E_PENDING), `errors.Unavailable` (E_DATABASE, E_GIT), `errors.Unreadable`.
    """
    with ExitStack() as stack:
        commit = _open_commit(stack, apart, asked.ref, asked.embedder)
        before = target.watermark()
        notices: list[Notice] = []
        how, changes = _plan_changes(apart.root, target, commit, before, asked, notices)
        pending = commit.count_missing_vectors(changes)
        if pending and asked.pending == "refuse":
            raise Refused(
                f"{pending:,} chunks have no vector yet; searches by meaning would not find them",
                code="E_PENDING",
                suggestion="`duckkb index build`, or publish without them: `--pending ok`",
            )
        if how != "nothing" and not asked.dry_run:
            target.publish(commit.delta(before, changes, is_whole=how == "whole"))
    delete_counts = {change.kind.name: len(change.gone - {row.record.id for row in change.puts}) for change in changes}
    put = {change.kind.name: len(change.puts) for change in changes}
    return Published(
        target.name, before.commit if before else "", commit.at.commit, how, _drop_zeros(put), _drop_zeros(delete_counts), pending, asked.dry_run, tuple(notices)
    )  # fmt: skip


def verify(apart: Unopened, target: Target, embedder: Embedder | None = None) -> dict[str, Any]:
    """Verify that a target holds the commit that it claims. Raises as `publish`.

    Compares every record by its etag, and checks derived data for consistency.
    """
    with ExitStack() as stack, target.open_publication() as snapshot:
        commit = _open_commit(stack, apart, _find_revision(apart.root, target, snapshot.watermark).commit, embedder)
        problems = [*faults(commit, snapshot)]
        records = {kind.name: snapshot.count(kind) for kind in commit.kinds}
        if commit.watermark != snapshot.watermark:
            problems.append("it was built with another ontology, tokenizer or model")
    return {"target": target.name, "commit": snapshot.watermark.commit, "records": records, "faults": problems}


def grant(apart: Unopened, target: Target, role: str, types: Sequence[str]) -> dict[str, Any]:
    """Let a role of the database see these types of what is published (none: nothing).

    Named edge types are included where all types of their ends are. Raises `errors.NotFound` (E_UNKNOWN_TYPE),
    `errors.UsageError` (E_ROLE), `errors.Unavailable`.
    """
    _, wiring = apart.wire(apart.root, OpenOptions())
    kinds = []
    for name in types:
        kind = wiring.ontology.find(name)
        if kind is None:
            raise NotFound(
                f"no type {name!r}",
                code="E_UNKNOWN_TYPE",
                suggestion=did_you_mean(name, [record_type.name for record_type in wiring.ontology]),
            )
        kinds.append(kind)
    type_names = {kind.name for kind in kinds}
    for kind in kinds:
        lacking = sorted({*kind.from_types, *kind.to_types} - type_names) if isinstance(kind, EdgeType) else []
        if lacking:
            message = f"edges of {kind.name} lead to records of {', '.join(lacking)}"
            raise UsageError(message, suggestion=f"grant {', '.join(lacking)} too, or leave {kind.name} out")
    target.grant(role, sorted(type_names))
    return {"target": target.name, "role": role, "types": sorted(type_names)}


def _open_commit(stack: ExitStack, apart: Unopened, ref: str, embedder: Embedder | None) -> Commit:
    revision = revisions.revision(apart.root, ref)
    if not revision.commit:
        raise UsageError(f"{ref} is not a commit", code="E_REVISION", suggestion="name a commit, branch or tag")
    _, wiring = apart.wire(apart.root, OpenOptions(at=revision.commit, embedder=embedder))
    cache = boot.caches(wiring)
    stack.callback(cache.close)
    return Commit(wiring, cache)


def _plan_changes(
    root: Path, target: Target, commit: Commit, before: Watermark | None, request: PublishRequest, notices: list[Notice]
) -> tuple[Literal["nothing", "delta", "vectors", "whole"], Sequence[TypeChange]]:
    """Return the method and the changes that lead to a commit."""
    if before is None or request.full:
        return "whole", commit.whole()
    old = _find_revision(root, target, before)
    if before.commit != commit.at.commit:
        notices += _check_history(root, target, old, commit.at, request)
    if before.fingerprint != commit.watermark.fingerprint:
        return "whole", commit.whole()
    with target.open_publication() as snapshot:
        if snapshot.watermark != before:
            raise Conflict(
                f"another publisher changed {target.name} meanwhile",
                code="E_BEHIND",
                suggestion="publish again",
            )
        if before.commit == commit.at.commit:
            pending_changes = commit.list_pending_changes(snapshot)
            return ("vectors" if pending_changes else "nothing"), pending_changes
        changes = commit.since(snapshot, old)
    return ("whole", commit.whole()) if changes is None else ("delta", changes)


def _find_revision(root: Path, target: Target, watermark: Watermark) -> Revision:
    """Return the published commit in this clone."""
    try:
        return revisions.revision(root, watermark.commit)
    except StateError as problem:
        head = revisions.head(root)
        raise StateError(
            f"{watermark.commit[:12]} is published at {target.name}, but this clone, at {head.short}, does not have it",
            code="E_BEHIND",
            suggestion="`git fetch`; where that commit is gone for good: `duckkb publish --full`",
        ) from problem


def _check_history(root: Path, target: Target, old: Revision, new: Revision, request: PublishRequest) -> list[Notice]:
    """Return notices where the commit does not descend from the published one; raises where that one is newer."""
    if contains(root, new, old):
        return []
    if contains(root, old, new) and not request.rewind:
        raise Conflict(
            f"{old.short} is published at {target.name}, which is newer than {new.short}",
            code="E_BEHIND",
            suggestion="publish the newer commit; to go back: --rewind",
        )
    message = f"the published commit {old.short} is not an ancestor of {new.short}"
    return [Notice("W_REWOUND", message, "none needed if you rewrote history on purpose")]


def _drop_zeros(counts: dict[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}
