"""The public facade: a knowledge base as a Python object. Each method asks one use case about the base as it is now."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from duckkb import config
from duckkb.actions.folder import OpenOptions
from duckkb.app.call_lock import CallLock
from duckkb.app.use_cases import Deferred, asks
from duckkb.app.wiring import matching, unbounded, wire
from duckkb.engine import boot as booting
from duckkb.engine.base import Base
from duckkb.queries import Notice
from duckkb.truth.commit import lock

if TYPE_CHECKING:
    from duckkb.actions import asking, caring, embedding, reading, tracing, writing
    from duckkb.actions.agents.migrating import Migrations
    from duckkb.actions.collecting import Collections
    from duckkb.actions.documents import naming as documents_naming
    from duckkb.actions.documents import reading as documents_reading
    from duckkb.actions.documents import searching as documents_searching
    from duckkb.actions.documents import updating as documents_updating
    from duckkb.actions.documents.arch.building import Architecture
    from duckkb.actions.documents.collections import DocumentCollections
    from duckkb.actions.documents.updating import Updated
    from duckkb.actions.models.migrating import MigratedModel
    from duckkb.actions.tracing import Provenance
    from duckkb.actions.vector_store import VectorStore
    from duckkb.caller import Caller
    from duckkb.engine import care
    from duckkb.engine.index import jobs, plan
else:
    asking = Deferred("actions.asking")
    caring = Deferred("actions.caring")
    documents_naming = Deferred("actions.documents.naming")
    documents_reading = Deferred("actions.documents.reading")
    documents_searching = Deferred("actions.documents.searching")
    documents_updating = Deferred("actions.documents.updating")
    embedding = Deferred("actions.embedding")
    reading = Deferred("actions.reading")
    tracing = Deferred("actions.tracing")
    writing = Deferred("actions.writing")
    care = Deferred("engine.care")
    jobs = Deferred("engine.index.jobs")
    plan = Deferred("engine.index.plan")


class KnowledgeBase:
    """One open knowledge base. Every method sees the files as they are now: parts that changed are read again.

    Usable from several threads; one call runs at a time. Close it, or use it in a `with` block.
    """

    def __init__(self, root: Path, chosen: OpenOptions) -> None:
        self._chosen, self._lock = chosen, CallLock()
        self._stamp = config.stamp(root)  # before it is read: what changes meanwhile is seen by the first call
        self._loaded, wiring = wire(root, chosen)
        self._base = booting.boot(wiring)
        self._is_just_opened = chosen.command
        config.remember_schemas(wiring.env)
        self._other: KnowledgeBase | None = None  # the one that the vector actions work on

    def __enter__(self) -> "KnowledgeBase":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KnowledgeBase({str(self.root)!r})"

    def close(self) -> None:
        """Write what was computed to the local cache and let go of the indices."""
        with self._lock:
            self._base.close()
            if self._other is not None:
                self._other.close()

    @property
    def root(self) -> Path:
        """The folder of the knowledge base."""
        return self._base.root

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What must be known of the base as it was loaded: lines left out, records standing twice, unusable caches."""
        with self._lock:
            return (*booting.notices(self._base), *unbounded(self._chosen))

    find = asks(asking.find)
    sql = asks(asking.sql)
    neighbors = asks(asking.neighbors)
    path = asks(asking.path)
    why = asks(tracing.why)
    get = asks(reading.get)
    list = asks(reading.page)
    export = asks(reading.export)
    export_file = asks(reading.export_file)
    types = asks(reading.types)
    schema = asks(reading.schema)
    field_names = asks(reading.field_names)
    given_vectors = asks(reading.given_vectors)
    put = asks(writing.put)
    put_json = asks(writing.put_json)
    put_batch = asks(writing.put_batch)
    import_files = asks(writing.import_files)
    delete = asks(writing.delete)
    rename = asks(writing.rename)
    apply = asks(writing.apply)
    apply_patch = asks(writing.apply_patch)
    embed = asks(embedding.embed)
    embed_input = asks(embedding.embed_input)
    vector_input = asks(embedding.vector_input)
    is_of_documents = asks(documents_naming.is_of_documents)
    ls = asks(documents_reading.ls)
    get_document = asks(documents_reading.get_document)
    multi_get = asks(documents_reading.multi_get)
    search_documents = asks(documents_searching.search_documents)
    update = asks(documents_updating.update)
    check = asks(caring.check)
    fmt = asks(care.fmt)
    dedupe = asks(care.dedupe)
    index_status = asks(plan.status)
    index_plan = asks(plan.planned)
    index_refresh = asks(jobs.refresh)
    index_build = asks(jobs.build)
    _described = asks(reading.described)

    def run(
        self, name: str, given: "Mapping[str, object]", caller: "Caller | None" = None, *, strict: bool = False
    ) -> dict[str, Any]:
        """Run an action of `duckkb.actions.registry` for a caller (everybody's rights without one), as `registry.run.run` says: the
        plain object that the command line prints with --json."""
        from duckkb.actions.registry.run import run
        from duckkb.caller import Caller
        from duckkb.engine.narrowed import loaded_for

        caller = caller or Caller()
        with self._lock:
            with loaded_for(caller.types):
                base = self._unwaiting() if name == "status" else self._fresh()
            return run(base, name, given, caller, strict=strict)

    def ddl(self, type: str | None = None) -> str:
        """The derived table definitions of one type or of all."""
        from duckkb.lanes.sql.columns import ddl

        return "\n".join(ddl(kind, records) for kind, records in self._described(type))

    def status(self) -> dict[str, Any]:
        """Revision, records, pending vectors (None where a large base was not counted as it is now), model, trust, the endpoints
        that the configuration names, lock, the index job that runs or ran last. Waits for nobody: while somebody writes, records are as they were read last."""
        from duckkb.actions.caring import status

        with self._lock:
            return status(self._unwaiting())

    def index_migrate(
        self,
        to: str,
        *,
        limit: int | None = None,
        max_seconds: float | None = None,
        dry_run: bool = False,
        listen: "Callable[[jobs.Event], None]" = lambda _: None,
    ) -> "MigratedModel":
        """Embed all texts with another model beside the vectors that there are, at most `limit` texts and begun within
        `max_seconds`; this base goes on with its own model. As `duckkb.actions.models.migrating.migrate`."""
        from duckkb.actions.folder import Unopened
        from duckkb.actions.models.migrating import migrate
        from duckkb.engine.index.migrate import MigrationBudget

        with self._lock:
            budget = MigrationBudget(limit, max_seconds)
            apart = Unopened(self.root, wire, matching)
            return migrate(apart, to, self._chosen, budget, dry_run=dry_run, listen=listen)

    def scheduler(self) -> dict[str, Any]:
        """What works for this base in the background: the index job, with what goes on where it stopped, and the lock."""
        from duckkb.actions.caring import background

        return background(self.status())

    def backup(self, path: "str | Path | None" = None, *, force: bool = False) -> dict[str, Any]:
        """Save this base in one file, as `actions.backup.create.create` says."""
        from duckkb.actions.backup.create import create

        return create(self.root, path, force=force, lock_timeout=self._chosen.lock_timeout)

    @property
    def collections(self) -> "Collections":
        """Collections as wholes: made by a policy, listed, shown, removed, renamed, packed and restored."""
        from duckkb.actions.collecting import Collections

        return Collections(self._now)

    @property
    def documents(self) -> "DocumentCollections":
        """Folders of files as collections: added, listed, shown, removed, renamed, and what they are about."""
        from duckkb.actions.documents.collections import DocumentCollections

        return DocumentCollections(self._now)

    @property
    def migrate(self) -> "Migrations":
        """Knowledge that other programs keep, taken over: of Chroma, of OpenClaw."""
        from duckkb.actions.agents.migrating import Migrations

        return Migrations(self._now)

    @property
    def arch(self) -> "Architecture":
        """Graphs of code: built by a command, imported, refreshed."""
        from duckkb.actions.documents.arch.building import Architecture

        return Architecture(self._now)

    def watch(self, names: "Sequence[str]", tell: "Callable[[Updated], None]") -> None:
        """Update document collections (all without `names`) whenever a file of theirs changes, and tell what became of them,
        until the process is interrupted. One process at a time does."""
        from duckkb.actions.documents.watching import Watch

        Watch(self._now, names, tell).run()

    @property
    def vectors(self) -> "VectorStore":
        """Values behind texts: stored, found by nearness, listed, deleted, imported."""
        from duckkb.actions.vector_store import VectorStore

        return VectorStore(self._now, self._elsewhere)

    @property
    def provenance(self) -> "Provenance":
        """Which commits records, their fields and their changes are from."""
        from duckkb.actions.tracing import Provenance

        return Provenance(self._now)

    def _elsewhere(self, root: Path) -> "Callable[[], AbstractContextManager[Base]]":
        """The turns of another base, opened as this one was; the last one stays open."""
        with self._lock:
            if self._other is None or self._other.root != root:
                if self._other is not None:
                    self._other.close()
                    self._other = None
                self._other = KnowledgeBase(root, self._chosen)
            return self._other._now

    @contextmanager
    def _now(self) -> Iterator[Base]:
        """The base as the files are now, for one call."""
        with self._lock:
            yield self._fresh()

    def _unwaiting(self) -> Base:
        """The base as the files are now; while somebody writes, as they were read last."""
        return self._base if lock.is_held(self.root) else self._fresh()

    def _fresh(self) -> Base:
        """Changed parts are read again, a changed configuration loads everything anew."""
        if self._is_just_opened:
            self._is_just_opened = False
            return self._base
        stamp = config.stamp(self.root)
        if stamp != self._stamp:
            self._base.close()
            self._loaded, wiring = wire(self.root, self._chosen)
            self._base, self._stamp = booting.boot(wiring), stamp
        else:
            booting.refresh(self._base)
        return self._base
