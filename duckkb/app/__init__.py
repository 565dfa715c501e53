"""The composition root: `open` chooses the real parts; `prepare_unopened` returns a base that does not load."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from duckkb.app.knowledge import KnowledgeBase
    from duckkb.engine.base import Progress
    from duckkb.engine.repair import Cleaned, Repaired
    from duckkb.operations.lifecycle import OpenOptions, Unopened
    from duckkb.operations.publish import Published
    from duckkb.ports import Clock, Embedder
    from duckkb.review.base_health import Check
    from duckkb.review.change_findings import CheckReport
    from duckkb.review.diff_model import Diff
    from duckkb.review.health_checks import Health

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
    """Open a knowledge base: the folder `path`, else DUCKKB_KB, else the nearest parent folder with a config.yaml.

    SQL, and filters that are not simple, run in a process of their own, which is killed when it exceeds its
    time or memory.

    Args:
        lenient: Skip lines that cannot be read.
        lock_timeout: The longest wait for another process, in seconds.
        embedder: Replaces the configured model.
        clock: Replaces the system's time.
        sql_in_process: Run SQL in this process, for statements of your own. Saves the half second that a process takes
            to start, but nothing bounds memory, and some functions ignore the time limit.
        first_filter: The filter or statement that will be asked first; its process starts at once.
        at: A revision whose records and types are read from git, without a checkout. Such a base cannot be written.
        command: This process runs a single command. It has no threads, so a child may build a part of what the first
            search of a large base needs. The first call answers from the files as they were at opening.
        backend: The address of a target (postgresql://... or lance:...) that answers instead of files. It needs no
            clone, and nothing is written.

    Raises `errors.StateError` (E_NO_KB, E_GIT, E_REVISION), `errors.OntologyError`, `errors.Unreadable`,
    `errors.Unavailable` (E_LOCKED).
    """
    from duckkb.operations.lifecycle import OpenOptions, find

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
    """Open the base in a folder, or its publication, as the options say.

    Raises as `open` does, and `errors.UsageError` for a publication at a revision.
    """
    from duckkb.app.knowledge import KnowledgeBase

    if chosen.backend is None:
        return KnowledgeBase(root, chosen)
    from duckkb.app.published_knowledge import PublishedKnowledgeBase
    from duckkb.types.errors import UsageError

    if chosen.at is not None:
        raise UsageError("a published base has one commit", suggestion="leave --at or --backend out")
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
    """Publish a commit to the target at an address.

    As `duckkb.operations.publish.publish`; also raises `errors.UsageError` (E_URL).
    """
    from duckkb.app import wiring
    from duckkb.operations import publish as publishing

    request = publishing.PublishRequest(ref, full, rewind, pending, dry_run, embedder)
    with closing(wiring.target_at(to)) as target:
        return publishing.publish(prepare_unopened(path), target, request)


def verify_published(
    path: "str | Path | None" = None, *, to: str, embedder: "Embedder | None" = None
) -> dict[str, Any]:
    """Verify that a target holds the commit that it claims. As `duckkb.operations.publish.verify`."""
    from duckkb.app import wiring
    from duckkb.operations import publish as publishing

    with closing(wiring.target_at(to)) as target:
        return publishing.verify(prepare_unopened(path), target, embedder)


def prepare_unopened(path: "str | Path | None" = None) -> "Unopened":
    """Return a base for tasks that load none: `duckkb.operations.git_branches`, `impact` and `proposing`.

    Raises `errors.StateError` (E_NO_KB).
    """
    from duckkb.app import wiring
    from duckkb.operations.lifecycle import Unopened, find

    return Unopened(find(path), wiring.wire, wiring.match_records)


def grant_published(path: "str | Path | None" = None, *, to: str, role: str, types: Sequence[str]) -> dict[str, Any]:
    """Set which published types a role of the database sees. As `duckkb.operations.publish.grant`."""
    from duckkb.app import wiring
    from duckkb.operations import publish as publishing

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
    """Open a base, however broken its files are, and report every problem.

    With `since` (a revision), reports only problems that came after this history parted from it, or that
    concern records changed since. With `staged`, reports those of what is staged.

    A change that removes or weakens the rules by which it is judged is an error, with `allow_weaker` a warning.
    So is a change that deletes more than allowed (E_SHRINK), with `allow_shrink`.
    """
    if since is not None or staged:
        from duckkb.operations.version_diff import check_change

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
    """Compare records between two versions.

    `range` is BASE (HEAD by default) against the working tree, or against the index where `staged`; BASE..HEAD;
    or BASE...HEAD, from the commit in which the two part.

    Args:
        only: Types and records to compare (`TYPE`, `TYPE:IDENTITY`).
        ignore: Fields that do not count.
        where: A filter, as `find` takes it, that a record satisfies in one of the versions.
        ops: The kinds of change to report; the report then has no findings.
        whole: Report all findings that the change brings, which reads more, not only those of the touched files.
        allow_weaker: Removed or weaker rules by which changes are judged are warnings, not errors (E_GUARD).
        allow_shrink: Deleting more records than `limits` in config.yaml allow is a warning, not an error (E_SHRINK).

    Raises `errors.UsageError`, `errors.StateError` (E_NO_KB, E_REVISION, E_GIT, E_UNKNOWN_TYPE),
    `errors.Unavailable`, `errors.OntologyError`, `errors.FilterError`.
    """
    from duckkb.operations import version_diff
    from duckkb.review.compared_versions import parse_range

    ends = parse_range(range, staged=staged, worktree=worktree)
    request = version_diff.DiffRequest(
        ends, tuple(only), tuple(ignore), whole, allow_weaker, allow_shrink, where, tuple(ops)
    )
    return version_diff.diff(prepare_unopened(path), request)


def doctor(
    path: "str | Path | None" = None,
    *,
    embedder: "Embedder | None" = None,
    clock: "Clock | None" = None,
    on_check: "Callable[[Check], None]" = lambda _: None,
) -> "Health":
    """Check everything that a base needs here, and report each verdict with its remedy to `on_check` as it comes.

    Changes nothing; raises only `errors.StateError` (E_NO_KB).
    """
    from duckkb.app import wiring
    from duckkb.operations import maintenance

    return maintenance.doctor(
        prepare_unopened(path), clock or wiring.SystemClock(), wiring.self_tests(), embedder, on_check
    )


def repair(
    path: "str | Path | None" = None, *, everything: bool = False, check_only: bool = False, lock_timeout: float = 0.0
) -> "Repaired":
    """Drop and rebuild damaged derived state; with `everything`, all derived state.

    `check_only` reports what would be done. Raises `errors.StateError` (E_RECOVER, E_TRACKED_STATE),
    `errors.Unavailable` (E_LOCKED, E_IO).
    """
    from duckkb.engine.repair import RepairOptions
    from duckkb.operations import maintenance

    return maintenance.repair(prepare_unopened(path), RepairOptions(everything, check_only, lock_timeout))


def cleanup(
    path: "str | Path | None" = None,
    *,
    dry_run: bool = False,
    now: bool = False,
    limit: "int | str | None" = None,
    unused_vectors: bool = False,
) -> "Cleaned":
    """Remove what no base needs from the user's cache folder.

    With `unused_vectors`, also removes vectors of models that no known base uses. As `duckkb.operations.maintenance.cleanup`.
    """
    from duckkb.app import wiring
    from duckkb.operations import maintenance

    wire = wiring.wire if unused_vectors else None
    return maintenance.cleanup(path, dry_run=dry_run, now=now, limit=limit, wire=wire)


def drop_sealed(path: "str | Path | None" = None) -> dict[str, Any]:
    """Remove sealed derived state from the user's cache folder, without its key.

    As `duckkb.operations.maintenance.drop_sealed`.
    """
    from duckkb.operations import maintenance

    return maintenance.drop_sealed(path)


def models(path: "str | Path | None" = None) -> list[dict[str, Any]]:
    """List the models that a base's configuration names. As `duckkb.operations.embedding_models.models`."""
    from duckkb.operations import embedding_models

    return embedding_models.models(path)


def try_models(path: "str | Path | None" = None, name: str | None = None) -> Iterator[dict[str, Any]]:
    """Ask each provider of the chat models a tiny question, and yield each answer.

    As `operations.embedding_models.try_models`.
    """
    from duckkb.app import wiring
    from duckkb.operations import embedding_models

    return embedding_models.try_models(wiring.chat_provider, path, name)


def verify_backup(path: "str | Path") -> dict[str, Any]:
    """Verify that a backup is unchanged, restores to a temporary folder and loads; return its contents.

    The result includes the `errors` that `check` finds in the base. Raises `errors.StateError` (E_BACKUP),
    `errors.UsageError` (E_PATH).
    """
    from duckkb.app import wiring
    from duckkb.operations import backup_files
    from duckkb.operations.lifecycle import Unopened

    return backup_files.verify(path, lambda root: Unopened(root, wiring.wire, wiring.match_records))


def restore_backup(
    path: "str | Path", folder: "str | Path | None" = None, *, force: bool = False, lock_timeout: float = 60.0
) -> dict[str, Any]:
    """Restore a backup to a folder; by default to a new one in the current folder, named as the saved one was.

    Refuses a folder that is not empty. With `force` that folder is kept as FOLDER.before-TIME (`before`), and
    `repair` is the command that reconnects linked work trees of git (None without any). The folder appears only
    when all of it is there.

    Raises `errors.StateError` (E_BACKUP), `errors.UsageError` (E_PATH), `errors.Unavailable` (E_LOCKED, E_IO).
    """
    from duckkb.operations import backup_files

    return backup_files.restore(path, folder, force=force, lock_timeout=lock_timeout)


def __getattr__(name: str) -> Any:
    """Import names that few processes need when they are first used."""
    if name != "KnowledgeBase":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from duckkb.app.knowledge import KnowledgeBase

    return KnowledgeBase
