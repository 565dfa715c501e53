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
from duckkb.app.snapshots import CallLock, Generations, give_back_import_lock
from duckkb.app.use_cases import Deferred, asks, changes
from duckkb.app.wiring import match_records, note_missing_bounds, wire
from duckkb.engine import boot
from duckkb.engine.base import Base, Wiring
from duckkb.index.embedding_cache import SearchCache
from duckkb.operations.lifecycle import OpenOptions
from duckkb.storage import base_lock
from duckkb.types.queries import Notice

if TYPE_CHECKING:
    from duckkb.app.use_cases import Memory
    from duckkb.engine import index_jobs, repair, shard_jobs
    from duckkb.engine import index_status as plan
    from duckkb.llm.loop import Tool
    from duckkb.operations import (
        agent_knowledge,
        change_review,
        context_pack,
        document_lookup,
        document_search,
        document_updates,
        embedding_models,
        imports,
        maintenance,
        record_lookup,
        record_origins,
        record_search,
        record_writes,
    )
    from duckkb.operations import ask as answering
    from duckkb.operations.agent_knowledge import Migrations
    from duckkb.operations.code_graph import Architecture
    from duckkb.operations.collections import Collections
    from duckkb.operations.document_collections import DocumentCollections
    from duckkb.operations.document_updates import Updated
    from duckkb.operations.embedding_models import MigratedModel
    from duckkb.operations.record_origins import Provenance
    from duckkb.operations.vector_store import VectorStore
    from duckkb.types.request_context import Caller
    from duckkb.types.settings import Settings
