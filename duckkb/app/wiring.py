"""Settings -> real parts: the only place that names concrete backends, tokenizers and models."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckkb import config
from duckkb.actions.folder import OpenOptions
from duckkb.engine.base import EndIds, Wiring, end_ids
from duckkb.id_set import IdSet
from duckkb.llm.checked import Checked
from duckkb.ontology.model import Ontology, RecordType
from duckkb.ports import Embedder, Expander, Lanes, Reranker, Row, Rows, Sql, Tokenizer
from duckkb.queries import Notice
from duckkb.settings import EmbeddingSettings, Environment, Settings
from duckkb.store.place import DOCUMENTS, Place
from duckkb.truth.files.tree import Tree

if TYPE_CHECKING:
    from duckkb.config import Loaded
    from duckkb.lanes.sql.process.isolated import Isolated
    from duckkb.truth.git.revisions import Revision


def wire(root: Path, chosen: OpenOptions) -> "tuple[Loaded, Wiring]":
    """Load a base's configuration and choose its parts; raises `errors.OntologyError` with every problem."""
    env = config.around(root)
    models_env = replace(env, cache_home=chosen.cache_home or env.cache_home)
    revision = _revision(root, chosen.at)
    loaded = config.load(root, env, _configuration(root, revision) if chosen.instead is None else chosen.instead)
    if chosen.embedding is not None:
        loaded = replace(loaded, settings=replace(loaded.settings, embedding=chosen.embedding))
    engine = _engine(chosen)
    models, tokenizer = _Models(loaded, models_env, chosen), _tokenizer(loaded.settings, models_env)
    place = Place.of(env.cache_home, loaded.root)
    if any(kind.source is not None for kind in loaded.ontology):
        from duckkb.documents.extract.remembered import remember_in

        remember_in(place.shared / DOCUMENTS)
    return loaded, Wiring(
        root=loaded.root,
        settings=loaded.settings,
        ontology=loaded.ontology,
        env=replace(env, agent=True) if chosen.agent else env,
        place=place,
        lanes=partial(_lanes, loaded.settings, tokenizer),
        sql=lambda rows, ends, cached: _tables(loaded.ontology, rows, ends, cached, engine),
        tokenizer=tokenizer,
        embedder_for=models.of,
        reranker=models.reranker,
        expander=models.expander,
        preview=lambda files: config.load(loaded.root, env, files).ontology,
        clock=chosen.clock or SystemClock(),
        lock_timeout=chosen.lock_timeout,
        lenient=chosen.lenient,
        progress=chosen.progress,
        at=revision,
        proposal=chosen.proposal,
        command=chosen.command,
    )


def _revision(root: Path, name: str | None) -> "Revision | None":
    if name is None:
        return None
    from duckkb.truth.git import revisions

    return revisions.revision(root, name)


def _configuration(root: Path, revision: "Revision | None") -> Mapping[str, bytes | None]:
    """The files of the configuration of a revision instead of those that lie in the base; none for the base as it is."""
    if revision is None:
        return {}
    from duckkb.engine.at import configuration

    return configuration(root, revision, config.paths(root))


def unbounded(chosen: OpenOptions) -> tuple[Notice, ...]:
    """What must be said of statements where this system cannot hold them to their limits."""
    from duckkb.lanes.sql.process.bounds import available

    if available() or chosen.sql_in_process or chosen.first_filter is None:
        return ()
    return (Notice("W_UNBOUNDED", "this system cannot bound the memory of a query, only its time"),)


def _engine(chosen: OpenOptions) -> "Isolated | None":
    """The process for statements, started at once where it will be needed: it gets ready while truth is read. None for an
    engine in this process."""
    if chosen.sql_in_process:
        return None
    from duckkb.lanes.sql.process.isolated import Isolated

    engine = Isolated()
    if chosen.first_filter is not None:
        from duckkb.lanes.sql.simple import written

        if not written(chosen.first_filter):
            engine.start()
    return engine


def matching(tree: Tree, kind: RecordType, where: str) -> IdSet:
    """The ids of a type's records in a tree that satisfy a filter; raises `errors.FilterError`."""
    from duckkb.lanes.memory_rows import MemoryRows

    rows, none = MemoryRows(Row(record) for record in tree.records(kind)), MemoryRows()
    engine = _engine(OpenOptions(first_filter=where))
    sql = _tables(tree.ontology, lambda other: rows if other is kind else none, partial(end_ids, tree), None, engine)
    try:
        return sql.where(kind, where)
    finally:
        sql.close()


def self_tests() -> dict[str, Callable[[], None]]:
    """What shows that the engines work here, by name."""

    def duckdb() -> None:
        from duckkb.lanes import self_test

        self_test.confined()

    def tantivy() -> None:
        from duckkb.indexing.tokens import PlainTokenizer
        from duckkb.lanes import self_test

        self_test.lexical(PlainTokenizer())

    return {"duckdb": duckdb, "tantivy": tantivy}


def _lanes(settings: Settings, tokenizer: Tokenizer, kind: RecordType, rows: Rows) -> Lanes:
    from duckkb.lanes.type_lanes import TypeLanes

    return TypeLanes(kind, rows, tokenizer, settings)


def _tables(
    ontology: Ontology,
    rows: Callable[[RecordType], Rows],
    ends: EndIds,
    cached: Callable[[], Any] | None,
    engine: "Isolated | None",
) -> Sql:
    from duckkb.lanes.sql.tables import Tables

    return Tables(ontology, rows, ends, cached, engine=engine)


def _tokenizer(settings: Settings, env: Environment) -> Tokenizer:
    from duckkb.indexing.tokens import JiebaTokenizer, PlainTokenizer

    if settings.tokenizer == "plain":
        return PlainTokenizer(settings.fold_chinese)
    return JiebaTokenizer(settings.fold_chinese, env.cache_home)


class _Models:
    """The models of one base, each made once. One that the caller gave stands for all of its kind."""

    def __init__(self, loaded: "Loaded", env: Environment, chosen: OpenOptions) -> None:
        self._loaded, self._env, self._chosen = loaded, env, chosen
        self._given = Checked(chosen.embedder) if chosen.embedder is not None else None
        self._made: dict[EmbeddingSettings, Embedder] = {}

    def of(self, wanted: EmbeddingSettings) -> Embedder:
        from duckkb.llm.providers import make_embedder

        if self._given is not None:
            return self._given
        if wanted not in self._made:
            settings = replace(self._loaded.settings, embedding=wanted)
            made = make_embedder(settings, self._env, trusted=self._is_trusted, secret=config.secret)
            self._made[wanted] = Checked(made)
        return self._made[wanted]

    def reranker(self) -> Reranker | None:
        from duckkb.llm.providers import make_reranker

        wanted = self._loaded.settings.rerank
        return self._chosen.reranker or make_reranker(wanted, trusted=self._is_trusted, secret=config.secret)

    def expander(self) -> Expander | None:
        from duckkb.llm.providers import make_expander

        wanted = self._loaded.settings.expand
        return self._chosen.expander or make_expander(wanted, trusted=self._is_trusted, secret=config.secret)

    @property
    def _is_trusted(self) -> bool:
        return config.is_trusted(self._loaded.root, self._loaded.settings, self._env)


class SystemClock:
    """The machine's time, UTC."""

    def now(self) -> str:
        from datetime import UTC, datetime

        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
