"""The public facade: a knowledge base as a Python object. Each method asks one use case about the base as it is now."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from duckkb import actions, config
from duckkb.actions.folder import OpenOptions
from duckkb.app.call_lock import CallLock
from duckkb.app.wiring import unbounded, wire
from duckkb.engine import boot as booting
from duckkb.engine.base import Base
from duckkb.engine.query import Intent
from duckkb.queries import FindResult, Mode, Notice, Receipt, SqlResult
from duckkb.records import Changeset
from duckkb.settings import Expansion, Fusion
from duckkb.truth.commit import lock

if TYPE_CHECKING:
    import numpy as np

    from duckkb.actions.collecting import Collections
    from duckkb.actions.tracing import Provenance
    from duckkb.actions.vector_store import VectorStore
    from duckkb.engine.index.jobs import Built, Listen
    from duckkb.engine.index.plan import Plan
    from duckkb.review.check.findings import CheckReport
    from duckkb.review.impact.why import Why


class KnowledgeBase:
    """One open knowledge base. Every method sees the files as they are now: parts that changed are read again.

    Usable from several threads; one call runs at a time. Close it, or use it in a `with` block.
    """

    def __init__(self, root: Path, chosen: OpenOptions) -> None:
        self._chosen, self._lock = chosen, CallLock()
        self._stamp = config.stamp(root)  # before it is read: what changes meanwhile is seen by the first call
        self._loaded, wiring = wire(root, chosen)
        self._base = booting.boot(wiring)
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

    def find(
        self,
        type: str,
        query: str | None = None,
        *,
        mode: Mode | None = None,
        where: str | None = None,
        limit: int = 10,
        vector: "np.ndarray | Sequence[float] | None" = None,
        fusion: Fusion | None = None,
        expansion: Expansion | None = None,
        explain: bool = False,
    ) -> FindResult:
        """Search one type (or "all"). `mode` is "similar", "match", "hybrid", or None for the policy's default; `where`
        is a filter over fields, applied before ranking; `vector` (1-d) is a question given as a vector; `fusion` and
        `expansion` stand in for the policy's. Raises `errors.UsageError`, `errors.FilterError`, `errors.NotFound`,
        `errors.Unavailable`."""
        with self._now() as base:
            intent = Intent(query, mode, where, limit, vector, fusion, expansion, explain)
            return actions.asking.find(base, type, intent)

    def why(
        self,
        type: str,
        identity: Any,
        query: str,
        *,
        mode: Mode | None = None,
        where: str | None = None,
        limit: int = 10,
    ) -> "Why":
        """Why a question finds a record where it does, or does not find it. Raises as `find` and `get` do."""
        with self._now() as base:
            return actions.tracing.why(base, type, identity, Intent(query, mode, where, limit))

    def get(self, type: str, identity: Any) -> dict[str, Any]:
        """One record: its fields with `__id`, times, `_type`, `_etag`. Raises `errors.NotFound`."""
        with self._now() as base:
            return actions.reading.get(base, type, identity)

    def list(self, type: str, *, after: Any = None, limit: int = 100) -> "actions.reading.Page":
        """Records in the order of their identities, behind `after`: a page that iterates over its records."""
        with self._now() as base:
            return actions.reading.page(base, type, after, limit)

    def field_names(self, type: str) -> "Sequence[str]":
        """The fields of a type: those that its schema declares, then those that its records have besides."""
        with self._now() as base:
            return actions.reading.field_names(base, type)

    def given_vectors(self, type: str) -> "Mapping[str, Sequence[str]]":
        """By the name of a type (of each for "all") its fields that hold vectors which callers gave."""
        with self._now() as base:
            return actions.reading.given_vectors(base, type)

    def export(self, type: str) -> Iterator[dict[str, Any]]:
        """Every record of a type as `import` takes it: fields and times."""
        with self._now() as base:
            return actions.reading.export(base, type)

    def export_file(self, type: str, path: "str | Path", *, force: bool = False) -> int:
        """Write `export` to a file; returns the number of records. Raises `errors.UsageError` (E_PATH)."""
        with self._now() as base:
            return actions.reading.export_file(base, type, path, force)

    def types(self) -> "Sequence[dict[str, Any]]":
        """Each type with its kind, table, identity, search fields and number of records."""
        with self._now() as base:
            return actions.reading.types(base)

    def schema(self, type: str) -> dict[str, Any]:
        """The JSON Schema of a type."""
        with self._now() as base:
            return actions.reading.schema(base, type)

    def ddl(self, type: str | None = None) -> str:
        """The derived table definitions of one type or of all."""
        from duckkb.lanes.sql.columns import ddl

        with self._now() as base:
            return "\n".join(
                ddl(kind, actions.reading.stored(base, kind)) for kind in actions.reading.kinds(base, type)
            )

    def put(
        self,
        type: str,
        records: "Mapping[str, Any] | Sequence[Mapping[str, Any]]",
        *,
        merge: bool = False,
        if_match: str | None = None,
        dry_run: bool = False,
        embed: bool = True,
        allow_shrink: bool = False,
    ) -> Receipt:
        """Insert or replace records by identity, all or nothing; `merge` changes only the fields given. Raises
        `errors.InvalidRecord`, `errors.Conflict`, `errors.Refused`, `errors.Unreadable`, `errors.Unavailable`."""
        with self._now() as base:
            options = actions.writing.WriteOptions(merge, if_match, dry_run, embed, allow_shrink)
            return actions.writing.put(base, type, records, options)

    def put_batch(
        self, type: str, data: bytes, *, merge: bool = False, dry_run: bool = False, embed: bool = True
    ) -> Receipt:
        """Upsert the lines of JSONL that can be stored, in one write; `errors` of the receipt has what is wrong with each of
        the others, and its counts and their number add up to the lines read."""
        with self._now() as base:
            options = actions.writing.WriteOptions(merge, dry_run=dry_run, embed=embed)
            return actions.writing.put_batch(base, type, data, options)

    def put_json(
        self,
        type: str,
        data: bytes,
        *,
        single: bool,
        merge: bool = False,
        if_match: str | None = None,
        dry_run: bool = False,
        embed: bool = True,
    ) -> Receipt:
        """`put` of JSON text: one object where `single`, else JSONL."""
        with self._now() as base:
            options = actions.writing.WriteOptions(merge, if_match, dry_run, embed)
            return actions.writing.put_json(base, type, data, single, options)

    def import_files(
        self,
        type: str,
        *files: "str | Path",
        map: "Mapping[str, str] | None" = None,
        merge: bool = False,
        if_match: str | None = None,
        dry_run: bool = False,
        embed: bool = True,
    ) -> Receipt:
        """Upsert the lines of JSONL files, all or nothing; `map` is {target: source}. Files are only read."""
        with self._now() as base:
            options = actions.writing.WriteOptions(merge, if_match, dry_run, embed)
            return actions.writing.import_files(base, type, files, map or {}, options)

    def delete(
        self,
        type: str,
        *identities: Any,
        cascade: bool = False,
        allow_shrink: bool = False,
        if_match: str | None = None,
        dry_run: bool = False,
    ) -> Receipt:
        """Delete records; `cascade` deletes the edges that touch them. Raises `errors.NotFound`, `errors.Refused`."""
        with self._now() as base:
            options = actions.writing.WriteOptions(if_match=if_match, dry_run=dry_run, allow_shrink=allow_shrink)
            return actions.writing.delete(base, type, identities, cascade, options)

    def rename(self, type: str, old: Any, new: Any, *, dry_run: bool = False) -> Receipt:
        """Give a record another identity; its `__id` stays and its edges follow."""
        with self._now() as base:
            return actions.writing.rename(base, type, old, new, actions.writing.WriteOptions(dry_run=dry_run))

    def apply(self, changeset: Changeset, *, allow_shrink: bool = False, dry_run: bool = False) -> Receipt:
        """Apply a changeset; raises `errors.Conflict` where an old side is not what is stored."""
        with self._now() as base:
            return actions.writing.apply(
                base, changeset, actions.writing.WriteOptions(dry_run=dry_run, allow_shrink=allow_shrink)
            )

    def apply_patch(
        self, patch: "bytes | str | Path", *, reverse: bool = False, allow_shrink: bool = False, dry_run: bool = False
    ) -> Receipt:
        """Apply what `duckkb diff --format patch` printed, given as bytes or as the path of a file: every line on its old
        side must be as it is stored, and all of it is written or nothing. Raises `errors.InvalidRecord` (E_PATCH),
        `errors.Conflict` (E_STALE, E_EXISTS), `errors.Refused`."""
        with self._now() as base:
            data = patch if isinstance(patch, bytes) else actions.writing.patch_file(base, patch)
            return actions.writing.apply_patch(
                base, data, reverse, actions.writing.WriteOptions(dry_run=dry_run, allow_shrink=allow_shrink)
            )

    def neighbors(
        self,
        type: str,
        identity: Any,
        *,
        label: "str | Sequence[str] | None" = None,
        direction: "actions.asking.Direction" = "both",
        depth: int = 1,
        limit: int = 1000,
    ) -> "actions.asking.Neighbors":
        """The records around one node, nearest first, each with the `_edge` that led to it."""
        with self._now() as base:
            walk = actions.asking.Walk(label, direction, depth, limit)
            return actions.asking.neighbors(base, type, identity, walk)

    def path(
        self,
        start: tuple[str, Any],
        end: tuple[str, Any],
        *,
        label: "str | Sequence[str] | None" = None,
        direction: "actions.asking.Direction" = "both",
        depth: int = 6,
    ) -> "Sequence[dict[str, Any]]":
        """A shortest path between two nodes, given as (type, identity); empty where there is none."""
        with self._now() as base:
            return actions.asking.path(base, start, end, actions.asking.Walk(label, direction, depth))

    def sql(self, statement: str, *, limit: int = 10_000, timeout: float = 30.0) -> SqlResult:
        """One read-only SELECT over the runtime tables: at most `limit` rows, 64 MiB, `timeout` seconds. Raises
        `errors.FilterError` (E_SQL), `errors.Unavailable` (E_LIMIT; E_INTERNAL where trying again helps)."""
        with self._now() as base:
            return actions.asking.sql(base, statement, limit, timeout)

    def embed(self, texts: "str | Sequence[str]", *, passage: bool = False) -> "actions.embedding.Embedding":
        """Vectors of texts as hex float32, with the model's name and the tokens used. A text over the model's limit is
        truncated, and a notice says so. Raises `errors.UsageError`, `errors.Unavailable`."""
        with self._lock:
            return actions.embedding.embed(self._base, [texts] if isinstance(texts, str) else texts, passage)

    def embed_input(
        self, text: str | None, file: str | None, *, batch: bool = False, stdin: BinaryIO | None = None
    ) -> "Sequence[str]":
        """The texts that an `embed` command line means."""
        return actions.embedding.embed_input(self._base, text, file, batch, stdin)

    def vector_input(self, file: str, *, stdin: BinaryIO | None = None) -> "np.ndarray":
        """The vector (float32, 1-d) that a file holds, or stdin for `-`: a JSON array of numbers or of 8 hex digits each.
        Raises `errors.UsageError`."""
        return actions.embedding.vector_input(self._base, file, stdin)

    def check(self) -> "CheckReport":
        """Everything that is wrong in data/, with places and remedies."""
        with self._now() as base:
            return actions.caring.check(base)

    def fmt(self, *, check: bool = False) -> Receipt:
        """Rewrite parts that are not canonical; with `check`, only name them."""
        from duckkb.engine import care

        with self._now() as base:
            return care.fmt(base, check)

    def dedupe(self, *, reassign: bool = False, dry_run: bool = False) -> Receipt:
        """Join records that stand twice; `reassign` gives the later of two records with one id a free one."""
        from duckkb.engine import care

        with self._now() as base:
            return care.dedupe(base, reassign, dry_run)

    def status(self) -> dict[str, Any]:
        """Revision, records, pending vectors (None where a large base was not counted as it is now), model, trust, lock, the
        index job that runs or ran last. Waits for nobody: while somebody writes, records are as they were read last."""
        with self._lock:
            base = self._base if lock.is_held(self.root) else self._fresh()
            trusted = config.is_trusted(self.root, self._loaded.settings, config.around(self.root))
            return actions.caring.status(base, trusted)

    def index_status(self) -> dict[str, Any]:
        """Chunks, vectors pending, caches and whether everything is fresh."""
        from duckkb.engine.index import survey

        with self._now() as base:
            return survey.status(base)

    def index_plan(self) -> "Plan":
        """What an index job would do, and what that would take; spends nothing."""
        from duckkb.engine.index import plan

        with self._now() as base:
            return plan.plan(base, plan.survey(base))

    def index_refresh(
        self,
        *,
        budget_tokens: int | None = None,
        budget_minutes: float | None = None,
        if_stale: bool = False,
        wait: bool = False,
        listen: "Listen" = lambda _: None,
    ) -> "Built":
        """Compute missing tokens and vectors into the local cache, within a budget; `listen` is told of each step. With
        `if_stale` nothing where nothing is missing, with `wait` after the job that runs. Raises `errors.Unavailable`."""
        from duckkb.engine.index import jobs

        with self._now() as base:
            return jobs.refresh(base, jobs.Options(budget_tokens, budget_minutes, if_stale, wait), listen)

    def index_build(
        self,
        *,
        budget_tokens: int | None = None,
        budget_minutes: float | None = None,
        if_stale: bool = False,
        wait: bool = False,
        listen: "Listen" = lambda _: None,
    ) -> "Built":
        """As `index_refresh`, then write the team's cache."""
        from duckkb.engine.index import jobs

        with self._now() as base:
            return jobs.build(base, jobs.Options(budget_tokens, budget_minutes, if_stale, wait), listen)

    @property
    def collections(self) -> "Collections":
        """Collections as wholes: made by a policy, listed, shown, removed, renamed, packed and restored."""
        from duckkb.actions.collecting import Collections

        return Collections(self._now)

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

    def _fresh(self) -> Base:
        """Changed parts are read again, a changed configuration loads everything anew."""
        stamp = config.stamp(self.root)
        if stamp != self._stamp:
            self._base.close()
            self._loaded, wiring = wire(self.root, self._chosen)
            self._base, self._stamp = booting.boot(wiring), stamp
        else:
            booting.refresh(self._base)
        return self._base
