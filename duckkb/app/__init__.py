"""Where everything is put together: `open` chooses the real parts; `unopened` is a base that need not load."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from duckkb.actions.folder import OpenOptions, Unopened
    from duckkb.actions.publishing.publish import Published
    from duckkb.app.knowledge import KnowledgeBase
    from duckkb.engine.base import Progress
    from duckkb.engine.index.cleanup import Cleaned
    from duckkb.engine.index.repair import Repaired
    from duckkb.ports import Clock, Embedder
    from duckkb.review.check.findings import CheckReport
    from duckkb.review.diff.model import Diff
    from duckkb.review.health.check import Check
    from duckkb.review.health.examine import Health

__all__ = [
    "KnowledgeBase",
    "check",
    "cleanup",
    "diff",
    "doctor",
    "drop_sealed",
    "grant_published",
    "models",
    "open",
    "prepare_unopened",
    "publish",
    "repair",
    "restore_backup",
    "try_models",
    "verify_backup",
    "verify_published",
]  # fmt: skip


def open(
    path: "str | Path | None" = None,
    *,
    lenient: bool = False,
    lock_timeout: float = 60.0,
    progress: "Progress | None" = None,
    embedder: "Embedder | None" = None,
    clock: "Clock | None" = None,
    sql_in_process: bool = False,
    first_filter: str | None = None,
    at: str | None = None,
    command: bool = False,
    backend: str | None = None,
) -> "KnowledgeBase":
    """Open a knowledge base: a folder with config.yaml, else DUCKKB_KB, else the nearest parent folder with one.

    `lenient` reads on without lines that cannot be read. `lock_timeout` is in seconds. `embedder` and `clock` replace
    the configured model and the system's time. SQL, and filters that are not simple, run in a process of their own, killed
    where one overruns its time or memory; it is started when it is first needed, or at once for `first_filter`, the filter
    or statement that will be asked first. `sql_in_process` runs them in the caller's process instead: quicker by the half
    second of that start, but nothing bounds their memory, and some functions heed no time; for statements of your own.
    `at` names a revision, whose records and types are read from git instead of the files, without a checkout; such a base
    cannot be written. `backend` is the address of a target (postgresql://... or lance:...), whose answers are asked instead of files; a clone need not be there, and nothing
    is written. `command`: the process is one command: it has no threads, so that a child of it may make a part of what the
    first search of a large base needs, and its first call answers from the files as they lay when the base was opened. Raises `errors.StateError` (E_NO_KB, E_GIT, E_REVISION), `errors.OntologyError`, `errors.Unreadable`, `errors.Unavailable` (E_LOCKED).
    """
    from duckkb.actions.folder import OpenOptions, find

    options = OpenOptions(
        lenient,
        lock_timeout,
        progress,
        embedder,
        clock,
        sql_in_process=sql_in_process,
        first_filter=first_filter,
        at=at,
        command=command,
        backend=backend,
    )
    return open_chosen(find(path, backend), options)


def open_chosen(root: Path, chosen: "OpenOptions") -> "KnowledgeBase":
    """The base in a folder, or what is published of it, as was chosen. Raises as `open`, and `errors.UsageError` for what is
    published at a revision."""
    from duckkb.app.knowledge import KnowledgeBase

    if chosen.backend is None:
        return KnowledgeBase(root, chosen)
    from duckkb.app.published import PublishedKnowledgeBase
    from duckkb.errors import UsageError

    if chosen.at is not None:
        raise UsageError("what is published is of one commit", suggestion="leave --at or --backend out")
    return PublishedKnowledgeBase(root, chosen)


def publish(
    path: "str | Path | None" = None,
    *,
    to: str,
    ref: str = "HEAD",
    full: bool = False,
    rewind: bool = False,
    pending: "Literal['refuse', 'ok']" = "refuse",
    dry_run: bool = False,
    embedder: "Embedder | None" = None,
) -> "Published":
    """Have the target at an address hold a commit. As `duckkb.actions.publishing.publish.publish`; raises `errors.UsageError` (E_URL)
    besides."""
    from duckkb.actions.publishing import publish as publishing
    from duckkb.app import wiring

    request = publishing.PublishRequest(ref, full, rewind, pending, dry_run, embedder)
    with closing(wiring.target_at(to)) as target:
        return publishing.publish(prepare_unopened(path), target, request)


def verify_published(
    path: "str | Path | None" = None, *, to: str, embedder: "Embedder | None" = None
) -> dict[str, Any]:
    """Whether a target holds the commit that it says it holds. As `duckkb.actions.publishing.publish.verify`."""
    from duckkb.actions.publishing import publish as publishing
    from duckkb.app import wiring

    with closing(wiring.target_at(to)) as target:
        return publishing.verify(prepare_unopened(path), target, embedder)


def prepare_unopened(path: "str | Path | None" = None) -> "Unopened":
    """A base for what needs none that loads: `duckkb.actions.branches`, `impact` and `proposing`. Raises `errors.StateError`
    (E_NO_KB)."""
    from duckkb.actions.folder import Unopened, find
    from duckkb.app import wiring

    return Unopened(find(path), wiring.wire, wiring.match_records)


def grant_published(path: "str | Path | None" = None, *, to: str, role: str, types: Sequence[str]) -> dict[str, Any]:
    """Which types of what is published a role of the database sees. As `duckkb.actions.publishing.publish.grant`."""
    from duckkb.actions.publishing import publish as publishing
    from duckkb.app import wiring

    with closing(wiring.target_at(to)) as target:
        return publishing.grant(prepare_unopened(path), target, role, types)


def check(
    path: "str | Path | None" = None,
    *,
    lock_timeout: float = 60.0,
    since: str | None = None,
    staged: bool = False,
    allow_weaker: bool = False,
    allow_shrink: bool = False,
) -> "CheckReport":
    """Open a base however broken its files are, and report everything that is wrong. With `since` (a revision) only what
    came since this history parted from it, or what is about records changed since; with `staged` of what is staged. A change
    that removes or weakens the rules by which it is judged has errors, with `allow_weaker` warnings; so has one that deletes
    more than it may (E_SHRINK), with `allow_shrink`."""
    if since is not None or staged:
        from duckkb.actions.diffing import check_change

        return check_change(
            prepare_unopened(path), since, staged=staged, allow_weaker=allow_weaker, allow_shrink=allow_shrink
        )
    with open(path, lenient=True, lock_timeout=lock_timeout) as kb:
        return kb.check()


def diff(
    path: "str | Path | None" = None,
    range: str | None = None,
    *,
    staged: bool = False,
    worktree: bool = False,
    only: Sequence[str] = (),
    ignore: Sequence[str] = (),
    whole: bool = False,
    allow_weaker: bool = False,
    allow_shrink: bool = False,
    where: str = "",
    ops: Sequence[str] = (),
) -> "Diff":
    """What became of each record between two versions: `range` is BASE (HEAD where none is given) against the working
    tree, or against the index where `staged`; BASE..HEAD; or BASE...HEAD, from the commit in which the two part. `only`
    names types and records (`TYPE`, `TYPE:IDENTITY`), `ignore` fields that do not count, `where` is a filter that a record
    satisfies in one of the versions, as `find` takes it; `ops` are the kinds of change that are told, then without findings. The findings are those that the
    touched files tell; with `whole` all those that the change brings, for which more is read. Rules by which changes are
    judged that are gone or weaker are errors (E_GUARD), with `allow_weaker` warnings. A deletion of more records than
    `limits` in the base's config.yaml let go is an error (E_SHRINK) unless `allow_shrink`, and a warning then.

    Raises `errors.UsageError`, `errors.StateError` (E_NO_KB, E_REVISION, E_GIT, E_UNKNOWN_TYPE), `errors.Unavailable`,
    `errors.OntologyError`, `errors.FilterError`.
    """
    from duckkb.actions import diffing
    from duckkb.review.diff.versions import parse_range

    ends = parse_range(range, staged=staged, worktree=worktree)
    request = diffing.DiffRequest(
        ends, tuple(only), tuple(ignore), whole, allow_weaker, allow_shrink, where, tuple(ops)
    )
    return diffing.diff(prepare_unopened(path), request)


def doctor(
    path: "str | Path | None" = None,
    *,
    embedder: "Embedder | None" = None,
    clock: "Clock | None" = None,
    on_check: "Callable[[Check], None]" = lambda _: None,
) -> "Health":
    """Check everything that a base needs here, with a verdict and a remedy each, told to `on_check` one by one. Changes
    nothing; raises `errors.StateError` (E_NO_KB) alone."""
    from duckkb.actions import caring
    from duckkb.app import wiring

    return caring.doctor(prepare_unopened(path), clock or wiring.SystemClock(), wiring.self_tests(), embedder, on_check)


def repair(
    path: "str | Path | None" = None, *, everything: bool = False, check_only: bool = False, lock_timeout: float = 0.0
) -> "Repaired":
    """Drop and rebuild derived state that is damaged; with `everything`, all of it. `check_only` says what
    would be done. Raises `errors.StateError` (E_RECOVER, E_TRACKED_STATE), `errors.Unavailable` (E_LOCKED, E_IO)."""
    from duckkb.actions import caring
    from duckkb.engine.index.repair import RepairOptions

    return caring.repair(prepare_unopened(path), RepairOptions(everything, check_only, lock_timeout))


def cleanup(
    path: "str | Path | None" = None,
    *,
    dry_run: bool = False,
    now: bool = False,
    limit: "int | str | None" = None,
    unused_vectors: bool = False,
) -> "Cleaned":
    """Remove from the user's cache folder what nobody needs; with `unused_vectors` also vectors of models that no base uses which
    is known here. As `duckkb.actions.caring.cleanup`."""
    from duckkb.actions import caring
    from duckkb.app import wiring

    wire = wiring.wire if unused_vectors else None
    return caring.cleanup(path, dry_run=dry_run, now=now, limit=limit, wire=wire)


def drop_sealed(path: "str | Path | None" = None) -> dict[str, Any]:
    """Remove what is sealed of derived state in the user's cache folder, without its key. As `duckkb.actions.caring.drop_sealed`."""
    from duckkb.actions import caring

    return caring.drop_sealed(path)


def models(path: "str | Path | None" = None) -> list[dict[str, Any]]:
    """The models that a base's configuration names. As `duckkb.actions.models.listing.models`."""
    from duckkb.actions.models import listing

    return listing.models(path)


def try_models(path: "str | Path | None" = None, name: str | None = None) -> Iterator[dict[str, Any]]:
    """Each provider of the chat models with its answer to a tiny question. As `duckkb.actions.models.listing.tried`."""
    from duckkb.actions.models import listing
    from duckkb.app import wiring

    return listing.tried(wiring.chat_provider, path, name)


def verify_backup(path: "str | Path") -> dict[str, Any]:
    """Whether a backup is what was written, comes back whole (in a temporary folder) and is a base that loads; says what it
    holds, with the `errors` that `check` finds in it. Raises `errors.StateError` (E_BACKUP), `errors.UsageError` (E_PATH)."""
    from duckkb.actions.backup import restore
    from duckkb.actions.folder import Unopened
    from duckkb.app import wiring

    return restore.verify(path, lambda root: Unopened(root, wiring.wire, wiring.match_records))


def restore_backup(
    path: "str | Path", folder: "str | Path | None" = None, *, force: bool = False, lock_timeout: float = 60.0
) -> dict[str, Any]:
    """Make a folder of a backup, by itself one in the current folder that is called as the one that was saved. A folder that
    exists and is not empty is refused; with `force` it is kept as `before`, FOLDER.before-TIME, and `repair` is the command that
    connects it with work trees that git has linked with it (None where there are none). Nothing is there before all is.

    Raises `errors.StateError` (E_BACKUP), `errors.UsageError` (E_PATH), `errors.Unavailable` (E_LOCKED, E_IO).
    """
    from duckkb.actions.backup import restore

    return restore.restore(path, folder, force=force, lock_timeout=lock_timeout)


def __getattr__(name: str) -> Any:
    """What few processes need is imported when it is used."""
    if name != "KnowledgeBase":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from duckkb.app.knowledge import KnowledgeBase

    return KnowledgeBase
