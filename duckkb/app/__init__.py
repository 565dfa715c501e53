"""Where everything is put together: `open` chooses the real parts; what works without an open base stands in `folder`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckkb.actions.caring import CheckReport
    from duckkb.app.diffing import diff
    from duckkb.app.folder import config_show, init, recover, trust
    from duckkb.app.health import doctor, repair, status_unread
    from duckkb.app.knowledge import KnowledgeBase
    from duckkb.app.provenance import parse_citation
    from duckkb.engine.base import Progress
    from duckkb.ports import Clock, Embedder

__all__ = [
    "KnowledgeBase",
    "check",
    "config_show",
    "diff",
    "doctor",
    "init",
    "open",
    "parse_citation",
    "recover",
    "repair",
    "status_unread",
    "trust",
]


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
) -> "KnowledgeBase":
    """Open a knowledge base: a folder with config.yaml, else DUCKKB_KB, else the nearest parent folder with one.

    `lenient` reads on without lines that cannot be read. `lock_timeout` is in seconds. `embedder` and `clock` replace
    the configured model and the system's time. SQL, and filters that are not simple, run in a process of their own, killed
    where one overruns its time or memory; it is started when it is first needed, or at once for `first_filter`, the filter
    or statement that will be asked first. `sql_in_process` runs them in the caller's process instead: quicker by the half
    second of that start, but nothing bounds their memory, and some functions heed no time; for statements of your own.
    `at` names a revision, whose records and types are read from git instead of the files, without a checkout; such a base
    cannot be written. Raises `errors.StateError` (E_NO_KB, E_GIT, E_REVISION), `errors.OntologyError`, `errors.Unreadable`, `errors.Unavailable` (E_LOCKED).
    """
    from duckkb.app.knowledge import KnowledgeBase
    from duckkb.app.wiring import Choice, find

    chosen = Choice(
        lenient,
        lock_timeout,
        progress,
        embedder,
        clock,
        sql_in_process=sql_in_process,
        first_filter=first_filter,
        at=at,
    )
    return KnowledgeBase(find(path), chosen)


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
        from duckkb.app.diffing import check_change

        return check_change(path, since, staged=staged, allow_weaker=allow_weaker, allow_shrink=allow_shrink)
    with open(path, lenient=True, lock_timeout=lock_timeout) as kb:
        return kb.check()


def __getattr__(name: str) -> Any:
    """What few processes need is imported when it is used."""
    if name == "KnowledgeBase":
        from duckkb.app.knowledge import KnowledgeBase

        return KnowledgeBase
    if name == "diff":
        from duckkb.app.diffing import diff

        return diff
    if name in ("doctor", "repair", "status_unread"):
        from duckkb.app import health

        return getattr(health, name)
    if name == "parse_citation":
        from duckkb.app.provenance import parse_citation

        return parse_citation
    if name in ("config_show", "init", "recover", "trust"):
        from duckkb.app import folder

        return getattr(folder, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