else:
    answering = Deferred("operations.ask")
    record_search = Deferred("operations.record_search")
    agent_knowledge = Deferred("operations.agent_knowledge")
    context_pack = Deferred("operations.context_pack")
    maintenance = Deferred("operations.maintenance")
    document_lookup = Deferred("operations.document_lookup")
    document_lookup = Deferred("operations.document_lookup")
    document_search = Deferred("operations.document_search")
    document_updates = Deferred("operations.document_updates")
    embedding_models = Deferred("operations.embedding_models")
    change_review = Deferred("operations.change_review")
    imports = Deferred("operations.imports")
    record_lookup = Deferred("operations.record_lookup")
    record_origins = Deferred("operations.record_origins")
    record_writes = Deferred("operations.record_writes")
    repair = Deferred("engine.repair")
    index_jobs = Deferred("engine.index_jobs")
    plan = Deferred("engine.index_status")
    shard_jobs = Deferred("engine.shard_jobs")


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
        return (*self._answer(boot.notices, looks=False), *note_missing_bounds(self._chosen), *config.note_sealing())

    find = asks(record_search.find)
    sql = asks(record_search.sql)
    neighbors = asks(record_search.neighbors)
    near = asks(record_search.near)
    citing = asks(record_search.find_citing_records)
    path = asks(record_search.path)
    why = asks(record_origins.why)
    pack = asks(context_pack.context_pack)
    ask = asks(answering.ask)
    get = asks(record_lookup.get)
    list = asks(record_lookup.page)
    export = asks(record_lookup.export)
    export_file = asks(record_lookup.export_file)
    types = asks(record_lookup.types)
    schema = asks(record_lookup.schema)
    settings = asks(record_lookup.settings)
    field_names = asks(record_lookup.field_names)
    given_vectors = asks(record_lookup.list_caller_vectors)
    identity_fields = asks(record_lookup.identity_fields)
    document_types = asks(record_lookup.document_types)
    put = changes(record_writes.put)
    put_json = changes(record_writes.put_json)
    put_batch = changes(record_writes.put_batch)
    import_files = changes(imports.import_files)
    delete = changes(record_writes.delete)
    rename = changes(record_writes.rename)
    keep_harness = changes(agent_knowledge.keep_harness)
    apply = changes(record_writes.apply)
    apply_patch = changes(record_writes.apply_patch)
    embed = asks(embedding_models.embed)
    embed_input = asks(embedding_models.embed_input)
    vector_input = asks(embedding_models.vector_input)
    is_of_documents = asks(document_lookup.is_of_documents)
    names_record = asks(document_lookup.names_record)
    ls = asks(document_lookup.ls)
    get_document = asks(document_lookup.get_document)
    multi_get = asks(document_lookup.multi_get)
    search_documents = asks(document_search.search_documents)
    update = changes(document_updates.update)
    check = asks(maintenance.check)
    growth = asks(maintenance.growth)
    quality = asks(change_review.quality)
    fmt = changes(repair.fmt)
    dedupe = changes(repair.dedupe)
    index_status = asks(plan.status)
    index_plan = asks(plan.plan_index)
    index_refresh = changes(index_jobs.refresh)
    index_build = changes(index_jobs.build)
    index_rebuild = changes(index_jobs.rebuild)
    index_shards = asks(shard_jobs.shard_plan)
    index_build_shard = asks(shard_jobs.build_shard)
    index_adopt = changes(shard_jobs.adopt)
    _described = asks(record_lookup.describe_types)

    def run(
        self, name: str, given: "Mapping[str, object]", caller: "Caller | None" = None, *, strict: bool = False
    ) -> dict[str, Any]:
        """Run an action of `duckkb.operations` for a caller (all rights by default) as `registry.run.run`.

        Returns the plain object that the command line prints with --json.
        """
        from duckkb.engine.scoped_base import load_for_caller
        from duckkb.operations.catalog import ACTIONS
        from duckkb.operations.dispatch import prepare, run
        from duckkb.types.request_context import Caller

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
        from duckkb.sql.columns import ddl

        return "\n".join(ddl(kind, records) for kind, records in self._described(type))

    def status(self) -> dict[str, Any]:
        """Return the base's status.

        It has the revision, records, pending vectors (None where a changed large base was not counted), model,
        trust, configured endpoints, lock, and the current or last index job. Waits for nobody: during a write,
        records are as they were last read.
        """
        from duckkb.operations.maintenance import status

        return self._answer(status, looks=self._is_still)

    def index_migrate(
        self,
        to: str,
        *,
        limit: int | None = None,
        max_seconds: float | None = None,
        dry_run: bool = False,
        listen: "Callable[[index_jobs.Event], None]" = lambda _: None,
    ) -> "MigratedModel":
        """Embed all texts with another model, beside the existing vectors; this base keeps its own model.

        Embeds at most `limit` texts, and begins none after `max_seconds`. As
        `duckkb.operations.embedding_models.migrate`.
        """
        from duckkb.engine.index_jobs import MigrationBudget
        from duckkb.operations.embedding_models import migrate
        from duckkb.operations.lifecycle import Unopened

        with self._lock:
            budget = MigrationBudget(limit, max_seconds)
            apart = Unopened(self.root, wire, match_records)
            return migrate(apart, to, self._chosen, budget, dry_run=dry_run, listen=listen)

    def scheduler(self) -> dict[str, Any]:
        """Return the background work on this base: the index job, how to continue it, and the lock."""
        from duckkb.operations.maintenance import background

        return background(self.status())

    def backup(self, path: "str | Path | None" = None, *, force: bool = False) -> dict[str, Any]:
        """Save this base in one file. As `operations.backup_files.create`."""
        from duckkb.operations.backup_files import create

        return create(self.root, path, force=force, lock_timeout=self._chosen.lock_timeout)

    @property
    def collections(self) -> "Collections":
        """Actions on whole collections: make by a policy, list, show, remove, rename, pack and restore."""
        from duckkb.operations.collections import Collections

        return Collections(self._now)

    @property
    def documents(self) -> "DocumentCollections":
        """Actions on document collections, which are folders of files: add, list, show, remove, rename, describe."""
        from duckkb.operations.document_collections import DocumentCollections

        return DocumentCollections(self._now)

    @property
    def migrate(self) -> "Migrations":
        """Imports from other programs: Chroma and OpenClaw."""
        from duckkb.operations.agent_knowledge import Migrations

        return Migrations(self._now)

    @property
    def arch(self) -> "Architecture":
        """Actions on graphs of code: build by a command, import, refresh."""
        from duckkb.operations.code_graph import Architecture

        return Architecture(self._now)

    def watch(self, names: "Sequence[str]", tell: "Callable[[Updated], None]") -> None:
        """Update document collections (all without `names`) whenever their files change; report to `tell`.

        Runs until the process is interrupted. Only one process at a time watches a base.
        """
        from duckkb.operations.document_updates import Watch

        Watch(self._now, names, tell).run()

    @property
    def vectors(self) -> "VectorStore":
        """The vector store: values behind texts, to store, search by similarity, list, delete and import."""
        from duckkb.operations.vector_store import VectorStore

        return VectorStore(self._now, self._open_elsewhere)

    @property
    def memory(self) -> "Memory":
        """The memories of agents, by scope and key: put, search, look back, count."""
        from duckkb.app.use_cases import Memory

        return Memory(self)

    def tools(self, caller: "Caller | None" = None, *, longest: int = 20_000) -> "tuple[Tool, ...]":
        """Return actions as tools of a model (`duckkb.llm.loop`), with a caller's rights (all by default).

        Writes become a proposal on a branch, the same for all of these tools. Results are cut at about
        `longest` characters, with a mark.
        """
        from duckkb.app.use_cases import Proposals
        from duckkb.operations.agent_knowledge import toolbox
        from duckkb.types.request_context import Caller

        return toolbox(self.run, partial(Proposals(KnowledgeBase).run, self.root), caller or Caller(), longest)

    @property
    def provenance(self) -> "Provenance":
        """The commits that records, their fields and their changes come from."""
        from duckkb.operations.record_origins import Provenance

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
        return not base_lock.is_held(self._root)

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
            boot.refresh(self._base)
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
        return boot.boot(parts.wiring, parts.cache)

    def _wire(self) -> "Wired":
        stamp = config.stamp(self._root)  # before the load, so that the next call sees later changes
        _, wiring = wire(self._root, self._chosen)
        return Wired(stamp, wiring, boot.caches(wiring))

    def _has_new_configuration(self, base: Base | None = None) -> bool:
        """Return whether the configuration has changed since the base's parts, or the next base's, were wired."""
        parts = self._wired
        return (base is not None and base.wiring is not parts.wiring) or config.stamp(self._root) != parts.stamp

    def _is_behind(self, base: Base) -> bool:
        return self._has_new_configuration(base) or boot.is_behind(base)
