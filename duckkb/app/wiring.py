"""Wiring of settings to real parts: the only module that names concrete backends, tokenizers and models."""

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from duckkb import config, sandbox
from duckkb.engine.base import Base, EndIds, Wiring, end_ids
from duckkb.id_set import IdSet
from duckkb.llm.embedder_contract import Checked
from duckkb.ontology.model import Ontology, RecordType
from duckkb.operations.lifecycle import OpenOptions, find
from duckkb.ports import ChatModel, Embedder, Expander, Lanes, Reranker, Row, Rows, Sql, Target, Tokenizer
from duckkb.storage.tree import Tree
from duckkb.store.cache_dirs import DOCUMENTS, Place
from duckkb.types.errors import StateError, Unavailable, UsageError
from duckkb.types.queries import Notice
from duckkb.types.settings import DEFAULT_MODEL, ChatModelSettings, EmbeddingSettings, Environment, Settings

if TYPE_CHECKING:
    from duckkb.config import Loaded
    from duckkb.sql.sql_process import Engines, Isolated
    from duckkb.storage.revisions import Revision

    Engine = Isolated | tuple[Engines, Engines] | None


def wire(root: Path, chosen: OpenOptions) -> "tuple[Loaded, Wiring]":
    """Load a base's configuration and choose its parts; raises `errors.OntologyError` with every problem."""
    env = config.read_environment(root)
    models_env = replace(env, cache_home=chosen.cache_home or env.cache_home)
    revision = _find_revision(root, chosen.at)
    configuration = config.load(
        root, env, _read_configuration(root, revision) if chosen.instead is None else chosen.instead
    )
    if chosen.embedding is not None:
        configuration = replace(configuration, settings=replace(configuration.settings, embedding=chosen.embedding))
    if chosen.single_core:
        from duckkb.index.cosine import use_one_thread

        use_one_thread()
    engine, models = (
        _start_engine(chosen),
        Models(configuration.root, configuration.settings, models_env, chosen, configuration.ontology),
    )
    tokenizer = _make_tokenizer(configuration.settings, models_env)
    place = Place.locate(env.cache_home, configuration.root)
    _remember_documents(configuration.ontology, place)
    return configuration, Wiring(
        root=configuration.root,
        settings=configuration.settings,
        ontology=configuration.ontology,
        env=replace(env, agent=True) if chosen.agent else env,
        place=place,
        lanes=partial(_make_lanes, configuration.settings, tokenizer),
        sql=lambda rows, ends, load_cache: _make_tables(configuration.ontology, rows, ends, load_cache, engine),
        tokenizer=tokenizer,
        embedder_for=models.get_embedder,
        reranker=models.reranker,
        expander=models.expander,
        chat=models.chat,
        beside=lambda commit: _open_at_commit(configuration.root, chosen, commit),
        preview=lambda files: config.load(configuration.root, env, files).ontology,
        questions=configuration.questions,
        clock=chosen.clock or SystemClock(),
        wire=lambda root, more: wire(root, _merge_options(chosen, more)),
        lock_timeout=chosen.lock_timeout,
        lenient=chosen.lenient,
        progress=chosen.progress,
        at=revision,
        proposal=chosen.proposal,
        command=chosen.command,
    )


def _merge_options(first: OpenOptions, more: OpenOptions) -> OpenOptions:
    """Return the options of another opening, with the parts that the first caller gave where it gives none."""
    part_names = ("embedder", "clock", "cache_home", "reranker", "expander", "chat")
    return replace(more, **{name: getattr(more, name) or getattr(first, name) for name in part_names})


def _open_at_commit(root: Path, options: OpenOptions, commit: str | None) -> Base:
    from duckkb.engine.boot import boot

    return boot(wire(root, replace(options, at=commit, instead=None, proposal=None, first_filter=None))[1])


def models(path: "str | Path | None", chosen: OpenOptions) -> "Models":
    """Return the models of the base that a caller means, without reading its records.

    Without a base named or nearby, it is the offline model alone. Raises `errors.StateError` (E_NO_KB),
    `errors.OntologyError`.
    """
    try:
        root = find(path)
    except StateError:
        if path is not None or config.environment().kb is not None:
            raise
        return Models(None, Settings(), config.read_environment(None), chosen)
    env = config.read_environment(root)
    configuration = config.load(root, env)
    return Models(root, configuration.settings, env, chosen, configuration.ontology)


