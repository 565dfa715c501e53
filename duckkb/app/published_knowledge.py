"""A base read from its publication: a `KnowledgeBase` that answers each question from one moment of a target."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from msgspec.structs import replace

from duckkb import config
from duckkb.app.knowledge import KnowledgeBase
from duckkb.app.snapshots import CallLock, hold_source
from duckkb.app.wiring import target_at, wire
from duckkb.engine import boot
from duckkb.engine.base import Base, Wiring
from duckkb.engine.publishing import PublishedBase
from duckkb.index.embedding_cache import SearchCache
from duckkb.operations.lifecycle import OpenOptions
from duckkb.ports import Publication, Watermark
from duckkb.storage import revisions
from duckkb.storage.repository import head_commit
from duckkb.types.errors import DuckkbError, Refused, StateError
from duckkb.types.queries import Notice

Answer = TypeVar("Answer")

_MOST_BASES = 2  # the published commit, and the one before


class PublishedKnowledgeBase(KnowledgeBase):
    """The published base at `chosen.backend`; writes are refused (E_PUBLISHED).

    Questions run side by side, each over one commit from beginning to end. `root` is the folder of a clone,
    which tells how far it is ahead, or a stand-in for it.
    """

    def __init__(self, root: Path, chosen: OpenOptions) -> None:
        assert chosen.backend is not None, "it is what is asked"
        self._root, self._chosen = root, chosen
        self._clone = None if config.is_stand_in(root) else root
        self._lock, self._turn = CallLock(), Lock()
        self._target = target_at(chosen.backend)
        self._bases: dict[tuple[Watermark, frozenset[str]], Base] = {}
        self._configured: tuple[dict[str, bytes], Wiring, SearchCache] | None = None
        self._ahead: tuple[str, str, tuple[Notice, ...]] = "", "", ()
        self._held, self._is_open = ExitStack(), False
        self._other = None
        try:
            if chosen.command:  # a command sees one commit
                self._held.enter_context(self._target.open_publication())
                self._is_open = True
            self._answer(lambda base: None)
        except BaseException:
            self.close()
            raise

    @property
    def published(self) -> str:
        return self._answer(lambda base: base.wiring.published)

    @property
    def root(self) -> Path:
        return self._root

    def close(self) -> None:
        with self._lock:
            self._held.close()
            self._is_open = False
            for base in self._bases.values():
                base.close(alone=False)
            for base in [*self._bases.values()][:1]:
                base.close()
            self._bases.clear()
            self._target.close()

    def _answer(
        self,
        question: "Callable[[Base], Answer]",
        *,
        around: "Callable[[], AbstractContextManager[Any]]" = nullcontext,
        looks: bool = True,
    ) -> "Answer":
        with ExitStack() as stack:
            held_already = self._chosen.command and self._is_open
            publication = self._target.now if held_already else stack.enter_context(self._target.open_publication())
            with around():
                base = self._find_base(publication)
            try:
                answer = question(base)
            except DuckkbError:
                raise
            except Exception as problem:
                if held_already:  # errors of the database reach the caller in the target's words
                    self._is_open = False
                    self._held.__exit__(type(problem), problem, problem.__traceback__)
                raise
            return hold_source(answer, stack.pop_all()) if isinstance(answer, Iterator) else answer

    def _fresh(self) -> Base:
        raise Refused(
            f"{self._target.name} is what is published of a base, and is not changed here",
            code="E_PUBLISHED",
            suggestion="write in a clone, without --backend and DUCKKB_BACKEND; commit, then `duckkb publish`",
        )

    def _find_base(self, publication: Publication) -> Base:
        """Return the base of a publication's commit, as far as the caller may see it now.

        A revoked right is gone at the next question.
        """
        key = publication.watermark, publication.kinds
        with self._turn:
            if key not in self._bases:
                while len(self._bases) >= _MOST_BASES:
                    self._bases.pop(next(iter(self._bases))).close(alone=False)
                self._bases[key] = self._make_base(publication)
            return self._bases[key]

    def _make_base(self, publication: Publication) -> Base:
        wiring, cache = self._wire_files(dict(publication.configuration()))
        target, made_here = self._target, wiring.sql
        there = replace(
            wiring,
            lanes=lambda kind, rows: target.lanes(kind, rows, wiring.tokenizer, wiring.settings),
            sql=lambda *given: target.sql(made_here(*given)),
            published=publication.watermark.commit,
        )
        return PublishedBase(there, cache, target, self._find_lag_notices)

    def _wire_files(self, files: dict[str, bytes]) -> tuple[Wiring, SearchCache]:
        """Return the parts under a configuration; those of the last configuration are cached."""
        if self._configured is None or self._configured[0] != files:
            present = dict.fromkeys(config.paths(self._root))
            _, wiring = wire(self._root, replace(self._chosen, instead={**present, **files}))
            self._configured = files, wiring, boot.caches(wiring)
        return self._configured[1], self._configured[2]

    def _find_lag_notices(self, commit: str) -> tuple[Notice, ...]:
        """Return notices where the clone is ahead of this commit."""
        head = head_commit(self._clone) if self._clone is not None else commit
        if head is None or head == commit or self._clone is None:
            return ()
        if self._ahead[:2] != (head, commit):
            self._ahead = head, commit, (_ahead(self._clone, head, commit),)
        return self._ahead[2]


def _ahead(clone: Path, head: str, commit: str) -> Notice:
    try:
        old, new = revisions.revisions(clone, commit, head)
    except StateError:
        message = f"{commit[:12]} is published, which this clone does not know"
        return Notice("W_BEHIND", message, "git fetch")
    count = revisions.commits_between(clone, old, new)
    if not count:
        return Notice("W_BEHIND", f"{old.short} is published; HEAD, {new.short}, is behind it", "git pull")
    many = "1 commit" if count == 1 else f"{count:,} commits"
    return Notice("W_BEHIND", f"answered as of {old.short}, which is published; HEAD is {many} ahead", "duckkb publish")
