"""The public facade: a knowledge base as a Python object. Each method runs one use case on the base as it is now."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import Struct

from duckkb import config
from duckkb.actions.folder import OpenOptions
from duckkb.app.call_lock import CallLock, give_back_import_lock
from duckkb.app.generations import Generations
from duckkb.app.use_cases import Deferred, asks, changes
from duckkb.app.wiring import match_records, note_missing_bounds, wire
from duckkb.engine import boot as booting
from duckkb.engine.base import Base, Wiring
from duckkb.indexing.cache import SearchCache
from duckkb.queries import Notice
from duckkb.truth.commit import lock

if TYPE_CHECKING:
    from duckkb.actions import asking, caring, embedding, impact, reading, tracing, writing
    from duckkb.actions.agents import keeping
    from duckkb.actions.agents.migrating import Migrations
    from duckkb.actions.answering import ask as answering
    from duckkb.actions.answering import context_pack
    from duckkb.actions.collecting import Collections
    from duckkb.actions.documents import naming as documents_naming
    from duckkb.actions.documents import reading as documents_reading
    from duckkb.actions.documents import searching as documents_searching
    from duckkb.actions.documents import updating as documents_updating
    from duckkb.actions.documents.arch.building import Architecture
    from duckkb.actions.documents.collections import DocumentCollections
    from duckkb.actions.documents.updating import Updated
    from duckkb.actions.importing import import_files as importing
    from duckkb.actions.models.migrating import MigratedModel
    from duckkb.actions.tracing import Provenance
    from duckkb.actions.vector_store import VectorStore
    from duckkb.app.memory import Memory
    from duckkb.caller import Caller
    from duckkb.engine import care
    from duckkb.engine.index import jobs, plan, sharding
    from duckkb.llm.loop import Tool
    from duckkb.settings import Settings
else:
    answering = Deferred("actions.answering.ask")
    asking = Deferred("actions.asking")
    keeping = Deferred("actions.agents.keeping")
    context_pack = Deferred("actions.answering.context_pack")
    caring = Deferred("actions.caring")
    documents_naming = Deferred("actions.documents.naming")
    documents_reading = Deferred("actions.documents.reading")
    documents_searching = Deferred("actions.documents.searching")
    documents_updating = Deferred("actions.documents.updating")
    embedding = Deferred("actions.embedding")
    impact = Deferred("actions.impact")
    importing = Deferred("actions.importing.import_files")
    reading = Deferred("actions.reading")
    tracing = Deferred("actions.tracing")
    writing = Deferred("actions.writing")
    care = Deferred("engine.care")
    jobs = Deferred("engine.index.jobs")
    plan = Deferred("engine.index.plan")
    sharding = Deferred("engine.index.sharding")


Answer = TypeVar("Answer")


class Wired(Struct, frozen=True):
    """The parts of a base under the configuration with this stamp, and the caches shared by all such bases."""

    stamp: config.Stamp
    wiring: Wiring
    cache: SearchCache


class KnowledgeBase:
    """An open knowledge base. Every method sees the files as they are now: changed parts are read again.

    Threads may share it. Reads run side by side; each sees the files as they are when it begins, to its end.
    Writes run one at a time, beside reads, and a call that begins after a write has returned sees it. A large
    base that is kept in memory alone runs one call at a time. Close it, or use it in a `with` block.
    """

    def __init__(self, root: Path, chosen: OpenOptions) -> None:
        self._root, self._chosen, self._lock, self._wiring_turn = root, chosen, CallLock(), Lock()
        self._wired = self._wire()
        self._base = self._load_base()  # the writers' base, and the readers' until the first write
        self._is_just_opened = chosen.command
        self._generations: Generations | None = None
        if not chosen.command and self._base.is_quickly_loaded:
            self._generations = Generations(self._base, self._load_base, self._is_behind)
        config.remember_schemas(self._base.wiring.env)
        self._other: KnowledgeBase | None = None  # the base of the vector actions, if another

    def __enter__(self) -> "KnowledgeBase":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KnowledgeBase({str(self.root)!r})"

    def close(self) -> None:
        """Write what was computed to the local cache and release the indices."""
        with self._lock:
            self._close_base()
            if self._generations is not None:
                self._generations.close()
            if self._other is not None:
                self._other.close()

    @property
    def configured(self) -> "Settings":
        """The settings outside the ontology, as last read."""
        return self._wired.wiring.settings

    @property
    def root(self) -> Path:
        """The folder of the knowledge base."""
        return self._base.root

    @property
    def published(self) -> str:
        """The published commit (hex) that answers; empty for a base of files."""
        return ""

    @property
    def notices(self) -> tuple[Notice, ...]:
        """Notices of loading the base: lines left out, duplicate records, unusable caches."""
        return (*self._answer(booting.notices, looks=False), *note_missing_bounds(self._chosen), *config.note_sealing())

    find = asks(asking.find)
    sql = asks(asking.sql)
    neighbors = asks(asking.neighbors)
    near = asks(asking.near)
    citing = asks(asking.find_citing_records)
    path = asks(asking.path)
    why = asks(tracing.why)
    pack = asks(context_pack.context_pack)
    ask = asks(answering.ask)
    get = asks(reading.get)
    list = asks(reading.page)
    export = asks(reading.export)
    export_file = asks(reading.export_file)
    types = asks(reading.types)
    schema = asks(reading.schema)
    settings = asks(reading.settings)
    field_names = asks(reading.field_names)
    given_vectors = asks(reading.list_caller_vectors)
    identity_fields = asks(reading.identity_fields)
    document_types = asks(reading.document_types)
    put = changes(writing.put)
    put_json = changes(writing.put_json)
    put_batch = changes(writing.put_batch)
    import_files = changes(importing.import_files)
    delete = changes(writing.delete)
    rename = changes(writing.rename)
    keep_harness = changes(keeping.keep_harness)
    apply = changes(writing.apply)
    apply_patch = changes(writing.apply_patch)
    embed = asks(embedding.embed)
    embed_input = asks(embedding.embed_input)
    vector_input = asks(embedding.vector_input)
    is_of_documents = asks(documents_naming.is_of_documents)
    names_record = asks(documents_naming.names_record)
    ls = asks(documents_reading.ls)
    get_document = asks(documents_reading.get_document)
    multi_get = asks(documents_reading.multi_get)
    search_documents = asks(documents_searching.search_documents)
    update = changes(documents_updating.update)
    check = asks(caring.check)
    growth = asks(caring.growth)
    quality = asks(impact.quality)
    fmt = changes(care.fmt)
    dedupe = changes(care.dedupe)
    index_status = asks(plan.status)
    index_plan = asks(plan.plan_index)
    index_refresh = changes(jobs.refresh)
    index_build = changes(jobs.build)
    index_rebuild = changes(jobs.rebuild)
    index_shards = asks(sharding.shard_plan)
    index_build_shard = asks(sharding.build_shard)
    index_adopt = changes(sharding.adopt)
    _described = asks(reading.describe_types)

    def run(
        self, name: str, given: "Mapping[str, object]", caller: "Caller | None" = None, *, strict: bool = False
    ) -> dict[str, Any]:
        """Run an action of `duckkb.actions.registry` for a caller (all rights by default) as `registry.run.run`.

        Returns the plain object that the command line prints with --json.
        """
        from duckkb.actions.registry.offered import ACTIONS
        from duckkb.actions.registry.run import prepare, run
        from duckkb.caller import Caller
        from duckkb.engine.narrowed import load_for_caller

        caller = caller or Caller()
        around = partial(load_for_caller, caller.types)
        if name not in ACTIONS or not ACTIONS[name].writes:
            return self._answer(
                lambda base: run(base, name, given, caller, strict=strict),
                around=around,
                looks=name != "status" or self._is_still,
            )
        with self._lock:
            with around():
                base = self._fresh()
            if prepare(base, name, given, caller):
                with around():
                    base = self._fresh()
            return run(base, name, given, caller, strict=strict)

    def ddl(self, type: str | None = None) -> str:
        """Return the derived table definitions of one type or of all."""
        from duckkb.lanes.sql.columns import ddl

        return "\n".join(ddl(kind, records) for kind, records in self._described(type))

    def status(self) -> dict[str, Any]:
        """Return the base's status.

        It has the revision, records, pending vectors (None where a changed large base was not counted), model,
        trust, configured endpoints, lock, and the current or last index job. Waits for nobody: during a write,
        records are as they were last read.
        """
        from duckkb.actions.caring import status

        return self._answer(status, looks=self._is_still)

    def index_migrate(
        self,
        to: str,
        *,
        limit: int | None = None,
        max_seconds: float | None = None,
        dry_run: bool = False,
        listen: "Callable[[jobs.Event], None]" = lambda _: None,
    ) -> "MigratedModel":
        """Embed all texts with another model, beside the existing vectors; this base keeps its own model.

        Embeds at most `limit` texts, and begins none after `max_seconds`. As
        `duckkb.actions.models.migrating.migrate`.
        """
        from duckkb.actions.folder import Unopened
        from duckkb.actions.models.migrating import migrate
        from duckkb.engine.index.migrate import MigrationBudget

        with self._lock:
            budget = MigrationBudget(limit, max_seconds)
            apart = Unopened(self.root, wire, match_records)
            return migrate(apart, to, self._chosen, budget, dry_run=dry_run, listen=listen)

    def scheduler(self) -> dict[str, Any]:
        """Return the background work on this base: the index job, how to continue it, and the lock."""
        from duckkb.actions.caring import background

        return background(self.status())

    def backup(self, path: "str | Path | None" = None, *, force: bool = False) -> dict[str, Any]:
        """Save this base in one file. As `actions.backup.create.create`."""
        from duckkb.actions.backup.create import create

        return create(self.root, path, force=force, lock_timeout=self._chosen.lock_timeout)

    @property
    def collections(self) -> "Collections":
        """Actions on whole collections: make by a policy, list, show, remove, rename, pack and restore."""
        from duckkb.actions.collecting import Collections

        return Collections(self._now)

    @property
    def documents(self) -> "DocumentCollections":
        """Actions on document collections, which are folders of files: add, list, show, remove, rename, describe."""
        from duckkb.actions.documents.collections import DocumentCollections

        return DocumentCollections(self._now)

    @property
    def migrate(self) -> "Migrations":
        """Imports from other programs: Chroma and OpenClaw."""
        from duckkb.actions.agents.migrating import Migrations

        return Migrations(self._now)

    @property
    def arch(self) -> "Architecture":
        """Actions on graphs of code: build by a command, import, refresh."""
        from duckkb.actions.documents.arch.building import Architecture

        return Architecture(self._now)

    def watch(self, names: "Sequence[str]", tell: "Callable[[Updated], None]") -> None:
        """Update document collections (all without `names`) whenever their files change; report to `tell`.

        Runs until the process is interrupted. Only one process at a time watches a base.
        """
        from duckkb.actions.documents.watching import Watch

        Watch(self._now, names, tell).run()

    @property
    def vectors(self) -> "VectorStore":
        """The vector store: values behind texts, to store, search by similarity, list, delete and import."""
        from duckkb.actions.vector_store import VectorStore

        return VectorStore(self._now, self._open_elsewhere)

    @property
    def memory(self) -> "Memory":
        """The memories of agents, by scope and key: put, search, look back, count."""
        from duckkb.app.memory import Memory

        return Memory(self)

    def tools(self, caller: "Caller | None" = None, *, longest: int = 20_000) -> "tuple[Tool, ...]":
        """Return actions as tools of a model (`duckkb.llm.loop`), with a caller's rights (all by default).

        Writes become a proposal on a branch, the same for all of these tools. Results are cut at about
        `longest` characters, with a mark.
        """
        from duckkb.actions.agents.toolbox import toolbox
        from duckkb.app.proposals import Proposals
        from duckkb.caller import Caller

        return toolbox(self.run, partial(Proposals(KnowledgeBase).run, self.root), caller or Caller(), longest)

    @property
    def provenance(self) -> "Provenance":
        """The commits that records, their fields and their changes come from."""
        from duckkb.actions.tracing import Provenance

        return Provenance(self._now)

    def _open_elsewhere(self, root: Path) -> "Callable[[], AbstractContextManager[Base]]":
        """Return the `_now` of another base, opened with the same options; the last such base stays open."""
        with self._lock:
            if self._other is None or self._other.root != root:
                if self._other is not None:
                    self._other.close()
                    self._other = None
                self._other = KnowledgeBase(root, self._chosen)
            return self._other._now

    @contextmanager
    def _now(self) -> Iterator[Base]:
        """Hold the base as the files are now, for one call."""
        with self._lock:
            yield self._fresh()

    @property
    def _is_still(self) -> bool:
        """Whether no process is writing the base."""
        return not lock.is_held(self._root)

    def _answer(
        self,
        question: "Callable[[Base], Answer]",
        *,
        around: "Callable[[], AbstractContextManager[Any]]" = nullcontext,
        looks: bool = True,
    ) -> "Answer":
        """Answer a question that changes nothing, as `Generations.ask` does."""
        if self._generations is None:
            with self._lock:
                with around():
                    base = self._fresh() if looks else self._base
                return question(base)
        try:
            return self._generations.ask(question, around=around, looks=looks)
        except KeyboardInterrupt:
            give_back_import_lock()
            raise

    def _fresh(self) -> Base:
        """Return the writer's base with changed parts read again, or loaded anew where the configuration changed."""
        if self._is_just_opened:
            self._is_just_opened = False
        elif self._has_new_configuration(self._base):
            self._close_base()
            self._base = self._load_base()
        elif self._base.is_generation and self._base.wiring.at is None:
            self._base = self._load_base()  # the first base stays with readers
        else:
            booting.refresh(self._base)
        return self._base

    def _close_base(self) -> None:
        """Close the writer's base, except for what the generations still use and close."""
        if not self._base.is_generation:
            is_in_use = self._generations is not None and self._generations.newest.wiring is self._base.wiring
            self._base.close(alone=not is_in_use)

    def _load_base(self) -> Base:
        """Load a base as its files are now, with the parts and caches shared under one configuration."""
        with self._wiring_turn:
            if self._has_new_configuration():
                self._wired = self._wire()
            parts = self._wired
        parts.cache.look_again()
        return booting.boot(parts.wiring, parts.cache)

    def _wire(self) -> "Wired":
        stamp = config.stamp(self._root)  # before the load, so that the next call sees later changes
        _, wiring = wire(self._root, self._chosen)
        return Wired(stamp, wiring, booting.caches(wiring))

    def _has_new_configuration(self, base: Base | None = None) -> bool:
        """Return whether the configuration has changed since the base's parts, or the next base's, were wired."""
        parts = self._wired
        return (base is not None and base.wiring is not parts.wiring) or config.stamp(self._root) != parts.stamp

    def _is_behind(self, base: Base) -> bool:
        return self._has_new_configuration(base) or booting.is_behind(base)