def _remember_documents(ontology: Ontology, place: Place) -> None:
    if any(kind.source is not None for kind in ontology):
        from duckkb.documents.extraction import remember_in

        remember_in(place.shared / DOCUMENTS)


def keep_models(on: bool) -> None:
    """Keep the offline model in memory for later bases of this process, or release it."""
    from duckkb.llm.providers import offline_model

    offline_model.share_loaded_models(on)


def warm_up(root: Path) -> None:
    """Load the offline model, where a search of the base needs it."""
    configuration, wiring = wire(root, OpenOptions())
    embedding = configuration.settings.embedding
    if embedding.model == DEFAULT_MODEL and any(kind.vectors for kind in configuration.ontology):
        wiring.embedder.embed_queries(["warm"])


def wants_to_be_warm() -> bool:
    """Return whether this process loaded the offline model, and this machine starts a warm process in that case."""
    local = sys.modules.get("duckkb.llm.providers.offline_model")
    return local is not None and local.was_loaded() and config.plain_around(None).daemon == "auto"


def _find_revision(root: Path, name: str | None) -> "Revision | None":
    if name is None:
        return None
    from duckkb.storage import revisions

    return revisions.revision(root, name)


def _read_configuration(root: Path, revision: "Revision | None") -> Mapping[str, bytes | None]:
    """Return the files of a revision's configuration, which replace those on disk; empty for the base as it is."""
    if revision is None:
        return {}
    from duckkb.engine.boot import configuration

    return configuration(root, revision, config.paths(root))


def note_missing_bounds(chosen: OpenOptions) -> tuple[Notice, ...]:
    """Return notices where this system cannot hold statements to their limits."""
    if sandbox.is_bounded() or chosen.sql_in_process or chosen.first_filter is None:
        return ()
    return (Notice("W_UNBOUNDED", "this system cannot bound the memory of a query, only its time"),)


def _start_engine(options: OpenOptions) -> "Engine":
    """Return the engine for filters and statements; None for an engine in this process.

    Where a filter is known to come, its process starts at once and gets ready while truth is read. With several
    callers there are two processes for filters and two for statements, each started when first needed, so that
    a long question stops no other. A server starts the first of each at once, since another version may be
    installed later.
    """
    if options.sql_in_process:
        return None
    from duckkb.sql.sql_process import Isolated

    engine = Isolated()
    if options.first_filter is not None:
        from duckkb.sql.row_table import parse_comparisons

        if not parse_comparisons(options.first_filter):
            engine.start()
    if options.command or options.first_filter is not None:
        return engine
    from duckkb.sql.sql_process import Engines

    first = Isolated()
    if options.is_served:
        engine.start()
        first.start()
    return Engines(engine, Isolated()), Engines(first, Isolated())


def match_records(tree: Tree, kind: RecordType, where: str) -> IdSet:
    """Return the ids of a type's records in a tree that satisfy a filter; raises `errors.FilterError`."""
    from duckkb.app.retrievers import MemoryRows

    rows, none = MemoryRows(Row(record) for record in tree.records(kind)), MemoryRows()
    engine = _start_engine(OpenOptions(first_filter=where))
    sql = _make_tables(
        tree.ontology, lambda record_type: rows if record_type is kind else none, partial(end_ids, tree), None, engine
    )
    try:
        return sql.where(kind, where)
    finally:
        sql.close()


def chat_provider(row: ChatModelSettings, trusted: bool, place: int) -> ChatModel:
    """Return the chat model of a row with a single one of its providers."""
    from duckkb.llm.providers import make_chat_model

    return make_chat_model(row, trusted=trusted, secret=config.secret, only=place)


def self_tests() -> dict[str, Callable[[], None]]:
    """Return the self tests of the engines, by name; a test raises where its engine does not work here."""

    def duckdb() -> None:
        from duckkb.app import retrievers

        retrievers.check_confinement()

    def tantivy() -> None:
        from duckkb.app import retrievers
        from duckkb.index.tokens import PlainTokenizer

        retrievers.lexical(PlainTokenizer())

    return {"duckdb": duckdb, "tantivy": tantivy}


