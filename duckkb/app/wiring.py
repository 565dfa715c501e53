"""Settings -> real parts: the only place that names concrete backends, tokenizers and models."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duckkb import config
from duckkb.engine.base import EndIds, Progress, Proposal, Wiring
from duckkb.llm.checked import Checked
from duckkb.ontology.model import Ontology
from duckkb.ports import Backend, Clock, Embedder, Tokenizer
from duckkb.queries import Notice
from duckkb.settings import EmbeddingSettings, Environment, Settings
from duckkb.store.place import Place
from duckkb.values import dataclass

if TYPE_CHECKING:
    from duckkb.config import Loaded
    from duckkb.lanes.sql.isolated import Isolated
    from duckkb.truth.git.revisions import Revision


@dataclass(frozen=True, slots=True)
class Choice:
    """What a caller chose at `open`, kept so that a changed configuration can be loaded again in the same way.
    `cache_home` stands for the user's folder of converted models; `at` names the revision to read, by the configuration it
    has or the files `instead`, `proposal` where what is written to that goes; `first_filter` is the filter or statement that will be asked first."""

    lenient: bool = False
    lock_timeout: float = 60.0
    progress: Progress | None = None
    embedder: Embedder | None = None
    clock: Clock | None = None
    cache_home: Path | None = None
    sql_in_process: bool = False
    first_filter: str | None = None
    at: str | None = None
    instead: Mapping[str, bytes | None] | None = None
    proposal: Proposal | None = None


def find(path: "str | Path | None") -> Path:
    """The folder of the base that a caller means; raises `errors.StateError` (E_NO_KB)."""
    return config.find_root(Path.cwd(), str(path) if path is not None else None, config.environment())


def wire(root: Path, chosen: Choice) -> "tuple[Loaded, Wiring]":
    """Load a base's configuration and choose its parts; raises `errors.OntologyError` with every problem."""
    env = config.around(root)
    env = replace(env, cache_home=chosen.cache_home or env.cache_home)
    revision = _revision(root, chosen.at)
    loaded = config.load(root, env, configuration(root, revision) if chosen.instead is None else chosen.instead)
    engine = _engine(chosen)
    models = _Models(loaded, env, chosen.embedder)
    wiring = Wiring(
        root=loaded.root,
        settings=loaded.settings,
        ontology=loaded.ontology,
        env=env,
        place=Place.of(env.cache_home, loaded.root),
        backend=lambda ends, rows: _backend(wiring, ends, rows, engine),
        tokenizer=_tokenizer(loaded.settings, env),
        embedder=models.of(loaded.settings.embedding),
        embedder_for=models.of,
        preview=lambda files: config.load(loaded.root, env, files).ontology,
        clock=chosen.clock or SystemClock(),
        lock_timeout=chosen.lock_timeout,
        lenient=chosen.lenient,
        progress=chosen.progress,
        at=revision,
        proposal=chosen.proposal,
    )
    return loaded, wiring


def _revision(root: Path, name: str | None) -> "Revision | None":
    if name is None:
        return None
    from duckkb.truth.git import revisions

    return revisions.revision(root, name)


def configuration(root: Path, revision: "Revision | None") -> dict[str, bytes | None]:
    """The files of the configuration of a revision instead of those that lie in the base; none for the base as it is. Raises
    `errors.StateError` (E_NO_KB) and `errors.OntologyError`."""
    if revision is None:
        return {}
    from duckkb.engine import at

    gone: dict[str, bytes | None] = dict.fromkeys(config.paths(root))
    return gone | at.config_files(root, revision)


def unbounded(chosen: Choice) -> tuple[Notice, ...]:
    """What must be said of statements where this system cannot hold them to their limits."""
    from duckkb.lanes.sql.bounds import available

    if available() or chosen.sql_in_process or chosen.first_filter is None:
        return ()
    return (Notice("W_UNBOUNDED", "this system cannot bound the memory of a query, only its time"),)


def _engine(chosen: Choice) -> "Isolated | None":
    """The process for statements, started at once where it will be needed: it gets ready while truth is read. None for an
    engine in this process."""
    if chosen.sql_in_process:
        return None
    from duckkb.lanes.sql.isolated import Isolated

    engine = Isolated()
    if chosen.first_filter is not None:
        from duckkb.lanes.sql.simple import written

        if not written(chosen.first_filter):
            engine.start()
    return engine


def filter_backend(ontology: Ontology, ends: EndIds, where: str) -> Backend:
    """What evaluates a filter over records that are loaded into it."""
    from duckkb.indexing.tokens import PlainTokenizer
    from duckkb.lanes.backend import DuckdbBackend

    return DuckdbBackend(ontology, Settings(), PlainTokenizer(), ends, None, _engine(Choice(first_filter=where)))


def _backend(wiring: Wiring, ends: EndIds, rows: Callable[[], Any], engine: "Isolated | None") -> Backend:
    from duckkb.lanes.backend import DuckdbBackend

    return DuckdbBackend(wiring.ontology, wiring.settings, wiring.tokenizer, ends, rows, engine)


def _tokenizer(settings: Settings, env: Environment) -> Tokenizer:
    from duckkb.indexing.tokens import JiebaTokenizer, PlainTokenizer

    if settings.tokenizer == "plain":
        return PlainTokenizer(settings.fold_chinese)
    return JiebaTokenizer(settings.fold_chinese, env.cache_home)


class _Models:
    """The models of one base, each made once. One that the caller gave stands for all of them."""

    def __init__(self, loaded: "Loaded", env: Environment, given: Embedder | None) -> None:
        self._loaded, self._env = loaded, env
        self._given = Checked(given) if given is not None else None
        self._made: dict[EmbeddingSettings, Embedder] = {}

    def of(self, wanted: EmbeddingSettings) -> Embedder:
        from duckkb.llm.providers import make_embedder

        if self._given is not None:
            return self._given
        if wanted not in self._made:
            trusted = config.is_trusted(self._loaded.root, self._loaded.settings, self._env)
            settings = replace(self._loaded.settings, embedding=wanted)
            made = make_embedder(settings, self._env, trusted=trusted, secret=config.secret)
            self._made[wanted] = Checked(made)
        return self._made[wanted]


class SystemClock:
    """The machine's time, UTC."""

    def now(self) -> str:
        from datetime import UTC, datetime

        return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