def target_at(url: str) -> Target:
    """Return the target at an address.

    Raises `errors.UsageError` (E_URL), `errors.Unavailable` (E_DATABASE) without its library.
    """
    scheme = url.partition(":")[0].lower()
    if scheme in ("postgresql", "postgres"):
        _require_library("psycopg", "postgres")
        from duckkb.databases.postgres_target import PostgresTarget

        return PostgresTarget(url)
    if scheme in ("lance", "lance+s3", "lance+gs", "lance+az"):
        _require_library("lancedb", "lance")
        from duckkb.databases.lance_target import LanceTarget

        return LanceTarget(url)
    raise UsageError(
        "the address of a target begins with postgresql: or lance:",
        code="E_URL",
        suggestion="postgresql://HOST/DATABASE#NAME, lance:FOLDER or lance+s3://BUCKET/PATH",
    )


def _require_library(library: str, extra: str) -> None:
    if find_spec(library) is None:
        raise Unavailable(f"{library} is not installed", code="E_DATABASE", suggestion=f"pip install 'duckkb[{extra}]'")


def _make_lanes(settings: Settings, tokenizer: Tokenizer, kind: RecordType, rows: Rows) -> Lanes:
    from duckkb.app.retrievers import TypeLanes

    return TypeLanes(kind, rows, tokenizer, settings)


def _make_tables(
    ontology: Ontology,
    rows: Callable[[RecordType], Rows],
    ends: EndIds,
    load_cache: Callable[[], Any] | None,
    engine: "Engine",
) -> Sql:
    from duckkb.sql.runtime_tables import Tables

    return Tables(ontology, rows, ends, load_cache, engine=engine)


def _make_tokenizer(settings: Settings, env: Environment) -> Tokenizer:
    from duckkb.index.tokens import JiebaTokenizer, PlainTokenizer

    if settings.tokenizer == "plain":
        return PlainTokenizer(settings.fold_chinese, settings.word_forms)
    return JiebaTokenizer(settings.fold_chinese, env.cache_home, settings.word_forms)


class Models:
    """The models of a base, or those available without a base, each made once.

    A model that the caller gives replaces all models of its kind.
    """

    def __init__(
        self,
        root: Path | None,
        settings: Settings,
        env: Environment,
        chosen: OpenOptions,
        kinds: Iterable[RecordType] = (),
    ) -> None:
        self.settings, self._kinds = settings, tuple(kinds)
        self._root, self._env, self._chosen = root, env, chosen
        self._given = Checked(chosen.embedder) if chosen.embedder is not None else None
        self._made: dict[EmbeddingSettings, Embedder] = {}

    def get_embedder(self, wanted: EmbeddingSettings) -> Embedder:
        from duckkb.llm.providers import make_embedder

        if self._given is not None:
            return self._given
        if wanted not in self._made:
            settings = replace(self.settings, embedding=wanted)
            has_trust = self._is_trusted and config.is_demanded(wanted, self.settings, self._kinds)
            embedder = make_embedder(settings, self._env, trusted=has_trust, secret=config.secret)
            self._made[wanted] = Checked(embedder)
        return self._made[wanted]

    def reranker(self) -> Reranker | None:
        from duckkb.llm.providers import make_reranker

        rerank_settings = self.settings.rerank
        return self._chosen.reranker or make_reranker(rerank_settings, trusted=self._is_trusted, secret=config.secret)

    def expander(self) -> Expander | None:
        from duckkb.llm.providers import make_expander

        expand_settings = self.settings.expand
        return self._chosen.expander or make_expander(expand_settings, trusted=self._is_trusted, secret=config.secret)

    def chat(self, name: str | None) -> ChatModel:
        from duckkb.llm.chat_models import row_of
        from duckkb.llm.providers import make_chat_model

        if self._chosen.chat is not None:
            return self._chosen.chat
        row = row_of(self.settings, name)
        return make_chat_model(row, trusted=self._is_trusted, secret=config.secret)

    @property
    def _is_trusted(self) -> bool:
        return self._root is not None and config.is_trusted(self._root, self.settings, self._env, self._kinds)


class SystemClock:
    """A clock that gives the machine's time, in UTC."""

    def now(self) -> str:
        from datetime import UTC, datetime

        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
